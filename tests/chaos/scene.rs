//! The objects that the translator reads, and their changes.

use fastrand::Rng;
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Document, Object, parse};
use heliograph_snapshot::FleetName;
use std::collections::BTreeMap;

/// What there is in the cluster of a test. Two Gateways, and sometimes a third; routes come, go and lead elsewhere;
/// endpoints change all the time, and now and then a certificate.
pub(crate) struct Scene {
    random: Rng,
    /// Of each service, how often its endpoints changed.
    services: Vec<u32>,
    /// The service that each route leads to.
    routes: BTreeMap<usize, usize>,
    certificates: Vec<String>,
    certificate: usize,
    has_guest: bool,
    mark: u32,
}

pub(crate) const GATEWAYS: [&str; 2] = ["edge", "inner"];
pub(crate) const GUEST: &str = "guest";
const SERVICES: usize = 5;
const ROUTES: usize = 8;
/// That of the route which is marked.
const MARKED_SERVICE: usize = 0;

pub(crate) fn fleet(gateway: &str) -> FleetName {
    FleetName::new("shop", gateway)
}

impl Scene {
    pub(crate) fn new(seed: u64) -> Self {
        let certificates = ["first", "second"].map(|_| {
            let pair = rcgen::generate_simple_self_signed(["shop.test".to_owned()]).unwrap();
            let indented = |pem: String| pem.trim().replace('\n', "\n    ");
            let (certificate, key) =
                (indented(pair.cert.pem()), indented(pair.signing_key.serialize_pem()));
            format!("stringData:\n  tls.crt: |\n    {certificate}\n  tls.key: |\n    {key}\n")
        });
        Self {
            random: Rng::with_seed(seed),
            services: vec![1; SERVICES],
            routes: (0..ROUTES / 2).map(|route| (route, route % SERVICES)).collect(),
            certificates: certificates.to_vec(),
            certificate: 0,
            has_guest: false,
            mark: 0,
        }
    }

    /// Everything as it is now.
    pub(crate) fn all(&self) -> Vec<Event> {
        let mut texts = vec![CLASS.to_owned(), self.secret(), self.marked_route()];
        texts.extend(GATEWAYS.map(gateway));
        texts.extend(self.has_guest.then(|| gateway(GUEST)));
        for service in 0..SERVICES {
            texts.extend([service_object(service), self.endpoints(service)]);
        }
        texts.extend(self.routes.keys().map(|route| self.route(*route)));
        texts.iter().map(|text| Event::Applied(object(text))).collect()
    }

    /// One change, of whatever.
    pub(crate) fn change(&mut self) -> Vec<Event> {
        match self.random.u8(0..20) {
            0..10 => self.change_endpoints(),
            10..16 => self.change_route(),
            16..18 => self.renew_certificate(),
            _ => self.toggle_guest(),
        }
    }

    pub(crate) fn change_endpoints(&mut self) -> Vec<Event> {
        let service = self.random.usize(0..SERVICES);
        self.services[service] += 1;
        applied(&self.endpoints(service))
    }

    /// Of the service that every fleet that stays has a route to. Returns an address that it did not have before, too.
    pub(crate) fn move_endpoints(&mut self) -> (String, Vec<Event>) {
        self.services[MARKED_SERVICE] += 1;
        let address = address(MARKED_SERVICE, self.services[MARKED_SERVICE], 0);
        (address, applied(&self.endpoints(MARKED_SERVICE)))
    }

    /// A route comes, goes, or leads elsewhere.
    pub(crate) fn change_route(&mut self) -> Vec<Event> {
        let (route, service) = (self.random.usize(0..ROUTES), self.random.usize(0..SERVICES));
        if self.routes.get(&route) == Some(&service) {
            let gone = object(&self.route(route)).key();
            self.routes.remove(&route);
            return vec![Event::Deleted(gone)];
        }
        self.routes.insert(route, service);
        applied(&self.route(route))
    }

    pub(crate) fn renew_certificate(&mut self) -> Vec<Event> {
        self.certificate = (self.certificate + 1) % self.certificates.len();
        applied(&self.secret())
    }

    /// Changes what is in the table of every fleet that stays. See [`marked`].
    pub(crate) fn mark(&mut self) -> (u32, Vec<Event>) {
        self.mark += 1;
        (self.mark, applied(&self.marked_route()))
    }

    pub(crate) fn has_guest(&self) -> bool {
        self.has_guest
    }

    /// A whole fleet comes or goes.
    pub(crate) fn toggle_guest(&mut self) -> Vec<Event> {
        self.has_guest = !self.has_guest;
        if self.has_guest {
            applied(&gateway(GUEST))
        } else {
            vec![Event::Deleted(object(&gateway(GUEST)).key())]
        }
    }

    fn endpoints(&self, service: usize) -> String {
        let revision = self.services[service];
        let count = revision % 3 + 1;
        let endpoints = (0..count)
            .map(|number| format!("- addresses: [{}]\n", address(service, revision, number)));
        format!(
            "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: s{service}, namespace: shop, labels: {{kubernetes.io/service-name: s{service}}}}}
addressType: IPv4
ports: [{{port: 8080}}]
endpoints:
{}",
            endpoints.collect::<String>()
        )
    }

    fn route(&self, route: usize) -> String {
        let (parent, service) = (GATEWAYS[route % 2], self.routes[&route]);
        format!(
            "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: r{route}, namespace: shop}}
spec:
  hostnames: [r{route}.test]
  parentRefs: [{{name: {parent}}}]
  rules: [{{backendRefs: [{{name: s{service}, port: 80}}]}}]
"
        )
    }

    fn marked_route(&self) -> String {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: mark, namespace: shop}}
spec:
  parentRefs: [{{name: edge}}, {{name: inner}}]
  rules:
  - matches: [{{path: {{value: {}}}}}]
    backendRefs: [{{name: s{MARKED_SERVICE}, port: 80}}]
",
            path(self.mark)
        )
    }

    fn secret(&self) -> String {
        let data = &self.certificates[self.certificate];
        format!(
            "apiVersion: v1
kind: Secret
metadata: {{name: certificate, namespace: shop}}
type: kubernetes.io/tls
{data}"
        )
    }
}

/// Whether a table has this mark.
pub(crate) fn marked(table: &[u8], mark: u32) -> bool {
    contains(table, &path(mark))
}

pub(crate) fn contains(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|window| window == text.as_bytes())
}

/// No mark's begins as another's.
fn path(mark: u32) -> String {
    format!("/mark-{mark:06}")
}

fn address(service: usize, revision: u32, number: u32) -> String {
    format!("10.{service}.{}.{number}", revision % 200)
}

fn applied(text: &str) -> Vec<Event> {
    vec![Event::Applied(object(text))]
}

fn object(text: &str) -> Object {
    match parse(text).remove(0) {
        Document::Object(object) => object,
        other => panic!("{other:?}"),
    }
}

const CLASS: &str = "apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
";

fn gateway(name: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: shop}}
spec:
  gatewayClassName: heliograph
  listeners:
  - {{name: http, protocol: HTTP, port: 8080}}
  - {{name: https, protocol: HTTPS, port: 8443, tls: {{certificateRefs: [{{name: certificate}}]}}}}
"
    )
}

fn service_object(service: usize) -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: s{service}, namespace: shop}}
spec: {{ports: [{{port: 80}}]}}
"
    )
}
