//! Plans a write, if one is needed: from the current status of an object and the desired one.

use super::desired_status::{PROGRAMMED, entry};
use crate::kubernetes::ObservedObject;
use heliograph_gateway::CONTROLLER_NAME;
use heliograph_gateway::objects::{Kind, ObjectKey};
use heliograph_gateway::status::reasons::{self, EventReason, Type};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A change of an object's status. It names the version of the object that it was made for: of any other, the API
/// server refuses it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Write {
    pub(super) method: Method,
    pub(super) body: Value,
    /// Nothing differs but how many proxies have it: that can wait.
    pub(super) is_minor: bool,
    /// Nothing of ours is to be left.
    pub(super) removes_all: bool,
    /// What is wrong now and was not before.
    pub(super) events: Vec<ObjectEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Server-side apply: lists are merged by key, and others' elements stay.
    Apply,
    /// The list is atomic: it is replaced, with others' entries in it as they were read.
    Merge,
}

/// Something that a user must see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObjectEvent {
    pub(super) reason: EventReason,
    pub(super) note: String,
}

/// A list of a status whose entries are of different controllers. It is atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) name: &'static str,
    /// The field that distinguishes entries of one controller.
    reference: &'static str,
    /// How many entries the API allows, those of all controllers together.
    most: usize,
}

/// The API's limit for a message, in bytes to be safe.
const MESSAGE: usize = 32_768;

/// The write after which the object has `desired`; `None` if that is nothing of ours. `is_known`: the object is known to
/// have had an entry of ours, since an applied condition does not show who applied it.
pub(super) fn plan(
    key: &ObjectKey,
    desired: Option<Value>,
    seen: &ObservedObject,
    is_known: bool,
    now: Timestamp,
) -> Option<Write> {
    if let Some(list) = list_of(key.kind) {
        let entries = desired.map_or(Value::Null, |mut desired| desired[list.name].take());
        return of_list(list, &entries, seen, now);
    }
    let removes_all = desired.is_none();
    let desired = desired.or_else(|| is_known.then(|| json!({})))?;
    Some(Write { removes_all, ..of_object(key, desired, seen, now)? })
}

/// Whether what we say of this kind is in entries of a list, which name their controller.
pub(super) fn is_signed(kind: Kind) -> bool {
    list_of(kind).is_some()
}

pub(super) fn list_of(kind: Kind) -> Option<List> {
    match kind {
        kind if kind.policy_kind().is_some() => {
            Some(List { name: "ancestors", reference: "ancestorRef", most: 16 })
        }
        kind if kind.is_route() => Some(List { name: "parents", reference: "parentRef", most: 32 }),
        _ => None,
    }
}

/// The generation that a status is about. Both sides must be about the same: an older one never overwrites a newer.
pub(super) fn is_current(desired: Option<i64>, seen: &ObservedObject) -> bool {
    desired.is_none_or(|generation| generation == seen.generation)
}

fn of_object(
    key: &ObjectKey,
    desired: Value,
    seen: &ObservedObject,
    now: Timestamp,
) -> Option<Write> {
    let old = &*seen.status;
    let mut ours = desired;
    if let Some(conditions) = ours.get_mut("conditions") {
        date(conditions, &old["conditions"], now);
    }
    let given = ours.get_mut("listeners").and_then(Value::as_array_mut);
    for listener in given.into_iter().flatten() {
        let before = named(&old["listeners"], &listener["name"]);
        date(&mut listener["conditions"], &before["conditions"], now);
    }
    // What the object will have: ours, and what is others'.
    let mut new = old.as_object().cloned().unwrap_or_default();
    for (field, value) in ours.as_object().into_iter().flatten() {
        let merged = match field.as_str() {
            "conditions" => merged(&old[field], value),
            "listeners" => listeners(&old[field], value),
            _ => value.clone(),
        };
        new.insert(field.clone(), merged);
    }
    let new = Value::Object(new);
    if new == *old && ours != json!({}) {
        return None;
    }
    let events = events(None, &ours["conditions"], &old["conditions"])
        .chain(ours["listeners"].as_array().into_iter().flatten().flat_map(|listener| {
            let before = named(&old["listeners"], &listener["name"]);
            let part = listener["name"].as_str().map(|name| format!("listener {name}"));
            events(part, &listener["conditions"], &before["conditions"])
        }))
        .collect();
    let mut metadata = json!({"name": key.name.name, "resourceVersion": seen.resource_version});
    if !key.name.namespace.is_empty() {
        metadata["namespace"] = json!(key.name.namespace);
    }
    let body = json!({
        "apiVersion": format!("{}/{}", key.kind.group(), key.kind.api_version().unwrap_or_default()),
        "kind": key.kind.as_str(),
        "metadata": metadata,
        "status": ours,
    });
    let is_minor = is_minor(&new, old);
    Some(Write { method: Method::Apply, body, is_minor, removes_all: false, events })
}

/// In place of each entry of ours the new one, others' as they are, and what is new behind them, as far as there is room.
fn of_list(list: List, desired: &Value, seen: &ObservedObject, now: Timestamp) -> Option<Write> {
    let List { name, reference, most } = list;
    let old: &[Value] = seen.status[name].as_array().map_or(&[], Vec::as_slice);
    let mut wanted: Vec<&Value> = desired.as_array().into_iter().flatten().collect();
    let (mut entries, mut found) = (Vec::new(), Vec::new());
    for before in old {
        if before["controllerName"] != CONTROLLER_NAME {
            entries.push(before.clone());
            continue;
        }
        let is_same = |entry: &&Value| is_same_reference(&entry[reference], &before[reference]);
        let Some(index) = wanted.iter().position(is_same) else { continue };
        let mut entry = wanted.remove(index).clone();
        // As the API server completed it.
        entry[reference] = before[reference].clone();
        date(&mut entry["conditions"], &before["conditions"], now);
        let part = part(&entry[reference]);
        found.extend(events(part, &entry["conditions"], &before["conditions"]));
        entry["conditions"] = merged(&before["conditions"], &entry["conditions"]);
        entries.push(entry);
    }
    for entry in wanted.into_iter().take(most.saturating_sub(entries.len())) {
        let mut entry = entry.clone();
        date(&mut entry["conditions"], &Value::Null, now);
        found.extend(events(part(&entry[reference]), &entry["conditions"], &Value::Null));
        entries.push(entry);
    }
    if entries == old {
        return None;
    }
    let entries = Value::Array(entries);
    let is_minor = is_minor(&entries, &seen.status[name]);
    let metadata = json!({"resourceVersion": seen.resource_version});
    let body = json!({"metadata": metadata, "status": {name: entries}});
    Some(Write { method: Method::Merge, body, is_minor, removes_all: false, events: found })
}

/// `parent web` or `parent web/http`, as its author wrote it.
fn part(reference: &Value) -> Option<String> {
    let name = reference["name"].as_str()?;
    Some(match reference["sectionName"].as_str() {
        Some(section) => format!("parent {name}/{section}"),
        None => format!("parent {name}"),
    })
}

/// The API server fills in what is left out.
fn is_same_reference(one: &Value, other: &Value) -> bool {
    let completed = |reference: &Value| {
        let mut fields = reference.as_object().cloned().unwrap_or_default();
        fields.retain(|_, value| !value.is_null());
        fields.entry("group").or_insert_with(|| json!(Kind::Gateway.group()));
        fields.entry("kind").or_insert_with(|| json!(Kind::Gateway.as_str()));
        fields
    };
    completed(one) == completed(other)
}

/// Says of each condition since when it is as it is: since now only if it was not so before.
fn date(conditions: &mut Value, before: &Value, now: Timestamp) {
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if let Some(message) = condition["message"].as_str().filter(|it| it.len() > MESSAGE) {
            let cut = message.floor_char_boundary(MESSAGE - '…'.len_utf8());
            condition["message"] = json!(format!("{}…", &message[..cut]));
        }
        let was = condition["type"].as_str().and_then(|of| entry(before, "type", of));
        let since = was.filter(|was| was["status"] == condition["status"]);
        let since = since.map(|was| was["lastTransitionTime"].clone()).filter(Value::is_string);
        condition["lastTransitionTime"] = since.unwrap_or_else(|| json!(seconds(now)));
    }
}

/// Ours in their places, others' untouched.
fn merged(old: &Value, ours: &Value) -> Value {
    let mut new: Vec<&Value> = ours.as_array().into_iter().flatten().collect();
    let mut all: Vec<Value> = Vec::new();
    for before in old.as_array().into_iter().flatten() {
        match new.iter().position(|condition| condition["type"] == before["type"]) {
            Some(index) => all.push(new.remove(index).clone()),
            None if is_ours(before) => {}
            None => all.push(before.clone()),
        }
    }
    all.extend(new.into_iter().cloned());
    Value::Array(all)
}

fn listeners(old: &Value, ours: &Value) -> Value {
    let ours: Vec<&Value> = ours.as_array().into_iter().flatten().collect();
    let in_old_place = |listener: &Value| {
        let places = old.as_array().into_iter().flatten();
        places.clone().position(|old| old["name"] == listener["name"]).unwrap_or(usize::MAX)
    };
    let mut all: Vec<(usize, Value)> = Vec::new();
    for listener in &ours {
        let before = named(old, &listener["name"]);
        let mut fields: Map<String, Value> = before.as_object().cloned().unwrap_or_default();
        fields.extend(listener.as_object().cloned().unwrap_or_default());
        fields.insert(
            "conditions".to_owned(),
            merged(&before["conditions"], &listener["conditions"]),
        );
        all.push((in_old_place(listener), Value::Object(fields)));
    }
    // What the Gateway does not have any more goes; what others say of it is theirs.
    for (place, gone) in old.as_array().into_iter().flatten().enumerate() {
        let is_ours = gone["conditions"].as_array().into_iter().flatten().any(is_ours);
        if !is_ours && !ours.iter().any(|listener| listener["name"] == gone["name"]) {
            all.push((place, gone.clone()));
        }
    }
    all.sort_by_key(|(place, _)| *place);
    Value::Array(all.into_iter().map(|(_, listener)| listener).collect())
}

/// The conditions that are ours wherever we write: those of the types that we have, and the one of Gateway API that we have
/// nothing to say with. All others belong to other controllers.
fn is_ours(condition: &Value) -> bool {
    let ours = Type::ALL.iter().map(|of| of.as_str()).chain(["PartiallyInvalid"]);
    ours.into_iter().any(|ours| condition["type"] == ours)
}

fn named<'a>(list: &'a Value, name: &Value) -> &'a Value {
    name.as_str().and_then(|name| entry(list, "name", name)).unwrap_or(&Value::Null)
}

/// Whether only numbers differ in what is said about proxies.
fn is_minor(new: &Value, old: &Value) -> bool {
    fn numberless(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let is_programmed = fields.get("type").is_some_and(|of| of == PROGRAMMED);
                let field = |(name, value): (&String, &Value)| {
                    let value = match value {
                        Value::String(words) if is_programmed && name == "message" => {
                            json!(words.replace(|letter: char| letter.is_ascii_digit(), ""))
                        }
                        other => numberless(other),
                    };
                    (name.clone(), value)
                };
                Value::Object(fields.iter().map(field).collect())
            }
            Value::Array(elements) => Value::Array(elements.iter().map(numberless).collect()),
            other => other.clone(),
        }
    }
    numberless(new) == numberless(old)
}

/// The new faults in one part of an object. A fault that follows from another is reported with that one.
fn events(part: Option<String>, new: &Value, old: &Value) -> impl Iterator<Item = ObjectEvent> {
    let event = |condition: &Value| {
        let (of, reason) = (condition["type"].as_str()?, condition["reason"].as_str()?);
        reasons::find(of, condition["status"] == "True", reason)?.event()
    };
    let conditions = new.as_array().into_iter().flatten();
    let wrong: Vec<(&Value, EventReason)> =
        conditions.filter_map(|condition| Some((condition, event(condition)?))).collect();
    // Nothing that proxies reject follows from a rollback.
    let is_held = |condition: &Value| condition["type"] == Type::Held.as_str();
    let is_only = wrong.iter().filter(|(condition, _)| !is_held(condition)).count() == 1;
    let is_news = |condition: &Value| {
        let before = condition["type"].as_str().and_then(|of| entry(old, "type", of));
        before.is_none_or(|before| {
            let differs = |field: &str| before[field] != condition[field];
            // The message of a rollback says where, who and why: another one is news.
            differs("status") || differs("reason") || (is_held(condition) && differs("message"))
        })
    };
    let new_events = wrong.into_iter().filter(|(it, _)| is_only || it["type"] != PROGRAMMED);
    let new_events =
        new_events.filter(|(condition, _)| is_news(condition)).map(|(condition, reason)| {
            let words = condition["message"].as_str().unwrap_or_default();
            let note = match &part {
                Some(part) => format!("{part}: {words}"),
                None => words.to_owned(),
            };
            ObjectEvent { reason, note }
        });
    new_events.collect::<Vec<_>>().into_iter()
}

/// Kubernetes has times of conditions in seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests;
