use super::Condition;
use super::reasons::route::programmed::CLOSED;
use crate::attach::Parent;
use crate::policies::Levels;
use crate::routes::Rules;
use crate::world::Reader;
use heliograph_model::{PolicyId, Route, RouteId};
use std::collections::{BTreeMap, BTreeSet};

/// What a policy closes of a route at one of its parents.
#[derive(Default)]
struct Closed<'a> {
    rules: BTreeSet<usize>,
    listeners: BTreeSet<&'a str>,
}

/// That policies which cannot be enforced close a route, or some of its rules.
pub(super) fn condition(
    reader: &Reader<'_>,
    id: &RouteId,
    rules: &Rules,
    parent: &Parent,
) -> Option<Condition> {
    let Some(Route::Http(route)) = &rules.route else { return None };
    let mut closed: BTreeMap<PolicyId, Closed<'_>> = BTreeMap::new();
    for listener in &parent.listeners {
        let levels = Levels::of(reader, id, listener);
        if levels.is_empty() {
            continue;
        }
        for (index, rule) in route.rules.iter().enumerate() {
            if let Err(policy) = levels.http(rule.name.as_deref()) {
                let closed = closed.entry(policy).or_default();
                closed.rules.insert(index);
                closed.listeners.insert(&listener.name);
            }
        }
    }
    let words = closed.iter().map(|(policy, closed)| {
        let requests = match closed.rules.len() == route.rules.len() {
            true => "All requests".to_owned(),
            false => {
                let rules: Vec<_> = closed.rules.iter().map(ToString::to_string).collect();
                format!("Requests of rule {}", rules.join(", "))
            }
        };
        let listeners: Vec<_> = closed.listeners.iter().copied().collect();
        let place = match listeners.len() == parent.listeners.len() {
            true => String::new(),
            false => format!(" at listener {}", listeners.join(", ")),
        };
        format!(
            "{requests}{place} are answered with an error, because {policy} cannot be enforced: see its conditions"
        )
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| Condition::new(CLOSED, words.join("; ")))
}
