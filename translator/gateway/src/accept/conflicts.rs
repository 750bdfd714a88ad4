use super::AcceptedListener;
use super::listener::Conflict;
use crate::status::reasons::listener::accepted::UNSUPPORTED_VALUE;
use heliograph_model::{InfraPort, Listener, ListenerId, Transport};
use std::collections::{BTreeMap, BTreeSet};

/// Marks conflicting listeners of one Gateway, or ListenerSet: first those that conflict with earlier owners' listeners,
/// then those that conflict with each other. Gateway API: of the latter all lose, so that the order in which they are
/// written decides nothing. A listener that has lost conflicts with no other.
pub(super) fn mark<'a>(
    listeners: &mut [AcceptedListener],
    before: impl Iterator<Item = &'a AcceptedListener> + Clone,
) {
    mark_twins(listeners);
    let lost = mark_conflicts(listeners, before);
    // Only those that share a port of the proxy can be in each other's way.
    let mut by_port: BTreeMap<(u16, Transport), Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate().filter(|it| !lost.contains(&it.0)) {
        if let Some(listener) = &listener.listener {
            by_port.entry(bound(listener)).or_default().push(index);
        }
    }
    for indexes in by_port.values() {
        let verdicts: Vec<(usize, Conflict, String)> = indexes
            .iter()
            .filter_map(|index| {
                let ours = listeners[*index].listener.as_ref()?;
                let mut others = indexes.iter().filter(|other| *other != index);
                others.find_map(|other| {
                    let (conflict, what) = conflict(ours, listeners[*other].listener.as_ref()?)?;
                    let message = format!("Listener {} has {what}", listeners[*other].id.name);
                    Some((*index, conflict, message))
                })
            })
            .collect();
        for (index, conflict, message) in verdicts {
            listeners[index].conflicts(conflict, &message);
        }
    }
}

fn mark_twins(listeners: &mut [AcceptedListener]) {
    let mut names: BTreeMap<ListenerId, usize> = BTreeMap::new();
    for listener in &*listeners {
        *names.entry(listener.id.clone()).or_default() += 1;
    }
    for listener in listeners.iter_mut().filter(|listener| names.get(&listener.id) > Some(&1)) {
        listener.refuse(UNSUPPORTED_VALUE, "Another listener has the same name");
    }
}

/// Those of a ListenerSet lose against those of the Gateway and of older sets, which stay as they are. Nothing is said of whose
/// they are: the author of a set need not know the others. Returns who loses.
fn mark_conflicts<'a>(
    listeners: &mut [AcceptedListener],
    before: impl Iterator<Item = &'a AcceptedListener> + Clone,
) -> BTreeSet<usize> {
    let mut lost = BTreeSet::new();
    for (index, listener) in listeners.iter_mut().enumerate() {
        let mut before = before.clone().filter(|before| before.is_accepted());
        let conflict = before.find_map(|before| match (&listener.listener, &before.listener) {
            (Some(ours), Some(theirs)) if bound(ours) == bound(theirs) => conflict(ours, theirs),
            // Its protocol is unknown, so it could not share the port.
            (None, _) => {
                let is_same =
                    listener.port == before.port && listener.transport == before.transport;
                (is_same && listener.protocol != before.protocol).then_some(OTHER_PROTOCOL)
            }
            (Some(_), _) => None,
        });
        if let Some((conflict, what)) = conflict {
            listener.conflicts(conflict, &format!("Another listener has {what}"));
            lost.insert(index);
        }
    }
    lost
}

/// Of two that share a port of the proxy: whether they can, and what the other one has.
fn conflict(one: &Listener, other: &Listener) -> Option<(Conflict, &'static str)> {
    if one.port != other.port {
        return Some((Conflict::Port, "a port that proxies bind at the same number"));
    }
    // The first bytes of a connection distinguish plain HTTP from HTTPS.
    if one.protocol != other.protocol {
        let is_possible = one.protocol.may_share_port() && other.protocol.may_share_port();
        return (!is_possible).then_some(OTHER_PROTOCOL);
    }
    (one.hostname == other.hostname)
        .then_some((Conflict::Hostname, "the same port, protocol and hostname"))
}

const OTHER_PROTOCOL: (Conflict, &str) = (Conflict::Protocol, "the same port and another protocol");

fn bound(listener: &Listener) -> (u16, Transport) {
    let InfraPort { port: _, bind_port, transport } = InfraPort::new(listener.port);
    (bind_port, transport)
}
