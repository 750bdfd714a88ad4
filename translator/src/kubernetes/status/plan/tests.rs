use super::*;
use heliograph_gateway::objects::ObjectName;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const EARLIER: &str = "2024-01-01T00:00:00Z";
const NOW: &str = "2024-06-01T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn route() -> ObjectKey {
    ObjectName::new("shop", "cart").of(Kind::HTTPRoute)
}

fn gateway() -> ObjectKey {
    ObjectName::new("shop", "web").of(Kind::Gateway)
}

fn seen(status: Value) -> ObservedObject {
    let (resource_version, uid) = ("7".to_owned(), "u".to_owned());
    ObservedObject {
        generation: 2,
        resource_version,
        uid,
        unreadable: None,
        status: Arc::new(status),
    }
}

/// A condition as it is to be: without a time.
fn condition(of: &str, status: &str, reason: &str) -> Value {
    let message = format!("{of} is {status}");
    json!({"type": of, "status": status, "reason": reason, "message": message, "observedGeneration": 2})
}

/// A condition as it is in an object.
fn since(mut condition: Value, time: &str) -> Value {
    condition["lastTransitionTime"] = json!(time);
    condition
}

fn parent(name: &str, conditions: Vec<Value>) -> Value {
    let reference = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name});
    json!({"parentRef": reference, "controllerName": CONTROLLER_NAME, "conditions": conditions})
}

fn foreign() -> Value {
    json!({
        "parentRef": {"name": "web"},
        "controllerName": "example.com/other",
        "conditions": [since(condition("Accepted", "False", "NotOurs"), EARLIER)],
    })
}

fn planned(key: &ObjectKey, desired: Option<Value>, status: Value) -> Option<Write> {
    plan(key, desired, &seen(status), false, now())
}

/// What the API server makes of a write.
fn written(key: &ObjectKey, old: &Value, write: &Write) -> Value {
    let ours = &write.body["status"];
    match write.method {
        Method::Merge => ours.clone(),
        Method::Apply => {
            let mut new = old.as_object().cloned().unwrap_or_default();
            for (field, value) in ours.as_object().unwrap() {
                let value = match field.as_str() {
                    "conditions" => merged(&old[field], value),
                    "listeners" => listeners(&old[field], value),
                    _ => value.clone(),
                };
                new.insert(field.clone(), value);
            }
            assert_eq!(write.body["metadata"]["name"], json!(key.name.name));
            Value::Object(new)
        }
    }
}

#[test]
fn a_route_keeps_others_entries_and_conditions() {
    let accepted = condition("Accepted", "True", "Accepted");
    let theirs = since(condition("example.com/Checked", "True", "Checked"), EARLIER);
    let old = json!({"parents": [
        parent("gone", vec![since(accepted.clone(), EARLIER)]),
        foreign(),
        parent("web", vec![theirs.clone(), since(condition("Accepted", "False", "No"), EARLIER)]),
    ]});
    let desired = json!({"parents": [
        parent("new", vec![accepted.clone()]),
        parent("web", vec![accepted.clone()]),
    ]});
    let write = planned(&route(), Some(desired), old).unwrap();
    assert_eq!(write.method, Method::Merge);
    assert_eq!(write.body["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(
        write.body["status"],
        json!({"parents": [
            foreign(),
            parent("web", vec![theirs, since(accepted.clone(), NOW)]),
            parent("new", vec![since(accepted, NOW)]),
        ]})
    );
}

/// The API rejects a longer list, whichever controller wrote its entries.
#[test]
fn a_policy_of_any_kind_keeps_others_entries_and_has_as_many_as_there_is_room_for() {
    let ancestor = |name: usize, controller: &str| {
        let reference = json!({
            "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name.to_string(),
        });
        let accepted = condition("Accepted", "True", "Accepted");
        json!({
            "ancestorRef": reference, "controllerName": controller,
            "conditions": [since(accepted, NOW)],
        })
    };
    let theirs: Vec<Value> = (0..10).map(|name| ancestor(name, "example.com/other")).collect();
    let ours: Vec<Value> = (0..16).map(|name| ancestor(name, CONTROLLER_NAME)).collect();
    let policies = Kind::ALL.iter().filter(|kind| kind.policy_kind().is_some());
    for kind in policies {
        let key = ObjectName::new("shop", "one").of(*kind);
        let (desired, old) = (json!({ "ancestors": ours }), json!({ "ancestors": theirs }));
        let write = planned(&key, Some(desired.clone()), old).unwrap();
        let written = &write.body["status"];
        assert_eq!(written["ancestors"].as_array().unwrap()[..10], theirs);
        assert_eq!(written["ancestors"].as_array().unwrap()[10..], ours[..6]);
        assert_eq!(planned(&key, Some(desired), written.clone()), None);
    }
}

#[test]
fn what_is_written_already_is_not_written_again() {
    let desired = json!({"parents": [parent("web", vec![
        condition("Accepted", "True", "Accepted"),
        condition("ResolvedRefs", "False", "BackendNotFound"),
    ])]});
    let write = planned(&route(), Some(desired.clone()), json!({"parents": [foreign()]})).unwrap();
    let status = written(&route(), &Value::Null, &write);
    assert_eq!(planned(&route(), Some(desired.clone()), status), None);

    // The API server fills in the defaults of a reference that left them out.
    let mut short = desired.clone();
    short["parents"][0]["parentRef"] = json!({"name": "web"});
    let status =
        written(&route(), &Value::Null, &planned(&route(), Some(desired), Value::Null).unwrap());
    assert_eq!(planned(&route(), Some(short), status), None);
}

#[test]
fn the_time_of_a_condition_is_kept_while_its_status_is() {
    let old = json!({"parents": [parent("web", vec![
        since(condition("Accepted", "True", "Accepted"), EARLIER),
        since(condition("ResolvedRefs", "True", "ResolvedRefs"), EARLIER),
    ])]});
    let desired = json!({"parents": [parent("web", vec![
        condition("Accepted", "True", "OtherReason"),
        condition("ResolvedRefs", "False", "BackendNotFound"),
    ])]});
    let write = planned(&route(), Some(desired), old).unwrap();
    let conditions = &write.body["status"]["parents"][0]["conditions"];
    assert_eq!(conditions[0]["lastTransitionTime"], EARLIER);
    assert_eq!(conditions[1]["lastTransitionTime"], NOW);
}

#[test]
fn a_route_that_is_not_ours_any_more_loses_our_entries() {
    let ours = parent("web", vec![since(condition("Accepted", "True", "Accepted"), EARLIER)]);
    let write = planned(&route(), None, json!({"parents": [ours, foreign()]})).unwrap();
    assert_eq!(write.body["status"], json!({"parents": [foreign()]}));
    assert_eq!(planned(&route(), None, json!({"parents": [foreign()]})), None);
    assert_eq!(planned(&route(), None, Value::Null), None);
}

fn of_gateway(programmed: &str, listeners: &[&str]) -> Value {
    let listener = |name: &&str| {
        json!({
            "name": name,
            "attachedRoutes": 1,
            "supportedKinds": [],
            "conditions": [condition("Programmed", "True", programmed)],
        })
    };
    json!({
        "conditions": [condition("Programmed", "True", programmed)],
        "listeners": listeners.iter().map(listener).collect::<Vec<_>>(),
    })
}

#[test]
fn a_gateway_is_applied_and_keeps_what_is_others() {
    let first = planned(&gateway(), Some(of_gateway("Programmed", &["http", "old"])), Value::Null);
    let mut status = written(&gateway(), &Value::Null, &first.unwrap());
    let theirs = since(condition("example.com/Checked", "True", "Checked"), EARLIER);
    status["addresses"] = json!([{"value": "10.0.0.1"}]);
    status["conditions"].as_array_mut().unwrap().push(theirs.clone());
    status["listeners"][0]["conditions"].as_array_mut().unwrap().push(theirs.clone());
    let same = Some(of_gateway("Programmed", &["http", "old"]));
    assert_eq!(planned(&gateway(), same, status.clone()), None);

    let write = planned(&gateway(), Some(of_gateway("Programmed", &["http"])), status.clone());
    let write = write.unwrap();
    assert_eq!(write.method, Method::Apply);
    assert_eq!(write.body["apiVersion"], "gateway.networking.k8s.io/v1");
    let metadata = json!({"name": "web", "namespace": "shop", "resourceVersion": "7"});
    assert_eq!(write.body["metadata"], metadata);
    assert_eq!(write.body["status"].get("addresses"), None, "what is not ours is not applied");
    let status = written(&gateway(), &status, &write);
    assert_eq!(status["listeners"].as_array().unwrap().len(), 1);
    assert_eq!(status["listeners"][0]["conditions"][1], theirs);
    assert_eq!(planned(&gateway(), Some(of_gateway("Programmed", &["http"])), status), None);
}

#[test]
fn what_was_applied_is_taken_back_only_where_it_is_known_to_be_ours() {
    let status = json!({"conditions": [since(condition("Accepted", "True", "Accepted"), EARLIER)]});
    assert_eq!(planned(&gateway(), None, status.clone()), None, "another controller's");
    let write = plan(&gateway(), None, &seen(status), true, now()).unwrap();
    assert_eq!((write.method, &write.body["status"]), (Method::Apply, &json!({})));
}

#[test]
fn only_how_many_proxies_there_are_can_wait() {
    let counted = |message: &str| {
        let mut status = of_gateway("Programmed", &["http"]);
        status["conditions"][0]["message"] = json!(message);
        status["listeners"][0]["conditions"][0]["message"] = json!(message);
        status
    };
    let first = planned(&gateway(), Some(counted("Accepted by 9 of 12 proxies")), Value::Null);
    let first = first.unwrap();
    assert!(!first.is_minor);
    let status = written(&gateway(), &Value::Null, &first);
    let words = counted("Accepted by a proxy; none is connected now");
    assert!(!planned(&gateway(), Some(words), status.clone()).unwrap().is_minor);
    let mut counted = counted("Accepted by 12 of 12 proxies");
    assert!(planned(&gateway(), Some(counted.clone()), status.clone()).unwrap().is_minor);
    counted["listeners"][0]["attachedRoutes"] = json!(2);
    assert!(!planned(&gateway(), Some(counted), status).unwrap().is_minor);
}

#[test]
fn users_are_told_once_of_what_is_wrong() {
    let recorded = |conditions: Vec<Value>, old: &Value| {
        let desired = json!({"parents": [parent("web", conditions)]});
        let write = planned(&route(), Some(desired), old.clone());
        let recorded = write.as_ref().map(|write| write.events.clone()).unwrap_or_default();
        let status = write.map_or(old.clone(), |write| written(&route(), old, &write));
        (
            recorded
                .into_iter()
                .map(|it| (it.reason.as_str().to_owned(), it.note))
                .collect::<Vec<_>>(),
            status,
        )
    };
    let accepted = condition("Accepted", "True", "Accepted");
    let rejected = condition("Programmed", "False", "Invalid");
    let (nothing, status) = recorded(vec![accepted.clone()], &Value::Null);
    assert_eq!(nothing, []);
    let (first, status) = recorded(vec![accepted.clone(), rejected.clone()], &status);
    let note = "parent web: Programmed is False".to_owned();
    assert_eq!(first, [("RejectedByProxies".to_owned(), note)]);
    let mut again = rejected;
    again["message"] = json!("Programmed is False, for others too");
    let (second, _) = recorded(vec![accepted, again.clone()], &status);
    assert_eq!(second, [], "it is known");
    let refused = condition("Accepted", "False", "UnsupportedValue");
    let (third, _) = recorded(vec![refused, again], &Value::Null);
    let note = "parent web: Accepted is False".to_owned();
    assert_eq!(third, [("UnsupportedValue".to_owned(), note)], "what follows from it is not told");
    let (waiting, _) = recorded(vec![condition("Programmed", "False", "Pending")], &Value::Null);
    assert_eq!(waiting, []);
}

#[test]
fn users_are_told_of_each_rollback_and_of_what_proxies_reject_meanwhile() {
    let recorded = |conditions: Vec<Value>, old: &Value| {
        let write = planned(&gateway(), Some(json!({"conditions": conditions})), old.clone());
        let write = write.unwrap();
        let recorded =
            write.events.iter().map(|it| (it.reason.as_str().to_owned(), it.note.clone()));
        (recorded.collect::<Vec<_>>(), written(&gateway(), old, &write))
    };
    let held = |message: &str| {
        let mut held = condition("heliograph.dev/Held", "True", "RolledBack");
        held["message"] = json!(message);
        held
    };
    let event = |reason: &str, note: &str| (reason.to_owned(), note.to_owned());
    let programmed = condition("Programmed", "True", "Programmed");
    let (first, status) =
        recorded(vec![programmed.clone(), held("Held at 0.7.4 by ann")], &Value::Null);
    assert_eq!(first, [event("RolledBack", "Held at 0.7.4 by ann")]);
    let (another, status) = recorded(vec![programmed, held("Held at 0.7.2 by bob")], &status);
    assert_eq!(another, [event("RolledBack", "Held at 0.7.2 by bob")]);
    let rejected = condition("Programmed", "False", "Invalid");
    let (rejected, _) = recorded(vec![rejected, held("Held at 0.7.2 by bob")], &status);
    assert_eq!(rejected, [event("RejectedByProxies", "Programmed is False")]);
}

#[test]
fn a_message_fits() {
    let mut long = condition("Accepted", "False", "UnsupportedValue");
    long["message"] = json!("ü".repeat(MESSAGE));
    let desired = json!({"parents": [parent("web", vec![long])]});
    let write = planned(&route(), Some(desired.clone()), Value::Null).unwrap();
    let message = write.body["status"]["parents"][0]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.len() <= MESSAGE && message.ends_with('…'), "{}", message.len());
    assert_eq!(planned(&route(), Some(desired), written(&route(), &Value::Null, &write)), None);
}

#[test]
fn an_older_generation_never_goes_over_a_newer_one() {
    let seen = seen(Value::Null);
    assert_eq!(
        [1, 2, 3].map(|generation| is_current(Some(generation), &seen)),
        [false, true, false]
    );
    assert!(is_current(None, &seen));
}

const THEIRS: &str = "example.com/Checked";

/// Conditions by type: whether they are true, and which reason they have.
type Described = BTreeMap<&'static str, (bool, u8)>;

fn described(types: &'static [&'static str]) -> impl Strategy<Value = Described> {
    btree_map(prop::sample::select(types), (any::<bool>(), 0..2_u8), 0..types.len())
}

fn conditions(described: &Described) -> Vec<Value> {
    let conditions = described.iter().map(|(of, (is_true, reason))| {
        condition(of, if *is_true { "True" } else { "False" }, &format!("Reason{reason}"))
    });
    conditions.collect()
}

fn dated(described: &Described) -> Vec<Value> {
    conditions(described).into_iter().map(|condition| since(condition, EARLIER)).collect()
}

proptest! {
    #[test]
    fn whatever_a_route_has_one_write_settles_it_and_leaves_others_alone(
        old in vec((any::<bool>(), 0..4_u8, described(&["Accepted", "ResolvedRefs", "Programmed", THEIRS])), 0..5),
        wanted in btree_map(0..4_u8, described(&["Accepted", "ResolvedRefs", "Programmed"]), 0..4),
    ) {
        let mut names: Vec<u8> = Vec::new();
        let mut parents = Vec::new();
        for (is_ours, name, described) in &old {
            let mut entry = parent(&name.to_string(), dated(described));
            if !*is_ours {
                entry["controllerName"] = json!("example.com/other");
            } else if names.contains(name) {
                continue;
            } else {
                names.push(*name);
            }
            parents.push(entry);
        }
        let of_others = |parents: &[Value]| -> Vec<Value> {
            parents.iter().filter(|it| it["controllerName"] != CONTROLLER_NAME).cloned().collect()
        };
        let desired = wanted.iter().map(|(name, it)| parent(&name.to_string(), conditions(it)));
        let desired = (!wanted.is_empty()).then(|| json!({"parents": desired.collect::<Vec<_>>()}));
        let status = json!({"parents": parents});
        let write = planned(&route(), desired.clone(), status.clone());
        let new = write.map_or(status, |write| written(&route(), &Value::Null, &write));
        let entries = new["parents"].as_array().unwrap();
        prop_assert_eq!(of_others(entries), of_others(&parents));
        let ours: Vec<&Value> = entries.iter().filter(|it| it["controllerName"] == CONTROLLER_NAME).collect();
        prop_assert_eq!(ours.len(), wanted.len());
        for entry in ours {
            let name: u8 = entry["parentRef"]["name"].as_str().unwrap().parse().unwrap();
            let before = parents.iter().find(|it| it["controllerName"] == CONTROLLER_NAME && it["parentRef"] == entry["parentRef"]);
            let before = before.map_or(&Value::Null, |before| &before["conditions"]);
            let theirs = super::entry(&entry["conditions"], "type", THEIRS);
            prop_assert_eq!(theirs, super::entry(before, "type", THEIRS));
            let ours = entry["conditions"].as_array().unwrap().iter().filter(|it| it["type"] != THEIRS);
            prop_assert_eq!(ours.clone().count(), wanted[&name].len());
            for condition in ours {
                let of = condition["type"].as_str().unwrap();
                let was = super::entry(before, "type", of).is_some_and(|was| was["status"] == condition["status"]);
                prop_assert_eq!(&condition["lastTransitionTime"], if was { EARLIER } else { NOW });
            }
        }
        prop_assert_eq!(planned(&route(), desired, new), None, "it is settled");
    }

    #[test]
    fn whatever_a_gateway_has_one_write_settles_it_and_leaves_others_alone(
        old in described(&["Accepted", "Programmed", THEIRS]),
        listeners in btree_map(0..3_u8, described(&["Accepted", "Programmed", "Conflicted", THEIRS]), 0..4),
        wanted in described(&["Accepted", "Programmed"]),
        wanted_listeners in btree_map(0..3_u8, described(&["Accepted", "Programmed", "Conflicted"]), 0..4),
    ) {
        let listener = |name: &u8, conditions: Vec<Value>| json!({"name": name.to_string(), "attachedRoutes": 0, "conditions": conditions});
        let status = json!({
            "addresses": [{"value": "10.0.0.1"}],
            "conditions": dated(&old),
            "listeners": listeners.iter().map(|(name, it)| listener(name, dated(it))).collect::<Vec<_>>(),
        });
        let desired = json!({
            "conditions": conditions(&wanted),
            "listeners": wanted_listeners.iter().map(|(name, it)| listener(name, conditions(it))).collect::<Vec<_>>(),
        });
        let write = planned(&gateway(), Some(desired.clone()), status.clone());
        let new = write.map_or(status.clone(), |write| written(&gateway(), &status, &write));
        prop_assert_eq!(&new["addresses"], &status["addresses"]);
        let theirs = |status: &Value| super::entry(&status["conditions"], "type", THEIRS).cloned();
        prop_assert_eq!(theirs(&new), theirs(&status));
        for name in wanted_listeners.keys().map(u8::to_string) {
            let of = |status: &Value| super::entry(&status["listeners"], "name", &name).and_then(&theirs);
            prop_assert_eq!(of(&new), of(&status));
        }
        prop_assert_eq!(planned(&gateway(), Some(desired), new), None, "it is settled");
    }
}
