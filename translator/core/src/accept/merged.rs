//! Gateways that share their proxies: of listeners that are in each other's way, the oldest stay.

use super::candidate::Candidate;
use super::conflicts::{bound, conflict};
use super::listener::{AcceptedListener, Conflict};
use crate::ir::{FleetOwner, Hostname, Listener, ListenerId, Protocol};
use crate::objects::ObjectName;
use crate::status::reasons::listener::accepted::PORT_UNAVAILABLE;
use crate::world::Reader;
use heliograph_snapshot::FleetName;
use std::collections::BTreeMap;

/// What a Gateway wants of proxies that are not its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claim {
    pub(crate) fleet: FleetName,
    listeners: Vec<Claimed>,
}

#[derive(Clone, Debug, PartialEq)]
struct Claimed {
    /// The age of who wants it, in seconds of Unix time. What is added to a Gateway is never older than that.
    since: i64,
    is_added: bool,
    listener: Listener,
}

/// What Gateways do not get, because others want the same and are older.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contest(BTreeMap<ObjectName, Losses>);

/// How other listeners are in the way, and what they have.
pub(crate) type Losses = BTreeMap<ListenerId, (Conflict, &'static str)>;

/// What proxies bind for the ports below 1024.
const FOR_LOW_PORTS: std::ops::RangeInclusive<i32> = 10_001..=11_023;

/// One Gateway at 10443 would keep all others from 443.
pub(super) fn refuse_low_ports<'a>(listeners: impl IntoIterator<Item = &'a mut AcceptedListener>) {
    for listener in listeners.into_iter().filter(|it| FOR_LOW_PORTS.contains(&it.port)) {
        let message = format!(
            "{} is a port that proxies bind for one below 1024, which other Gateways of the class may have",
            listener.port
        );
        listener.refuse(PORT_UNAVAILABLE, &message);
    }
}

/// `None` for a Gateway that has its own proxies, or nothing to serve.
pub(crate) fn claim(reader: &Reader<'_>, name: &ObjectName) -> Option<Claim> {
    let owner = super::candidate::owner(reader, name).filter(FleetOwner::is_class)?;
    let Candidate { object, listeners, sets, refused: None, .. } = Candidate::of(reader, name)?
    else {
        return None;
    };
    let since = super::created(&object.metadata);
    let own = listeners.into_iter().map(|listener| (since, false, listener));
    let added = sets.into_iter().flat_map(|set| {
        let since = since.max(set.created);
        set.listeners.into_iter().map(move |listener| (since, true, listener))
    });
    let accepted = own.chain(added).filter(|(_, _, listener)| listener.is_accepted());
    let listeners = accepted.filter_map(|(since, is_added, listener)| {
        Some(Claimed { since, is_added, listener: listener.listener? })
    });
    Some(Claim { fleet: owner.fleet(), listeners: listeners.collect() })
}

pub(crate) fn contest(reader: &Reader<'_>, fleet: &FleetName) -> Contest {
    let claims = reader.claims(fleet);
    let mut claimed: Vec<(&ObjectName, &Claimed)> = claims
        .flat_map(|(gateway, claim)| claim.listeners.iter().map(move |it| (gateway, it)))
        .collect();
    claimed.sort_by_key(|(_, it)| (it.since, it.is_added, &it.listener.id));
    // Of a port of the proxy, one that has it, and who has which host there: no others can be in the way.
    let mut ports: BTreeMap<u16, &Listener> = BTreeMap::new();
    let mut hosts: BTreeMap<(u16, Protocol, &Hostname), &Listener> = BTreeMap::new();
    let mut lost: BTreeMap<ObjectName, Losses> = BTreeMap::new();
    for (gateway, Claimed { listener, .. }) in claimed {
        let port = bound(listener);
        let host = (port, listener.protocol, &listener.hostname);
        let rivals = [ports.get(&port), hosts.get(&host)];
        let conflict = rivals.into_iter().flatten().find_map(|rival| conflict(listener, rival));
        match conflict {
            Some(conflict) => {
                lost.entry(gateway.clone()).or_default().insert(listener.id.clone(), conflict);
            }
            None => {
                ports.entry(port).or_insert(listener);
                hosts.insert(host, listener);
            }
        }
    }
    Contest(lost)
}

impl Contest {
    pub(crate) fn of(&self, gateway: &ObjectName) -> Option<&Losses> {
        self.0.get(gateway)
    }

    pub(crate) fn losers(&self) -> impl Iterator<Item = &ObjectName> {
        self.0.keys()
    }
}

impl Candidate<'_> {
    /// Nothing is told of whose the others are: the author of this Gateway need not know them.
    pub(super) fn give_way(&mut self, lost: &Losses) {
        let give_way = |listener: &mut AcceptedListener| {
            let Some((conflict, what)) = lost.get(&listener.id) else { return };
            let message = format!(
                "A listener of another Gateway of its class, which comes first, has {what}"
            );
            listener.conflicts(*conflict, &message);
        };
        self.listeners.iter_mut().for_each(give_way);
        for set in self.sets.iter_mut().filter(|set| set.is_accepted()) {
            set.listeners.iter_mut().for_each(give_way);
            set.conclude();
        }
    }
}
