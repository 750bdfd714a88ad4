//! The rules of the house that no compiler checks. Each failure names the file and what to do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/words.rs"]
mod words;

use pages::links;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Who may use whom: a crate, what its code may depend on, and what its tests may use besides. A crate that is not
/// here, or an edge that is not here, wants a decision: see "Code map" in ARCHITECTURE.md.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("heliograph-testing", &[], &[]),
    ("heliograph-envoy", &[], &[]),
    ("heliograph-snapshot", &[], &[]),
    ("heliograph-shared", &[], &[]),
    ("heliograph-store", &["heliograph-shared", "heliograph-snapshot"], &["heliograph-testing"]),
    ("heliograph-views", &["heliograph-envoy", "heliograph-snapshot"], &[]),
    ("heliograph-engine", &[], &[]),
    ("heliograph-model", &["heliograph-snapshot"], &[]),
    (
        "heliograph-envoy-dialect",
        &["heliograph-envoy", "heliograph-model", "heliograph-snapshot", "heliograph-views"],
        &[],
    ),
    (
        "heliograph-gateway",
        &[
            "heliograph-engine",
            "heliograph-envoy-dialect",
            "heliograph-model",
            "heliograph-snapshot",
            "heliograph-views",
        ],
        &["heliograph-envoy"],
    ),
    (
        "heliograph-translator",
        &[
            "heliograph-model",
            "heliograph-shared",
            "heliograph-snapshot",
            "heliograph-store",
            "heliograph-gateway",
            "heliograph-views",
        ],
        &["heliograph-testing"],
    ),
    ("heliograph-distributor-protocol", &["heliograph-envoy", "heliograph-snapshot"], &[]),
    (
        "heliograph-distributor",
        &[
            "heliograph-distributor-protocol",
            "heliograph-envoy",
            "heliograph-shared",
            "heliograph-snapshot",
            "heliograph-store",
            "heliograph-views",
        ],
        &["heliograph-client", "heliograph-testing"],
    ),
    ("heliograph-client", &["heliograph-envoy", "heliograph-snapshot"], &[]),
    ("heliograph-checker", &["heliograph-snapshot"], &["heliograph-store"]),
    ("heliograph-report", &[], &[]),
    (
        "heliograph-loadtest",
        &[
            "heliograph-checker",
            "heliograph-client",
            "heliograph-envoy",
            "heliograph-report",
            "heliograph-shared",
            "heliograph-snapshot",
            "heliograph-store",
            "heliograph-testing",
            "heliograph-views",
        ],
        &["heliograph-translator", "heliograph-gateway"],
    ),
    (
        "helio",
        &[
            "heliograph-distributor",
            "heliograph-envoy",
            "heliograph-model",
            "heliograph-shared",
            "heliograph-snapshot",
            "heliograph-store",
            "heliograph-translator",
            "heliograph-gateway",
        ],
        &["heliograph-testing"],
    ),
    (
        "heliograph-tests",
        &[],
        &[
            "heliograph-checker",
            "heliograph-client",
            "heliograph-distributor",
            "heliograph-envoy",
            "heliograph-gateway",
            "heliograph-shared",
            "heliograph-snapshot",
            "heliograph-store",
            "heliograph-testing",
            "heliograph-translator",
        ],
    ),
];

/// What a crate must not reach, at any depth, with the features that it asks for itself.
const OUT_OF_REACH: &[(&str, &[&str])] = &[
    // Deciding is pure: no runtime, no network, no client.
    ("heliograph-snapshot", &["tokio", "tonic", "kube-core"]),
    ("heliograph-views", &["tokio", "tonic", "kube-core"]),
    ("heliograph-checker", &["tokio", "tonic", "redis"]),
    ("heliograph-report", &["tokio", "tonic", "redis"]),
    ("heliograph-engine", &["tokio", "serde", "kube-core"]),
    // Values between Kubernetes and Envoy, of neither.
    ("heliograph-model", &["tokio", "kube-core", "k8s-openapi", "gateway-api", "heliograph-envoy"]),
    // A dialect reads the model, and no object.
    ("heliograph-envoy-dialect", &["tokio", "kube-core", "k8s-openapi", "gateway-api"]),
    ("heliograph-gateway", &["tokio", "tonic", "hyper", "kube-client"]),
    ("heliograph-distributor-protocol", &["tokio", "tonic", "hyper"]),
    // A distributor knows snapshots, and nothing of where they come from.
    ("heliograph-distributor", &["kube-core", "k8s-openapi", "gateway-api", "heliograph-gateway"]),
];

/// What can publish to the store, which only a translator does.
const WRITING_STORES: &[&str] = &["Embedded", "RedisStore", "TranslatorStore", "Writer"];

/// Crates and modules with types of Envoy, and with types of Kubernetes.
const ENVOY: &[&str] = &["heliograph_envoy"];
const KUBERNETES: &[&str] =
    &["gateway_api", "k8s_openapi", "kube", "heliograph_gateway::objects", "crate::objects"];

/// The files of the front end that name the dialect, and what for. Each is one that a further dialect has to touch.
const NAMING_DIALECT: &[(&str, &str)] = &[
    ("translator/gateway/src/merge/dropped.rs", "closes the matches that a proxy cannot hold"),
    ("translator/gateway/src/merge/mod.rs", "puts encoded routes into a virtual host"),
    (
        "translator/gateway/src/routes/compiled.rs",
        "compiles a route for a listener, and measures its size",
    ),
    ("translator/gateway/src/routes/rules.rs", "measures the expressions that proxies match with"),
    ("translator/gateway/src/views/plan.rs", "withholds resources from clients, by their names"),
    ("translator/gateway/src/views/treatment.rs", "renders overlays, which the dialect reads"),
    ("translator/gateway/src/world/rejected.rs", "finds the model ids that a rejection means"),
    ("translator/gateway/src/world/table.rs", "has the units that build resources"),
];
const DIALECTS: &[&str] = &["heliograph_envoy_dialect"];

/// Test files that may sleep, in how many places, and why. A test waits for a condition with a deadline; nothing else
/// is a reason but what is written here.
const MAY_SLEEP: &[(&str, usize, &str)] = &[
    (
        "tests/e2e/harness.rs",
        2,
        "between two looks at another process, up to a deadline; between two requests of a steady load",
    ),
    (
        "shared/store/tests/servers/mod.rs",
        1,
        "between two looks at another process, up to a deadline",
    ),
];

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &[
    "common", "handler", "handlers", "helper", "helpers", "manager", "misc", "process", "util",
    "utils",
];

#[test]
fn files_are_short() {
    let mut problems = Vec::new();
    for source in sources() {
        let limit = if source.is_test() { 800 } else { 500 };
        let lines = source.text.lines().count();
        if lines > limit {
            problems.push(format!("{source}: {lines} lines, at most {limit}: split it"));
        }
        let program = source.path.ends_with("src/main.rs");
        if program && lines >= 40 {
            problems.push(format!("{source}: {lines} lines: main only starts, move the rest"));
        }
    }
    report(problems);
}

#[test]
fn every_file_is_compiled() {
    let mut reached = BTreeSet::new();
    for package in workspace().packages() {
        for target in package["targets"].as_array().unwrap() {
            let root = PathBuf::from(target["src_path"].as_str().unwrap());
            let folder = root.parent().unwrap().to_owned();
            reach(root, folder, &mut reached);
        }
    }
    // A workspace of its own, which only a nightly Rust builds.
    let fuzz = root().join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in manifest.lines().filter_map(|line| line.strip_prefix("path = ")) {
        let target = fuzz.join(target.trim_matches('"'));
        reach(target.clone(), target.parent().unwrap().to_owned(), &mut reached);
    }
    let orphans = sources().into_iter().filter(|source| !reached.contains(&source.path));
    report(orphans.map(|source| format!("{source}: no `mod` names it: add one or delete it")));
}

#[test]
fn crates_depend_downwards() {
    let workspace = workspace();
    let layers: BTreeMap<_, _> =
        LAYERS.iter().map(|(name, code, tests)| (*name, (*code, *tests))).collect();
    let mut problems = Vec::new();
    for package in workspace.packages() {
        let name = package["name"].as_str().unwrap();
        let Some((code, tests)) = layers.get(name) else {
            problems.push(format!("{name}: not in LAYERS of tidy.rs: decide its layer"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let uses = dependency["name"].as_str().unwrap();
            let in_tests = dependency["kind"] == "dev";
            let allowed = code.contains(&uses) || in_tests && tests.contains(&uses);
            if dependency["path"].is_string() && !allowed {
                problems.push(format!("{name} must not depend on {uses}: see ARCHITECTURE.md"));
            }
        }
    }
    report(problems);
}

/// Between objects and what a proxy reads is the model. Nothing needs both at once.
#[test]
fn no_file_has_types_of_kubernetes_and_of_envoy() {
    let mixed = sources()
        .into_iter()
        .filter(|source| !source.is_test() && source.names(ENVOY) && source.names(KUBERNETES));
    report(mixed.map(|source| {
        format!("{source}: types of Kubernetes beside Envoy's: go by way of the model")
    }));
}

#[test]
fn the_front_end_names_the_dialect_where_it_must() {
    let gateway = Path::new("translator/gateway/src");
    let sources = sources().into_iter().filter(|it| it.relative().starts_with(gateway));
    let naming: BTreeSet<String> =
        sources.filter(|it| it.names(DIALECTS)).map(|source| source.to_string()).collect();
    let expected: BTreeSet<String> =
        NAMING_DIALECT.iter().map(|(path, _)| (*path).to_owned()).collect();
    let added = naming.difference(&expected).map(|path| {
        format!("{path}: use a file of NAMING_DIALECT in tidy.rs, or add this one with the reason")
    });
    let gone = expected.difference(&naming).map(|path| {
        format!("{path}: it does not name a dialect: remove it from NAMING_DIALECT in tidy.rs")
    });
    report(added.chain(gone));
}

/// `cargo tree` and not the graph of `cargo metadata`: the latter has the features of all members together, so a
/// client that one crate asks for would seem to be in all.
#[test]
fn pure_crates_reach_no_io() {
    let mut problems = Vec::new();
    for (name, forbidden) in OUT_OF_REACH {
        let tree = cargo(&["tree", "-p", name, "-e", "normal", "--prefix", "none", "--locked"]);
        let reached: BTreeSet<&str> =
            tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert!(reached.contains(name), "cargo tree does not show {name} itself:\n{tree}");
        for crate_name in forbidden.iter().filter(|forbidden| reached.contains(**forbidden)) {
            problems.push(format!(
                "{name} reaches {crate_name}: see `cargo tree -p {name} -e normal -i {crate_name}`"
            ));
        }
    }
    report(problems);
}

#[test]
fn manifests_share_versions_and_lints() {
    let mut problems = Vec::new();
    for package in workspace().packages() {
        let path = PathBuf::from(package["manifest_path"].as_str().unwrap());
        let name = relative(&path);
        let text = fs::read_to_string(&path).unwrap();
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line;
            } else if section.ends_with("dependencies]")
                && line.contains('=')
                && !line.starts_with('#')
                && !line.contains("workspace = true")
            {
                problems
                    .push(format!("{name}: `{line}`: put the version into the workspace's table"));
            }
        }
        if !text.contains("[lints]\nworkspace = true") {
            problems.push(format!("{name}: add `[lints]` with `workspace = true`"));
        }
    }
    report(problems);
}

#[test]
fn nothing_is_left_for_later() {
    // In two parts, so that this file does not find itself.
    let marks = [
        concat!("to", "do!("),
        concat!("unimple", "mented!("),
        concat!("db", "g!("),
        concat!("#[ig", "nore"),
    ];
    let mut problems = Vec::new();
    for source in sources() {
        for (number, line) in source.code_lines() {
            if let Some(mark) = marks.iter().find(|mark| line.contains(**mark)) {
                problems.push(format!("{source}:{number}: {mark}: finish it or delete it"));
            }
        }
    }
    report(problems);
}

#[test]
fn no_lock_is_recovered() {
    let mark = concat!("Poison", "Error");
    let mut problems = Vec::new();
    for source in sources() {
        for (number, _) in source.code_lines().filter(|(_, line)| line.contains(mark)) {
            problems.push(format!("{source}:{number}: {mark}: take the lock from parking_lot"));
        }
    }
    report(problems);
}

#[test]
fn tests_do_not_sleep() {
    let mut problems = Vec::new();
    for source in sources() {
        let allowed = MAY_SLEEP.iter().find(|(path, ..)| Path::new(path) == source.relative());
        let in_tests = source.lines_with_tests().into_iter().filter(|(_, _, in_tests)| *in_tests);
        let sleeps: Vec<_> = in_tests
            .filter(|(_, line, _)| calls(line, concat!("sle", "ep")))
            .map(|(number, ..)| number)
            .collect();
        if sleeps.len() != allowed.map_or(0, |(_, count, _)| *count) {
            problems.push(format!(
                "{source}: sleeps in lines {sleeps:?}: wait for a condition with a deadline, or change MAY_SLEEP in tidy.rs"
            ));
        }
    }
    report(problems);
}

/// The compiler ensures that a distributor cannot publish with the store that it has; this, that it opens no other.
#[test]
fn a_distributor_names_no_store_that_publishes() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| source.relative().starts_with("distributor")) {
        for (number, line, in_tests) in source.lines_with_tests() {
            let named = WRITING_STORES.iter().find(|name| words(line).any(|word| word == **name));
            if let Some(name) = named.filter(|_| !in_tests) {
                problems.push(format!(
                    "{source}:{number}: {name} can publish: a distributor has a DistributorStore"
                ));
            }
        }
    }
    report(problems);
}

#[test]
fn names_say_what_is_inside() {
    let mut problems = Vec::new();
    for source in sources() {
        let inline = source.code_lines().filter_map(|(_, line)| module(line)).map(str::to_owned);
        let parts = source.relative().with_extension("");
        let names = parts.iter().map(|part| part.to_string_lossy().into_owned()).chain(inline);
        for name in names.filter(|name| EMPTY_NAMES.contains(&name.as_str())) {
            problems.push(format!("{source}: `{name}` says nothing: name it for what it holds"));
        }
    }
    report(problems);
}

#[test]
fn faults_have_the_tests_that_are_named() {
    let page = fs::read_to_string(root().join("docs/faults.md")).unwrap();
    let mut problems = Vec::new();
    for (file, function) in tests_named(&page) {
        let text = fs::read_to_string(root().join(file)).unwrap_or_default();
        if !text.contains(&format!("fn {function}(")) {
            problems.push(format!("docs/faults.md: {file} has no {function}"));
        }
    }
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    for row in rows.filter(|row| !row.starts_with("| fault |")) {
        if tests_named(row).is_empty() && !row.contains("| open") {
            problems.push(format!("docs/faults.md: name a test, or say that it is open: {row}"));
        }
    }
    report(problems);
}

#[test]
fn decisions_are_numbered_and_listed() {
    let folder = root().join("docs/decisions");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut records: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    records.retain(|name| name != "README.md");
    records.sort();
    let mut problems = Vec::new();
    for (number, name) in (1..).zip(&records) {
        if !name.starts_with(&format!("{number:04}-")) {
            problems.push(format!("docs/decisions/{name}: the next number is {number:04}"));
        }
        if !links(&index).contains(&name.as_str()) {
            problems.push(format!("docs/decisions/{name}: list it in docs/decisions/README.md"));
        }
    }
    report(problems);
}

/// The rules above are no better than these.
#[test]
fn the_readers_of_text_see_what_is_there() {
    assert_eq!(module("mod one;"), Some("one"));
    assert_eq!(module("    pub(crate) mod two {"), Some("two"));
    assert_eq!(module("pub mod three;"), Some("three"));
    assert_eq!(module("model(four);"), None);
    assert_eq!(module("let mod_five = mod_six;"), None);
    assert!(calls("some::path::nap(second).await", "nap"));
    assert!(calls("nap(second)", "nap"));
    assert!(!calls("kidnap(second)", "nap"));
    assert!(!calls("napping(second); nap.await", "nap"));
    assert!(words("use a::{RedisStore, B};").any(|word| word == "RedisStore"));
    assert!(!words("RedisStores::new()").any(|word| word == "RedisStore"));
    let source = |text: &str| Source { path: root().join("a/src/b.rs"), text: text.to_owned() };
    assert!(source("use heliograph_envoy as proxy;\n").names(ENVOY));
    assert!(source("fn one(it: heliograph_envoy::Any) {}\n").names(ENVOY));
    assert!(!source("use heliograph_envoy_dialect as envoy;\n").names(ENVOY));
    assert!(!source("// heliograph_envoy::Any\nlet kube = 1;\n").names(KUBERNETES));
    let text = "#[cfg(test)]\nmod apart;\nfn code() {}\n#[cfg(test)]\nmod tests {\n}\n".to_owned();
    let source = Source { path: root().join("a/src/b.rs"), text };
    let in_tests: Vec<_> = source.lines_with_tests().iter().map(|line| line.2).collect();
    assert_eq!(in_tests, [false, false, false, false, true, true]);
    assert_eq!(
        tests_named("`a.rs: b`, `c/d.rs: e` and `make x`, `e2e: f`"),
        [("a.rs", "b"), ("c/d.rs", "e")]
    );
    assert_eq!(joined(Path::new("/a/b"), "../c/d.rs"), Path::new("/a/c/d.rs"));
    assert!(files("rs").contains(&root().join("tests/tidy.rs")));
    assert!(files("md").contains(&root().join("README.md")));
}

/// A Rust file of the project.
struct Source {
    path: PathBuf,
    text: String,
}

struct Workspace(Value);

impl Source {
    fn relative(&self) -> &Path {
        self.path.strip_prefix(root()).unwrap()
    }

    fn is_test(&self) -> bool {
        let mut parts = self.relative().iter();
        parts.any(|part| part == "tests" || part == "tests.rs")
    }

    /// Whether a line of code names one of these, whichever part of it is used and under whatever name.
    fn names(&self, modules: &[&str]) -> bool {
        let is_named = |line: &str, module: &str| {
            let is_part = |char: char| char.is_alphanumeric() || char == '_';
            line.match_indices(module).any(|(at, _)| {
                !line[..at].ends_with(is_part) && !line[at + module.len()..].starts_with(is_part)
            })
        };
        let uses = self.code_lines().filter(|(_, line)| {
            line.trim_start().starts_with("use ") || line.contains("::") || line.contains(" use ")
        });
        uses.into_iter().any(|(_, line)| modules.iter().any(|module| is_named(line, module)))
    }

    /// The lines that are not comments, counted from one, each with whether it is part of a test.
    fn lines_with_tests(&self) -> Vec<(usize, &str, bool)> {
        let (mut in_tests, mut marked) = (self.is_test(), false);
        let lines = self.code_lines().map(|(number, line)| {
            // What follows the mark may be a module in a file of its own, which is looked at there.
            in_tests |= marked && line.trim_end().ends_with('{');
            marked = line.contains("#[cfg(test)]");
            (number, line, in_tests)
        });
        lines.collect()
    }

    /// The lines that are not comments, counted from one.
    fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.relative().display().fmt(out)
    }
}

impl Workspace {
    fn packages(&self) -> &[Value] {
        self.0["packages"].as_array().unwrap()
    }
}

#[track_caller]
fn report(problems: impl IntoIterator<Item = String>) {
    let problems: Vec<_> = problems.into_iter().collect();
    assert!(problems.is_empty(), "{} to fix:\n  {}", problems.len(), problems.join("\n  "));
}

/// The names in a line of code.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|char: char| !char.is_alphanumeric() && char != '_')
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn cargo(arguments: &[&str]) -> String {
    let program = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(
        output.status.success(),
        "cargo {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn workspace() -> Workspace {
    let text = cargo(&["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    Workspace(serde_json::from_str(&text).unwrap())
}

fn sources() -> Vec<Source> {
    let read = |path: PathBuf| Source { text: fs::read_to_string(&path).unwrap(), path };
    files("rs").into_iter().map(read).collect()
}

/// The project's own files with that ending; what is built and what is hidden is not the project's.
fn files(ending: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|found| found == ending) {
                found.insert(path);
            }
        }
    }
    found
}

/// Adds `file` and every file that it names by `mod`, looked for in `folder`.
fn reach(file: PathBuf, folder: PathBuf, reached: &mut BTreeSet<PathBuf>) {
    let Ok(text) = fs::read_to_string(&file) else { return };
    if !reached.insert(file.clone()) {
        return;
    }
    let mut elsewhere = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            elsewhere = path.strip_suffix("\"]");
        }
        let Some(name) = module(line).filter(|_| line.ends_with(';')) else { continue };
        if let Some(path) = elsewhere.take() {
            let file = joined(file.parent().unwrap(), path);
            reach(file.clone(), file.parent().unwrap().to_owned(), reached);
            continue;
        }
        let inner = folder.join(name);
        reach(folder.join(format!("{name}.rs")), inner.clone(), reached);
        reach(inner.join("mod.rs"), inner, reached);
    }
}

/// A path from a folder, without `..`.
fn joined(folder: &Path, path: &str) -> PathBuf {
    let mut joined = folder.to_owned();
    for part in path.split('/') {
        if part == ".." {
            joined.pop();
        } else {
            joined.push(part);
        }
    }
    joined
}

/// Each `file: function` in a text, where the file is of Rust.
fn tests_named(text: &str) -> Vec<(&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|words| words.split_once(": ").filter(|(file, _)| file.ends_with(".rs")))
        .collect()
}

/// The name in `mod name;` or `mod name {`.
fn module(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let is_mod = first == "mod" || first.starts_with("pub") && words.next() == Some("mod");
    is_mod.then(|| words.next()).flatten().map(|name| name.trim_end_matches(';'))
}

fn calls(line: &str, function: &str) -> bool {
    line.match_indices(&format!("{function}(")).any(|(at, _)| {
        !line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
    })
}
