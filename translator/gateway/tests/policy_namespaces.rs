//! Policies that select objects of other namespaces: those that a ReferenceGrant lets them have, and no others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::{RouteConfiguration, route::Action};
use heliograph_gateway::objects::{Document, Kind, Object, ObjectName, parse};
use heliograph_gateway::{Event, Outcome, World};
use heliograph_snapshot::{FleetName, ResourceType};
use serde_json::{Value, json};

/// A Gateway of `infra` with a route there, and one each in two other namespaces.
const SCENE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: heliograph
  listeners: [{name: http, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
";

const OPEN: [&str; 3] = ["infra/cart", "other/cart", "shop/cart"];

fn object(manifest: &Value) -> Object {
    match parse(&manifest.to_string()).remove(0) {
        Document::Object(object) => object,
        other => panic!("{other:?}"),
    }
}

fn route(namespace: &str, team: &str) -> Object {
    object(&route_manifest(namespace, team))
}

fn route_manifest(namespace: &str, team: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": "cart", "namespace": namespace, "labels": { "team": team } },
        "spec": {
            "parentRefs": [{ "name": "web", "namespace": "infra" }],
            "hostnames": [format!("{namespace}.example.com")],
            "rules": [{ "backendRefs": [{ "name": "cart", "port": 80 }] }],
        },
    })
}

fn service(namespace: &str) -> Object {
    object(&json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "cart", "namespace": namespace },
        "spec": { "ports": [{ "port": 80 }] },
    }))
}

fn scene() -> World {
    let mut world = World::new();
    for document in parse(SCENE) {
        let Document::Object(object) = document else { panic!("{document:?}") };
        world.apply(Event::Applied(object));
    }
    for namespace in ["infra", "shop", "other"] {
        world.apply(Event::Applied(route(namespace, "x")));
        world.apply(Event::Applied(service(namespace)));
    }
    world.settle();
    world
}

/// A SecurityPolicy of `infra`.
fn policy(selector: &Value) -> Object {
    of_kind("SecurityPolicy", selector)
}

fn of_kind(kind: &str, selector: &Value) -> Object {
    object(&json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": kind,
        "metadata": { "name": "policy", "namespace": "infra" },
        "spec": { "targetSelectors": [selector] },
    }))
}

/// HTTPRoutes with the label of these namespaces.
fn routes_of(namespaces: &Value) -> Value {
    json!({ "kind": "HTTPRoute", "matchLabels": { "team": "x" }, "namespaces": namespaces })
}

fn grant(namespace: &str, from: &Value, to: &Value) -> Object {
    object(&grant_manifest(namespace, from, to))
}

fn grant_manifest(namespace: &str, from: &Value, to: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant",
        "metadata": { "name": "grant", "namespace": namespace },
        "spec": { "from": [from], "to": [to] },
    })
}

fn from(kind: &str, namespace: &str) -> Value {
    json!({ "group": "gateway.envoyproxy.io", "kind": kind, "namespace": namespace })
}

fn to(kind: &str) -> Value {
    json!({ "group": "gateway.networking.k8s.io", "kind": kind })
}

fn granted(namespace: &str) -> Object {
    grant(namespace, &from("SecurityPolicy", "infra"), &to("HTTPRoute"))
}

fn namespace(name: &str, stage: &str) -> Object {
    object(&json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": name, "labels": { "stage": stage } },
    }))
}

fn change(world: &mut World, object: Object) -> Outcome {
    world.apply(Event::Applied(object));
    world.settle()
}

/// The routes that are not answered with 500. What is worked out from the beginning is the same.
fn open(world: &mut World) -> Vec<String> {
    let found = open_now(world);
    world.forget_derived();
    world.settle();
    assert_eq!(open_now(world), found, "it depends on what was before");
    found
}

fn open_now(world: &World) -> Vec<String> {
    let fleet: FleetName = "infra/web".parse().unwrap();
    let tables = world.resources(&fleet).filter(|(kind, _)| *kind == ResourceType::Route);
    let mut open = Vec::new();
    for (_, table) in tables {
        let table = RouteConfiguration::decode(table.body.clone()).unwrap();
        for route in table.virtual_hosts.iter().flat_map(|host| &host.routes) {
            if matches!(route.action, Some(Action::Route(_))) {
                let mut parts = route.name.split('/').skip(1);
                open.push(format!("{}/{}", parts.next().unwrap(), parts.next().unwrap()));
            }
        }
    }
    open.sort();
    open
}

#[test]
fn a_policy_closes_what_it_selects_in_namespaces_that_let_it() {
    let mut world = scene();
    assert_eq!(open(&mut world), OPEN);
    change(&mut world, policy(&routes_of(&json!({ "from": "All" }))));
    assert_eq!(open(&mut world), ["other/cart", "shop/cart"], "nobody let it");
    change(&mut world, granted("shop"));
    assert_eq!(open(&mut world), ["other/cart"]);
    // A label that comes and goes.
    change(&mut world, route("shop", "y"));
    assert_eq!(open(&mut world), ["other/cart", "shop/cart"]);
    change(&mut world, route("shop", "x"));
    assert_eq!(open(&mut world), ["other/cart"]);
    world.apply(Event::Deleted(granted("shop").key()));
    world.settle();
    assert_eq!(open(&mut world), ["other/cart", "shop/cart"]);
}

/// Otherwise whoever may write policies in one namespace could close the routes of all others.
#[test]
fn a_grant_for_something_else_lets_nothing_be_closed() {
    let names_another = {
        let mut to = to("HTTPRoute");
        to["name"] = json!("another");
        to
    };
    let mut group = from("SecurityPolicy", "infra");
    group["group"] = json!("gateway.networking.k8s.io");
    for grant in [
        grant("shop", &from("BackendTrafficPolicy", "infra"), &to("HTTPRoute")),
        grant("shop", &from("SecurityPolicy", "other"), &to("HTTPRoute")),
        grant("shop", &from("SecurityPolicy", "infra"), &to("GRPCRoute")),
        grant("shop", &from("SecurityPolicy", "infra"), &names_another),
        grant("shop", &group, &to("HTTPRoute")),
        grant("infra", &from("SecurityPolicy", "infra"), &to("HTTPRoute")),
    ] {
        let mut world = scene();
        change(&mut world, policy(&routes_of(&json!({ "from": "All" }))));
        change(&mut world, grant.clone());
        assert_eq!(open(&mut world), ["other/cart", "shop/cart"], "{grant:?}");
    }
    // A grant alone selects nothing.
    for namespaces in [json!({ "from": "Same" }), json!({}), Value::Null] {
        let mut world = scene();
        change(&mut world, granted("shop"));
        change(&mut world, policy(&routes_of(&namespaces)));
        assert_eq!(open(&mut world), ["other/cart", "shop/cart"], "{namespaces}");
    }
}

#[test]
fn the_names_of_several_grants_add_up() {
    let mut world = scene();
    for name in ["one", "two"] {
        let mut route = route_manifest("shop", "x");
        route["metadata"]["name"] = json!(name);
        route["spec"]["hostnames"] = json!([format!("{name}.example.com")]);
        change(&mut world, object(&route));
    }
    change(&mut world, policy(&routes_of(&json!({ "from": "All" }))));
    let mut closed = vec!["infra/cart"];
    for (name, also_closed) in [("one", "shop/one"), ("cart", "shop/cart"), ("", "shop/two")] {
        let target =
            json!({ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": name });
        let mut grant = grant_manifest("shop", &from("SecurityPolicy", "infra"), &target);
        grant["metadata"]["name"] = json!(format!("grant-x{name}"));
        change(&mut world, object(&grant));
        closed.push(also_closed);
        let all = ["infra/cart", "other/cart", "shop/cart", "shop/one", "shop/two"];
        let expected: Vec<_> = all.into_iter().filter(|it| !closed.contains(it)).collect();
        assert_eq!(open(&mut world), expected, "{name}");
    }
}

#[test]
fn namespaces_are_selected_by_their_labels() {
    let mut world = scene();
    for name in ["shop", "other"] {
        change(&mut world, granted(name));
        change(&mut world, namespace(name, "test"));
    }
    let production = json!({ "matchLabels": { "stage": "production" } });
    let selector = routes_of(&json!({ "from": "Selector", "selector": production }));
    change(&mut world, policy(&selector));
    assert_eq!(open(&mut world), OPEN, "its own namespace has no such label");
    change(&mut world, namespace("shop", "production"));
    assert_eq!(open(&mut world), ["infra/cart", "other/cart"]);
    change(&mut world, namespace("shop", "test"));
    assert_eq!(open(&mut world), OPEN);
    change(&mut world, namespace("infra", "production"));
    assert_eq!(open(&mut world), ["other/cart", "shop/cart"]);

    let named = json!({
        "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": "In", "values": ["other"] }],
    });
    let selector = routes_of(&json!({ "from": "Selector", "selector": named }));
    change(&mut world, policy(&selector));
    assert_eq!(open(&mut world), ["infra/cart", "shop/cart"]);
}

/// Kubernetes refuses these: the values that an operator needs are missing, or there are some that it cannot have.
fn invalid_expressions() -> [Value; 6] {
    [
        json!({ "key": "stage", "operator": "In" }),
        json!({ "key": "stage", "operator": "In", "values": [] }),
        json!({ "key": "stage", "operator": "NotIn" }),
        json!({ "key": "stage", "operator": "NotIn", "values": [] }),
        json!({ "key": "stage", "operator": "Exists", "values": ["production"] }),
        json!({ "key": "team", "operator": "DoesNotExist", "values": ["y"] }),
    ]
}

/// More is closed then, and not less: of its own namespace, and of those that let it.
#[test]
fn a_selector_that_is_not_understood_selects_everything_that_it_may() {
    let near = json!([{ "key": "stage", "operator": "Near" }]);
    let selectors = [
        routes_of(&json!({ "from": "Elsewhere" })),
        routes_of(&json!({ "from": "Selector" })),
        routes_of(&json!({ "from": "Selector", "selector": 7 })),
        routes_of(&json!({ "from": "Selector", "selector": { "matchExpressions": near } })),
        routes_of(&json!({ "from": "All", "among": "all" })),
        routes_of(&json!("All")),
        json!({ "kind": "HTTPRoute", "matchLabels": { "team": 7 }, "namespaces": { "from": "All" } }),
    ];
    let of_namespaces = |it| {
        let selector = json!({ "matchExpressions": [it] });
        routes_of(&json!({ "from": "Selector", "selector": selector }))
    };
    let of_objects = |it| {
        let namespaces = json!({ "from": "All" });
        json!({ "kind": "HTTPRoute", "matchExpressions": [it], "namespaces": namespaces })
    };
    let invalid = invalid_expressions().into_iter();
    let invalid = invalid.flat_map(|it| [of_namespaces(it.clone()), of_objects(it)]);
    for selector in selectors.into_iter().chain(invalid) {
        let mut world = scene();
        change(&mut world, granted("shop"));
        change(&mut world, policy(&selector));
        assert_eq!(open(&mut world), ["other/cart"], "{selector}");
    }
    // It is for its own namespace, whatever else cannot be read.
    let mut world = scene();
    change(&mut world, granted("shop"));
    change(&mut world, policy(&json!({ "kind": "HTTPRoute", "matchLabels": 7 })));
    assert_eq!(open(&mut world), ["other/cart", "shop/cart"]);
}

/// A policy that does not protect would otherwise be in force for what its author did not select.
#[test]
fn a_policy_whose_selector_is_invalid_is_rejected() {
    for expression in invalid_expressions() {
        let expressions = json!([expression]);
        let namespaces =
            json!({ "from": "Selector", "selector": { "matchExpressions": expressions } });
        for (field, selector) in [
            ("matchExpressions", json!({ "kind": "HTTPRoute", "matchExpressions": expressions })),
            ("namespaces.selector.matchExpressions", routes_of(&namespaces)),
        ] {
            let mut world = scene();
            change(&mut world, of_kind("BackendTrafficPolicy", &selector));
            let policy = ObjectName::new("infra", "policy").of(Kind::BackendTrafficPolicy);
            let status = world.statuses().find(|(object, _)| **object == policy);
            let status = format!("{status:?}");
            let message = format!("spec.targetSelectors[0].{field}: ");
            assert!(status.contains(&message), "{selector}: {status}");
        }
    }
}

#[test]
fn a_gateway_of_another_namespace_is_a_target_as_well() {
    let selector = json!({ "kind": "Gateway", "namespaces": { "from": "All" } });
    let mut policy = of_kind("SecurityPolicy", &selector);
    policy.metadata_mut().namespace = Some("shop".to_owned());
    let mut world = scene();
    change(&mut world, policy);
    assert_eq!(open(&mut world), OPEN, "nobody let it");
    change(&mut world, grant("infra", &from("SecurityPolicy", "shop"), &to("Gateway")));
    assert_eq!(open(&mut world), [""; 0]);
}

/// What happens in a namespace without a grant is no concern of the policy.
#[test]
fn a_namespace_that_lets_it_nothing_costs_nothing() {
    let mut world = scene();
    change(&mut world, policy(&routes_of(&json!({ "from": "All" }))));
    change(&mut world, granted("shop"));
    for unrelated in [
        route("other", "y"),
        grant("other", &from("SecurityPolicy", "shop"), &to("HTTPRoute")),
        namespace("other", "test"),
    ] {
        let outcome = change(&mut world, unrelated);
        assert_eq!(outcome.work.of("accepted_policy"), 0, "{:?}", outcome.work);
    }
    let outcome = change(&mut world, route("shop", "y"));
    assert_eq!(outcome.work.of("accepted_policy"), 1, "{:?}", outcome.work);
    assert_eq!(outcome.work.of("compiled_route"), 1, "{:?}", outcome.work);
}
