use crate::backends;
use crate::ir::{Backend, Endpoint, Endpoints, Locality};
use crate::world::Reader;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::address::Address as AddressKind;
use heliograph_envoy::envoy::config::core::v3::socket_address::PortSpecifier;
use heliograph_envoy::envoy::config::core::v3::{self as core, Address, SocketAddress};
use heliograph_envoy::envoy::config::endpoint::v3 as envoy;
use heliograph_envoy::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use heliograph_envoy::google::protobuf::UInt32Value;
use heliograph_snapshot::Resource;
use std::sync::Arc;

pub(crate) fn endpoints(reader: &Reader<'_>, backend: &Backend) -> Arc<Resource> {
    let message = build(&backends::endpoints(reader, backend));
    Arc::new(Resource::new(message.cluster_name.as_str(), message.encode_to_vec().into()))
}

fn build(endpoints: &Endpoints) -> envoy::ClusterLoadAssignment {
    envoy::ClusterLoadAssignment {
        cluster_name: endpoints.cluster.to_string(),
        endpoints: endpoints.localities.iter().map(locality).collect(),
        ..Default::default()
    }
}

fn locality(locality: &Locality) -> envoy::LocalityLbEndpoints {
    envoy::LocalityLbEndpoints {
        locality: locality
            .zone
            .as_ref()
            .map(|zone| core::Locality { zone: zone.to_string(), ..Default::default() }),
        // Each endpoint gets the same share, whatever its zone.
        load_balancing_weight: Some(UInt32Value {
            value: u32::try_from(locality.endpoints.len()).unwrap_or(u32::MAX),
        }),
        lb_endpoints: locality.endpoints.iter().map(endpoint).collect(),
        ..Default::default()
    }
}

fn endpoint(endpoint: &Endpoint) -> envoy::LbEndpoint {
    envoy::LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(envoy::Endpoint {
            address: Some(socket_address(endpoint.address.to_string(), endpoint.port)),
            ..Default::default()
        })),
        ..Default::default()
    }
}

pub(super) fn socket_address(address: String, port: u16) -> Address {
    Address {
        address: Some(AddressKind::SocketAddress(SocketAddress {
            address,
            port_specifier: Some(PortSpecifier::PortValue(port.into())),
            ..Default::default()
        })),
    }
}
