use crate::route;
use bytes::Bytes;
use heliograph_envoy::envoy::config::route::v3::VirtualHost;
use heliograph_envoy::{Message, append_message};
use heliograph_model::Hostname;

/// The field of `VirtualHost` that holds its routes.
const ROUTES: u32 = 3;

/// A host with its routes, which are encoded already, in the order in which they are tried.
pub fn virtual_host<'a>(host: &Hostname, routes: impl IntoIterator<Item = &'a [u8]>) -> Bytes {
    let host = host.to_string();
    let frame = VirtualHost { name: host.clone(), domains: vec![host], ..Default::default() };
    let mut encoded = frame.encode_to_vec();
    for route in routes {
        append_message(&mut encoded, ROUTES, route);
    }
    encoded.into()
}

/// A host of another listener: requests for it are answered with 421.
pub fn misdirected(host: &Hostname) -> Bytes {
    virtual_host(host, [&*route::misdirected().encode_to_vec()])
}

/// What comes last at a host where requests may be those of a match that is missing: they are answered with 500.
pub fn closed() -> Bytes {
    route::closed().encode_to_vec().into()
}
