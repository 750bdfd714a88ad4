use crate::program::{loadtest, play};
use heliograph_loadtest::scenario::{BUILT_IN, Scenario, Step};
use std::path::Path;
use std::process::Command;

/// One test for each, so that they run beside each other.
macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            plays($name);
        })*

        #[test]
        fn every_one_is_played() {
            let played = [$($name),*];
            assert_eq!(BUILT_IN.map(|(name, _)| name), played);
        }
    };
}

scenarios! {
    connect_storm: "connect-storm",
    idle: "idle",
    endpoint_churn: "endpoint-churn",
    route_change: "route-change",
    full_push: "full-push",
    rolling_restart: "rolling-restart",
    replica_loss: "replica-loss",
    scale_out: "scale-out",
    autoscale: "autoscale",
    slow_readers: "slow-readers",
    nack: "nack",
    many_fleets: "many-fleets",
    many_classes: "many-classes",
    soak: "soak",
}

fn plays(name: &str) {
    let scenario = Scenario::find(name).unwrap().brief();
    let (ran, report) = play(name, "heliograph");
    assert_eq!(ran.status, 0, "{}", ran.text);
    let figures = &report.figures;
    let clients = scenario.clients as u64;
    assert_eq!(figures.violations.total(), 0, "{}", ran.text);
    assert_eq!(figures.errors.total(), 0, "{}", ran.text);
    assert_eq!(report.most_streams(), clients);
    let rejects = name == "nack";
    assert!(figures.counters.first_states == clients || rejects, "{}", ran.text);
    assert_eq!(figures.counters.nacks > 0, rejects);

    let repeat = usize::try_from(scenario.repeat).unwrap();
    assert_eq!(report.phases.len(), 1 + scenario.steps.len() * repeat);
    for (phase, step) in report.phases[1..].iter().zip(scenario.steps.iter().cycle()) {
        assert_eq!(phase.name, step.to_string());
        if let Step::Change { count, .. } = step {
            let pushes = phase.figures.pushes.len();
            assert_eq!(pushes, usize::try_from(*count).unwrap(), "{}: {}", phase.name, ran.text);
            assert!(phase.figures.receipt.count() >= u64::from(*count));
        }
    }
    assert!(report.per_stream.is_some(), "{}", ran.text);
    assert_eq!(report.clients.processes, 1);
    assert!(ran.text.contains("clients (1 process)"), "{}", ran.text);
    let servers = report.servers.len();
    let added = match name {
        "scale-out" => 1,
        "autoscale" => 4,
        _ => 0,
    };
    assert_eq!(servers, scenario.servers + added + 1, "the distributors and a Redis");
    assert!(report.cpu().is_some() && report.peak_memory().is_some());
}

#[test]
fn who_lost_its_server_is_not_sent_again_what_it_has() {
    let (ran, report) = play("replica-loss", "heliograph");
    let counters = &report.figures.counters;
    assert!(counters.opened > report.most_streams(), "they came back: {}", ran.text);
    assert_eq!(counters.resent, 0, "{}", ran.text);
}

#[test]
fn streams_follow_the_servers_that_come_and_go() {
    let run = ["run", "autoscale", "--brief", "--clients", "300", "--launch", "heliograph"];
    let ran = loadtest(&run);
    assert_eq!(ran.status, 0, "{}", ran.text);
    assert!(ran.text.contains("violations: none") && ran.text.contains("errors: none"));
    for servers in ["2 to 6 servers: after", "6 to 2 servers: after"] {
        assert!(ran.text.contains(servers), "{}", ran.text);
    }
}

#[test]
fn servers_that_it_starts_can_serve_tls() {
    let launch = ["run", "endpoint-churn", "--brief", "--launch"];
    let ran = loadtest(&[&launch[..], &["heliograph", "--launch-tls"]].concat());
    assert_eq!(ran.status, 0, "{}", ran.text);
    assert!(ran.text.contains("violations: none") && ran.text.contains("errors: none"));
}

#[test]
fn another_server_is_measured_and_caught() {
    let Some(peer) = peer() else {
        println!("there is no Go here, so go-control-plane is not measured");
        return;
    };
    let run = |scenario: &str, flags: &[&str]| {
        let arguments = ["run", scenario, "--brief", "--launch", "snapshot-cache"];
        let mut program = Command::new(crate::program::path());
        program.args(arguments).args(flags).env("PEER", &peer).output().unwrap()
    };
    let good = run("endpoint-churn", &["--launch-tls"]);
    let text = String::from_utf8_lossy(&good.stdout).into_owned();
    assert_eq!(good.status.code(), Some(0), "{text}");
    assert!(text.contains("go-control-plane") && text.contains("violations: none"), "{text}");
    let bad = run("nack", &[]);
    let text = String::from_utf8_lossy(&bad.stdout).into_owned();
    assert_eq!(bad.status.code(), Some(1), "{text}");
    assert!(text.contains("resent after a rejection"), "{text}");
}

#[test]
fn reports_are_compared() {
    let scratch = tempfile::TempDir::new().unwrap();
    let (_, mut report) = play("connect-storm", "heliograph");
    let write = |name: &str, report: &heliograph_report::Report| {
        let path = scratch.path().join(name);
        std::fs::write(&path, report.to_json().unwrap()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let before = write("before.json", &report);
    report.figures.counters.responses *= 2;
    let after = write("after.json", &report);
    assert_eq!(loadtest(&["compare", &before, &before]).status, 0);
    let worse = loadtest(&["compare", &before, &after]);
    assert_eq!(worse.status, 1, "{}", worse.text);
    assert!(worse.text.contains("regressed: responses"), "{}", worse.text);
    assert_eq!(loadtest(&["compare", &before, &after, "--bound", "2"]).status, 0);
    assert_eq!(loadtest(&["compare", &before, "no-such-file"]).status, 2);
    let page = scratch.path().join("page.html");
    assert_eq!(loadtest(&["report", &before, "--html", page.to_str().unwrap()]).status, 0);
    assert!(page.exists());
}

/// None without a Go: the tool says so with a status of its own.
fn peer() -> Option<String> {
    const NO_GO: i32 = 3;
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tools");
    let output = Command::new(tools).arg("peer").output().unwrap();
    if output.status.code() == Some(NO_GO) {
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}
