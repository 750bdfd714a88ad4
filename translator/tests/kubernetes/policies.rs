//! Policies that are served and not understood.

use crate::client;
use crate::contents::Translated;
use crate::kubernetes::Kubernetes;
use crate::watches::{LAX, Watched, gateway, gateways, route};
use heliograph_gateway::CONTROLLER_NAME;
use heliograph_translator::provider::kubernetes::Scope;
use serde_json::{Value, json};

const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";

/// An API with a CRD that lets everything in, as one of a newer version lets more in.
async fn cluster() -> Kubernetes {
    let cluster = Kubernetes::start().await;
    for (kind, singular, plural) in [
        ("GatewayClass", "gatewayclass", "gatewayclasses"),
        ("Gateway", "gateway", "gateways"),
        ("HTTPRoute", "httproute", "httproutes"),
        ("BackendTLSPolicy", "backendtlspolicy", "backendtlspolicies"),
    ] {
        let manifest = LAX
            .replace("httproutes", plural)
            .replace("httproute", singular)
            .replace("HTTPRoute", kind)
            .replace("Namespaced", if kind == "GatewayClass" { "Cluster" } else { "Namespaced" });
        cluster.install_crd(&format!("{plural}.gateway.networking.k8s.io"), &manifest).await;
    }
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": { "name": "heliograph" }, "spec": { "controllerName": CONTROLLER_NAME },
    });
    cluster.apply(&format!("{GATEWAY_API}/gatewayclasses/heliograph"), class).await;
    cluster.create(&gateways("default"), gateway("edge", "heliograph", Value::Null)).await;
    let service = json!({ "metadata": { "name": "cart" }, "spec": { "ports": [{ "port": 80 }] } });
    cluster.create("/api/v1/namespaces/default/services", service).await;
    let mut cart = route("cart");
    cart["spec"]["rules"] = json!([{ "backendRefs": [{ "name": "cart", "port": 80 }] }]);
    cluster.apply(&format!("{GATEWAY_API}/namespaces/default/httproutes/cart"), cart).await;
    cluster
}

async fn start(cluster: &Kubernetes) -> Watched {
    let mut watched = Watched::start(client(cluster).await, Scope::default());
    watched.translated = Some(Translated::default());
    watched.until_synced().await;
    watched
}

fn translated(watched: &Watched) -> &Translated {
    watched.translated.as_ref().unwrap()
}

fn is_reached(watched: &Watched) -> bool {
    translated(watched).clusters.contains_key("service/default/cart/80")
}

/// Without its policy, the backend would receive plaintext: from a translator that starts as from one that runs.
#[tokio::test]
async fn an_undecodable_policy_closes_what_it_targets_for_whoever_reads_it() {
    let cluster = cluster().await;
    let path = format!("{GATEWAY_API}/namespaces/default/backendtlspolicies/cart");
    let policy = |validation: Value| {
        let targets = json!([{ "group": "", "kind": "Service", "name": "cart" }]);
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": { "name": "cart" }, "spec": { "targetRefs": targets, "validation": validation },
        })
    };
    let good = json!({ "wellKnownCACertificates": "System", "hostname": "cart.example" });
    cluster.apply(&path, policy(good.clone())).await;
    let mut running = start(&cluster).await;
    assert!(is_reached(&running), "{:?}", running.log);

    let names = json!([{ "type": "Sideways", "hostname": "cart.example" }]);
    let mut bad = good.clone();
    bad["subjectAltNames"] = names;
    cluster.apply(&path, policy(bad)).await;
    running.until("its targets are closed", |watched| !is_reached(watched)).await;
    let fresh = start(&cluster).await;
    assert!(!is_reached(&fresh), "{:?}", fresh.log);
    for watched in [&running, &fresh] {
        let problems = translated(watched).problems_of("BackendTLSPolicy default/cart");
        assert_eq!(problems.len(), 1, "{problems:?}");
        let expected =
            "Invalid: spec.validation.subjectAltNames[0].type: unknown variant `Sideways`";
        assert!(problems[0].starts_with(expected), "{problems:?}");
    }
    cluster.apply(&path, policy(good)).await;
    running.until("it is open again", is_reached).await;
}

/// A cluster without the CRD has no such policies, and need not have it. One that gets it is closed where they say so.
#[tokio::test]
async fn a_kind_of_envoy_gateway_is_watched_where_it_is_served() {
    let cluster = cluster().await;
    let mut running = start(&cluster).await;
    assert!(is_reached(&running), "{:?}", running.log);
    assert!(!running.remarks("SecurityPolicy"), "{:?}", running.health.remarks());
    let unwatched = "heliograph_kubernetes_watched{kind=\"SecurityPolicy\"} 0";
    assert!(!running.metrics().contains(unwatched), "{}", running.metrics());

    let manifest = LAX
        .replace("httproutes", "securitypolicies")
        .replace("httproute", "securitypolicy")
        .replace("HTTPRoute", "SecurityPolicy")
        .replace("gateway.networking.k8s.io", "gateway.envoyproxy.io")
        .replace("name: v1\n", "name: v1alpha1\n");
    cluster.install_crd("securitypolicies.gateway.envoyproxy.io", &manifest).await;
    let target =
        json!({ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "cart" });
    let policy = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "SecurityPolicy",
        "metadata": { "name": "auth" },
        "spec": { "targetRefs": [target], "jwt": { "providers": [{ "name": "one" }] } },
    });
    let path =
        "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/default/securitypolicies/auth".to_owned();
    cluster.apply(&path, policy).await;
    running.until("its targets are closed", |watched| !is_reached(watched)).await;
    let fresh = start(&cluster).await;
    assert!(!is_reached(&fresh), "{:?}", fresh.log);
    for watched in [&running, &fresh] {
        let problems = translated(watched).problems_of("SecurityPolicy default/auth");
        let expected = "Invalid: spec.jwt is not supported. SecurityPolicies are not supported";
        assert!(problems[0].starts_with(expected), "{problems:?}");
        let of_route = translated(watched).problems_of("HTTPRoute default/cart");
        assert!(of_route[0].starts_with("ClosedByPolicy: All requests"), "{of_route:?}");
    }
    cluster.delete(&path).await;
    running.until("it is open again", is_reached).await;
}
