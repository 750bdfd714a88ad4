//! Policies that are not understood, and what a change of a policy costs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::{RouteConfiguration, route::Action};
use heliograph_gateway::objects::{Document, Kind, Object, parse};
use heliograph_gateway::{Event, Outcome, World};
use heliograph_snapshot::{FleetName, ResourceType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

const SCENE: &str = "
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
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: web}]
  rules:
  - backendRefs: [{name: cart, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{port: 80}]}
";

fn objects(manifests: &str) -> Vec<Object> {
    let object = |document| match document {
        Document::Object(object) => object,
        other => panic!("{other:?}"),
    };
    parse(manifests).into_iter().map(object).collect()
}

fn world(objects: impl IntoIterator<Item = Object>) -> World {
    let mut world = World::new();
    objects.into_iter().for_each(|object| world.apply(Event::Applied(object)));
    world.settle();
    world
}

/// The clusters that are served.
fn clusters(world: &World) -> Vec<String> {
    let fleet = "shop/web".parse().unwrap();
    let resources = world.resources(&fleet);
    let clusters = resources.filter(|(kind, _)| *kind == ResourceType::Cluster);
    clusters.map(|(_, resource)| resource.name.to_string()).collect()
}

/// As the API serves it.
fn served(kind: Kind, spec: Value) -> Object {
    let metadata = ObjectMeta {
        name: Some("policy".to_owned()),
        namespace: Some("shop".to_owned()),
        ..ObjectMeta::default()
    };
    kind.read(metadata, &mut json!({ "spec": spec })).unwrap()
}

fn backend_tls(validation: &Value) -> Value {
    let targets = json!([{ "group": "", "kind": "Service", "name": "cart" }]);
    json!({ "targetRefs": targets, "validation": validation })
}

fn manifest(kind: Kind, spec: &Value) -> String {
    let version = kind.api_version().unwrap();
    json!({
        "apiVersion": format!("{}/{version}", kind.group()), "kind": kind.as_str(),
        "metadata": { "name": "policy", "namespace": "shop" }, "spec": spec,
    })
    .to_string()
}

/// A field that is misspelt, one that is missing, and a value that no version knows.
fn undecodable() -> [Value; 3] {
    [
        json!({ "wellKnownCACertificates": "System", "hostname": "cart.example", "hostnme": "x" }),
        json!({ "wellKnownCACertificates": "System" }),
        json!({
            "wellKnownCACertificates": "System", "hostname": "cart.example",
            "subjectAltNames": [{ "type": "Sideways", "hostname": "cart.example" }],
        }),
    ]
}

/// The result does not depend on what was there before, nor on where the object comes from: without the policy, the backend
/// would receive plaintext.
#[test]
fn an_undecodable_policy_closes_what_it_targets() {
    let kind = Kind::BackendTLSPolicy;
    let good = json!({ "wellKnownCACertificates": "System", "hostname": "cart.example" });
    for validation in undecodable() {
        let spec = backend_tls(&validation);
        let from_file = objects(&manifest(kind, &spec)).remove(0);
        for policy in [served(kind, spec), from_file] {
            let fresh = world(objects(SCENE).into_iter().chain([policy.clone()]));
            assert_eq!(clusters(&fresh), [""; 0], "{validation}");

            let known = served(kind, backend_tls(&good));
            let mut running = world(objects(SCENE).into_iter().chain([known.clone()]));
            assert_eq!(clusters(&running), ["service/shop/cart/80"]);
            running.apply(Event::Applied(policy));
            running.settle();
            assert_eq!(clusters(&running), [""; 0], "{validation}");
            assert_eq!(running.problems().count(), 1, "{validation}");
            assert!(running.problems().eq(fresh.problems()), "{validation}");
            running.apply(Event::Applied(known));
            running.settle();
            assert_eq!(clusters(&running), ["service/shop/cart/80"]);
        }
    }
}

/// What is asked of whom is in a table: the status that a rule answers by itself, or the timeout of its requests.
fn answers(world: &World, fleet: &str) -> Vec<String> {
    let fleet: FleetName = fleet.parse().unwrap();
    let tables = world.resources(&fleet).filter(|(kind, _)| *kind == ResourceType::Route);
    let mut answers = Vec::new();
    for (_, table) in tables {
        let table = RouteConfiguration::decode(table.body.clone()).unwrap();
        for route in table.virtual_hosts.iter().flat_map(|host| &host.routes) {
            let (_, name) = route.name.split_once('/').unwrap();
            let answer = match route.action.as_ref().unwrap() {
                Action::DirectResponse(answer) => answer.status.to_string(),
                Action::Route(action) => format!("{}s", action.timeout.as_ref().unwrap().seconds),
                other => panic!("{other:?}"),
            };
            answers.push(format!("{name} {answer}"));
        }
    }
    answers.sort();
    answers.dedup();
    answers
}

/// Two Gateways, with two routes each. One of them has a rule with a name.
const TWO: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop, labels: {team: a}}
spec:
  gatewayClassName: heliograph
  listeners:
  - {name: one, port: 8080, protocol: HTTP}
  - {name: two, port: 8081, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: other, namespace: shop, labels: {team: b}}
spec:
  gatewayClassName: heliograph
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{port: 80}]}
";

fn route(name: &str, parent: &str, label: &str) -> Object {
    let manifest = format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: shop, labels: {{team: {label}}}}}
spec:
  parentRefs: [{parent}]
  hostnames: [{name}.example.com]
  rules:
  - {{name: first, matches: [{{path: {{value: /first}}}}], backendRefs: [{{name: cart, port: 80}}]}}
  - {{backendRefs: [{{name: cart, port: 80}}]}}
"
    );
    objects(&manifest).remove(0)
}

fn two_gateways() -> World {
    let one = "{name: web, sectionName: one}";
    let routes = [
        route("a", one, "a"),
        route("b", "{name: web, sectionName: two}", "b"),
        route("c", "{name: other}", "c"),
        route("d", "{name: other}", "d"),
    ];
    world(objects(TWO).into_iter().chain(routes))
}

/// A policy at one object, or at a section of it.
fn at(target: &str) -> Value {
    let mut parts = target.split_whitespace();
    let (kind, name) = (parts.next().unwrap(), parts.next().unwrap());
    let mut target = json!({ "group": "gateway.networking.k8s.io", "kind": kind, "name": name });
    if let Some(section) = parts.next() {
        target["sectionName"] = json!(section);
    }
    json!({ "targetRefs": [target] })
}

fn timeout(target: &str, seconds: &str) -> Object {
    let mut spec = at(target);
    spec["timeout"] = json!({ "http": { "requestTimeout": seconds } });
    served(Kind::BackendTrafficPolicy, spec)
}

fn change(world: &mut World, object: Object) -> Outcome {
    world.apply(Event::Applied(object));
    world.settle()
}

fn work(outcome: &Outcome) -> Vec<(&'static str, u64)> {
    outcome.work.by_stage().collect()
}

/// A change costs what it changes: the routes at its level, and none where nothing is in force otherwise than before.
#[test]
fn a_change_of_a_policy_compiles_the_routes_that_it_is_for_and_no_others() {
    let of_routes = |routes: u64| {
        vec![
            ("accepted_policy", 1),
            ("compiled_route", routes),
            // The routes, and the policy.
            ("status", routes + 1),
            ("table", routes.min(2)),
            ("virtual_host", routes),
        ]
    };
    let nothing = vec![("accepted_policy", 1), ("status", 1)];
    for (target, routes) in [
        ("HTTPRoute a", 1),
        ("HTTPRoute a first", 1),
        ("Gateway web one", 1),
        ("Gateway web", 2),
        ("Gateway missing", 0),
        ("HTTPRoute missing", 0),
        ("ListenerSet missing", 0),
    ] {
        let mut world = two_gateways();
        let expected = if routes == 0 { nothing.clone() } else { of_routes(routes) };
        let outcome = change(&mut world, timeout(target, "5s"));
        assert_eq!(work(&outcome), expected, "{target}: it comes");
        let outcome = change(&mut world, timeout(target, "6s"));
        assert_eq!(work(&outcome), expected, "{target}: it is another one");

        let mut next = timeout(target, "6s");
        next.metadata_mut().generation = Some(7);
        assert_eq!(work(&change(&mut world, next.clone())), nothing, "{target}: a new generation");
        world.apply(Event::Deleted(next.key()));
        let outcome = world.settle();
        assert_eq!(outcome.work.of("compiled_route"), routes, "{target}: it goes");
        assert_eq!(
            answers(&world, "shop/web"),
            ["shop/a/0/0 0s", "shop/a/1/0 0s", "shop/b/0/0 0s", "shop/b/1/0 0s"]
        );
    }
}

#[test]
fn a_change_of_what_a_policy_targets_does_not_accept_the_policy_again() {
    let mut world = two_gateways();
    change(&mut world, timeout("HTTPRoute a", "5s"));
    let outcome = change(&mut world, route("a", "{name: other}", "a"));
    assert_eq!(outcome.work.of("accepted_policy"), 0, "{:?}", outcome.work);
    assert_eq!(answers(&world, "shop/other")[..2], ["shop/a/0/0 5s", "shop/a/1/0 5s"]);
}

/// A route that gets the label is a target, and one that loses it is none.
#[test]
fn a_selector_follows_labels() {
    let mut world = two_gateways();
    let selector = json!({ "kind": "HTTPRoute", "matchLabels": { "team": "x" } });
    let spec = json!({
        "targetSelectors": [selector], "timeout": { "http": { "requestTimeout": "5s" } },
    });
    change(&mut world, served(Kind::BackendTrafficPolicy, spec));
    let reasons: Vec<_> = world.problems().map(|problem| problem.reason).collect();
    assert_eq!(reasons, ["NoTargets"]);
    let outcome = change(&mut world, route("c", "{name: other}", "x"));
    assert_eq!(outcome.work.of("compiled_route"), 1, "{:?}", outcome.work);
    let expected = ["shop/c/0/0 5s", "shop/c/1/0 5s", "shop/d/0/0 0s", "shop/d/1/0 0s"];
    assert_eq!(answers(&world, "shop/other"), expected);
    assert_eq!(world.problems().count(), 0);
    let outcome = change(&mut world, route("c", "{name: other}", "c"));
    assert_eq!(outcome.work.of("compiled_route"), 1, "{:?}", outcome.work);
    assert_eq!(answers(&world, "shop/other")[0], "shop/c/0/0 0s");
    // Of another kind in its namespace it knows nothing.
    let outcome = change(&mut world, objects(TWO).remove(3));
    assert_eq!(outcome.work.of("accepted_policy"), 0, "{:?}", outcome.work);
}

/// One that does not protect and is rejected is as if it were not there: the less specific level applies.
#[test]
fn a_rejected_policy_that_does_not_protect_has_no_effect() {
    let mut world = two_gateways();
    change(&mut world, timeout("Gateway other", "5s"));
    let mut spec = at("HTTPRoute c");
    spec["timeout"] = json!({ "http": { "requestTimeout": "6s" } });
    spec["retry"] = json!({});
    let metadata = ObjectMeta {
        name: Some("rejected".to_owned()),
        namespace: Some("shop".to_owned()),
        ..ObjectMeta::default()
    };
    let rejected = Kind::BackendTrafficPolicy.read(metadata, &mut json!({ "spec": spec })).unwrap();
    let outcome = change(&mut world, rejected);
    assert_eq!(answers(&world, "shop/other")[0], "shop/c/0/0 5s");
    assert!(outcome.changes.is_empty(), "{outcome:?}");
    let problems: Vec<_> = world.problems().map(|problem| problem.message).collect();
    assert_eq!(problems, ["spec.retry is not supported"]);
}

/// Whatever it says, whether it is understood, and whether there are others: what it targets answers 500, at once and for
/// whoever starts with it.
#[test]
fn a_security_policy_closes_its_targets() {
    let open = ["shop/a/0/0 0s", "shop/a/1/0 0s", "shop/b/0/0 0s", "shop/b/1/0 0s"];
    let targets: [(&str, &[usize]); 5] = [
        ("Gateway web", &[0, 1, 2, 3]),
        ("Gateway web two", &[2, 3]),
        ("HTTPRoute a", &[0, 1]),
        ("HTTPRoute a first", &[0]),
        ("HTTPRoute c", &[]),
    ];
    let sections = [
        json!({}),
        json!({ "jwt": { "providers": [] } }),
        json!({ "cors": null, "authorization": 7, "unheardOf": {} }),
        json!({ "targetSelectors": [{ "kind": "HTTPRoute", "matchLabels": { "team": "nobody" } }] }),
        json!({ "targetSelectors": "all" }),
    ];
    for (target, closed) in targets {
        let expected: Vec<String> = open
            .iter()
            .enumerate()
            .map(|(index, route)| match closed.contains(&index) {
                true => route.replace("0s", "500"),
                false => (*route).to_owned(),
            })
            .collect();
        for section in &sections {
            let mut spec = at(target);
            spec.as_object_mut().unwrap().extend(section.as_object().unwrap().clone());
            let from_file = objects(&manifest(Kind::SecurityPolicy, &spec)).remove(0);
            for policy in [served(Kind::SecurityPolicy, spec), from_file] {
                let mut world = two_gateways();
                assert_eq!(answers(&world, "shop/web"), open);
                // A policy of the Gateway that could be enforced would not change anything.
                change(&mut world, timeout("Gateway web", "0s"));
                change(&mut world, policy.clone());
                assert_eq!(answers(&world, "shop/web"), expected, "{target} {section}");
                world.forget_derived();
                world.settle();
                assert_eq!(answers(&world, "shop/web"), expected, "{target} {section}: fresh");
                let closed_routes = world.problems().filter(|it| it.reason == "ClosedByPolicy");
                assert!(closed_routes.count() > 0, "{target}");
                world.apply(Event::Deleted(policy.key()));
                world.settle();
                assert_eq!(answers(&world, "shop/web"), open, "{target}: it is gone");
                assert_eq!(world.problems().count(), 0);
            }
        }
    }
}
