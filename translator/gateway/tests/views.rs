//! What clients see of translated objects, as a distributor derives it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_gateway::objects::{Document, Kind, parse};
use heliograph_gateway::{Event, World};
use heliograph_snapshot::{Change, FleetName, Head, Internal, ResourceType, Snapshot};
use heliograph_views::{Client, Proxy, Rules, derive};
use serde_json::{Value, json};
use std::sync::Arc;

const BASE: &str = "
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
  - {name: open, port: 8080, protocol: HTTP}
  - {name: inner, port: 8081, protocol: HTTP}
---
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: inner, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: both, namespace: shop, labels: {kubernetes.io/service-name: both, rack: '7'}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.0.0.1], zone: a}, {addresses: [10.0.0.2], zone: b, nodeName: n}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: open, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: open}]
  rules: [{backendRefs: [{name: both, port: 80}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: inner, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: inner}]
  rules: [{backendRefs: [{name: both, port: 80}, {name: inner, port: 80}]}]
";

struct Scene(World);

impl Scene {
    fn new(policy: &str) -> Self {
        let mut scene = Self(World::new());
        scene.apply(BASE);
        scene.apply(policy);
        scene
    }

    fn apply(&mut self, text: &str) {
        for document in parse(text) {
            let Document::Object(object) = document else { panic!("{document:?}") };
            self.0.apply(Event::Applied(object));
        }
        self.0.settle();
    }

    /// A ViewPolicy as the API serves it.
    fn apply_served(&mut self, text: &str) {
        let mut value: Value = serde_saphyr::from_str(text).unwrap();
        let metadata = serde_json::from_value(value["metadata"].clone()).unwrap();
        let object = Kind::ViewPolicy.read(metadata, &mut value).unwrap();
        self.0.apply(Event::Applied(object));
        self.0.settle();
    }

    fn view(&self, client: &Client) -> Arc<Snapshot> {
        let fleet = FleetName::new("shop", "web");
        let served = self.0.resources(&fleet).map(|(kind, it)| Change::Set(kind, it.clone()));
        let internals = self.0.internals(&fleet);
        let internals = internals.map(|(part, it)| Change::SetInternal(part, it.clone()));
        let base = Snapshot::empty(fleet.clone()).with(Head::default(), served.chain(internals));
        let base = Arc::new(base);
        let rules = Rules::of(base.internal(Internal::Rules));
        derive(&base, &rules, &rules.class(client))
    }

    fn status(&self) -> Value {
        let found = self.0.statuses().find(|(key, _)| key.name.name.as_ref() == "policy");
        json!(found.unwrap().1)
    }

    /// Whether a condition is true, and its message.
    fn condition(&self, kind: &str) -> (bool, String) {
        let status = self.status();
        let conditions = status["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|it| it["type"] == kind).unwrap();
        (found["status"] == "True", found["message"].as_str().unwrap().to_owned())
    }
}

fn policy(clients: &str, rules: &str) -> String {
    format!(
        "
apiVersion: heliograph.dev/v1alpha1
kind: ViewPolicy
metadata: {{name: policy, namespace: shop}}
spec:
  targetRef: {{group: gateway.networking.k8s.io, kind: Gateway, name: web}}
  clients: {clients}
  rules: {rules}
"
    )
}

fn client(labels: &[(&str, &str)]) -> Client {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Client {
        proxy: Proxy { namespace: "shop".to_owned(), labels: labels.collect() },
        ..Client::default()
    }
}

fn of(namespace: &str) -> Client {
    Client { identity: Some(namespace.to_owned()), ..client(&[]) }
}

fn names(view: &Snapshot) -> Vec<String> {
    let name = |kind: ResourceType| {
        let mut names: Vec<_> =
            view.tree(kind).iter().map(|it| format!("{kind} {}", it.name)).collect();
        names.sort();
        names
    };
    ResourceType::ALL.into_iter().flat_map(name).collect()
}

fn priorities(view: &Snapshot) -> Vec<u32> {
    let found = view.get(ResourceType::Endpoints, "service/shop/both/80").unwrap();
    let found = ClusterLoadAssignment::decode(found.body.clone()).unwrap();
    found.endpoints.iter().map(|group| group.priority).collect()
}

const OPEN: [&str; 4] = [
    "cluster service/shop/both/80",
    "endpoints service/shop/both/80",
    "listener port/8080",
    "route http/8080",
];

#[test]
fn who_may_not_see_a_listener_sees_nothing_that_is_there_for_it_alone() {
    let scene = Scene::new(&policy("{namespaces: [shop]}", "[{only: {listeners: [inner]}}]"));
    assert_eq!(names(&scene.view(&of("shop"))).len(), 8);
    assert_eq!(names(&scene.view(&of("elsewhere"))), OPEN);
    // What is claimed, or listed, is no identity.
    assert_eq!(names(&scene.view(&client(&[]))), OPEN);
    assert!(scene.condition("Accepted").0);
}

/// Where connections go is seen by those alone who see the listener, as with requests.
#[test]
fn who_may_not_see_a_tcp_listener_does_not_see_where_its_connections_go() {
    let mut scene = Scene::new(&policy("{namespaces: [shop]}", "[{only: {listeners: [wires]}}]"));
    let inner = "  - {name: inner, port: 8081, protocol: HTTP}";
    let wires = "  - {name: wires, port: 8081, protocol: TCP}";
    scene.apply(&BASE.split("---").nth(1).unwrap().replace(inner, wires));
    scene.apply(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: wires, namespace: shop}
spec:
  parentRefs: [{name: web, sectionName: wires}]
  rules: [{backendRefs: [{name: both, port: 80}]}]
",
    );
    assert!(scene.condition("Accepted").0);
    assert_eq!(names(&scene.view(&of("elsewhere"))), OPEN);
    let seen = names(&scene.view(&of("shop")));
    let more: Vec<_> = seen.iter().filter(|name| !OPEN.contains(&name.as_str())).collect();
    let cluster = "service/shop/both/80/tcp";
    assert_eq!(
        more,
        [&format!("cluster {cluster}"), &format!("endpoints {cluster}"), "listener port/8081"]
    );
}

#[test]
fn a_refused_policy_shows_nobody_what_is_for_some() {
    let rules =
        "[{only: {listeners: [inner]}}, {overlay: {type: Secret, name: a, mergePatch: {}}}]";
    let mut scene = Scene::new(&policy("{namespaces: [shop]}", rules));
    let (accepted, why) = scene.condition("Accepted");
    assert!(!accepted && why.contains("no proxy is served port "), "{why}");
    for client in [of("shop"), of("elsewhere"), client(&[])] {
        assert_eq!(names(&scene.view(&client)), OPEN);
    }
    scene.apply(&policy("{namespaces: [shop]}", "[{only: {listeners: [inner]}}]"));
    assert_eq!(names(&scene.view(&of("shop"))).len(), 8);
    assert_eq!(names(&scene.view(&of("elsewhere"))), OPEN);
    // Another listener comes beside it on its port.
    let beside = "  - {name: inner, port: 8081, protocol: HTTP}
  - {name: beside, port: 8081, protocol: HTTP, hostname: beside.example}";
    let inner = "  - {name: inner, port: 8081, protocol: HTTP}";
    let gateway = BASE.split("---").nth(1).unwrap().replace(inner, beside);
    scene.apply(&gateway);
    let (_, why) = scene.condition("Accepted");
    assert!(why.contains("listener beside shares port 8081"), "{why}");
    assert_eq!(names(&scene.view(&of("shop"))), OPEN);
}

/// The result does not depend on what was there before, nor on where the object comes from.
#[test]
fn an_undecodable_policy_hides_what_is_for_some() {
    let good = policy("{namespaces: [shop]}", "[{only: {listeners: [inner]}}]");
    let guess = "{overlay: {type: Cluster, name: a, jsonPatch: [{op: guess, path: /a}]}}";
    for (clients, rules) in [
        ("{namespaces: [shop]}", format!("[{{only: {{listeners: [inner]}}}}, {guess}]")),
        ("{namespaces: shop}", "[{only: {listeners: [inner]}}]".to_owned()),
        ("{zones: [a]}", "[{only: {listeners: [inner]}}]".to_owned()),
    ] {
        let bad = policy(clients, &rules);
        let mut running = Scene::new(&good);
        assert_eq!(names(&running.view(&of("shop"))).len(), 8);
        running.apply(&bad);
        let mut fresh = Scene::new(&bad);
        let mut served = Scene::new("");
        served.apply_served(&bad);
        for scene in [&mut running, &mut fresh, &mut served] {
            let (accepted, why) = scene.condition("Accepted");
            assert!(!accepted && why.contains("no proxy is served port "), "{why}");
            for client in [of("shop"), of("elsewhere"), client(&[])] {
                assert_eq!(names(&scene.view(&client)), OPEN, "{bad}");
            }
            scene.apply(&good);
            assert_eq!(names(&scene.view(&of("shop"))).len(), 8);
        }
    }
    // Without `only` there is nothing to hide.
    let scene = Scene::new(&policy("{}", &format!("[{guess}]")));
    assert!(!scene.condition("Accepted").0);
    assert_eq!(names(&scene.view(&client(&[]))).len(), 8);
    // Where it cannot be read which listeners are for some, all are.
    let scene = Scene::new(&policy("{}", "[{only: {listeners: inner}}]"));
    assert_eq!(names(&scene.view(&client(&[]))), [""; 0]);
}

#[test]
fn a_listener_is_there_for_some_versions() {
    let scene = Scene::new(&policy("{envoy: {min: '1.31'}}", "[{only: {listeners: [inner]}}]"));
    let at = |version: &str| Client { version: version.parse().ok(), ..client(&[]) };
    assert_eq!(names(&scene.view(&at("1.31.0"))).len(), 8);
    assert_eq!(names(&scene.view(&at("1.30.9"))), OPEN);
    assert_eq!(names(&scene.view(&client(&[]))), OPEN);
}

#[test]
fn endpoints_are_preferred_by_labels_of_slices_and_nodes() {
    let by =
        |labels: &str| Scene::new(&policy("{}", &format!("[{{prefer: {{labels: {labels}}}}}]")));
    let zone = by("[topology.kubernetes.io/zone]");
    assert_eq!(priorities(&zone.view(&client(&[("topology.kubernetes.io/zone", "b")]))), [0, 1]);
    assert_eq!(priorities(&zone.view(&client(&[]))), [0, 0]);
    let node = by("[rack, kubernetes.io/hostname]");
    let near = client(&[("rack", "7"), ("kubernetes.io/hostname", "n")]);
    assert_eq!(priorities(&node.view(&near)), [0, 1]);
    // The first label differs, so the second is not looked at.
    let far = client(&[("rack", "8"), ("kubernetes.io/hostname", "n")]);
    assert_eq!(priorities(&node.view(&far)), [0, 0]);
}

#[test]
fn a_service_that_asks_for_it_is_preferred_by_zone_without_a_policy() {
    let mut scene = Scene::new("");
    let near = client(&[("topology.kubernetes.io/zone", "b")]);
    assert_eq!(priorities(&scene.view(&near)), [0, 0]);
    scene.apply(
        "
apiVersion: v1
kind: Service
metadata: {name: both, namespace: shop}
spec: {ports: [{port: 80}], trafficDistribution: PreferSameZone}
",
    );
    assert_eq!(priorities(&scene.view(&near)), [0, 1]);
}

#[test]
fn a_variant_follows_its_resource_and_is_for_those_it_is_for() {
    let overlay = "[{overlay: {type: Cluster, name: service/shop/both/80, mergePatch: {connect_timeout: 7s}}}]";
    let scene = Scene::new(&policy("{matchLabels: {tier: canary}}", overlay));
    let timeout = |client: &Client| {
        let view = scene.view(client);
        let found = view.get(ResourceType::Cluster, "service/shop/both/80").unwrap();
        Cluster::decode(found.body.clone()).unwrap().connect_timeout.map(|it| it.seconds)
    };
    assert_eq!(timeout(&client(&[("tier", "canary")])), Some(7));
    assert_ne!(timeout(&client(&[])), Some(7));
    assert!(scene.condition("ResolvedRefs").0);
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let refused = |clients: &str, rules: &str| {
        let (accepted, why) = Scene::new(&policy(clients, rules)).condition("Accepted");
        assert!(!accepted, "{clients} {rules}");
        why
    };
    let why = refused("{}", "[{only: {listeners: [nobody]}}]");
    assert_eq!(why, "rules[0]: only.listeners: the Gateway serves no listener nobody");
    let why = refused("{envoy: {min: new}}", "[]");
    assert!(why.starts_with("clients.envoy.min: "), "{why}");
    let why = refused("{}", "[{}]");
    assert_eq!(why, "rules[0]: a rule must be one of prefer, only and overlay");
    let why = refused("{}", "[{overlay: {type: Secret, name: a, mergePatch: {}}}]");
    assert!(why.contains("Secret"), "{why}");

    let unresolved = |overlay: &str| {
        let scene = Scene::new(&policy("{}", &format!("[{{overlay: {overlay}}}]")));
        let (resolved, why) = scene.condition("ResolvedRefs");
        assert!(!resolved && scene.condition("Accepted").0, "{overlay}");
        why
    };
    let why = unresolved("{type: Cluster, name: nobody, mergePatch: {}}");
    assert_eq!(why, "overlay of cluster nobody: there is no such resource");
    let why = unresolved("{type: Listener, name: port/8080, mergePatch: {nonsense: 1}}");
    assert!(why.contains("nonsense"), "{why}");
    let why = unresolved("{type: Listener, name: port/8080, mergePatch: {name: other}}");
    assert!(why.ends_with("the name of a resource stays as it is"), "{why}");
}
