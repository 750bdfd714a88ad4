use super::AcceptedListener;
use crate::ir::{InfraPort, Listener, ListenerId};
use crate::status::Condition;
use std::collections::BTreeMap;

/// Listeners of one Gateway that are in each other's way. Gateway API: all of them lose, so that the order in which
/// they are written decides nothing.
pub(super) fn mark(listeners: &mut [AcceptedListener]) {
    let mut names: BTreeMap<ListenerId, usize> = BTreeMap::new();
    for listener in &*listeners {
        *names.entry(listener.id.clone()).or_default() += 1;
    }
    for listener in listeners.iter_mut().filter(|listener| names.get(&listener.id) > Some(&1)) {
        listener.refuse("UnsupportedValue", "Another listener has the same name");
    }
    // Only those that share a port of the proxy can be in each other's way.
    let mut by_port: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
        if let Some(listener) = &listener.listener {
            by_port.entry(InfraPort::new(listener.port).bind_port).or_default().push(index);
        }
    }
    for indexes in by_port.values() {
        let verdicts: Vec<(usize, Conflict, String)> = indexes
            .iter()
            .filter_map(|index| {
                let ours = listeners[*index].listener.as_ref()?;
                let mut others = indexes.iter().filter(|other| *other != index);
                others.find_map(|other| {
                    let conflict = conflict(ours, listeners[*other].listener.as_ref()?)?;
                    Some((
                        *index,
                        conflict,
                        format!("Listener {} has {}", listeners[*other].id.name, conflict.1),
                    ))
                })
            })
            .collect();
        for (index, (reason, _), message) in verdicts {
            let listener = &mut listeners[index];
            listener.refuse(reason, &message);
            if reason != PORT_UNAVAILABLE {
                listener.conditions.set(Condition::yes("Conflicted", reason, message));
            }
        }
    }
}

/// The reason, and what the other one has.
type Conflict = (&'static str, &'static str);

const PORT_UNAVAILABLE: &str = "PortUnavailable";

fn conflict(one: &Listener, other: &Listener) -> Option<Conflict> {
    if one.port != other.port {
        return Some((PORT_UNAVAILABLE, "a port that proxies bind at the same number"));
    }
    // Whether a connection begins with TLS tells plain HTTP from HTTPS.
    (one.protocol == other.protocol && one.hostname == other.hostname)
        .then_some(("HostnameConflict", "the same port, protocol and hostname"))
}
