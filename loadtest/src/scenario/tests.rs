use super::*;
use crate::population::Conduct;
use crate::workload::{Reach, UpdateKind};

fn reason(text: &str) -> String {
    match Scenario::parse("mine", text) {
        Ok(scenario) => panic!("it is valid: {scenario:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_built_in_one_is_valid_also_when_it_is_brief() {
    for (name, text) in BUILT_IN {
        let scenario = Scenario::parse(name, text).unwrap();
        assert_eq!(scenario.name, name);
        assert!(!scenario.about.is_empty() && !scenario.about.contains('\n'), "{name}");
        let brief = scenario.clone().brief();
        assert_eq!(brief.check(), Ok(()), "{name}");
        assert_eq!(brief.steps.len(), scenario.steps.len());
        assert!(brief.clients < scenario.clients);
    }
}

#[test]
fn a_file_says_everything() {
    let scenario = Scenario::parse(
        "mine",
        "
about: All there is.
clients: 100
processes: 2
fleets: 3
servers: 2
balance: {rebalance-rate: 7}
protocol: mixed
streams-per-connection: 5
resources: {clusters: 10, listeners: 1, routes: 4}
population:
  - share: 90%
    zone: [a, b]
  - share: 10%
    node: real
    conduct: {rejects: {kind: cluster}}
connect: {rate: 50}
steps:
  - idle: 1s
  - {change: endpoint, every: 10ms, count: 5, reach: one-fleet}
  - {reconnect: 10%, over: 5s}
  - {restart-servers: one-by-one, pause: 2s}
  - add-servers: 1
  - {scale-servers: 6, within: 5m, most-opened: 300}
  - {behave: garbage, share: 5%}
repeat: 2
end: {settle: 5s}
",
    )
    .unwrap();
    let share = |text: &str| text.parse::<Share>().unwrap();
    let seconds = Duration::from_secs;
    let expected = [
        Step::Idle(seconds(1)),
        Step::Change {
            kind: UpdateKind::Endpoint,
            every: Duration::from_millis(10),
            count: 5,
            reach: Reach::OneFleet,
        },
        Step::Reconnect { share: share("10%"), over: seconds(5) },
        Step::Restart { how: Restart::OneByOne, pause: seconds(2) },
        Step::AddServers(1),
        Step::Scale { to: 6, within: seconds(300), most_opened: Some(300) },
        Step::Behave { conduct: Conduct::Garbage, share: share("5%") },
    ];
    assert_eq!(scenario.steps, expected);
    assert!(scenario.needs_own_servers() && scenario.makes_changes());
    assert_eq!((scenario.processes, scenario.fleets, scenario.repeat), (2, 3, 2));
    let balance = Balance { rebalance_rate: 7, drain_time: Span(Duration::ZERO) };
    assert_eq!(scenario.balance, balance);
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let cases = [
        ("about: x", "clients"),
        ("about: x\nclients: 1\nclinets: 2", "clinets"),
        ("about: x\nclients: 0", "clients: 0 is not from 1 to"),
        ("about: x\nclients: 1\nsteps:\n  - idle: 5", "no duration"),
        ("about: x\nclients: 1\nsteps:\n  - sleep: 5s", "sleep"),
        ("about: x\nclients: 1\nsteps:\n  - {idle: 5s, add-servers: 1}", "write two steps"),
        ("about: x\nclients: 1\nsteps:\n  - {every: 5s}", "this is none"),
        ("about: x\nclients: 1\nsteps:\n  - {idle: 5s, count: 3}", "`count` does not belong"),
        ("about: x\nclients: 1\nsteps:\n  - {change: route}", "nothing to change"),
        ("about: x\nclients: 1\nsteps:\n  - {scale-servers: 0}", "from 1 to"),
        ("about: x\nclients: 1\nsteps:\n  - {change: endpoint, every: 0s}", "every"),
        ("about: x\nclients: 1\nsteps:\n  - {reconnect: 0%}", "no share"),
        ("about: x\nclients: 1\nconnect: {rate: 0}", "rate"),
        ("about: x\nclients: 1\nprotocol: grpc", "expected one of delta, sotw, mixed"),
        ("about: x\nclients: 1\npopulation:\n  - version: '1'", "no version of Envoy"),
        (
            "about: x\nclients: 1\npopulation:\n  - conduct: {rejects: {kind: x}}",
            "no type of resource",
        ),
    ];
    for (text, part) in cases {
        let reason = reason(text);
        assert!(reason.contains(part), "{text}\n{reason}");
        assert!(!reason.contains('\n') && reason.contains("mine"), "{reason}");
    }
}

#[test]
fn what_there_is_not_is_said() {
    let error = Scenario::find("no-such-scenario").unwrap_err().to_string();
    assert!(error.contains("loadtest list"), "{error}");
}
