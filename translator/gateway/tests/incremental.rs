//! Work in proportion to the change: the counter of units says how much was done.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::objects::{Document, Object, parse};
use heliograph_gateway::{Event, Outcome, World};
use heliograph_snapshot::{Change, ResourceType};

const CLASS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
";

fn object(manifest: &str) -> Object {
    match parse(manifest).pop() {
        Some(Document::Object(object)) => object,
        other => panic!("{other:?}"),
    }
}

fn gateway(name: &str) -> Object {
    object(&format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: shop}}
spec:
  gatewayClassName: heliograph
  listeners:
  - {{name: http, port: 8080, protocol: HTTP}}
"
    ))
}

fn route(gateway: &str, index: usize, host: &str, path: &str) -> Object {
    object(&format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {gateway}-route-{index}, namespace: shop}}
spec:
  parentRefs: [{{name: {gateway}}}]
  hostnames: ['{host}']
  rules:
  - matches: [{{path: {{value: {path}}}}}]
    backendRefs: [{{name: service-{index}, port: 80}}]
"
    ))
}

fn service(index: usize) -> Object {
    object(&format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: service-{index}, namespace: shop}}
spec: {{ports: [{{port: 80}}]}}
"
    ))
}

fn slice(index: usize, address: &str) -> Object {
    object(&format!(
        "
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: slice-{index}, namespace: shop, labels: {{kubernetes.io/service-name: service-{index}}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints: [{{addresses: [{address}]}}]
"
    ))
}

/// `size` routes on one Gateway, each with its own host, Service and endpoints.
fn world(size: usize) -> World {
    let mut world = World::new();
    apply(&mut world, [object(CLASS), gateway("web")]);
    for index in 0..size {
        let host = format!("host-{index}.example.com");
        apply(
            &mut world,
            [service(index), slice(index, "10.0.0.1"), route("web", index, &host, "/")],
        );
    }
    world.settle();
    world
}

fn apply(world: &mut World, objects: impl IntoIterator<Item = Object>) {
    objects.into_iter().for_each(|object| world.apply(Event::Applied(object)));
}

fn change(world: &mut World, object: Object) -> Outcome {
    world.apply(Event::Applied(object));
    world.settle()
}

fn work(outcome: &Outcome) -> Vec<(&'static str, u64)> {
    outcome.work.by_stage().collect()
}

fn changed(outcome: &Outcome) -> Vec<(ResourceType, String)> {
    let changes = outcome.changes.values().flatten();
    changes
        .map(|change| match change {
            Change::Set(kind, resource) => (*kind, resource.name.to_string()),
            Change::Remove(kind, name) => (*kind, format!("-{name}")),
            Change::SetInternal(..) | Change::RemoveInternal(..) => panic!("rules of nobody"),
        })
        .collect()
}

#[test]
fn an_endpoint_change_among_a_thousand_routes_translates_one_endpoints_resource() {
    let mut world = world(1_000);
    let outcome = change(&mut world, slice(500, "10.0.0.2"));
    assert_eq!(work(&outcome), [("endpoints", 1)]);
    assert_eq!(
        changed(&outcome),
        [(ResourceType::Endpoints, "service/shop/service-500/80".to_owned())]
    );
}

#[test]
fn a_changed_route_is_compiled_and_so_are_the_virtual_hosts_it_belongs_to() {
    let mut world = world(1_000);
    let outcome = change(&mut world, route("web", 500, "host-500.example.com", "/new"));
    let expected = [
        ("attachment", 1),
        ("compiled_route", 1),
        ("placement", 1),
        ("rules", 1),
        ("status", 1),
        ("table", 1),
        ("virtual_host", 1),
    ];
    assert_eq!(work(&outcome), expected);
    assert_eq!(changed(&outcome), [(ResourceType::Route, "http/8080".to_owned())]);
}

#[test]
fn a_route_is_compiled_for_each_listener_that_it_is_attached_to() {
    let mut world = World::new();
    let gateway = object(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: heliograph
  listeners:
  - {name: all, port: 8080, protocol: HTTP}
  - {name: some, port: 8080, protocol: HTTP, hostname: '*.example.com'}
",
    );
    apply(&mut world, [object(CLASS), gateway, service(0), slice(0, "10.0.0.1")]);
    let outcome = change(&mut world, route("web", 0, "host-0.example.com", "/"));
    assert_eq!(outcome.work.of("compiled_route"), 2);
    let outcome = change(&mut world, route("web", 0, "host-0.example.com", "/new"));
    assert_eq!(outcome.work.of("compiled_route"), 2);
    assert_eq!(changed(&outcome), [(ResourceType::Route, "http/8080".to_owned())]);
}

#[test]
fn a_moved_route_translates_the_host_that_it_left_and_the_one_it_came_to() {
    let mut world = world(100);
    let outcome = change(&mut world, route("web", 50, "host-51.example.com", "/"));
    // Its own host is gone, so only the one it came to is left to make.
    assert_eq!(outcome.work.of("virtual_host"), 1);
    assert_eq!(outcome.work.of("compiled_route"), 1);
}

#[test]
fn a_wildcard_route_translates_every_host_it_covers_and_no_other() {
    let mut world = world(10);
    let outcome = change(&mut world, route("web", 0, "*.example.com", "/"));
    assert_eq!(outcome.work.of("virtual_host"), 10);
    assert_eq!(outcome.work.of("compiled_route"), 1);
}

#[test]
fn a_new_route_costs_the_same_among_many_as_among_few() {
    let cost = |size: usize| {
        let mut world = world(size);
        apply(&mut world, [service(size), slice(size, "10.0.0.1")]);
        work(&change(&mut world, route("web", size, "new.example.com", "/")))
    };
    assert_eq!(cost(1_000), cost(10));
    assert_eq!(cost(10).iter().map(|(_, count)| count).sum::<u64>(), 11);
}

#[test]
fn what_nobody_refers_to_costs_nothing() {
    let mut world = world(10);
    for unrelated in [service(99), slice(99, "10.0.0.1")] {
        let outcome = change(&mut world, unrelated);
        assert_eq!((work(&outcome), changed(&outcome)), (Vec::new(), Vec::new()));
    }
}

#[test]
fn a_service_that_appears_concerns_the_route_that_missed_it() {
    let mut world = world(10);
    change(&mut world, route("web", 10, "late.example.com", "/"));
    let outcome = change(&mut world, service(10));
    let expected = [
        ("attachment", 1),
        ("cluster", 1),
        ("compiled_route", 1),
        ("endpoints", 1),
        ("placement", 1),
        ("rules", 1),
        ("status", 1),
        ("table", 1),
        ("treatment", 1),
        ("virtual_host", 1),
    ];
    assert_eq!(work(&outcome), expected);
}

#[test]
fn a_change_that_means_nothing_stops_at_the_first_stage() {
    let mut world = world(10);
    let mut relabelled = route("web", 5, "host-5.example.com", "/");
    relabelled.metadata_mut().labels = Some([("a".to_owned(), "b".to_owned())].into());
    let outcome = change(&mut world, relabelled);
    assert_eq!(work(&outcome), [("rules", 1)]);
    assert_eq!(changed(&outcome), []);
}

/// What only status says of a Gateway is no concern of its routes.
#[test]
fn a_new_generation_of_a_gateway_touches_no_route() {
    let mut world = world(10);
    let mut next = gateway("web");
    next.metadata_mut().generation = Some(2);
    let outcome = change(&mut world, next);
    // What runs for it is looked at, since its labels and addresses are in the object, and is the same.
    assert_eq!(
        work(&outcome),
        [("gateway", 1), ("infra", 1), ("listener_requests", 1), ("status", 1)]
    );
    assert!(outcome.infra.is_empty(), "{:?}", outcome.infra);
}

#[test]
fn one_changed_route_among_a_hundred_fleets_touches_its_own() {
    let mut world = World::new();
    apply(&mut world, [object(CLASS), service(0), slice(0, "10.0.0.1")]);
    for index in 0..100 {
        let name = format!("web-{index}");
        apply(&mut world, [gateway(&name), route(&name, 0, "a.example.com", "/")]);
    }
    world.settle();
    let outcome = change(&mut world, route("web-7", 0, "a.example.com", "/new"));
    let fleets: Vec<&str> = outcome.changes.keys().map(|fleet| fleet.as_str()).collect();
    assert_eq!(fleets, ["shop/web-7"]);
    assert_eq!(outcome.work.of("gateway"), 0);
}

/// A refused route leaves every other byte alone.
#[test]
fn a_bad_route_touches_no_other() {
    let mut world = world(10);
    let before: Vec<_> =
        world.resources(&"shop/web".parse().unwrap()).map(|(_, r)| r.clone()).collect();
    let mut bad = route("web", 10, "bad.example.com", "/x");
    if let Object::HTTPRoute(route) = &mut bad {
        let rules = std::sync::Arc::make_mut(route).spec.rules.as_mut().unwrap();
        rules[0].matches.as_mut().unwrap()[0].path.as_mut().unwrap().value =
            Some("no path".to_owned());
    }
    let outcome = change(&mut world, bad);
    assert_eq!(changed(&outcome), []);
    let after: Vec<_> =
        world.resources(&"shop/web".parse().unwrap()).map(|(_, r)| r.clone()).collect();
    assert_eq!(before, after);
    assert_eq!(world.problems().count(), 1);
}

/// Whatever is wrong with an object, it is that object's problem.
#[test]
fn objects_that_are_wrong_touch_no_other() {
    let mut world = world(3);
    let open = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: heliograph
  allowedListeners: {namespaces: {from: Same}}
  listeners: [{name: http, port: 8080, protocol: HTTP}]
";
    change(&mut world, object(open));
    let fleet = "shop/web".parse().unwrap();
    let all = |world: &World| world.resources(&fleet).map(|(_, it)| it.clone()).collect::<Vec<_>>();
    let before = all(&world);
    let set = |name: &str, parent: &str, listener: &str| {
        format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: {name}, namespace: shop}}
spec: {{parentRef: {{{parent}}}, listeners: [{listener}]}}
"
        )
    };
    let of_route = |name: &str, rule: &str| {
        format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: shop}}
spec: {{parentRefs: [{{name: web}}], hostnames: [host-0.example.com], rules: [{rule}]}}
"
        )
    };
    let own = "name: one, port: 9000, protocol: HTTP";
    let wrong = [
        // An expression that is none.
        of_route("regex", "{matches: [{path: {type: RegularExpression, value: '/(a'}}]}"),
        // Listeners that are there already, or that want a port for something else.
        set("again", "name: web", "{name: http, port: 8080, protocol: HTTP}"),
        set("other", "name: web", "{name: tcp, port: 8080, protocol: TCP}"),
        // In a circle.
        set("east", "kind: ListenerSet, name: west", &format!("{{{own}}}")),
        set("west", "kind: ListenerSet, name: east", &format!("{{{own}}}")),
        set("self", "kind: ListenerSet, name: self", &format!("{{{own}}}")),
    ];
    for manifest in wrong {
        let outcome = change(&mut world, object(&manifest));
        assert_eq!(changed(&outcome), [], "{manifest}");
        assert_eq!(all(&world), before, "{manifest}");
    }
}

#[test]
fn a_policy_for_one_of_a_thousand_services_translates_one_cluster() {
    let mut world = world(1_000);
    let policy = |host: &str| {
        object(&format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: policy, namespace: shop}}
spec:
  targetRefs: [{{group: '', kind: Service, name: service-500}}]
  validation: {{wellKnownCACertificates: System, hostname: '{host}'}}
"
        ))
    };
    let cluster = (ResourceType::Cluster, "service/shop/service-500/80".to_owned());
    for host in ["one.example.com", "two.example.com"] {
        let outcome = change(&mut world, policy(host));
        let expected = [("accepted_policy", 1), ("cluster", 1), ("rules", 1), ("status", 1)];
        assert_eq!(work(&outcome), expected);
        assert_eq!(changed(&outcome), std::slice::from_ref(&cluster));
    }
    // One that asks for what cannot be done: the backend is not spoken to any more.
    let outcome = change(&mut world, policy("*.example.com"));
    let gone = "-service/shop/service-500/80".to_owned();
    assert!(changed(&outcome).contains(&(ResourceType::Cluster, gone)), "{outcome:?}");
    assert!(outcome.work.total() < 20, "{:?}", outcome.work);
}

/// A new term begins with everything, and with the same: also what was there and is gone leaves no trace.
#[test]
fn a_world_that_forgets_what_it_derived_tells_everything_again() {
    let mut world = world(3);
    change(&mut world, route("web", 1, "other.example.com", "/"));
    world.apply(Event::Deleted(service(2).key()));
    world.settle();
    world.forget_derived();
    let again = world.settle();

    let mut fresh = World::new();
    apply(&mut fresh, [object(CLASS), gateway("web"), service(0), service(1)]);
    for index in 0..3 {
        let host = if index == 1 { "other".to_owned() } else { format!("host-{index}") };
        let route = route("web", index, &format!("{host}.example.com"), "/");
        apply(&mut fresh, [slice(index, "10.0.0.1"), route]);
    }
    assert_eq!(again, fresh.settle());
    assert_eq!(world.settle(), Outcome::default(), "nothing is told twice");
}

#[test]
fn a_listener_set_beside_a_thousand_routes_attaches_its_own() {
    let mut world = world(1_000);
    let open = object(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: heliograph
  allowedListeners: {namespaces: {from: Same}}
  listeners:
  - {name: http, port: 8080, protocol: HTTP}
",
    );
    let outcome = change(&mut world, open);
    assert_eq!(work(&outcome), [("gateway", 1), ("infra", 1), ("listener_requests", 1)]);
    let set = object(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: shop}
spec:
  parentRef: {name: web}
  listeners: [{name: http, port: 8081, protocol: HTTP}]
",
    );
    let outcome = change(&mut world, set);
    assert_eq!(outcome.work.of("attachment"), 0, "{:?}", outcome.work);
    assert!(outcome.work.total() < 10, "{:?}", outcome.work);
}

const MERGING: &str = "
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

/// One of many that share their proxies, each of which is younger than the one before.
fn merged(index: usize, host: &str) -> Object {
    object(&format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web-{index}, namespace: shop, creationTimestamp: '20{:02}-01-01T00:00:00Z'}}
spec:
  gatewayClassName: edge
  listeners: [{{name: http, port: 8080, protocol: HTTP, hostname: '{host}'}}]
",
        index % 100
    ))
}

fn objects(manifests: &str) -> impl Iterator<Item = Object> {
    parse(manifests).into_iter().map(|document| match document {
        Document::Object(object) => object,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_gateway_among_a_hundred_that_share_proxies_concerns_those_whose_way_it_is_in() {
    let mut world = World::new();
    apply(&mut world, objects(MERGING));
    apply(&mut world, (0..100).map(|index| merged(index, &format!("host-{index}.example.com"))));
    world.settle();
    assert_eq!(world.fleets().count(), 1);

    let of = |outcome: &Outcome| {
        ["listener_requests", "arbitration", "gateway", "status"].map(|it| outcome.work.of(it))
    };
    let outcome = change(&mut world, merged(5, "another.example.com"));
    assert_eq!(of(&outcome), [1, 1, 1, 1], "{:?}", outcome.work);
    // It takes the host of one that is younger, and gives it back.
    for host in ["host-50.example.com", "host-5.example.com"] {
        let outcome = change(&mut world, merged(5, host));
        assert_eq!(of(&outcome), [1, 1, 2, 2], "{:?}", outcome.work);
    }
}

/// Each HTTPS listener has a table: if all knew of all, one more would be a change of every one.
#[test]
fn an_https_gateway_among_a_hundred_that_share_proxies_changes_its_own_table() {
    let mut world = World::new();
    apply(&mut world, objects(MERGING));
    let golden = include_str!("golden/merged.yaml").split("#! everything").next().unwrap();
    let is_secret = |object: &Object| object.key().kind.as_str() == "Secret";
    apply(&mut world, objects(golden).filter(is_secret));
    let secure = |index: usize, host: &str| {
        object(&format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web-{index}, namespace: shop}}
spec:
  gatewayClassName: edge
  listeners:
  - {{name: https, port: 8443, protocol: HTTPS, hostname: '{host}', tls: {{certificateRefs: [{{name: good}}]}}}}
"
        ))
    };
    apply(&mut world, (0..100).map(|index| secure(index, &format!("host-{index}.example.com"))));
    world.settle();
    let outcome = change(&mut world, secure(5, "another.example.com"));
    let of = ["virtual_host", "table", "listener"].map(|stage| outcome.work.of(stage));
    assert_eq!(of, [1, 1, 1], "{:?}", outcome.work);
}

#[test]
fn what_a_policy_comes_to_does_not_follow_routes_that_lead_where_they_led() {
    let mut world = world(3);
    let policy = object(
        "
apiVersion: heliograph.dev/v1alpha1
kind: ViewPolicy
metadata: {name: some, namespace: shop}
spec:
  targetRef: {group: gateway.networking.k8s.io, kind: Gateway, name: web}
  clients: {matchLabels: {app: edge}}
  rules: [{only: {listeners: [http]}}]
",
    );
    change(&mut world, policy);
    let outcome = change(&mut world, route("web", 1, "host-1.example.com", "/new"));
    assert_eq!(outcome.work.of("plan"), 0, "{:?}", outcome.work);
    // The first route that leads to another backend is a change of it, and the second one is none.
    let to_another = |index: usize, path: &str| {
        let Object::HTTPRoute(route) =
            route("web", index, &format!("host-{index}.example.com"), path)
        else {
            panic!("no HTTPRoute")
        };
        let mut route = (*route).clone();
        for rule in route.spec.rules.iter_mut().flatten() {
            rule.backend_refs.iter_mut().flatten().for_each(|it| it.name = "service-2".to_owned());
        }
        Object::HTTPRoute(route.into())
    };
    let outcome = change(&mut world, to_another(1, "/"));
    assert_eq!(outcome.work.of("plan"), 1, "service-1 is reached no more: {:?}", outcome.work);
}

/// A listener for TCP and a route at it, for each index, each with its own Service and endpoints.
fn tcp_world(size: usize) -> World {
    let mut world = World::new();
    let listeners: String = (0..size)
        .map(|index| format!("  - {{name: tcp-{index}, port: {}, protocol: TCP}}\n", 9000 + index))
        .collect();
    let gateway = format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web, namespace: shop}}
spec:
  gatewayClassName: heliograph
  listeners:
  - {{name: http, port: 8080, protocol: HTTP}}
{listeners}"
    );
    apply(&mut world, [object(CLASS), object(&gateway)]);
    for index in 0..size {
        let route = tcp_route("route", index, index, 2020);
        apply(&mut world, [service(index), slice(index, "10.0.0.1"), route]);
    }
    world.settle();
    world
}

/// At the listener of this index, to the Service of another.
fn tcp_route(name: &str, listener: usize, service: usize, year: u16) -> Object {
    object(&format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {{name: {name}-{listener}, namespace: shop, creationTimestamp: '{year}-01-01T00:00:00Z'}}
spec:
  parentRefs: [{{name: web, sectionName: tcp-{listener}}}]
  rules: [{{backendRefs: [{{name: service-{service}, port: 80}}]}}]
"
    ))
}

#[test]
fn an_endpoint_change_among_a_hundred_tcp_routes_translates_one_endpoints_resource() {
    let mut world = tcp_world(100);
    let outcome = change(&mut world, slice(50, "10.0.0.2"));
    assert_eq!(work(&outcome), [("endpoints", 1)]);
    let endpoints = (ResourceType::Endpoints, "service/shop/service-50/80/tcp".to_owned());
    assert_eq!(changed(&outcome), [endpoints]);
}

#[test]
fn one_changed_tcp_route_among_a_hundred_translates_its_listener_alone() {
    let mut world = tcp_world(100);
    let outcome = change(&mut world, tcp_route("route", 50, 51, 2020));
    let expected = [
        ("attachment", 1),
        ("forwarding", 1),
        ("listener", 1),
        ("placement", 1),
        ("rules", 1),
        ("status", 1),
    ];
    assert_eq!(work(&outcome), expected);
    let gone = |kind| (kind, "-service/shop/service-50/80/tcp".to_owned());
    let expected = [
        (ResourceType::Listener, "port/9050".to_owned()),
        gone(ResourceType::Cluster),
        gone(ResourceType::Endpoints),
    ];
    let mut found = changed(&outcome);
    found.sort_by_key(|(kind, _)| std::cmp::Reverse(*kind));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(expected.iter().all(|it| found.contains(it)), "{found:?}");
}

#[test]
fn a_younger_tcp_route_changes_nothing_that_is_served_until_the_older_one_goes() {
    let mut world = tcp_world(3);
    let outcome = change(&mut world, tcp_route("younger", 1, 2, 2021));
    assert_eq!(changed(&outcome), []);
    assert_eq!(outcome.work.of("listener"), 0, "{:?}", outcome.work);
    world.apply(Event::Deleted(tcp_route("route", 1, 1, 2020).key()));
    let outcome = world.settle();
    let listener = (ResourceType::Listener, "port/9001".to_owned());
    assert!(changed(&outcome).contains(&listener), "{outcome:?}");
    assert_eq!(outcome.work.of("listener"), 1, "{:?}", outcome.work);
}

#[test]
fn routes_over_http_cost_a_tcp_listener_nothing() {
    let mut world = tcp_world(3);
    let outcome = change(&mut world, route("web", 9, "new.example.com", "/"));
    assert_eq!(outcome.work.of("forwarding"), 0, "{:?}", outcome.work);
    assert_eq!(outcome.work.of("listener"), 0, "{:?}", outcome.work);
}
