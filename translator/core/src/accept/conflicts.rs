use super::AcceptedListener;
use crate::ir::{InfraPort, Listener};
use crate::status::Condition;

/// Listeners of one Gateway that are in each other's way. Gateway API: all of them lose, so that the order in which
/// they are written decides nothing.
pub(super) fn mark(listeners: &mut [AcceptedListener]) {
    let verdicts: Vec<Option<(&'static str, String)>> = listeners
        .iter()
        .enumerate()
        .map(|(index, one)| {
            let ours = one.ir.as_ref()?;
            let others = listeners.iter().enumerate().filter(|(other, _)| *other != index);
            others.into_iter().find_map(|(_, other)| {
                let (reason, what) = conflict(ours, other.ir.as_ref()?)?;
                Some((reason, format!("Listener {} has {what}", other.name)))
            })
        })
        .collect();
    for (listener, verdict) in listeners.iter_mut().zip(verdicts) {
        if let Some((reason, message)) = verdict {
            listener.refuse(reason, &message);
            if reason != PORT_UNAVAILABLE {
                listener.conditions.set(Condition::yes("Conflicted", reason, message));
            }
        }
    }
}

const PORT_UNAVAILABLE: &str = "PortUnavailable";

fn conflict(one: &Listener, other: &Listener) -> Option<(&'static str, &'static str)> {
    if one.port != other.port {
        let bind = |listener: &Listener| InfraPort::new(listener.port).bind_port;
        return (bind(one) == bind(other))
            .then_some((PORT_UNAVAILABLE, "a port that proxies bind at the same number"));
    }
    if one.protocol != other.protocol {
        return Some(("ProtocolConflict", "the same port and another protocol"));
    }
    (one.hostname == other.hostname).then_some(("HostnameConflict", "the same port and hostname"))
}
