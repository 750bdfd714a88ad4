use heliograph_snapshot::FleetName;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The configuration that an Envoy starts with: who it is, and where to ask for all the rest.
pub(super) fn bootstrap(fleet: &FleetName, xds: SocketAddr) -> Value {
    let xds = reachable(xds);
    json!({
        "node": {
            "id": format!("standalone/{fleet}"),
            // The distributor serves the fleet that the node's cluster names.
            "cluster": fleet.as_str(),
        },
        "admin": {
            "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
        },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                // Otherwise every ACK carries the node, which lists all of Envoy's extensions.
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": { "cluster_name": CLUSTER } }],
            },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "static_resources": { "clusters": [{
            "name": CLUSTER,
            "type": "STATIC",
            "connect_timeout": "1s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {} },
                },
            },
            // A stream that is silent for long is the normal case; this finds one whose other end is gone.
            "upstream_connection_options": {
                "tcp_keepalive": { "keepalive_probes": 3, "keepalive_time": 10, "keepalive_interval": 5 },
            },
            "load_assignment": {
                "cluster_name": CLUSTER,
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": { "socket_address": {
                    "address": xds.ip().to_string(),
                    "port_value": xds.port(),
                } } } }] }],
            },
        }] },
    })
}

const CLUSTER: &str = "heliograph";

/// Where to connect to reach a server that listens on `address`, from the same machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
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
