use super::build::{MARKED_NETWORK, MARKED_PATH};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::core::v3::address::Address;
use heliograph_envoy::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use heliograph_envoy::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use heliograph_envoy::envoy::config::route::v3::route_match::PathSpecifier;
use heliograph_envoy::envoy::config::route::v3::{Route, RouteConfiguration};
use heliograph_snapshot::ResourceType;
use std::net::Ipv4Addr;

/// The number of the change that made a resource what it is; 0 is what it was at first. `None`: it does not show.
///
/// Also for what a translator made of files, where other addresses and paths stand beside.
pub fn mark(kind: ResourceType, body: &[u8]) -> Option<u32> {
    match kind {
        ResourceType::Cluster => {
            let timeout = Cluster::decode(body).ok()?.connect_timeout?;
            u32::try_from(timeout.nanos).ok()
        }
        ResourceType::Endpoints => {
            let assignment = ClusterLoadAssignment::decode(body).ok()?;
            let mut endpoints = assignment.endpoints.iter().flat_map(|it| &it.lb_endpoints);
            endpoints.find_map(in_endpoint)
        }
        ResourceType::Route => {
            let table = RouteConfiguration::decode(body).ok()?;
            let mut routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
            routes.find_map(in_route)
        }
        ResourceType::ExtensionConfig | ResourceType::Listener | ResourceType::Secret => None,
    }
}

fn in_endpoint(endpoint: &LbEndpoint) -> Option<u32> {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else { return None };
    let Some(Address::SocketAddress(socket)) = &endpoint.address.as_ref()?.address else {
        return None;
    };
    let [network, a, b, c] = socket.address.parse::<Ipv4Addr>().ok()?.octets();
    (network == MARKED_NETWORK).then(|| u32::from_be_bytes([0, a, b, c]))
}

fn in_route(route: &Route) -> Option<u32> {
    let path = match route.r#match.as_ref()?.path_specifier.as_ref()? {
        PathSpecifier::Prefix(path)
        | PathSpecifier::Path(path)
        | PathSpecifier::PathSeparatedPrefix(path) => path,
        _ => return None,
    };
    path.strip_prefix(MARKED_PATH)?.parse().ok()
}
