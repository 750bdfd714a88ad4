//! Responses that a server may send, for tests.

use crate::wire::{Message, MessageAssembly, Pool, Protocol};
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::core::v3::{ExtensionConfigSource, TypedExtensionConfig};
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, cluster_load_assignment::Policy,
};
use heliograph_envoy::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use heliograph_envoy::google::protobuf::UInt32Value;
use heliograph_envoy::{Any, any};
use heliograph_snapshot::ResourceType;
use proptest::prelude::*;

/// A response before it is put into the words of a protocol.
#[derive(Clone, Debug)]
pub(crate) struct SampleResponse {
    kind: ResourceType,
    /// Name and version.
    resources: Vec<(String, usize)>,
    removed: Vec<String>,
}

/// Any response about a few names.
pub(crate) fn any_response() -> impl Strategy<Value = SampleResponse> {
    let kind = proptest::sample::select(vec![
        ResourceType::Cluster,
        ResourceType::Endpoints,
        ResourceType::ExtensionConfig,
        ResourceType::Listener,
        ResourceType::Route,
    ]);
    let resources = proptest::collection::vec(("[abc]", 0..3_usize), 0..4);
    let removed = proptest::collection::vec("[abc]", 0..2);
    (kind, resources, removed).prop_map(|(kind, resources, removed)| SampleResponse {
        kind,
        resources,
        removed,
    })
}

impl SampleResponse {
    pub(crate) fn cluster(name: &str, version: usize) -> Self {
        let resources = vec![(name.to_owned(), version)];
        Self { kind: ResourceType::Cluster, resources, removed: Vec::new() }
    }

    pub(crate) fn message(&self, protocol: Protocol, nonce: &str) -> Message {
        let type_url = self.kind.type_url().to_owned();
        let nonce = nonce.to_owned();
        let bodies = self.resources.iter().map(|(name, version)| body(self.kind, name, *version));
        let bytes = match protocol {
            Protocol::Delta => {
                let resources = self.resources.iter().zip(bodies);
                let resources = resources.map(|((name, version), body)| Resource {
                    name: name.clone(),
                    version: version.to_string(),
                    resource: Some(body),
                    ..Default::default()
                });
                prost::Message::encode_to_vec(&DeltaDiscoveryResponse {
                    type_url,
                    nonce,
                    resources: resources.collect(),
                    removed_resources: self.removed.clone(),
                    ..Default::default()
                })
            }
            Protocol::StateOfTheWorld => prost::Message::encode_to_vec(&DiscoveryResponse {
                type_url,
                nonce,
                version_info: format!("{:?}", self.resources),
                resources: bodies.collect(),
                ..Default::default()
            }),
        };
        message(&bytes)
    }
}

pub(crate) fn message(bytes: &[u8]) -> Message {
    let framed = [&[0], &(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
    MessageAssembly::default().push(&mut &*framed, &Pool::default()).unwrap().unwrap()
}

/// A resource that refers to the one of its name, or to another, by its version.
fn body(kind: ResourceType, name: &str, version: usize) -> Any {
    let needed = if version == 2 { "c" } else { name }.to_owned();
    match kind {
        ResourceType::Cluster => any(&Cluster {
            name: name.to_owned(),
            alt_stat_name: version.to_string(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
            ..Default::default()
        }),
        ResourceType::Listener => {
            let rds = Rds { route_config_name: needed.clone(), ..Default::default() };
            let source = ExtensionConfigSource::default();
            let discovered = HttpFilter {
                name: needed,
                config_type: Some(http_filter::ConfigType::ConfigDiscovery(source)),
                ..Default::default()
            };
            let manager = HttpConnectionManager {
                route_specifier: Some(RouteSpecifier::Rds(rds)),
                http_filters: vec![discovered],
                ..Default::default()
            };
            let filter = Filter {
                config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
                ..Default::default()
            };
            any(&Listener {
                name: name.to_owned(),
                filter_chains: vec![FilterChain { filters: vec![filter], ..Default::default() }],
                ..Default::default()
            })
        }
        ResourceType::ExtensionConfig => any(&TypedExtensionConfig {
            name: name.to_owned(),
            typed_config: Some(any(&UInt32Value { value: version as u32 })),
        }),
        ResourceType::Route => any(&RouteConfiguration {
            name: name.to_owned(),
            internal_only_headers: vec![version.to_string()],
            ..Default::default()
        }),
        _ => any(&ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            policy: Some(Policy {
                overprovisioning_factor: Some(UInt32Value { value: version as u32 }),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}
