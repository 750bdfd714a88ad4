//! The objects from which a translator makes a fleet like those of the workload. All names are our own, so nothing has
//! to be quoted.

use crate::workload::{MARKED_PATH, Resources, addresses};
use std::fmt::Write;

const NAMESPACE: &str = "loadtest";
const FIRST_PORT: usize = 10_000;

pub(super) fn class() -> String {
    "apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: loadtest }
spec: { controllerName: heliograph.dev/gateway-controller }
"
    .to_owned()
}

pub(super) fn gateway(name: &str, resources: &Resources) -> String {
    let mut text = format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{ name: {name}, namespace: {NAMESPACE} }}
spec:
  gatewayClassName: loadtest
  listeners:
"
    );
    // Without one there is no way to its clusters.
    for at in 0..resources.listeners.max(1) {
        let port = FIRST_PORT + at;
        let _ = writeln!(text, "    - {{ name: http-{at}, protocol: HTTP, port: {port} }}");
    }
    text
}

/// A service with its routes. A translator has clusters only for what a route leads to, so each has one at least.
pub(super) fn service(gateway: &str, resources: &Resources, at: usize) -> String {
    let mut text = format!(
        "apiVersion: v1
kind: Service
metadata: {{ name: {gateway}-app-{at:06}, namespace: {NAMESPACE} }}
spec: {{ ports: [{{ name: http, port: 80 }}] }}
"
    );
    let routes = resources.routes.max(resources.clusters);
    for route in (at..routes).step_by(resources.clusters.max(1)) {
        let listener = route % resources.listeners.max(1);
        let path = format!("/app-{route:06}");
        text.push_str("---\n");
        text.push_str(&http_route(gateway, &format!("app-{route:06}"), listener, &path, at));
    }
    text
}

pub(super) fn endpoints(gateway: &str, resources: &Resources, at: usize, number: u32) -> String {
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {gateway}-app-{at:06}-1
  namespace: {NAMESPACE}
  labels: {{ kubernetes.io/service-name: {gateway}-app-{at:06} }}
addressType: IPv4
ports: [{{ name: http, port: 8080 }}]
endpoints:
"
    );
    for address in addresses(resources, at, number) {
        let _ = writeln!(text, "  - addresses: [{address}]");
    }
    text
}

/// The route of a listener that shows the number of a change.
pub(super) fn marked_route(gateway: &str, at: usize, number: u32) -> String {
    http_route(gateway, &format!("change-{at:06}"), at, &format!("{MARKED_PATH}{number}"), 0)
}

fn http_route(gateway: &str, name: &str, listener: usize, path: &str, service: usize) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{ name: {gateway}-{name}, namespace: {NAMESPACE} }}
spec:
  parentRefs: [{{ name: {gateway}, sectionName: http-{listener} }}]
  rules:
    - matches: [{{ path: {{ type: Exact, value: {path} }} }}]
      backendRefs: [{{ name: {gateway}-app-{service:06}, port: 80 }}]
"
    )
}
