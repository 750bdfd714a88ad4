//! Gateways that share their proxies: of listeners that conflict, the oldest are served.

use super::candidate::Candidate;
use super::listener::{AcceptedListener, Conflict};
use crate::objects::ObjectName;
use crate::objects::created;
use crate::world::Reader;
use heliograph_model::{
    FleetOwner, Hostname, Listener, ListenerId, Protocol, Seniority, TransportPort,
};
use heliograph_snapshot::FleetName;
use std::collections::{BTreeMap, BTreeSet};

/// The listeners that a Gateway requests of proxies that it shares with others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListenerRequests {
    pub(crate) fleet: FleetName,
    listeners: Vec<ListenerRequest>,
}

#[derive(Clone, Debug, PartialEq)]
struct ListenerRequest {
    /// When the object that requests it was created, in seconds of Unix time. A ListenerSet counts as at most as old as its Gateway.
    since: i64,
    is_added: bool,
    listener: Listener,
}

/// Which requested listeners each Gateway loses, because older ones request the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Arbitration(BTreeMap<ObjectName, LostListeners>);

/// The listeners that one Gateway loses, and why.
pub(crate) type LostListeners = BTreeMap<ListenerId, Conflict>;

/// `None` for a Gateway that has its own proxies, or nothing to serve.
pub(crate) fn listener_requests(
    reader: &Reader<'_>,
    name: &ObjectName,
) -> Option<ListenerRequests> {
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
        Some(ListenerRequest { since, is_added, listener: listener.listener? })
    });
    Some(ListenerRequests { fleet: owner.fleet(), listeners: listeners.collect() })
}

/// Decides which of the requested listeners the proxies of a fleet serve.
pub(crate) fn arbitrate(reader: &Reader<'_>, fleet: &FleetName) -> Arbitration {
    let requests = reader.listener_requests_in(fleet);
    let mut requested: Vec<(&ObjectName, &ListenerRequest)> = requests
        .flat_map(|(gateway, requests)| requests.listeners.iter().map(move |it| (gateway, it)))
        .collect();
    requested.sort_by_key(|(_, it)| {
        let id = &it.listener.id;
        // A Gateway comes before what is added to it, which may be no younger.
        (it.since, it.is_added, Seniority::new(it.since, &id.owner), &id.name)
    });
    // The protocol of the first of each port decides which others may be there.
    let mut ports: BTreeMap<TransportPort, Protocol> = BTreeMap::new();
    let mut taken: BTreeSet<(TransportPort, Protocol, &Hostname)> = BTreeSet::new();
    let mut lost: BTreeMap<ObjectName, LostListeners> = BTreeMap::new();
    for (gateway, ListenerRequest { listener, .. }) in requested {
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
    Arbitration(lost)
}

impl Arbitration {
    pub(crate) fn of(&self, gateway: &ObjectName) -> Option<&LostListeners> {
        self.0.get(gateway)
    }

    pub(crate) fn losing_gateways(&self) -> impl Iterator<Item = &ObjectName> {
        self.0.keys()
    }
}

impl Candidate<'_> {
    /// Marks the listeners that it loses. The conditions do not name the other Gateways: the author of this one need not know them.
    pub(super) fn mark_lost(&mut self, lost: &LostListeners) {
        let mark = |listener: &mut AcceptedListener| {
            let Some(conflict) = lost.get(&listener.id) else { return };
            let what = match conflict {
                Conflict::Protocol => "the same port and another protocol",
                Conflict::Port | Conflict::Hostname => "the same port, protocol and hostname",
            };
            let message = format!(
                "A listener of another Gateway of the class, which has precedence, has {what}"
            );
            listener.conflicts(*conflict, &message);
        };
        self.listeners.iter_mut().for_each(mark);
        for set in self.sets.iter_mut().filter(|set| set.is_accepted()) {
            set.listeners.iter_mut().for_each(mark);
            set.set_conditions();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::objects::{Document, parse};
    use crate::{Event, World};

    const CLASS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: edge}
spec:
  controllerName: heliograph.dev/gateway-controller
  parametersRef: {group: heliograph.dev, kind: ProxyConfig, name: shared, namespace: infra}
---
apiVersion: heliograph.dev/v1alpha1
kind: ProxyConfig
metadata: {name: shared, namespace: infra}
spec: {mergeGateways: true}
";

    fn gateway(namespace: &str, name: &str) -> String {
        format!(
            "
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: '2026-01-01T00:00:00Z'}}
spec:
  gatewayClassName: edge
  allowedListeners: {{namespaces: {{from: Same}}}}
  listeners: [{{name: http, port: 8080, protocol: HTTP}}]
"
        )
    }

    fn set(namespace: &str, name: &str, gateway: &str) -> String {
        format!(
            "
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: '2026-01-01T00:00:00Z'}}
spec:
  parentRef: {{name: {gateway}}}
  listeners: [{{name: http, port: 8081, protocol: HTTP}}]
"
        )
    }

    /// Whose the listeners are that the fleet serves.
    fn served(manifests: &str) -> Vec<String> {
        let mut world = World::new();
        for document in parse(manifests) {
            let Document::Object(object) = document else { panic!("{document:?}") };
            world.apply(Event::Applied(object));
        }
        world.settle();
        let listeners = world.fleets().flat_map(|fleet| &fleet.listeners);
        listeners.map(|listener| listener.id.to_string()).collect()
    }

    #[test]
    fn of_gateways_of_one_age_the_first_by_its_text_has_the_listener() {
        let gateways = [CLASS, &gateway("a", "x"), &gateway("a-b", "x")].concat();
        // As text, `a-b/x` is before `a/x`.
        assert_eq!(served(&gateways), ["gateway/a-b/x/http"]);
    }

    #[test]
    fn of_listener_sets_of_one_age_the_first_by_its_text_has_the_listener() {
        let gateways = [gateway("a", "z"), gateway("a-b", "z")].concat();
        let sets = [set("a", "x", "z"), set("a-b", "x", "z")].concat();
        let all = [CLASS, &gateways, &sets].concat();
        assert_eq!(served(&all), ["gateway/a-b/z/http", "listenerset/a-b/x/http"]);
    }

    #[test]
    fn a_gateway_has_the_listener_before_a_set_of_its_age() {
        let set = set("a", "a", "z").replace("8081", "8080");
        assert_eq!(served(&[CLASS, &gateway("a", "z"), &set].concat()), ["gateway/a/z/http"]);
    }
}
