//! The names of Envoy's resources. They contain the names of objects, for readers of Envoy's dumps and logs.

use heliograph_model::{
    Listener, ListenerId, NamedKind, ObjectName, RouteId, SecretId, TableKey, TableParts,
    Transport, TransportPort, UpstreamId, UpstreamProtocol,
};

/// Names no cluster: Envoy answers what is sent there with the code for a cluster that is not found, and closes connections.
pub(crate) const NO_CLUSTER: &str = "invalid-backend";

/// A listener: whatever shares a port shares it. `port/80`, `port/53/udp`.
pub fn listener(port: TransportPort) -> String {
    match port.transport {
        Transport::Tcp => format!("port/{}", port.number),
        Transport::Udp => format!("port/{}/udp", port.number),
    }
}

pub fn secret(secret: &SecretId) -> String {
    format!("secret/{}", object(&secret.0))
}

/// A cluster and its endpoints: `service/shop/cart/8080`, and `service/shop/cart/8080/http2` or `…/tcp` where that is spoken.
pub fn cluster(upstream: &UpstreamId) -> String {
    let UpstreamId { kind, name, port, protocol } = upstream;
    let spoken = match protocol {
        UpstreamProtocol::Http1 => "",
        UpstreamProtocol::Http2 => "/http2",
        UpstreamProtocol::Tcp => "/tcp",
    };
    format!("{}/{}/{port}{spoken}", lower(kind), object(name))
}

/// A RouteConfiguration: `http/80`, `https/443/gateway/shop/web/secure`.
pub fn table(table: &TableKey) -> String {
    let TableParts { fleet: _, port, listener } = &**table;
    match listener {
        None => format!("http/{port}"),
        Some(listener) => format!("https/{port}/{}", listener_id(listener)),
    }
}

/// The name of the filter chain of a listener whose connections are forwarded: `tcp/5432/gateway/shop/db/postgres`.
pub fn connections(listener: &Listener) -> String {
    let Listener { port, id, .. } = listener;
    let transport = port.transport.as_str().to_ascii_lowercase();
    format!("{transport}/{}/{}", port.number, listener_id(id))
}

/// The prefix of the names of a route's entries in a table: `httproute/shop/cart`.
pub fn route(route: &RouteId) -> String {
    format!("{}/{}", lower(&route.kind), object(&route.name))
}

/// `gateway/shop/web/secure`.
fn listener_id(listener: &ListenerId) -> String {
    format!("{}/{}/{}", lower(&listener.owner.kind), object(&listener.owner.name), listener.name)
}

fn object(name: &ObjectName) -> String {
    format!("{}/{}", name.namespace, name.name)
}

fn lower(kind: &impl NamedKind) -> String {
    kind.as_str().to_ascii_lowercase()
}
