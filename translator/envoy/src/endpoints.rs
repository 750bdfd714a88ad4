use crate::names;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::address::Address as AddressKind;
use heliograph_envoy::envoy::config::core::v3::socket_address::PortSpecifier;
use heliograph_envoy::envoy::config::core::v3::{self as core, Address, SocketAddress};
use heliograph_envoy::envoy::config::endpoint::v3 as envoy;
use heliograph_envoy::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use heliograph_envoy::google::protobuf::value::Kind;
use heliograph_envoy::google::protobuf::{Struct, UInt32Value, Value};
use heliograph_model::{Endpoint, Endpoints, Locality, LocalityName};
use heliograph_snapshot::Resource;
use heliograph_views::LABELS;
use std::sync::Arc;

pub fn endpoints(endpoints: &Endpoints) -> Arc<Resource> {
    let message = build(endpoints);
    Arc::new(Resource::new(message.cluster_name.as_str(), message.encode_to_vec().into()))
}

fn build(endpoints: &Endpoints) -> envoy::ClusterLoadAssignment {
    envoy::ClusterLoadAssignment {
        cluster_name: names::cluster(&endpoints.cluster),
        endpoints: endpoints.localities.iter().map(locality).collect(),
        ..Default::default()
    }
}

fn locality(locality: &Locality) -> envoy::LocalityLbEndpoints {
    envoy::LocalityLbEndpoints {
        locality: locality_name(&locality.name),
        // Each endpoint gets the same share, whatever its zone.
        load_balancing_weight: Some(UInt32Value {
            value: u32::try_from(locality.endpoints.len()).unwrap_or(u32::MAX),
        }),
        lb_endpoints: locality.endpoints.iter().map(endpoint).collect(),
        ..Default::default()
    }
}

fn locality_name(name: &LocalityName) -> Option<core::Locality> {
    let text = |part: &Option<Arc<str>>| part.as_deref().unwrap_or_default().to_owned();
    let LocalityName { region, zone, subzone } = name;
    (*name != LocalityName::default()).then(|| core::Locality {
        region: text(region),
        zone: text(zone),
        sub_zone: text(subzone),
    })
}

fn metadata(endpoint: &Endpoint) -> Option<core::Metadata> {
    let text = |value: &Arc<str>| Value { kind: Some(Kind::StringValue(value.to_string())) };
    let fields = endpoint.labels.iter().map(|(key, value)| (key.to_string(), text(value)));
    let fields = Struct { fields: fields.collect() };
    (!endpoint.labels.is_empty()).then(|| core::Metadata {
        filter_metadata: [(LABELS.to_owned(), fields)].into(),
        ..Default::default()
    })
}

fn endpoint(endpoint: &Endpoint) -> envoy::LbEndpoint {
    envoy::LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(envoy::Endpoint {
            address: Some(socket_address(endpoint.address.to_string(), endpoint.port)),
            ..Default::default()
        })),
        metadata: metadata(endpoint),
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
