use super::AcceptedListener;
use super::listener::Conflict;
use crate::status::reasons::listener::accepted::UNSUPPORTED_VALUE;
use heliograph_model::{InfraPort, Listener, ListenerId};
use std::collections::BTreeMap;

/// Listeners of one Gateway that are in each other's way. Gateway API: all of them lose, so that the order in which
/// they are written decides nothing.
pub(super) fn mark(listeners: &mut [AcceptedListener]) {
    let mut names: BTreeMap<ListenerId, usize> = BTreeMap::new();
    for listener in &*listeners {
        *names.entry(listener.id.clone()).or_default() += 1;
    }
    for listener in listeners.iter_mut().filter(|listener| names.get(&listener.id) > Some(&1)) {
        listener.refuse(UNSUPPORTED_VALUE, "Another listener has the same name");
    }
    // Only those that share a port of the proxy can be in each other's way.
    let mut by_port: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (index, listener) in listeners.iter().enumerate() {
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

/// Listeners of a ListenerSet that are in the way of those that come before them, of the Gateway or of older sets. These stay as
/// they are. Nothing is told of whose they are: the author of a set need not know the others.
pub(super) fn give_way<'a>(
    listeners: &mut [AcceptedListener],
    before: impl Iterator<Item = &'a AcceptedListener> + Clone,
) {
    for listener in listeners {
        let mut before = before.clone().filter(|before| before.is_accepted());
        let conflict = before.find_map(|before| match (&listener.listener, &before.listener) {
            (Some(ours), Some(theirs)) if bound(ours) == bound(theirs) => conflict(ours, theirs),
            // It speaks what is not understood here, and could share the port with nobody.
            (None, _) => (listener.port == before.port && listener.protocol != before.protocol)
                .then_some((Conflict::Protocol, "the same port and another protocol")),
            (Some(_), _) => None,
        });
        if let Some((conflict, what)) = conflict {
            listener.conflicts(conflict, &format!("Another listener has {what}"));
        }
    }
}

/// Of two that share a port of the proxy: whether they can, and what the other one has.
fn conflict(one: &Listener, other: &Listener) -> Option<(Conflict, &'static str)> {
    if one.port != other.port {
        return Some((Conflict::Port, "a port that proxies bind at the same number"));
    }
    // Whether a connection begins with TLS tells plain HTTP from HTTPS.
    (one.protocol == other.protocol && one.hostname == other.hostname)
        .then_some((Conflict::Hostname, "the same port, protocol and hostname"))
}

fn bound(listener: &Listener) -> u16 {
    InfraPort::new(listener.port).bind_port
}
