use heliograph_gateway::infra::bootstrap::{
    BOOTSTRAP_FILE, Bootstrap, Distributors, Node, OwnPorts,
};
use heliograph_snapshot::FleetName;
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The configuration of an Envoy on this machine.
pub(super) fn bootstrap(fleet: &FleetName, xds: SocketAddr) -> Value {
    let host = reachable(xds.ip()).to_string();
    let bootstrap = Bootstrap {
        fleet,
        node: Some(Node { id: format!("standalone/{fleet}"), ..Node::default() }),
        distributors: Distributors {
            host: &host,
            port: xds.port(),
            tls: None,
            token: None,
            folder: "",
        },
        own: OwnPorts::Admin,
        memory: None,
    };
    // Without certificates and tokens it is the only file.
    bootstrap.files().remove(BOOTSTRAP_FILE).unwrap_or_default()
}

/// Where to connect to reach a server that listens on `address`, from the same machine.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envoy_says_its_fleet_and_asks_an_address_it_can_reach() {
        let fleet = FleetName::new("shop", "edge");
        for (listens, asks) in
            [("0.0.0.0:1", "127.0.0.1"), ("[::]:1", "::1"), ("10.0.0.9:1", "10.0.0.9")]
        {
            let bootstrap = bootstrap(&fleet, listens.parse().unwrap());
            assert_eq!(bootstrap["node"]["cluster"], "shop/edge");
            let endpoint = bootstrap
                .pointer("/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint")
                .unwrap();
            assert_eq!(endpoint.pointer("/address/socket_address/address").unwrap(), asks);
        }
    }
}
