//! From a resource that a proxy rejects to the objects that it was made from.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::objects::{Document, Kind, ObjectName, parse};
use heliograph_gateway::{Event, Source, World};
use heliograph_snapshot::{FleetName, ResourceType, Version};
use std::collections::BTreeSet;

const OBJECTS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: heliograph
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: inner, port: 80, protocol: HTTP, hostname: inner.test}
  - {name: other, port: 90, protocol: HTTP}
  - {name: wires, port: 100, protocol: TCP}
  - {name: idle, port: 101, protocol: TCP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: http}]
  hostnames: [a.test, shared.test]
  rules:
  - matches: [{path: {value: /cart}}, {headers: [{name: x-cart-only, value: 'yes'}]}]
    backendRefs: [{name: cart, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: pay, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: http}]
  hostnames: [b.test, shared.test]
  rules: [{matches: [{path: {value: /pay}}], backendRefs: [{name: pay, port: 80}, {name: cart, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: alone, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: other}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: wires, namespace: shop, creationTimestamp: '2026-01-01T00:00:00Z'}
spec:
  parentRefs: [{name: web, sectionName: wires}]
  rules: [{backendRefs: [{name: cart, port: 80}, {name: pay, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: younger, namespace: shop, creationTimestamp: '2026-02-02T00:00:00Z'}
spec:
  parentRefs: [{name: web, sectionName: wires}]
  rules: [{backendRefs: [{name: pay, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: pay, namespace: shop}
spec: {ports: [{port: 80}]}
";

fn world() -> World {
    let mut world = World::new();
    for document in parse(OBJECTS) {
        let Document::Object(object) = document else { panic!("{document:?}") };
        world.apply(Event::Applied(object));
    }
    world.settle();
    world
}

fn fleet() -> FleetName {
    FleetName::new("shop", "web")
}

/// In words: `HTTPRoute shop/cart`, `gateway/shop/web/http`.
fn in_words(sources: BTreeSet<Source>) -> Vec<String> {
    let word = |source| match source {
        Source::Listener(listener) => listener.to_string(),
        Source::Object(object) => object.to_string(),
    };
    sources.into_iter().map(word).collect()
}

fn blamed(world: &World, kind: ResourceType, name: &str, words: &str) -> Vec<String> {
    let fleet = fleet();
    let mut resources = world.resources(&fleet);
    let (_, resource) = resources.find(|(of, it)| *of == kind && *it.name == *name).unwrap();
    in_words(world.blamed(&fleet, kind, name, resource.version, words))
}

#[test]
fn every_resource_knows_what_it_was_made_from() {
    let world = world();
    let sources = |kind, name| in_words(world.sources(&fleet(), kind, name));
    let (http, inner) = ("gateway/shop/web/http", "gateway/shop/web/inner");
    assert_eq!(sources(ResourceType::Listener, "port/80"), [http, inner]);
    assert_eq!(
        sources(ResourceType::Route, "http/80"),
        [http, inner, "HTTPRoute shop/cart", "HTTPRoute shop/pay"]
    );
    for kind in [ResourceType::Cluster, ResourceType::Endpoints] {
        assert_eq!(
            sources(kind, "service/shop/cart/80"),
            ["HTTPRoute shop/cart", "HTTPRoute shop/pay", "Service shop/cart"]
        );
    }
    let wires = ["gateway/shop/web/wires", "TCPRoute shop/wires"];
    assert_eq!(sources(ResourceType::Listener, "port/100"), wires);
    assert_eq!(sources(ResourceType::Listener, "port/101"), ["gateway/shop/web/idle"]);
    for kind in [ResourceType::Cluster, ResourceType::Endpoints] {
        let of_pay = ["TCPRoute shop/wires", "Service shop/pay"];
        assert_eq!(sources(kind, "service/shop/pay/80/tcp"), of_pay);
    }
    assert_eq!(sources(ResourceType::Route, "http/81"), [] as [&str; 0]);
    let made: Vec<_> =
        world.resources(&fleet()).map(|(kind, it)| (kind, it.name.clone())).collect();
    for (kind, name) in made {
        assert!(!world.sources(&fleet(), kind, &name).is_empty(), "{kind} {name}");
    }
}

#[test]
fn a_table_is_blamed_on_the_route_that_envoy_means() {
    let world = world();
    let blamed = |words| blamed(&world, ResourceType::Route, "http/80", words);
    let (cart, pay) = ("HTTPRoute shop/cart", "HTTPRoute shop/pay");
    let cases = [
        // By the name of the route.
        ("route: unknown upgrade in httproute/shop/pay/0/0.", vec![pay]),
        ("httproute/shop/cart/0/1 and 'httproute/shop/pay/0/0' collide", vec![cart, pay]),
        // By the places in the message.
        (
            "Proto constraint validation failed (RouteConfigurationValidationError.VirtualHosts[1]: embedded message failed validation \
          | caused by VirtualHostValidationError.Routes[0]: embedded message failed validation | caused by field",
            vec![cart],
        ),
        // By the virtual host, if only one route is there.
        ("Only a single wildcard domain is permitted in b.test", vec![pay]),
        // By what only one route says.
        ("invalid header name 'x-cart-only'", vec![cart]),
    ];
    for (words, expected) in cases {
        assert_eq!(blamed(words), expected, "{words}");
    }
    let listeners = ["gateway/shop/web/http", "gateway/shop/web/inner"];
    for words in ["it is no good", "duplicate domain shared.test", "httproute/shop/gone/0/0", ""] {
        assert_eq!(blamed(words), listeners, "{words:?}: not blamed on the innocent");
    }
    let alone = self::blamed(&world, ResourceType::Route, "http/90", "no");
    assert_eq!(alone, ["HTTPRoute shop/alone"], "there is nothing else in the table");
}

/// Words as a real Envoy 1.40 has them.
#[test]
fn a_listener_is_blamed_on_its_tcp_route_where_envoy_means_what_that_says() {
    let world = world();
    let blamed = |words: &str| blamed(&world, ResourceType::Listener, "port/100", words);
    let copy = "stat_prefix: \"x\" weighted_clusters { clusters { name: \"service/shop/cart/80/tcp\" } } : \
                Proto constraint validation failed";
    let of_route = [
        format!(
            "Error adding/updating listener(s) port/100: {copy} (TcpProxyValidationError.WeightedClusters: embedded message failed \
             validation | caused by WeightedClusterValidationError.Clusters: value must contain at least 1 item(s))"
        ),
        "Error adding/updating listener(s) port/100: unknown cluster 'service/shop/cart/80/tcp'"
            .to_owned(),
    ];
    for words in of_route {
        assert_eq!(blamed(&words), ["TCPRoute shop/wires"], "{words}");
    }
    let of_listener = [
        format!(
            "Error adding/updating listener(s) port/100: {copy} (TcpProxyValidationError.StatPrefix: value length must be at least 1 \
             characters)"
        ),
        "cannot bind '0.0.0.0:10100': Address already in use".to_owned(),
        "unknown cluster 'service/shop/other/80/tcp'".to_owned(),
    ];
    for words in of_listener {
        assert_eq!(blamed(&words), ["gateway/shop/web/wires"], "{words}");
    }
}

#[test]
fn other_resources_are_blamed_on_what_has_a_status() {
    let world = world();
    let port = blamed(&world, ResourceType::Listener, "port/90", "Address already in use");
    assert_eq!(port, ["gateway/shop/web/other"]);
    let cluster = blamed(&world, ResourceType::Cluster, "service/shop/pay/80", "no");
    assert_eq!(cluster, ["HTTPRoute shop/pay"]);
}

#[test]
fn what_is_not_there_any_more_is_nobodys() {
    let mut world = world();
    let table = |world: &World| {
        let fleet = fleet();
        let mut resources = world.resources(&fleet);
        resources.find(|(_, it)| &*it.name == "http/90").unwrap().1.version
    };
    let before = table(&world);
    let blamed = |world: &World, version: Version| {
        world.blamed(&fleet(), ResourceType::Route, "http/90", version, "no").len()
    };
    assert_eq!(blamed(&world, before), 1);
    world.apply(Event::Deleted(ObjectName::new("shop", "alone").of(Kind::HTTPRoute)));
    world.settle();
    assert_eq!(blamed(&world, before), 0, "the route is gone");
    assert_eq!(blamed(&world, table(&world)), 1, "the listener has a table all the same");
}
