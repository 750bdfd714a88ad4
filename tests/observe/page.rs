//! docs/metrics.md: every metric that a program tells of, with what it says of it.

use crate::charts::chart;
use crate::site::{Site, get};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The description of a metric.
#[derive(Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    programs: BTreeSet<&'static str>,
}

/// What stands before it is written by hand.
const MARK: &str = "<!-- Made by `make metrics` from what the programs say. -->\n";

/// A heading, and the programs that have what stands below it.
const SECTIONS: [(&str, &[&str]); 4] = [
    ("Translator and distributor", &["distributor", "translator"]),
    ("Translator", &["translator"]),
    ("Distributor", &["distributor"]),
    ("Load test", &["loadtest"]),
];

/// With `UPDATE_GOLDEN` the page is written.
pub(crate) async fn check(site: &Site) {
    let mut metrics = BTreeMap::new();
    for target in site.targets() {
        let program = match target.name {
            "loadtest" => "loadtest",
            name if name.starts_with("t-") => "translator",
            _ => "distributor",
        };
        read(&get(target.port, "/metrics").await.unwrap(), program, &mut metrics);
    }
    let expected = tables(&metrics);
    let path = chart("../../docs/metrics.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, found) = page.split_once(MARK).expect("docs/metrics.md has lost its mark");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, format!("{head}{MARK}{expected}")).unwrap();
    } else {
        let missing = |a: &str, b: &str| {
            let lines = a.lines().filter(|line| !b.lines().any(|other| other == *line));
            lines.map(|line| format!("  {line}\n")).collect::<String>()
        };
        assert!(
            found == expected,
            "docs/metrics.md: run `make metrics`. Not on the page:\n{}Only there:\n{}",
            missing(&expected, found),
            missing(found, &expected),
        );
    }
}

fn read(page: &str, program: &'static str, metrics: &mut BTreeMap<String, Metric>) {
    let mut name = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let help;
            (name, help) = rest.split_once(' ').unwrap();
            let metric = metrics.entry(name.to_owned()).or_default();
            metric.help = help.to_owned();
            metric.programs.insert(program);
            continue;
        }
        let metric = metrics.get_mut(name).expect("help comes first");
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            metric.kind = rest.split_once(' ').unwrap().1.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            let labels = labels.rsplit_once('}').unwrap().0;
            let names = labels.split("\",").map(|label| label.split_once('=').unwrap().0);
            metric.labels.extend(names.filter(|name| *name != "le").map(str::to_owned));
        }
    }
}

fn tables(metrics: &BTreeMap<String, Metric>) -> String {
    let mut page = String::new();
    let mut told = 0;
    for (heading, programs) in SECTIONS {
        page += &format!("\n## {heading}\n\n| metric | type | |\n| --- | --- | --- |\n");
        let programs: BTreeSet<_> = programs.iter().copied().collect();
        for (name, metric) in metrics.iter().filter(|(_, metric)| metric.programs == programs) {
            let Metric { kind, help, labels, .. } = metric;
            let labels: Vec<_> = labels.iter().map(String::as_str).collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            page += &format!("| `{name}{labels}` | {kind} | {help} |\n");
            told += 1;
        }
    }
    assert_eq!(told, metrics.len(), "a metric is in no section");
    page
}
