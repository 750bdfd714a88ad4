use super::*;
use crate::feedback::{Blamed, Feedback};
use heliograph_gateway::objects::{Document, Kind, ObjectName, parse};
use heliograph_gateway::{Event, World};
use heliograph_snapshot::Head;
use heliograph_store::Pinned;
use std::collections::BTreeMap;
use std::sync::Arc;

const OBJECTS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph, generation: 1}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop, generation: 3}
spec:
  gatewayClassName: heliograph
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: other, port: 90, protocol: HTTP}
  - {name: bad, port: 53, protocol: UDP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop, generation: 2}
spec:
  parentRefs: [{name: web, sectionName: http}]
";

fn fleet() -> FleetName {
    FleetName::new("shop", "web")
}

fn gateway_key() -> ObjectKey {
    ObjectName::new("shop", "web").of(Kind::Gateway)
}

fn route_key() -> ObjectKey {
    ObjectName::new("shop", "cart").of(Kind::HTTPRoute)
}

fn head(sequence: u64) -> Head {
    Head { epoch: 0, fence: 7, sequence }
}

/// What is known once all is translated, and the Gateway is in the store since a head.
fn report(since: Option<u64>, proxies: Option<FleetFeedback>) -> Report {
    let mut world = World::new();
    for document in parse(OBJECTS) {
        let Document::Object(object) = document else { panic!("{document:?}") };
        world.apply(Event::Applied(object));
    }
    world.settle();
    let statuses = world.statuses().map(|(key, status)| (key.clone(), Arc::new(status.clone())));
    let published = Published::at(3, since.map(head));
    Report {
        statuses: statuses.collect(),
        published: BTreeMap::from([(fleet(), BTreeMap::from([(gateway_key(), published)]))]),
        feedback: proxies.map(|feedback| Arc::new(Feedback::from([(fleet(), feedback)]))),
        ..Report::default()
    }
}

fn proxies(connected: u64, acknowledged: &[(u64, u64)]) -> FleetFeedback {
    let acknowledged = acknowledged.iter().map(|(at, count)| (head(*at), *count)).collect();
    FleetFeedback { connected, acknowledged, ..FleetFeedback::default() }
}

/// The condition of a Gateway and of its listener `http`, which go together.
fn programmed(report: &Report, written: &Value) -> (String, String, String) {
    let status = of(&gateway_key(), report, written).unwrap();
    let of_gateway = entry(&status["conditions"], "type", PROGRAMMED).unwrap();
    let listener = entry(&status["listeners"], "name", "http").unwrap();
    let of_listener = entry(&listener["conditions"], "type", PROGRAMMED).unwrap();
    assert_eq!(of_gateway, of_listener);
    let text = |field: &str| of_gateway[field].as_str().unwrap().to_owned();
    (text("status"), text("reason"), text("message"))
}

#[test]
fn a_gateway_is_programmed_once_a_proxy_has_its_generation() {
    let cases = [
        (None, None, "False", "Not yet in the store"),
        (None, Some(proxies(3, &[(9, 3)])), "False", "Not yet in the store"),
        (Some(5), None, "False", "No proxy is connected yet"),
        (Some(5), Some(proxies(0, &[])), "False", "No proxy is connected yet"),
        (Some(5), Some(proxies(1, &[(4, 1)])), "False", "None of 1 proxy has accepted it yet"),
        (Some(5), Some(proxies(3, &[(4, 2), (5, 1)])), "True", "Accepted by 1 of 3 proxies"),
        (Some(5), Some(proxies(3, &[(5, 1), (8, 2)])), "True", "Accepted by 3 of 3 proxies"),
    ];
    for (since, feedback, status, message) in cases {
        let reason = if status == "True" { "Programmed" } else { "Pending" };
        let expected = (status.to_owned(), reason.to_owned(), message.to_owned());
        assert_eq!(programmed(&report(since, feedback), &Value::Null), expected);
    }
}

#[test]
fn a_gateway_that_an_operator_holds_says_who_and_why() {
    let held = |since| {
        let pinned = Pinned {
            head: head(4),
            since: std::time::SystemTime::UNIX_EPOCH,
            by: "ann".into(),
            reason: "checkout is broken".into(),
        };
        let report = report(since, Some(proxies(1, &[(5, 1)])));
        Report { pins: BTreeMap::from([(fleet(), pinned)]), ..report }
    };
    let status = of(&gateway_key(), &held(Some(5)), &Value::Null).unwrap();
    let condition = entry(&status["conditions"], "type", "heliograph.dev/Held").unwrap();
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&json!("True"), &json!("RolledBack"))
    );
    assert_eq!(
        condition["message"],
        "Held at 0.7.4 by ann: checkout is broken. Changes of objects wait for `helio snapshot release shop/web`"
    );
    assert_eq!(condition["observedGeneration"], 3);
    let (status, reason, message) = programmed(&held(None), &Value::Null);
    assert_eq!((&*status, &*reason), ("False", "Pending"));
    assert!(message.contains("an operator holds the configuration"), "{message}");
    let status = of(&gateway_key(), &report(Some(5), None), &Value::Null).unwrap();
    assert!(entry(&status["conditions"], "type", "heliograph.dev/Held").is_none());
}

#[test]
fn what_was_programmed_stays_so_whoever_leads_and_whatever_becomes_of_the_proxies() {
    let written = of(&gateway_key(), &report(Some(5), Some(proxies(2, &[(5, 2)]))), &Value::Null);
    let written = written.unwrap();
    let cases = [
        // A new leader that has not asked yet, or not found the head yet.
        (None, None, "Accepted by 2 of 2 proxies"),
        (None, Some(proxies(1, &[(5, 1)])), "Accepted by 2 of 2 proxies"),
        // All proxies restart.
        (Some(5), Some(proxies(0, &[])), "Accepted by a proxy; none is connected now"),
        (Some(5), Some(proxies(2, &[])), "Accepted by 0 of 2 proxies"),
        // The store was lost, and published again.
        (Some(9), Some(proxies(2, &[(5, 2)])), "Accepted by 0 of 2 proxies"),
    ];
    for (since, feedback, message) in cases {
        let (status, reason, words) = programmed(&report(since, feedback), &written);
        assert_eq!((&*status, &*reason, &*words), ("True", "Programmed", message));
    }

    let mut older = written;
    older["conditions"][1]["observedGeneration"] = json!(2);
    older["listeners"] = Value::Null;
    let (status, reason, _) = programmed(&report(Some(9), Some(proxies(2, &[(5, 2)]))), &older);
    assert_eq!((&*status, &*reason), ("False", "Pending"), "that was of another generation");
}

#[test]
fn who_does_not_know_yet_keeps_what_was_said() {
    let waiting =
        of(&gateway_key(), &report(Some(5), Some(proxies(0, &[]))), &Value::Null).unwrap();
    let (status, reason, message) = programmed(&report(None, None), &waiting);
    assert_eq!([&*status, &*reason, &*message], ["False", "Pending", "No proxy is connected yet"]);
}

#[test]
fn what_translation_refuses_no_proxy_can_have() {
    let status = of(&gateway_key(), &report(Some(5), Some(proxies(1, &[(5, 1)]))), &Value::Null);
    let status = status.unwrap();
    let bad = entry(&status["listeners"], "name", "bad").unwrap();
    let programmed = entry(&bad["conditions"], "type", PROGRAMMED).unwrap();
    assert_eq!(
        (&programmed["status"], &programmed["reason"]),
        (&json!("False"), &json!("Invalid"))
    );
    let http = entry(&status["listeners"], "name", "http").unwrap();
    let conflicted = entry(&http["conditions"], "type", "Conflicted").unwrap();
    assert_eq!(conflicted["reason"], "NoConflicts");
    let types: Vec<_> =
        http["conditions"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["Accepted", "Conflicted", "Programmed", "ResolvedRefs"]);
    let generations = http["conditions"].as_array().unwrap().iter();
    assert!(generations.map(|it| &it["observedGeneration"]).all(|generation| *generation == 3));
}

fn blame(listener: Option<&str>, rejected: u64) -> Blame {
    let words = "bad regex: no argument".into();
    Blame { fleet: fleet(), listener: listener.map(Into::into), words, rejected }
}

fn of_fleet(blamed: BTreeMap<ObjectKey, Vec<Blame>>) -> Blamed {
    Blamed::from([(fleet(), blamed)])
}

#[test]
fn a_rejected_route_has_envoys_words_and_stays_accepted() {
    let mut report = report(Some(5), Some(proxies(2, &[(4, 2)])));
    let clean = of(&route_key(), &report, &Value::Null).unwrap();
    assert_eq!(entry(&clean["parents"][0]["conditions"], "type", PROGRAMMED), None);

    report.record_blame(of_fleet(BTreeMap::from([(route_key(), vec![blame(None, 2)])])));
    let status = of(&route_key(), &report, &Value::Null).unwrap();
    let conditions = &status["parents"][0]["conditions"];
    assert_eq!(entry(conditions, "type", "Accepted").unwrap()["status"], "True");
    let expected = json!({
        "type": "Programmed",
        "status": "False",
        "reason": "Invalid",
        "message": "Rejected by 2 of 2 proxies: bad regex: no argument",
        "observedGeneration": 2,
    });
    assert_eq!(entry(conditions, "type", PROGRAMMED), Some(&expected));
    assert_eq!(report.changed.since(0).unwrap().collect::<Vec<_>>(), [&route_key()]);

    report.record_blame(of_fleet(BTreeMap::new()));
    assert_eq!(of(&route_key(), &report, &Value::Null), Some(clean));
}

#[test]
fn a_rejected_listener_is_not_programmed_and_the_others_are() {
    let mut report = report(Some(5), Some(proxies(1, &[(5, 1)])));
    let of_listener = |report: &Report, name: &str| {
        let status = of(&gateway_key(), report, &Value::Null).unwrap();
        let listener = entry(&status["listeners"], "name", name).unwrap().clone();
        let programmed = entry(&listener["conditions"], "type", PROGRAMMED).unwrap().clone();
        let whole = entry(&status["conditions"], "type", PROGRAMMED).unwrap().clone();
        (programmed["reason"].clone(), whole["reason"].clone())
    };
    let one = BTreeMap::from([(gateway_key(), vec![blame(Some("http"), 1)])]);
    report.record_blame(of_fleet(one));
    assert_eq!(of_listener(&report, "http"), (json!("Invalid"), json!("Programmed")));
    assert_eq!(of_listener(&report, "other"), (json!("Programmed"), json!("Programmed")));
    let both = vec![blame(Some("http"), 1), blame(Some("other"), 0)];
    report.record_blame(of_fleet(BTreeMap::from([(gateway_key(), both)])));
    assert_eq!(of_listener(&report, "http"), (json!("Invalid"), json!("Invalid")));
}

#[test]
fn what_a_gateway_has_no_more_is_said() {
    let report = report(None, None);
    let status = of(&gateway_key(), &report, &Value::Null).unwrap();
    assert_eq!((status.get("addresses"), status.get("attachedListenerSets")), (None, None));
    let written = json!({"addresses": [{"value": "10.0.0.1"}], "attachedListenerSets": 2});
    let status = of(&gateway_key(), &report, &written).unwrap();
    assert_eq!((&status["addresses"], &status["attachedListenerSets"]), (&json!([]), &json!(0)));
}

#[test]
fn a_class_says_what_works_in_order() {
    let class = ObjectName::new("", "heliograph").of(Kind::GatewayClass);
    let status = of(&class, &report(None, None), &Value::Null).unwrap();
    let features: Vec<_> = status["supportedFeatures"].as_array().unwrap().iter().collect();
    assert!(features.contains(&&json!({"name": "HTTPRoute"})));
    assert!(SUPPORTED_FEATURES.is_sorted());
    assert_eq!(status["conditions"][0]["reason"], "Accepted");
}

/// A port that is taken on one machine is no fault of the Gateway.
#[test]
fn what_a_few_proxies_reject_is_said_beside_how_many_have_it() {
    let programmed_by = |rejected| {
        let mut report = report(Some(5), Some(proxies(120, &[(5, 119)])));
        let blamed = vec![blame(Some("http"), rejected), blame(None, rejected)];
        report.record_blame(of_fleet(BTreeMap::from([(gateway_key(), blamed)])));
        programmed(&report, &Value::Null)
    };
    let (status, reason, message) = programmed_by(1);
    assert_eq!((&*status, &*reason), ("True", "Programmed"));
    assert_eq!(message, "Accepted by 119 of 120 proxies; 1 rejects it: bad regex: no argument");
    let (status, reason, _) = programmed_by(60);
    assert_eq!((&*status, &*reason), ("False", "Invalid"));
}

#[test]
fn what_cannot_be_read_says_so_and_stays_what_it_was() {
    let report = report(Some(5), Some(proxies(1, &[(5, 1)])));
    let reason = "spec.listeners: unknown";
    let status = of_unreadable(&gateway_key(), reason, 4, &report, &Value::Null).unwrap();
    let of_type = |of| entry(&status["conditions"], "type", of).unwrap();
    let accepted = of_type("Accepted");
    assert_eq!(
        (&accepted["status"], &accepted["observedGeneration"]),
        (&json!("False"), &json!(4))
    );
    assert_eq!(accepted["reason"], "UnsupportedValue");
    assert!(accepted["message"].as_str().unwrap().ends_with(reason));
    let programmed = of_type(PROGRAMMED);
    assert_eq!(
        (&programmed["status"], &programmed["observedGeneration"]),
        (&json!("True"), &json!(3))
    );

    // No version of it was decoded: conditions with our field manager are ours, others may be another controller's.
    let empty = Report::default();
    assert_eq!(of_unreadable(&gateway_key(), reason, 4, &empty, &status), None);
    let condition = json!({"type": "Accepted", "status": "True", "observedGeneration": 1});
    let entry = |controller: &str| json!({"controllerName": controller, "conditions": [condition]});
    let written = json!({"parents": [entry("example.com/other"), entry(CONTROLLER_NAME)]});
    let status = of_unreadable(&route_key(), reason, 2, &empty, &written).unwrap();
    assert_eq!(status["parents"].as_array().unwrap().len(), 1);
    assert_eq!(status["parents"][0]["conditions"][0]["status"], "False");
}

/// Of its class's proxies, none may have it yet, whatever those said that it had alone.
#[test]
fn what_proxies_of_another_fleet_had_counts_no_more() {
    let before = of(&gateway_key(), &report(Some(4), Some(proxies(1, &[(4, 1)]))), &Value::Null);
    let moved = |feedback| {
        let mut report = report(Some(5), None);
        let published =
            report.published.get_mut(&fleet()).and_then(|all| all.get_mut(&gateway_key()));
        published.unwrap().is_moved = true;
        report.receive(Arc::new(Feedback::from([(fleet(), feedback)])));
        report
    };
    let before = before.unwrap();
    let (status, reason, _) = programmed(&moved(proxies(0, &[])), &before);
    assert_eq!((&*status, &*reason), ("False", "Pending"));
    let mut report = moved(proxies(2, &[(5, 1)]));
    let (status, _, message) = programmed(&report, &before);
    assert_eq!((&*status, &*message), ("True", "Accepted by 1 of 2 proxies"));
    // From here on it is as with any other.
    let written = of(&gateway_key(), &report, &before).unwrap();
    report.receive(Arc::new(Feedback::from([(fleet(), proxies(0, &[]))])));
    assert_eq!(programmed(&report, &written).0, "True");
}
