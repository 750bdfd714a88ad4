//! What the API or a directory holds: applications with a Service, its endpoints and a route with a host of its own, all on
//! one Gateway.

use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// The certificates of clients are for this namespace.
pub(super) const NAMESPACE: &str = "loadtest";
pub(super) const CLASS: &str = "bench";
pub(super) const GATEWAY: &str = "gateway";
/// In each namespace.
pub(super) const APPS: usize = 100;

const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";

/// An application by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct App(pub(super) usize);

/// Where the endpoints of Services are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Backend {
    /// Nowhere: no proxy ever connects to them. The number makes another address.
    Imagined(u8),
    /// One that answers, for all.
    Real(Ipv4Addr, u16),
}

/// Between the documents of a file.
const SEPARATOR: &str = "\n---\n";

type Object = (String, Value);

impl App {
    pub(super) fn name(self) -> String {
        format!("app-{}", self.0)
    }

    pub(super) fn namespace(self) -> String {
        format!("apps-{}", self.0 / APPS)
    }

    pub(super) fn first_of_namespace(self) -> Self {
        Self(self.0 / APPS * APPS)
    }

    pub(super) fn host(self) -> String {
        format!("{}.{}.example.com", self.name(), self.namespace())
    }

    pub(super) fn address(self, backend: Backend) -> Ipv4Addr {
        match backend {
            Backend::Imagined(change) => {
                let [.., high, low] = (self.0 as u32).to_be_bytes();
                Ipv4Addr::new(10, change, high, low)
            }
            Backend::Real(address, _) => address,
        }
    }

    /// A Service with one port, and its endpoints.
    pub(super) fn service(self, backend: Backend) -> [Object; 2] {
        let (name, namespace) = (self.name(), self.namespace());
        let port = match backend {
            Backend::Imagined(_) => 8080,
            Backend::Real(_, port) => port,
        };
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": name },
            "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": port }] },
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4",
            "endpoints": self.endpoints(&[backend]),
            "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
        });
        [(format!("/api/v1/namespaces/{namespace}/services"), service), (self.slices(), slice)]
    }

    fn endpoints(self, backends: &[Backend]) -> Value {
        let endpoint = |backend: &Backend| {
            let address = self.address(*backend);
            json!({ "addresses": [address], "conditions": { "ready": true } })
        };
        backends.iter().map(endpoint).collect()
    }

    /// The endpoints moved: where, and to what.
    pub(super) fn moved(self, backend: Backend) -> Object {
        let path = format!("{}/{}", self.slices(), self.name());
        (path, json!({ "endpoints": self.endpoints(&[backend]) }))
    }

    fn slices(self) -> String {
        format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.namespace())
    }

    /// A route of this name to the Service of an application.
    pub(super) fn route(self, gateway: &str, to: Self) -> Object {
        let backend = json!({ "name": to.name(), "namespace": to.namespace(), "port": 80 });
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "name": self.name() },
            "spec": {
                "parentRefs": [{ "name": gateway, "namespace": NAMESPACE }],
                "hostnames": [self.host()],
                "rules": [{
                    "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                    "backendRefs": [backend],
                }],
            },
        });
        (self.routes(), route)
    }

    pub(super) fn routes(self) -> String {
        format!("{GATEWAY_API}/namespaces/{}/httproutes", self.namespace())
    }

    /// A file with its Service, two endpoints and its route, all in this namespace.
    pub(super) fn manifests(self, namespace: &str) -> String {
        let [service, mut slice] = self.service(Backend::Imagined(0));
        slice.1["endpoints"] = self.endpoints(&[Backend::Imagined(0), Backend::Imagined(1)]);
        let mut route = self.route(GATEWAY, self);
        route.1["spec"]["rules"][0]["backendRefs"][0]["namespace"] = namespace.into();
        [service, slice, route].map(|object| document(object, namespace)).join(SEPARATOR)
    }
}

/// The namespaces of applications up to a number, and that of Gateways.
pub(super) fn namespaces(apps: usize) -> Vec<Object> {
    let mut namespaces = namespaces_of_apps(apps);
    namespaces.push(namespace(NAMESPACE));
    namespaces
}

pub(super) fn namespaces_of_apps(apps: usize) -> Vec<Object> {
    (0..apps).step_by(APPS).map(|app| namespace(&App(app).namespace())).collect()
}

fn namespace(name: &str) -> Object {
    ("/api/v1/namespaces".to_owned(), json!({ "metadata": { "name": name } }))
}

pub(super) fn class(controller_name: &str) -> Object {
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": { "name": CLASS }, "spec": { "controllerName": controller_name },
    });
    (format!("{GATEWAY_API}/gatewayclasses"), class)
}

pub(super) fn gateways() -> String {
    format!("{GATEWAY_API}/namespaces/{NAMESPACE}/gateways")
}

pub(super) fn gateway(name: &str, port: u16) -> Object {
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": name },
        "spec": { "gatewayClassName": CLASS, "listeners": [{
            "name": "http", "port": port, "protocol": "HTTP",
            "allowedRoutes": { "namespaces": { "from": "All" } },
        }] },
    });
    (gateways(), gateway)
}

/// A file with the class and the Gateway of all routes.
pub(super) fn gateway_manifests(controller_name: &str, port: u16) -> String {
    let (_, class) = class(controller_name);
    [class.to_string(), document(gateway(GATEWAY, port), NAMESPACE)].join(SEPARATOR)
}

/// An object as a document of a file. In a request, the path has its namespace.
fn document((_, mut object): Object, namespace: &str) -> String {
    object["metadata"]["namespace"] = namespace.into();
    object.to_string()
}

pub(super) fn fleet(gateway: &str) -> String {
    format!("{NAMESPACE}/{gateway}")
}
