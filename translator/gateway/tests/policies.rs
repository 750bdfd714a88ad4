//! Policies that are not understood, and what a change of a policy costs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_gateway::objects::{Document, Kind, Object, parse};
use heliograph_gateway::{Event, World};
use heliograph_snapshot::ResourceType;
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
