//! Each client sees what the rules of its snapshot make of it.

use crate::world::*;
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Locality;
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints,
};
use heliograph_snapshot::ResourceType::{Cluster, Endpoints, Listener, Route};
use heliograph_snapshot::{Change, Internal, Resource, ResourceType};
use heliograph_views::{
    Admission, Audience, Operator, Preference, Proxy, Requirement, Treatment, Variant, ZONE,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const ZONES: [&str; 3] = ["a", "b", "c"];

/// A gateway whose cluster `blue` has an endpoint in each zone, and clients that prefer their own.
pub(crate) fn zoned() -> Vec<(ResourceType, Resource)> {
    let group = |zone: &str| LocalityLbEndpoints {
        locality: Some(Locality { zone: zone.to_owned(), ..Default::default() }),
        lb_endpoints: vec![LbEndpoint::default()],
        ..Default::default()
    };
    let endpoints = ClusterLoadAssignment {
        cluster_name: "blue".to_owned(),
        endpoints: ZONES.map(group).into(),
        ..Default::default()
    };
    let endpoints = Resource::new("blue", endpoints.encode_to_vec().into());
    vec![
        cluster("blue", 1),
        (Endpoints, endpoints),
        listener("http", "table"),
        routes("table", "blue"),
    ]
}

pub(crate) fn prefer_own_zone() -> Change {
    let preference = Preference { audience: String::new(), labels: vec![ZONE.to_owned()] };
    let treatment = Treatment { preferences: vec![preference], ..Treatment::default() };
    rule(treatment.resource(Endpoints, "blue"))
}

fn rule(resource: Resource) -> Change {
    Change::SetInternal(Internal::Rules, Arc::new(resource))
}

pub(crate) fn listed(node: &str, label: &str, value: &str) -> Change {
    let labels = [(label.to_owned(), value.to_owned())].into();
    let proxy = Proxy { labels, ..Proxy::default() };
    Change::SetInternal(Internal::Directory, Arc::new(proxy.resource(node)))
}

pub(crate) fn connect(world: &World, protocol: Protocol, node: &str) -> Client {
    Client::connect(Options { node_id: node.to_owned(), ..world.options(protocol) }).unwrap()
}

fn priorities(state: &State) -> BTreeMap<String, u32> {
    let Some(body) = state.body(Endpoints, "blue") else { return BTreeMap::new() };
    let found = ClusterLoadAssignment::decode(body.clone()).unwrap();
    let group = |it: LocalityLbEndpoints| (it.locality.unwrap_or_default().zone, it.priority);
    found.endpoints.into_iter().map(group).collect()
}

/// The own zone comes first, the others after it.
fn prefers(zone: &'static str) -> impl Fn(&State) -> bool {
    let expected = ZONES.map(|it| (it.to_owned(), u32::from(it != zone))).into();
    move |state| priorities(state) == expected
}

#[tokio::test]
async fn each_zone_has_its_own_priorities_and_who_is_relabelled_moves_without_a_reconnect() {
    for protocol in BOTH {
        let mut world = World::start().await;
        let nodes = ZONES.map(|zone| (zone, format!("envoy-{zone}")));
        let mut rules = vec![prefer_own_zone()];
        rules.extend(nodes.iter().map(|(zone, node)| listed(node, ZONE, zone)));
        world.publish_with(&zoned(), rules.clone()).await;

        let clients = nodes.clone().map(|(zone, node)| (zone, connect(&world, protocol, &node)));
        for (zone, client) in &clients {
            client.until("priorities of its zone", DEADLINE, prefers(zone)).await.unwrap();
            client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        }
        // A proxy that is not in the inventory prefers nothing.
        let stranger = connect(&world, protocol, "stranger");
        let state = stranger.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        assert!(priorities(&state).values().all(|priority| *priority == 0));
        world.acknowledged(4).await;

        let before = clients.each_ref().map(|(_, client)| client.state().received.len());
        rules.push(listed("envoy-a", ZONE, "b"));
        world.publish_with(&zoned(), rules).await;
        let moved = &clients[0].1;
        let state = moved.until("priorities of zone b", DEADLINE, prefers("b")).await.unwrap();
        let kinds: Vec<_> = state.received[before[0]..].iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [Endpoints], "{protocol:?}: all that it is told, on the same stream");
        world.acknowledged(4).await;
        for (at, (zone, client)) in clients.iter().enumerate().skip(1) {
            let state = client.state();
            assert!(prefers(zone)(&state));
            assert_eq!(state.received.len(), before[at], "{zone} is told nothing");
        }
    }
}

#[tokio::test]
async fn some_clients_have_a_variant_and_a_listener_of_their_own() {
    for protocol in BOTH {
        let mut world = World::start().await;
        let requirement = Requirement {
            key: "tier".to_owned(),
            operator: Operator::In.into(),
            values: vec!["canary".to_owned()],
        };
        let audience = Audience { labels: vec![requirement], ..Audience::default() };
        let (_, other) = routes("table", "green");
        let variant = Variant { audience: "canaries".to_owned(), body: other.body };
        let variant = Treatment { variants: vec![variant], ..Treatment::default() };
        let admission = Admission { audiences: vec!["canaries".to_owned()] };
        let only = Treatment { admissions: vec![admission], ..Treatment::default() };
        let rules = [
            rule(audience.resource("canaries")),
            rule(variant.resource(Route, "table")),
            rule(only.resource(Listener, "new")),
            rule(only.resource(Route, "new-table")),
            listed("canary", "tier", "canary"),
        ];
        let mut resources = [zoned(), vec![cluster("green", 1), endpoints("green")]].concat();
        resources.extend([listener("new", "new-table"), routes("new-table", "green")]);
        world.publish_with(&resources, rules).await;

        let canary = connect(&world, protocol, "canary");
        let state = canary.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        assert_eq!(leads_to(&state, "table").unwrap(), "green");
        assert_eq!(state.names(Listener), ["http", "new"]);

        let other = connect(&world, protocol, "other");
        let state = other.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        assert_eq!(leads_to(&state, "table").unwrap(), "blue");
        assert_eq!(state.names(Listener), ["http"]);
        assert_eq!(state.names(Cluster), ["blue", "green"]);
        world.acknowledged(2).await;

        // Without the rules all see the same.
        world.publish(&resources).await;
        let same = |state: &State| {
            leads_to(state, "table").as_deref() == Some("blue")
                && state.names(Listener) == ["http", "new"]
        };
        for client in [&canary, &other] {
            client.until("the snapshot as it is", DEADLINE, same).await.unwrap();
        }
    }
}
