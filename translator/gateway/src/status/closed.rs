use super::Condition;
use super::reasons::route::programmed::CLOSED;
use crate::attach::Parent;
use crate::policies::Levels;
use crate::routes::Rules;
use crate::world::Reader;
use heliograph_model::{PolicyId, Route, RouteId};
use std::collections::{BTreeMap, BTreeSet};

/// The rules, and the listeners, for which a policy closes a route at one of its parents.
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
    // The names of its rules, and what becomes of what they would have served.
    let (names, what, fate): (Vec<Option<&str>>, _, _) = match rules.route.as_ref()? {
        Route::Http(route) => {
            let names = route.rules.iter().map(|rule| rule.name.as_deref());
            (names.collect(), "requests", "answered with an error")
        }
        Route::Tcp(_) => (vec![None], "connections", "closed"),
    };
    let mut closed: BTreeMap<PolicyId, Closed<'_>> = BTreeMap::new();
    for listener in &parent.listeners {
        let levels = Levels::of(reader, id, listener);
        if levels.is_empty() {
            continue;
        }
        for (index, name) in names.iter().enumerate() {
            if let Err(policy) = levels.http(*name) {
                let closed = closed.entry(policy).or_default();
                closed.rules.insert(index);
                closed.listeners.insert(&listener.name);
            }
        }
    }
    let words = closed.iter().map(|(policy, closed)| {
        let requests = match closed.rules.len() == names.len() {
            true => format!("All {what}"),
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
            "{requests}{place} are {fate}, because {policy} cannot be enforced: see its conditions"
        )
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| Condition::new(CLOSED, words.join("; ")))
}
