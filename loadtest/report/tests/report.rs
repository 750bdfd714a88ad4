//! Reports as people and programs read them. `UPDATE_GOLDEN=1` rewrites the files in `tests/golden`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixed;

use heliograph_report::{FORMAT, Latencies, Report};
use std::fs;
use std::path::Path;

#[test]
fn a_report_looks_as_it_did() {
    let report = fixed::report(1);
    golden("report.json", &report.to_json().unwrap());
    golden("report.txt", &report.table());
    golden("report.html", &report.html());
}

#[test]
fn a_report_reads_back_as_it_was() {
    let report = fixed::report(1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    fs::write(&path, report.to_json().unwrap()).unwrap();
    assert_eq!(Report::load(&path).unwrap(), report);
}

#[test]
fn the_page_needs_nothing_and_runs_nothing() {
    let mut report = fixed::report(1);
    let hostile = "<script src=//x></script>\"'><img src=x onerror=alert(1)>&";
    report.scenario.name = hostile.to_owned();
    report.scenario.about = hostile.to_owned();
    report.scenario.text = hostile.to_owned();
    report.command = vec![hostile.to_owned()];
    report.machine.cpu = hostile.to_owned();
    report.machine.kernel = hostile.to_owned();
    report.versions.insert(hostile.to_owned(), hostile.to_owned());
    report.phases[0].name = hostile.to_owned();
    report.servers[0].name = hostile.to_owned();
    report.errors.add(hostile);
    report.violations.add(hostile);
    report.figures.errors.add(hostile);
    report.figures.violations.add(hostile);
    let page = report.html();
    assert!(page.contains("&lt;script"), "the text itself is shown");
    for never in ["<script", "<img", "<link", "<iframe", "@import", "url(", "http://", "https://"] {
        assert!(!page.contains(never), "{never} in the page");
    }
    // Every attribute of ours is a plain word or number, so a quote that got out would show here.
    assert!(!page.contains("\"'>"), "a quote got out of its attribute");
}

#[test]
fn the_terminal_is_sent_no_commands() {
    let mut report = fixed::report(1);
    report.errors.add("\x1b[2Jgone\r\nnext");
    report.servers[0].name = "a\x1b]0;title\x07b".to_owned();
    let table = report.table();
    assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
    assert!(table.contains("   [2Jgone  next\n"), "{table}");
}

#[test]
fn an_empty_report_is_shown_without_fuss() {
    let mut report = Report::new(Default::default(), Vec::new(), 0);
    report.machine = Default::default();
    assert!(report.table().contains("no latencies were measured\n"), "{}", report.table());
    assert!(report.html().ends_with("</html>\n"));
    let text = report.to_json().unwrap();
    assert_eq!(Report::from_json(&text, Path::new("a.json")).unwrap(), report);
    // A report from before there was this.
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    older.as_object_mut().unwrap().remove("clients").unwrap();
    assert_eq!(Report::from_json(&older.to_string(), Path::new("a.json")).unwrap(), report);
}

#[test]
fn what_cannot_be_read_is_said_in_one_line() {
    let text = fixed::report(1).to_json().unwrap();
    let newer = text.replace(&format!("\"format\": {FORMAT}"), "\"format\": 99");
    let other_form = "{\"format\": 99, \"all\": \"else\"}".to_owned();
    let damaged = text.replacen("\"histogram\": \"", "\"histogram\": \"AAAA", 1);
    let cases = [
        (text[..text.len() / 2].to_owned(), "a.json is no report of this program, or is cut off: "),
        (String::new(), "a.json is no report of this program, or is cut off: "),
        ("[1, 2]".to_owned(), "a.json is no report of this program, or is cut off: "),
        (newer, "a.json has format 99, and this program reads format 1: "),
        (other_form, "a.json has format 99, and this program reads format 1: "),
        (damaged, "a.json is no report of this program, or is cut off: a histogram that is not"),
    ];
    for (text, expected) in cases {
        let error = Report::from_json(&text, Path::new("a.json")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = Report::load(Path::new("no/such/file.json")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the report no/such/file.json: "), "{error}");
}

/// Whatever is in the file, reading it ends in a histogram or an error.
#[test]
fn no_damaged_histogram_panics() {
    let text = serde_json::to_string(&fixed::report(1).figures.connect).unwrap();
    let begin = text.find("HIST").unwrap();
    let end = begin + text[begin..].find('"').unwrap();
    let mut refused = 0;
    for place in begin..end {
        for letter in ["A", "/", "n"] {
            let mut damaged = text.clone();
            damaged.replace_range(place..=place, letter);
            let read = serde_json::from_str::<Latencies>(&damaged);
            refused += usize::from(read.is_err());
            drop(read.map(|latencies| latencies.summary()));
        }
    }
    assert!(refused > 50, "only {refused} were refused");
}

#[track_caller]
fn golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let differs = (1..).zip(expected.lines().zip(actual.lines())).find(|(_, (a, b))| a != b);
    assert!(
        expected == actual,
        "{name} changed, first at {differs:?}; if that is right, set UPDATE_GOLDEN=1 and read the diff"
    );
}
