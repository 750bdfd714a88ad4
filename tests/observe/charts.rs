//! The dashboards and rules, and what they ask of Prometheus.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Something that is asked of Prometheus.
#[derive(Clone)]
pub(crate) struct Question {
    /// Who asks: a panel, a variable or an alert.
    pub(crate) of: String,
    pub(crate) expression: String,
}

pub(crate) struct Dashboard(Value);

#[derive(Deserialize)]
struct RuleFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
pub(crate) struct Rule {
    pub(crate) alert: Option<String>,
    record: Option<String>,
    expr: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// What Grafana puts in place of its variables.
const VARIABLES: [(&str, &str); 3] =
    [("$__rate_interval", "5m"), ("$namespace", ".*"), ("$fleet", ".*")];

/// A file of the chart.
pub(crate) fn chart(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/heliograph").join(name)
}

pub(crate) fn dashboards() -> Vec<Dashboard> {
    texts("dashboards").iter().map(|text| Dashboard(serde_json::from_str(text).unwrap())).collect()
}

pub(crate) fn rules() -> Vec<Rule> {
    let files = texts("rules");
    let files = files.iter().map(|text| serde_saphyr::from_str::<RuleFile>(text).unwrap());
    files.flat_map(|file| file.groups).flat_map(|group| group.rules).collect()
}

fn texts(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(chart(folder)).unwrap();
    entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
}

impl Dashboard {
    pub(crate) fn title(&self) -> &str {
        self.0["title"].as_str().unwrap()
    }

    /// But for the rows that they stand in.
    pub(crate) fn panels(&self) -> impl Iterator<Item = &Value> {
        self.0["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row")
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        for panel in self.panels() {
            let of = format!("{}, panel {}", self.title(), panel["title"]);
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{of} asks nothing");
            for target in targets {
                let expression = filled_in(&of, target["expr"].as_str().unwrap());
                questions.push(Question { of: of.clone(), expression });
            }
        }
        for variable in self.0["templating"]["list"].as_array().unwrap() {
            let of = format!("{}, variable {}", self.title(), variable["name"]);
            let query = variable["query"].as_str().unwrap();
            if let Some(asked) = query.strip_prefix("label_values(") {
                let (series, label) = asked.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
                let expression = format!("count by ({label}) ({series})");
                questions.push(Question { expression: filled_in(&of, &expression), of });
            }
        }
        questions
    }
}

impl Rule {
    /// An alert finds nothing while all is well. So each series that it looks at is asked for; of what is recorded, all.
    pub(crate) fn questions(&self) -> Vec<Question> {
        let of = self.alert.as_ref().map_or("record", |_| "alert");
        let name = self.alert.as_ref().or(self.record.as_ref()).unwrap();
        let of = format!("{of} {name}");
        let asked = match self.alert {
            Some(_) => selectors(&self.expr),
            None => vec![self.expr.clone(), name.clone()],
        };
        assert!(!asked.is_empty(), "{of} looks at nothing");
        asked.into_iter().map(|expression| Question { of: of.clone(), expression }).collect()
    }
}

fn filled_in(of: &str, expression: &str) -> String {
    let mut filled = expression.to_owned();
    for (variable, value) in VARIABLES {
        filled = filled.replace(variable, value);
    }
    assert!(!filled.contains('$'), "{of} has an unknown variable: {filled}");
    filled
}

/// The metrics that an expression looks at, with what it says of their labels.
fn selectors(expression: &str) -> Vec<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "_:".contains(char);
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_part) {
        let word = &rest[start..];
        let length = word.find(|char| !is_part(char)).unwrap_or(word.len());
        let (name, after) = word.split_at(length);
        rest = after;
        let is_metric = name.contains(':') || name.contains('_') && !name.starts_with("group_");
        let is_function = after.starts_with('(');
        if is_metric && !is_function {
            let labels = after.strip_prefix('{').and_then(|it| it.split_once('}'));
            let labels = labels.map(|(labels, _)| format!("{{{labels}}}")).unwrap_or_default();
            rest = &after[labels.len()..];
            found.push(format!("{name}{labels}"));
        }
    }
    found
}

/// Of a heading, as it is linked to.
pub(crate) fn anchor(heading: &str) -> String {
    let words = heading.trim().to_lowercase().replace(' ', "-");
    words.chars().filter(|char| char.is_alphanumeric() || "-_".contains(*char)).collect()
}

#[test]
fn what_an_expression_looks_at_is_found() {
    let expression =
        "sum by (pod) (rate(a_total{x=\"y\",z!=\"w\"}[5m])) / on (pod) group_left() b:c:sum > 0.5";
    assert_eq!(selectors(expression), ["a_total{x=\"y\",z!=\"w\"}", "b:c:sum"]);
    assert_eq!(selectors("max by (a) (max_over_time(b_c[5m])) > 0"), ["b_c"]);
    assert_eq!(anchor(" Redis is away, or slow"), "redis-is-away-or-slow");
}
