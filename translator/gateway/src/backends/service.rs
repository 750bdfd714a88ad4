use super::ResolveError;
use crate::objects::core::{EndpointSlice, Service};
use crate::objects::{Kind, ObjectKey};
use crate::status::reasons::route::resolved_refs::BACKEND_NOT_FOUND;
use crate::world::Reader;
use heliograph_model::{
    Endpoint, Endpoints, Locality, LocalityName, UpstreamId, UpstreamKind, UpstreamObject,
    UpstreamProtocol,
};
use heliograph_views::{REGION, SUBZONE, ZONE};
use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::discovery::v1::Endpoint as SliceEndpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub(super) fn resolve(
    reader: &Reader<'_>,
    to: ObjectKey,
    port: Option<i32>,
    default_protocol: UpstreamProtocol,
) -> Result<UpstreamId, ResolveError> {
    let Some(service) = reader.object::<Service>(&to.name) else {
        return Err((BACKEND_NOT_FOUND, "it does not exist".to_owned()));
    };
    let Some(number) = port else {
        return Err((BACKEND_NOT_FOUND, "the reference has no port".to_owned()));
    };
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName") {
        return Err((
            BACKEND_NOT_FOUND,
            "a Service of type ExternalName has no endpoints".to_owned(),
        ));
    }
    let found = u16::try_from(number).ok().and_then(|port| Some((port, port_of(service, port)?)));
    let Some((port, found)) = found else {
        return Err((BACKEND_NOT_FOUND, format!("it has no port {number}")));
    };
    let protocol = match found.app_protocol.as_deref() {
        // What is passed on as it is, clients speak.
        _ if default_protocol == UpstreamProtocol::Tcp => default_protocol,
        Some("kubernetes.io/h2c") => UpstreamProtocol::Http2,
        // Upgrades are possible everywhere, and begin in HTTP/1.1.
        Some("kubernetes.io/ws" | "kubernetes.io/wss") => UpstreamProtocol::Http1,
        _ => default_protocol,
    };
    Ok(UpstreamId { kind: UpstreamKind::Service, name: to.name, port, protocol })
}

pub(super) fn endpoints(
    reader: &Reader<'_>,
    upstream: &UpstreamId,
    preferred_by: &BTreeSet<&str>,
) -> Endpoints {
    let service = reader.object::<Service>(&upstream.name);
    let port = service.and_then(|service| port_of(service, upstream.port));
    let port_name = port.map(|port| port.name.as_deref().unwrap_or_default());

    let mut ready = Zones::new();
    let mut draining = Zones::new();
    for slice in reader.children::<EndpointSlice>(&upstream.name.clone().of(Kind::Service)) {
        let Some(number) = port_name.and_then(|name| slice_port(slice, name)) else { continue };
        for endpoint in &slice.endpoints {
            let zones = match Readiness::of(endpoint) {
                Readiness::Ready => &mut ready,
                Readiness::Draining => &mut draining,
                Readiness::NotReady => continue,
            };
            let (name, labels) = labelled(slice, endpoint, preferred_by);
            let addresses =
                endpoint.addresses.iter().filter_map(|address| address.parse::<IpAddr>().ok());
            // A zone without an address is no zone: Envoy refuses a locality without weight.
            for address in addresses {
                let endpoint = Endpoint { address, port: number, labels: labels.clone() };
                zones.entry(name.clone()).or_default().insert(endpoint);
            }
        }
    }
    // As kube-proxy does: where nothing is ready, what still drains is better than nothing.
    let chosen = if ready.is_empty() { draining } else { ready };
    let localities = chosen
        .into_iter()
        .map(|(name, endpoints)| Locality { name, endpoints: endpoints.into_iter().collect() })
        .collect();
    Endpoints { cluster: upstream.clone(), localities }
}

pub(super) fn port_name<'a>(reader: &Reader<'a>, upstream: &UpstreamId) -> Option<&'a str> {
    port_of(reader.object::<Service>(&upstream.name)?, upstream.port)?.name.as_deref()
}

pub(super) fn missing(
    reader: &Reader<'_>,
    object: &UpstreamObject,
    port: Option<&str>,
) -> Option<String> {
    let Some(service) = reader.object::<Service>(&object.name) else {
        return Some(format!("{object} does not exist"));
    };
    let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let name = port.filter(|name| !ports.any(|port| port.name.as_deref() == Some(name)))?;
    Some(format!("{object} has no port with the name {name}"))
}

type Zones = BTreeMap<LocalityName, BTreeSet<Endpoint>>;

/// Under this label Kubernetes has the name of a node.
const NODE: &str = "kubernetes.io/hostname";

enum Readiness {
    Ready,
    /// Going away, and still serving.
    Draining,
    NotReady,
}

impl Readiness {
    fn of(endpoint: &SliceEndpoint) -> Self {
        let Some(conditions) = &endpoint.conditions else { return Self::Ready };
        // Kubernetes: an unknown readiness counts as ready.
        if conditions.ready.unwrap_or(true) {
            Self::Ready
        } else if conditions.serving.unwrap_or(false) && conditions.terminating.unwrap_or(false) {
            Self::Draining
        } else {
            Self::NotReady
        }
    }
}

/// Where an endpoint is, and what else is to be known of it. The zone always; the rest where clients prefer by it: the name
/// of its node, and the labels of its slice.
fn labelled(
    slice: &EndpointSlice,
    endpoint: &SliceEndpoint,
    preferred_by: &BTreeSet<&str>,
) -> (LocalityName, BTreeMap<Arc<str>, Arc<str>>) {
    let mut name =
        LocalityName { zone: endpoint.zone.as_deref().map(Arc::from), ..LocalityName::default() };
    let mut labels = BTreeMap::new();
    for key in preferred_by {
        let of_slice = || slice.metadata.labels.as_ref()?.get(*key).map(String::as_str);
        let value = match *key {
            NODE => endpoint.node_name.as_deref(),
            _ => of_slice(),
        };
        let value: Option<Arc<str>> = value.filter(|value| !value.is_empty()).map(Arc::from);
        match *key {
            ZONE => {}
            REGION => name.region = value,
            SUBZONE => name.subzone = value,
            other => labels.extend(value.map(|value| (other.into(), value))),
        }
    }
    (name, labels)
}

fn port_of(service: &Service, number: u16) -> Option<&ServicePort> {
    let ports = service.spec.as_ref()?.ports.iter().flatten();
    ports
        .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
        .find(|port| port.port == i32::from(number))
}

/// The port that pods listen on: a slice has it under the name of the Service's port.
fn slice_port(slice: &EndpointSlice, name: &str) -> Option<u16> {
    let ports = slice.ports.iter().flatten();
    ports
        .filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP")
        .find(|port| port.name.as_deref().unwrap_or_default() == name)
        .and_then(|port| u16::try_from(port.port?).ok())
}
