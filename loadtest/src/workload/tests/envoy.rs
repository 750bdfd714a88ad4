//! A real Envoy is asked what it thinks of the resources. It validates what is in its bootstrap, so they are put there as
//! they are, but for what it would otherwise ask a server for.

use super::{some, update};
use crate::workload::{UpdateKind, Workload};
use heliograph_envoy::envoy::config::bootstrap::v3::Bootstrap;
use heliograph_envoy::envoy::config::bootstrap::v3::bootstrap::{
    DynamicResources, StaticResources,
};
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::core::v3::api_config_source::ApiType;
use heliograph_envoy::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use heliograph_envoy::envoy::config::core::v3::{
    ApiConfigSource, ApiVersion, GrpcService, Http2ProtocolOptions, Node,
};
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::config::listener::v3::{Listener, filter};
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::Secret;
use heliograph_envoy::{Message, any};
use heliograph_snapshot::{ResourceType, Snapshot};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

#[test]
fn envoy_accepts_the_resources() {
    let mut workload = Workload::new(&some(), 1);
    let first = workload.snapshots()[0].clone();
    workload.change(update(Workload::LAST, UpdateKind::Full));
    let last = workload.snapshots()[0].clone();
    for snapshot in [first, last] {
        validate(&bootstrap(&snapshot)).unwrap();
    }
    // So that the question is known to be one.
    let mut broken = bootstrap(&workload.snapshots()[0]);
    let resources = broken.static_resources.as_mut().unwrap();
    resources.clusters[3].connect_timeout.as_mut().unwrap().seconds = -1;
    validate(&broken).unwrap_err();
}

fn bootstrap(snapshot: &Snapshot) -> Bootstrap {
    let clusters = all::<Cluster>(snapshot, ResourceType::Cluster).into_iter();
    let endpoints = all::<ClusterLoadAssignment>(snapshot, ResourceType::Endpoints).into_iter();
    // The endpoints of EDS clusters come from a server alone, so they are shown as those of clusters of another type.
    let fixed = endpoints.map(|endpoints| Cluster {
        name: format!("fixed {}", endpoints.cluster_name),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        load_assignment: Some(endpoints),
        ..Default::default()
    });
    let listeners = all::<Listener>(snapshot, ResourceType::Listener).into_iter();
    let listeners = listeners.map(|listener| with_table(snapshot, listener));
    let static_resources = StaticResources {
        clusters: clusters.chain(fixed).chain([server()]).collect(),
        listeners: listeners.collect(),
        secrets: all::<Secret>(snapshot, ResourceType::Secret),
    };
    Bootstrap {
        node: Some(Node { id: "one".into(), cluster: "all".into(), ..Default::default() }),
        static_resources: Some(static_resources),
        dynamic_resources: Some(DynamicResources { ads_config: Some(ads()), ..Default::default() }),
        ..Default::default()
    }
}

/// With its routes inside.
fn with_table(snapshot: &Snapshot, mut listener: Listener) -> Listener {
    let filter = &mut listener.filter_chains[0].filters[0];
    let Some(filter::ConfigType::TypedConfig(config)) = &mut filter.config_type else {
        panic!("a listener without a connection manager");
    };
    let mut manager = HttpConnectionManager::decode(config.value.clone()).unwrap();
    let Some(RouteSpecifier::Rds(rds)) = &manager.route_specifier else {
        panic!("a listener without RDS");
    };
    let table = snapshot.get(ResourceType::Route, &rds.route_config_name).unwrap();
    let table = RouteConfiguration::decode(table.body.clone()).unwrap();
    manager.route_specifier = Some(RouteSpecifier::RouteConfig(table));
    *config = any(&manager);
    listener
}

/// It gets no request here, but resources by ADS need an ADS server with a name.
fn ads() -> ApiConfigSource {
    let target = EnvoyGrpc { cluster_name: "server".into(), ..Default::default() };
    ApiConfigSource {
        api_type: ApiType::DeltaGrpc.into(),
        transport_api_version: ApiVersion::V3.into(),
        grpc_services: vec![GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[allow(deprecated)]
fn server() -> Cluster {
    Cluster {
        name: "server".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static.into())),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        ..Default::default()
    }
}

fn all<M: Message + Default>(snapshot: &Snapshot, kind: ResourceType) -> Vec<M> {
    let resources = snapshot.tree(kind).iter();
    resources.map(|resource| M::decode(resource.body.clone()).unwrap()).collect()
}

/// What Envoy says is the error.
fn validate(bootstrap: &Bootstrap) -> Result<(), String> {
    let scratch = tempfile::tempdir().unwrap();
    // The name tells Envoy that this is protobuf and not YAML.
    let file = scratch.path().join("bootstrap.pb");
    std::fs::write(&file, bootstrap.encode_to_vec()).unwrap();
    let asked = Command::new(envoy()).args(["--mode", "validate", "-c"]).arg(file).output();
    let asked = asked.unwrap();
    if asked.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&asked.stderr).into_owned())
}

/// `ENVOY`, or what the project's script finds or installs.
fn envoy() -> OsString {
    if let Some(envoy) = std::env::var_os("ENVOY") {
        return envoy;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tools");
    let found = Command::new(&script).arg("envoy").output().unwrap();
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    String::from_utf8(found.stdout).unwrap().trim().into()
}
