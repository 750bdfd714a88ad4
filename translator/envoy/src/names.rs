//! The names that Envoy knows things by. Who reads its dumps and logs finds the object in them.

use heliograph_model::{
    ListenerId, NamedKind, ObjectName, RouteId, SecretId, TableKey, TableParts, UpstreamId,
    UpstreamKind,
};

/// A listener: whatever shares a port shares it.
pub fn listener(port: u16) -> String {
    format!("port/{port}")
}

pub fn secret(secret: &SecretId) -> String {
    format!("secret/{}", secret.0)
}

/// A cluster and its endpoints: `service/shop/cart/8080`, and `service/shop/cart/8080/http2` where that is spoken.
pub fn cluster(upstream: &UpstreamId) -> String {
    upstream.to_string()
}

/// A RouteConfiguration: `http/80`, `https/443/gateway/shop/web/secure`.
pub fn table(table: &TableKey) -> String {
    let TableParts { fleet: _, port, listener } = &**table;
    match listener {
        None => format!("http/{port}"),
        Some(listener) => format!("https/{port}/{}", listener_id(listener)),
    }
}

/// What the names of a route's entries in a table begin with: `httproute/shop/cart`.
pub fn route(route: &RouteId) -> String {
    format!("{}/{}", route.kind.as_str().to_ascii_lowercase(), route.name)
}

/// The Service of a cluster.
pub fn service_of(cluster: &str) -> Option<ObjectName> {
    let mut parts = cluster.split('/');
    let kind = parts.next()?;
    let is_service = UpstreamKind::Service.as_str().eq_ignore_ascii_case(kind);
    is_service.then_some(())?;
    Some(ObjectName::new(parts.next()?, parts.next()?))
}

fn listener_id(listener: &ListenerId) -> String {
    listener.to_string()
}
