//! Each resource from its position and the number of the change that made it: only the fields that Envoy requires.

use super::Resources;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use heliograph_envoy::envoy::config::core::v3::address::Address as AddressKind;
use heliograph_envoy::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use heliograph_envoy::envoy::config::core::v3::socket_address::PortSpecifier;
use heliograph_envoy::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, Metadata, SocketAddress,
    TransportSocket, transport_socket,
};
use heliograph_envoy::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use heliograph_envoy::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use heliograph_envoy::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use heliograph_envoy::envoy::config::route::v3::route::Action;
use heliograph_envoy::envoy::config::route::v3::route_action::ClusterSpecifier;
use heliograph_envoy::envoy::config::route::v3::route_match::PathSpecifier;
use heliograph_envoy::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use heliograph_envoy::envoy::extensions::filters::http::router::v3::Router;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier, http_filter,
};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, CommonTlsContext, SdsSecretConfig, Secret, UpstreamTlsContext,
    common_tls_context::ValidationContextType, secret,
};
use heliograph_envoy::google::protobuf::{Duration, Struct, UInt32Value, Value, value::Kind};
use heliograph_envoy::{Message, any};
use heliograph_snapshot::{Address as Hash, Change, Internal, Resource, ResourceType};
use heliograph_views::{Preference, Treatment};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The first byte of an endpoint's address whose other three bytes are the number of a change.
pub(super) const MARKED_NETWORK: u8 = 10;
/// The prefix of a route's path that ends in the number of a change.
pub(crate) const MARKED_PATH: &str = "/change/";

/// The nested lengths of the padding.
const LENGTHS: usize = 5;
const NAMESPACES: usize = 50;
const PORT: u32 = 8080;
/// Listeners have the ports from here on.
const FIRST_LISTENER_PORT: usize = 10_000;

pub(super) fn cluster(resources: &Resources, at: usize, number: u32) -> Change {
    let mut message = Cluster {
        name: cluster_name(at),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ads()),
            ..Default::default()
        }),
        connect_timeout: Some(Duration {
            seconds: 5,
            nanos: i32::try_from(number).unwrap_or_default(),
        }),
        transport_socket: at.checked_rem(resources.secrets).map(upstream_tls),
        ..Default::default()
    };
    // What carries the padding takes some room itself: its lengths take a byte more each once they pass 127.
    message.metadata = Some(padded(0));
    let missing = resources.cluster_bytes.saturating_sub(message.encoded_len());
    if missing > LENGTHS {
        message.metadata = Some(padded(missing - LENGTHS));
    } else {
        message.metadata = None;
    }
    set(ResourceType::Cluster, &message.name, &message)
}

pub(super) fn endpoints(resources: &Resources, at: usize, number: u32) -> Change {
    let lb_endpoints = addresses(resources, at, number).map(|address| LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(socket(address, PORT)),
            ..Default::default()
        })),
        ..Default::default()
    });
    let message = ClusterLoadAssignment {
        cluster_name: cluster_name(at),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: lb_endpoints.collect(),
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            ..Default::default()
        }],
        ..Default::default()
    };
    set(ResourceType::Endpoints, &message.cluster_name, &message)
}

/// The rule that the endpoints of a cluster are preferred by labels, if there are any.
pub(super) fn preference(resources: &Resources, at: usize) -> Option<Change> {
    if resources.preferred_by.is_empty() {
        return None;
    }
    let labels = resources.preferred_by.clone();
    let preferences = vec![Preference { audience: String::new(), labels }];
    let treatment = Treatment { preferences, ..Treatment::default() };
    let rule = treatment.resource(ResourceType::Endpoints, &cluster_name(at));
    Some(Change::SetInternal(Internal::Rules, Arc::new(rule)))
}

pub(super) fn listener(at: usize) -> Change {
    let manager = HttpConnectionManager {
        stat_prefix: format!("edge-{at}"),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ads()),
            route_config_name: table_name(at),
        })),
        http_filters: vec![HttpFilter {
            name: "envoy.filters.http.router".to_owned(),
            config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
            ..Default::default()
        }],
        ..Default::default()
    };
    let port = u32::try_from(FIRST_LISTENER_PORT + at).unwrap_or(u32::MAX);
    let message = Listener {
        name: format!("edge/namespace-{:02}/listener-{at:06}:http", at % NAMESPACES),
        address: Some(socket(Ipv4Addr::LOCALHOST, port)),
        filter_chains: vec![FilterChain {
            filters: vec![Filter {
                name: "envoy.filters.network.http_connection_manager".to_owned(),
                config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    set(ResourceType::Listener, &message.name, &message)
}

/// The table of the listener at the same position, with its share of the routes.
pub(super) fn table(resources: &Resources, at: usize, number: u32) -> Change {
    let marker = Route {
        r#match: Some(prefix(format!("{MARKED_PATH}{number}"))),
        action: Some(Action::DirectResponse(DirectResponseAction {
            status: 204,
            ..Default::default()
        })),
        ..Default::default()
    };
    let share = (at..resources.routes).step_by(resources.listeners.max(1));
    let routes = share.filter_map(|route| {
        let cluster = route.checked_rem(resources.clusters)?;
        Some(Route {
            r#match: Some(prefix(format!("/app-{route:06}"))),
            action: Some(Action::Route(RouteAction {
                cluster_specifier: Some(ClusterSpecifier::Cluster(cluster_name(cluster))),
                ..Default::default()
            })),
            ..Default::default()
        })
    });
    let message = RouteConfiguration {
        name: table_name(at),
        virtual_hosts: vec![VirtualHost {
            name: "everything".to_owned(),
            domains: vec!["*".to_owned()],
            routes: std::iter::once(marker).chain(routes).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    set(ResourceType::Route, &message.name, &message)
}

/// The hash of a certificate that a cluster expects of its endpoints: a secret that needs no key pair, which would
/// differ from process to process.
pub(super) fn secret(at: usize) -> Change {
    let hash = Hash::of(&at.to_be_bytes()).0;
    let pin = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let message = Secret {
        name: secret_name(at),
        r#type: Some(secret::Type::ValidationContext(CertificateValidationContext {
            verify_certificate_hash: vec![pin],
            ..Default::default()
        })),
    };
    set(ResourceType::Secret, &message.name, &message)
}

/// Where the endpoints of a cluster are. The first tells the number of the change.
pub(crate) fn addresses(
    resources: &Resources,
    at: usize,
    number: u32,
) -> impl Iterator<Item = Ipv4Addr> {
    let [_, a, b, c] = number.to_be_bytes();
    let count = resources.endpoints_per_cluster;
    let others = (1..count).map(move |other| {
        let [.., high, low] = (at * count + other).to_be_bytes();
        Ipv4Addr::new(172, 16, high, low)
    });
    std::iter::once(Ipv4Addr::new(MARKED_NETWORK, a, b, c)).chain(others)
}

fn upstream_tls(secret: usize) -> TransportSocket {
    let config = SdsSecretConfig { name: secret_name(secret), sds_config: Some(ads()) };
    let context = UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            validation_context_type: Some(ValidationContextType::ValidationContextSdsSecretConfig(
                config,
            )),
            ..Default::default()
        }),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(&context))),
    }
}

fn cluster_name(at: usize) -> String {
    format!("service/namespace-{:02}/app-{at:06}:{PORT}", at % NAMESPACES)
}

fn table_name(at: usize) -> String {
    format!("edge/namespace-{:02}/table-{at:06}:http", at % NAMESPACES)
}

fn secret_name(at: usize) -> String {
    format!("secret/namespace-{:02}/pin-{at:06}", at % NAMESPACES)
}

/// Metadata, which Envoy accepts and ignores.
fn padded(length: usize) -> Metadata {
    let text = Value { kind: Some(Kind::StringValue("x".repeat(length))) };
    let fields = Struct { fields: [("padding".to_owned(), text)].into() };
    Metadata {
        filter_metadata: [("heliograph.loadtest".to_owned(), fields)].into(),
        ..Default::default()
    }
}

fn prefix(path: String) -> RouteMatch {
    RouteMatch { path_specifier: Some(PathSpecifier::Prefix(path)), ..Default::default() }
}

fn socket(address: Ipv4Addr, port: u32) -> Address {
    Address {
        address: Some(AddressKind::SocketAddress(SocketAddress {
            address: address.to_string(),
            port_specifier: Some(PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}

fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}

fn set(kind: ResourceType, name: &str, message: &impl Message) -> Change {
    Change::Set(kind, Arc::new(Resource::new(name, message.encode_to_vec().into())))
}
