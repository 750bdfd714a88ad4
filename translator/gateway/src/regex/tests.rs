use super::*;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

#[test]
fn what_both_engines_know_is_taken_as_it_is() {
    for pattern in [
        "/v[0-9]+/.*",
        "(?i)abc|(?P<name>d{2,5}?)",
        "[[:alpha:]_.-]*",
        r"\pL\p{Lu}[^\d\s]\x{e9}\xff\.",
        r"^(a{10}b){90}$",
        r"\bword\B",
    ] {
        assert_eq!(accept(pattern).as_deref(), Ok(pattern));
    }
}

#[test]
fn what_only_one_knows_is_refused_with_the_reason() {
    for (pattern, reason) in [
        ("", "empty"),
        ("(a", "unclosed group"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("a**", "without brackets"),
        ("a{1001}", "more than 1000"),
        ("(a{50}){50}", "more than 1000"),
        ("(?x)a b", "flags"),
        (r"\p{Cn}", "categories"),
        (r"\p{LU}", "categories"),
        (r"\u263a", "number"),
        (r"\x{263a}", "number"),
        (r"[\x{80}-\x{10ffff}]", "number"),
        (r"[a\u263a]", "number"),
        ("[a-z&&[^b]]", "class"),
        ("[a[b]]", "inside a class"),
        (r"\p{Greek}", "categories"),
        (r"\b{start}a", "word boundaries"),
    ] {
        let refused = accept(pattern).unwrap_err();
        assert!(refused.contains(reason), "{pattern}: {refused}");
        assert_eq!(refused.lines().count(), 1);
    }
}

fn size(pattern: &str) -> u64 {
    size::program_size(&Parser::new().parse(pattern).unwrap())
}

/// What Envoy says of these itself, and how much more it may be here.
#[test]
fn the_size_is_never_less_than_what_envoy_counts() {
    for (pattern, counted) in [
        (r"^(a{10}b){100}$", 1302),
        ("^/v4/advisory/[0-9a-z-]{36}/clone$", 118),
        ("/[a-z]{50}/[0-9]{50}", 106),
    ] {
        let size = size(pattern);
        assert!((counted..=counted + counted / 4).contains(&size), "{pattern}: {size}");
    }
}

#[test]
fn what_is_too_large_is_refused_with_both_numbers() {
    let limits = Limits { regex_program_size: 100, ..Limits::default() };
    assert_eq!(check_size("/[a-z]{30}", &limits), Ok(39));
    let refused = check_size("/[a-z]{500}", &limits).unwrap_err();
    assert!(refused.contains("too large") && refused.contains("100"), "{refused}");
    assert!(check_size(r"\pL{80}", &Limits::default()).is_err());
}

/// As many as one route can have: 128 matches with 33 patterns each. `\pL` alone is large, and takes no longer than `a`; some
/// have as many letters of two cases as a pattern may have, and some have more.
#[test]
fn hostile_patterns_are_answered_in_time() {
    let many = |pattern: fn(usize) -> String| (0..4_224 / PART).map(pattern).collect::<Vec<_>>();
    let long = |pattern: fn(usize) -> String| (0..366 / PART).map(pattern).collect::<Vec<_>>();
    for (patterns, are_small, deadline) in [
        (many(|number| format!(r"\pL{{80}}(?i)[\w\pN]{{{}}}", number % 10)), false, 100),
        (many(|number| format!("(?i)[A-𞥃]{{{}}}", number % 10)), false, 100),
        (many(|number| format!("(?i)[а-я]{{2}}[Ā-ƿ]{{{}}}[α-ω]", number % 10)), true, 100),
        (many(|number| format!(r"(?i)[!-~]{{{}}}[^\w][一-龥]", number % 10)), true, 100),
        // A value of a header has up to 4,096 characters, and an object some 1.5 MB. To read so much takes twice as long.
        (long(|_| "a".repeat(4_096)), true, 500),
        (long(|_| format!("(?i){}", "[A-𞥃]".repeat(818))), false, 500),
        (long(|_| format!("(?i){}", "[!-~]".repeat(818))), true, 500),
        (long(|_| format!("(?i){}", "[一-龥]".repeat(818))), true, 500),
        (long(|_| format!("(?i){}", r"\D".repeat(2_046))), true, 500),
    ] {
        let expected = if are_small { patterns.len() } else { 0 };
        // What all patterns need is made once.
        accepted(&patterns[..1]);
        let begun = time();
        assert_eq!(accepted(&patterns), expected, "{}", patterns[0]);
        let took = time() - begun;
        assert!(took < deadline * MILLISECOND, "{took:?} for {}", patterns[0]);
    }
}

/// Without optimizations a tenth of the patterns has ten times as long.
const PART: usize = if cfg!(debug_assertions) { 10 } else { 1 };
const MILLISECOND: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10 } else { 1 });

/// The CPU time of this thread alone, where the system measures it: the machine may have other work.
fn time() -> Duration {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let running = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = running.and_then(|it| it.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| BEGUN.elapsed(), Duration::from_nanos)
}

fn accepted(patterns: &[String]) -> usize {
    let limits = Limits::default();
    let checked =
        |pattern: &&String| accept(pattern).and_then(|it| check_size(&it, &limits)).is_ok();
    patterns.iter().filter(checked).count()
}
