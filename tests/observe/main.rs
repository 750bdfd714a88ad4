//! What operators look at: dashboards, rules and docs/metrics.md, held to what real programs tell a real Prometheus.
//!
//! Prometheus is the one that `PROMETHEUS` names, with promtool beside it; `scripts/tools prometheus` prints its path.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod charts;
#[path = "../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;
mod page;
mod prometheus;
mod site;

use charts::{Question, chart, dashboards, rules};
use prometheus::Prometheus;
use site::Site;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// For a panel to have data; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_and_alert_finds_its_metrics_and_the_page_names_them_all() {
    let site = Site::start().await;
    let prometheus = Prometheus::start(&site.targets(), site.folder());
    prometheus.until_scraped(site.targets().len()).await;
    // What is a rate needs something that happens while it is looked at.
    site.change().await;

    let mut questions: Vec<Question> = dashboards().iter().flat_map(|it| it.questions()).collect();
    questions.extend(rules().iter().flat_map(|it| it.questions()));
    assert!(questions.len() > 100, "there are only {}", questions.len());
    let mut look = tokio::time::interval(Duration::from_millis(500));
    let looking = async {
        while !questions.is_empty() {
            look.tick().await;
            let mut open = Vec::new();
            for question in &questions {
                if !prometheus.has_data(question).await {
                    open.push(question.clone());
                }
            }
            questions = open;
        }
    };
    if tokio::time::timeout(DEADLINE, looking).await.is_err() {
        let open = questions.iter().map(|it| format!("{}: {}", it.of, it.expression));
        panic!("no data for\n{}", open.collect::<Vec<_>>().join("\n"));
    }
    prometheus.until_rules_are_well().await;
    page::check(&site).await;
}

#[test]
fn rules_pass_promtool_and_its_unit_tests() {
    let files = |folder: &str| {
        let entries = fs::read_dir(chart(folder)).unwrap().map(|entry| entry.unwrap().path());
        entries.collect::<Vec<_>>()
    };
    for (words, files) in
        [(["check", "rules"], files("rules")), (["test", "rules"], files("rules-tests"))]
    {
        let output =
            Command::new(prometheus::beside("promtool")).args(words).args(files).output().unwrap();
        let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
        assert!(output.status.success(), "promtool {words:?}:\n{said}");
    }
}

#[test]
fn every_alert_is_tested_and_says_what_to_do() {
    let page = fs::read_to_string(chart("../../docs/troubleshooting.md")).unwrap();
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchors: BTreeSet<_> =
        headings.map(|line| charts::anchor(line.trim_start_matches('#'))).collect();
    let tests = fs::read_dir(chart("rules-tests")).unwrap();
    let tests: String =
        tests.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    for rule in rules() {
        let Some(alert) = &rule.alert else { continue };
        let said = |name: &str| {
            let words = rule.annotations.get(name).unwrap_or_else(|| panic!("{alert}: no {name}"));
            assert!(!words.is_empty() && !words.contains('\n'), "{alert}: {name} is not one line");
            words.clone()
        };
        said("summary");
        said("action");
        let runbook = said("runbook");
        let anchor = runbook.strip_prefix("docs/troubleshooting.md#").unwrap_or_default();
        assert!(anchors.contains(anchor), "{alert}: {runbook} is no heading");
        let severity = rule.labels.get("severity").map(String::as_str).unwrap_or_default();
        assert!(["critical", "warning", "info"].contains(&severity), "{alert}: {severity}");
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "{alert} has no unit test");
    }
}

#[test]
fn every_panel_says_what_bad_looks_like_and_names_no_data_source() {
    for dashboard in dashboards() {
        let mut titles = BTreeSet::new();
        for panel in dashboard.panels() {
            let of = format!("{}: {}", dashboard.title(), panel["title"]);
            let description = panel["description"].as_str().unwrap_or_default();
            let is_line = description.contains("Bad: ") && !description.contains('\n');
            assert!(is_line, "{of}: {description:?}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{of}");
            let title = (panel["title"].to_string(), panel["type"].to_string());
            assert!(titles.insert(title), "{of} is there twice");
        }
        assert!(!titles.is_empty(), "{}", dashboard.title());
    }
}
