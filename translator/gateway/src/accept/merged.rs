//! Gateways that share their proxies: of listeners that are in each other's way, the oldest stay.

use super::candidate::Candidate;
use super::listener::{AcceptedListener, Conflict};
use crate::objects::ObjectName;
use crate::objects::created;
use crate::world::Reader;
use heliograph_model::{FleetOwner, Hostname, Listener, ListenerId, Protocol, TransportPort};
use heliograph_snapshot::FleetName;
use std::collections::{BTreeMap, BTreeSet};

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

/// The listeners that Gateways do not get, because others want the same and are older.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contest(BTreeMap<ObjectName, Losses>);

pub(crate) type Losses = BTreeMap<ListenerId, Conflict>;

/// `None` for a Gateway that has its own proxies, or nothing to serve.
pub(crate) fn claim(reader: &Reader<'_>, name: &ObjectName) -> Option<Claim> {
    let owner = super::candidate::owner(reader, name).filter(FleetOwner::is_class)?;
    let Candidate { object, listeners, sets, refused: None, .. } = Candidate::of(reader, name)?
    else {
        return None;
    };
    let since = created(&object.metadata);
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
    // The protocol of the first of each port decides which others may be there.
    let mut ports: BTreeMap<TransportPort, Protocol> = BTreeMap::new();
    let mut taken: BTreeSet<(TransportPort, Protocol, &Hostname)> = BTreeSet::new();
    let mut lost: BTreeMap<ObjectName, Losses> = BTreeMap::new();
    for (gateway, Claimed { listener, .. }) in claimed {
        let Listener { port, protocol, hostname, .. } = listener;
        let first = *ports.entry(*port).or_insert(*protocol);
        let may_join = first.may_share_port() && protocol.may_share_port();
        let conflict = if first != *protocol && !may_join {
            Conflict::Protocol
        } else if !taken.insert((*port, *protocol, hostname)) {
            Conflict::Hostname
        } else {
            continue;
        };
        lost.entry(gateway.clone()).or_default().insert(listener.id.clone(), conflict);
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
            let Some(conflict) = lost.get(&listener.id) else { return };
            let what = match conflict {
                Conflict::Protocol => "the same port and another protocol",
                Conflict::Port | Conflict::Hostname => "the same port, protocol and hostname",
            };
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
