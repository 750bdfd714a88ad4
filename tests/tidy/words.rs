//! Words: one name for one thing, no name that the glossary has replaced, and no idiom that a reader must decode.

use super::{files, relative, report, sources, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names of `pub` types that several crates have, and what tells them apart. In one crate a name exists once.
const IN_SEVERAL_CRATES: &[(&str, &str)] = &[
    ("Address", "a store's, of content; a Gateway's, where it is reached"),
    ("Backoff", "of our programs; of simulated Envoys, as Envoy's own"),
    ("Client", "the load test's simulated Envoy; a client as rules of views see it"),
    ("Clients", "figures in a report; a field of ViewPolicy"),
    ("Conduct", "of a client; of a population in a scenario file"),
    ("Difference", "between trees; between two states of a directory"),
    ("EscapedSlashes", "the field of ProxyConfig; its value in the model"),
    ("Event", "of a client's message; of a history; of a provider"),
    ("HeadersWithUnderscores", "the field of ProxyConfig; its value in the model"),
    ("Infra", "what is to run; the task that has it run"),
    ("Kind", "of a conduct; of an object"),
    ("Outcome", "of an action in a history; of an event for the world"),
    ("Part", "of a tree; of what runs for a Gateway"),
    ("Port", "reserved for a test; of a fleet in the model"),
    ("Program", "each program has one"),
    ("Protocol", "a session's; a simulated client's; a listener's"),
    ("Proxy", "in a history; to rules of views; the object"),
    ("Published", "by the store; since when an object is"),
    ("Report", "of a load test; of the translator's last translation"),
    ("Resources", "that a client holds; that a scenario has served"),
    ("Response", "of a session; in a history"),
    ("Scenario", "the file; its name in a report"),
    ("Scope", "of an object kind; of what is watched"),
    ("SecurityPolicy", "the object; what it comes to in the model"),
    ("Started", "each program has one"),
    ("State", "of a simulated client; of a fleet in the store"),
    ("Step", "of a scenario; of a plan for what runs for a Gateway"),
    ("Target", "of a load test; of a route"),
    ("TrafficPolicy", "the object's sections; what they come to in the model"),
    ("Update", "of a load test's workload; of a subscription"),
    ("Workload", "what a load test serves; the field of ProxyConfig"),
];

/// Types and constants that have been renamed, because their names said nothing or were several things: see "Words that
/// we do not use" in docs/glossary.md.
const REPLACED_NAMES: &[&str] = &[
    "Admitted",
    "Answer",
    "Asked",
    "Board",
    "Care",
    "Claim",
    "Contest",
    "Desk",
    "Door",
    "Doors",
    "Entrance",
    "Gate",
    "Guard",
    "Held",
    "Holdings",
    "Ledger",
    "Memo",
    "PATIENCE",
    "Pace",
    "Participant",
    "Patience",
    "Patient",
    "Piece",
    "Place",
    "Places",
    "Roll",
    "Said",
    "Seat",
    "Standing",
    "Tenure",
    "Told",
    "Trouble",
    "Verdict",
    "Visit",
];

/// Phrases that do not occur in what users read, and what to write there.
const BANNED_PHRASES: &[(&str, &str)] = &[
    ("are told", "receive, or read"),
    ("if not said", "default:"),
    ("is heard", "arrives, or is received"),
    ("is told", "receives, or reads"),
    ("mend", "fix, or repair"),
    ("mended", "fixed, or repaired"),
    ("mends", "fixes, or repairs"),
    ("nobody", "no client, no translator, ..."),
    ("unless said", "default:"),
    ("what is no", "what is not ..., with a noun"),
];

/// Pages, charts and what programs print, but for what only tests read. Helps, CRDs, conditions and metrics have pages that
/// are made from the code.
const READ_BY_USERS: &[&str] = &["md", "yaml", "yml", "tpl", "txt", "json", "svg"];

#[test]
fn a_type_has_a_name_of_its_own() {
    report(ambiguous(&public_types(), IN_SEVERAL_CRATES));
}

#[test]
fn replaced_names_are_gone() {
    let mut problems = Vec::new();
    for source in sources() {
        for (number, line) in source.code_lines() {
            if let Some(name) = declared(line).filter(|name| REPLACED_NAMES.contains(name)) {
                problems.push(format!(
                    "{source}:{number}: {name} can mean many things: name it for what it is, see docs/glossary.md"
                ));
            }
        }
    }
    report(problems);
}

#[test]
fn texts_for_users_have_no_idioms() {
    let mut problems = Vec::new();
    let paths = READ_BY_USERS.iter().flat_map(|ending| files(ending));
    for path in paths.filter(|path| !path.iter().any(|part| part == "tests")) {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            problems.extend(
                idioms(line).map(|advice| format!("{}:{number}: {advice}", relative(&path))),
            );
        }
    }
    for source in sources() {
        for (number, line, in_tests) in source.lines_with_tests() {
            let quoted = line.split('"').skip(1).step_by(2).filter(|_| !in_tests);
            problems.extend(
                quoted.flat_map(idioms).map(|advice| format!("{source}:{number}: {advice}")),
            );
        }
    }
    report(problems);
}

/// The rules above are no better than these.
#[test]
fn the_readers_of_words_see_what_is_there() {
    assert_eq!(declared("pub(crate) struct Door {"), Some("Door"));
    assert_eq!(declared("    const PATIENCE: Duration = ONE;"), Some("PATIENCE"));
    assert_eq!(declared("pub const fn of() -> Door {"), None);
    assert_eq!(declared("    Held(u64),"), None);
    assert_eq!(declared("let type_of = Place::new();"), None);
    assert_eq!(public_type("pub struct One<'a> {"), Some("One"));
    assert_eq!(public_type("pub(crate) enum Two;"), Some("Two"));
    assert_eq!(public_type("pub(super) enum Three {"), None);
    assert_eq!(public_type("pub fn four() {"), None);
    let idiom = |text| idioms(text).next();
    assert!(idiom("Nobody leads").is_some());
    assert!(idiom("the client is told so").is_some());
    assert!(idiom("amend the recommendation").is_none());
    let type_in = |folder: &str, file: &str, is_public| Declared {
        name: "A".to_owned(),
        folder: folder.into(),
        file: file.into(),
        is_public,
    };
    let twice = [type_in("x", "x/one.rs", true), type_in("x", "x/two.rs", false)];
    assert_eq!(ambiguous(&twice, &[]).len(), 1);
    assert_eq!(ambiguous(&twice[..1], &[("A", "why")]).len(), 1, "it is in one crate");
    let across = [type_in("x", "x/one.rs", true), type_in("y", "y/one.rs", true)];
    assert_eq!(ambiguous(&across, &[]).len(), 1);
    assert_eq!(ambiguous(&across, &[("A", "why")]).len(), 0);
    let inside = [type_in("x", "x/one.rs", true), type_in("y", "y/one.rs", false)];
    assert_eq!(ambiguous(&inside, &[]).len(), 0);
}

/// A type that its whole crate can see.
struct Declared {
    name: String,
    /// The folder of the crate.
    folder: PathBuf,
    file: PathBuf,
    /// Whether other crates can see it, too.
    is_public: bool,
}

/// All types that their whole crate can see, but for those of tests. The arguments of a command are named by their module.
fn public_types() -> Vec<Declared> {
    let workspace = workspace();
    let manifests = workspace.packages().iter().map(|package| package["manifest_path"].as_str());
    let mut folders: Vec<PathBuf> =
        manifests.map(|path| Path::new(path.unwrap()).parent().unwrap().into()).collect();
    // A crate may be in the folder of another one.
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.components().count()));
    let mut found = Vec::new();
    for source in sources() {
        let Some(folder) = folders.iter().find(|folder| source.path.starts_with(folder)) else {
            continue;
        };
        let lines = source.lines_with_tests().into_iter().filter(|(.., in_tests)| !in_tests);
        let types = lines.filter_map(|(_, line, _)| Some((public_type(line)?, line)));
        found.extend(types.filter(|(name, _)| *name != "Args").map(|(name, line)| Declared {
            name: name.to_owned(),
            folder: folder.clone(),
            file: source.relative().to_owned(),
            is_public: line.trim_start().starts_with("pub "),
        }));
    }
    found
}

/// Names that stand for two things. In one file a macro may write a type that the file has as well.
fn ambiguous(types: &[Declared], in_several_crates: &[(&str, &str)]) -> Vec<String> {
    let mut by_name: BTreeMap<&str, BTreeMap<&Path, BTreeSet<&Path>>> = BTreeMap::new();
    let mut public: BTreeMap<&str, BTreeMap<&Path, &Path>> = BTreeMap::new();
    for it in types {
        by_name.entry(&it.name).or_default().entry(&it.folder).or_default().insert(&it.file);
        if it.is_public {
            public.entry(&it.name).or_default().insert(&it.folder, &it.file);
        }
    }
    public.retain(|_, crates| crates.len() > 1);
    let listed = |files: Vec<&&Path>| {
        files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
    };
    let mut problems = Vec::new();
    for (name, crates) in &by_name {
        for files in crates.values().filter(|files| files.len() > 1) {
            let files = listed(files.iter().collect());
            problems.push(format!("{name} is two types of one crate: {files}"));
        }
    }
    let is_known = |name: &str| in_several_crates.iter().any(|(known, _)| *known == name);
    for (name, crates) in public.iter().filter(|(name, _)| !is_known(name)) {
        let files = listed(crates.values().collect());
        problems.push(format!(
            "{name} is a type of several crates: rename one, or say in words.rs what tells them apart: {files}"
        ));
    }
    let needless = in_several_crates.iter().filter(|(name, _)| !public.contains_key(name));
    problems.extend(
        needless
            .map(|(name, _)| format!("{name} is not in several crates: remove it from words.rs")),
    );
    problems
}

/// The name of the type or constant that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = without_visibility(line).split_whitespace();
    let keyword = words.next()?;
    let is_declaration =
        ["struct", "enum", "trait", "type", "union", "const", "static"].contains(&keyword);
    let declared = is_declaration.then(|| words.next()).flatten().map(name);
    // `const fn`
    declared.filter(|name| *name != "fn")
}

/// The name of the type that a line declares, if its whole crate sees it.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = rest.strip_prefix("(crate)").unwrap_or(rest).strip_prefix(' ')?;
    let (keyword, rest) = rest.split_once(' ')?;
    ["struct", "enum", "trait", "type", "union"].contains(&keyword).then(|| name(rest))
}

fn without_visibility(line: &str) -> &str {
    let line = line.trim_start();
    let Some(rest) = line.strip_prefix("pub") else { return line };
    match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((_, rest)) => rest,
        None => rest,
    }
}

/// An identifier that a text begins with.
fn name(text: &str) -> &str {
    text.split(|char: char| !char.is_alphanumeric() && char != '_').next().unwrap_or_default()
}

/// What to write in the place of the banned phrases of a text.
fn idioms(text: &str) -> impl Iterator<Item = String> {
    let text = text.to_lowercase();
    let is_part = |char: char| char.is_alphanumeric() || char == '_';
    BANNED_PHRASES.iter().filter_map(move |(phrase, instead)| {
        let mut found = text.match_indices(phrase);
        let is_whole = |at: usize| {
            !text[..at].ends_with(is_part) && !text[at + phrase.len()..].starts_with(is_part)
        };
        found.any(|(at, _)| is_whole(at)).then(|| format!("`{phrase}`: write {instead}"))
    })
}
