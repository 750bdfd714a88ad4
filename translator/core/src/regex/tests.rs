use super::*;

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

/// As many as one route can have: 128 matches with 33 patterns each. `\pL` alone is large, and takes no longer than `a`.
#[test]
fn hostile_patterns_are_refused_without_being_compiled() {
    for pattern in (0..4_224).map(|number| format!(r"\pL{{80}}(?i)[\w\pN]{{{}}}", number % 10)) {
        assert!(check_size(&pattern, &Limits::default()).is_err());
    }
}
