use heliograph_report::Report;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// What a run of the program left.
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) text: String,
}

/// Long enough for a busy machine; nothing waits for it but a failing test.
const SECONDS: &str = "300";

pub(crate) fn path() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_loadtest"))
}

/// Runs the program to its end.
pub(crate) fn loadtest(arguments: &[&str]) -> Ran {
    let Output { status, stdout, stderr } = Command::new("timeout")
        .args(["--kill-after=5", SECONDS])
        .arg(path())
        .args(arguments)
        .output()
        .unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    Ran { status: status.code().unwrap(), text }
}

/// Plays a scenario in brief against servers that it starts.
pub(crate) fn play(scenario: &str, launch: &str) -> (Ran, Report) {
    let scratch = TempDir::new().unwrap();
    let (json, html) = (scratch.path().join("report.json"), scratch.path().join("report.html"));
    // The load test starts the one beside it.
    heliograph_testing::program("distributor");
    let files = [json.to_str().unwrap(), html.to_str().unwrap()];
    let arguments = ["run", scenario, "--brief", "--launch", launch];
    let ran = loadtest(&[&arguments[..], &["--json", files[0], "--html", files[1]]].concat());
    assert!(json.exists(), "no report: {}", ran.text);
    assert!(std::fs::read_to_string(html).unwrap().contains("<svg"));
    (ran, Report::load(&json).unwrap())
}
