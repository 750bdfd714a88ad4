//! What a real Envoy sees of a view, and does with it.

use crate::harness::{Helio, backend, gateway, get, route, until, write};
use heliograph_testing::Port;
use hyper::StatusCode;
use serde_json::Value;

/// How helio names the Envoy that it starts for the Gateway.
const NODE: &str = "standalone/default/web";

/// A Service with an endpoint in zone a and one in zone b.
fn zoned(a: u16, b: u16) -> String {
    let slice = |zone: &str, port: u16| {
        format!(
            "
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: everywhere-{zone}, labels: {{kubernetes.io/service-name: everywhere}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1], zone: {zone}}}]
"
        )
    };
    let service = "
apiVersion: v1
kind: Service
metadata: {name: everywhere}
spec: {ports: [{name: http, port: 80}]}
";
    format!("{service}{}{}", slice("a", a), slice("b", b))
}

/// Proxies use endpoints of their zone, and this one is in `zone`.
fn in_zone(node: &str, zone: &str) -> String {
    format!(
        "
apiVersion: heliograph.dev/v1alpha1
kind: ViewPolicy
metadata: {{name: near}}
spec:
  targetRef: {{group: gateway.networking.k8s.io, kind: Gateway, name: web}}
  rules: [{{prefer: {{labels: [topology.kubernetes.io/zone]}}}}]
---
apiVersion: heliograph.dev/v1alpha1
kind: Proxy
metadata: {{name: {node}, labels: {{topology.kubernetes.io/zone: {zone}}}}}
spec: {{targetRef: {{group: gateway.networking.k8s.io, kind: Gateway, name: web}}}}
"
    )
}

/// Who answers the next requests, if it is always the same.
async fn answers(port: u16) -> Option<String> {
    let mut names = Vec::new();
    for _ in 0..12 {
        let (status, body) = get(port, "/").await.ok()?;
        if status != StatusCode::OK {
            return None;
        }
        names.push(body.split(' ').next()?.to_owned());
    }
    names.dedup();
    (names.len() == 1).then(|| names.remove(0))
}

#[tokio::test]
async fn an_envoy_uses_the_endpoints_of_its_zone_and_those_of_another_once_it_is_relabelled() {
    let (port, a, b) = (Port::reserve().unwrap().number(), backend("a").await, backend("b").await);
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway("web", port));
        write(directory, "services.yaml", &zoned(a, b));
        write(directory, "route.yaml", &route(&[("/", "everywhere")]));
        write(directory, "views.yaml", &in_zone(NODE, "a"));
    });
    helio.until_ready().await;
    until("a answers", || async { answers(port).await.as_deref() == Some("a") }).await.unwrap();
    write(&helio.directory(), "views.yaml", &in_zone(NODE, "b"));
    until("b answers", || async { answers(port).await.as_deref() == Some("b") }).await.unwrap();

    let (_, page) = get(helio.admin, "/status").await.unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    let objects = page["objects"].as_array().unwrap();
    let policy = objects.iter().find(|object| object["kind"] == "ViewPolicy").unwrap();
    assert_eq!(policy["status"]["matches"]["proxies"], serde_json::json!([NODE]));
    let accepted = &policy["status"]["conditions"][0];
    assert_eq!(accepted["message"], "Selects 1 of 1 proxies in the inventory");
}
