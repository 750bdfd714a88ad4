use super::endpoints::socket_address;
use super::{ads, tls};
use crate::filters;
use crate::ir::{self, FleetOwner, Hostname, InfraPort, Protocol, TableKey};
use crate::world::Reader;
use heliograph_envoy::envoy::config::listener::v3::{
    self as envoy, Filter, FilterChain, FilterChainMatch, ListenerFilter, filter, listener_filter,
};
use heliograph_envoy::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    CodecType, RouteSpecifier, UpgradeConfig,
};
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use heliograph_envoy::google::protobuf::{BoolValue, UInt32Value};
use heliograph_envoy::{Message, any};
use heliograph_snapshot::{FleetName, Resource};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A client that does not read must not fill the proxy's memory.
const CONNECTION_BUFFER: u32 = 32 * 1024;

/// What a fleet binds for one port of its Gateway.
pub(crate) fn listener(reader: &Reader<'_>, fleet: &FleetName, port: u16) -> Option<Arc<Resource>> {
    let chains = filter_chains(reader, reader.fleet(fleet)?, port);
    if chains.is_empty() {
        return None;
    }
    let is_shared = FleetOwner::is_shared(fleet);
    let by_sni = is_shared || chains.iter().any(|chain| chain.transport_socket.is_some());
    let name = ir::listener_name(port);
    let message = envoy::Listener {
        name: name.clone(),
        address: Some(socket_address("0.0.0.0".to_owned(), InfraPort::new(port).bind_port)),
        filter_chains: chains,
        listener_filters: if by_sni { vec![tls_inspector()] } else { Vec::new() },
        per_connection_buffer_limit_bytes: Some(UInt32Value { value: CONNECTION_BUFFER }),
        ..Default::default()
    };
    Some(Arc::new(Resource::new(name, message.encode_to_vec().into())))
}

/// One chain for all HTTP listeners of the port, and one for each HTTPS listener, chosen by SNI.
fn filter_chains(reader: &Reader<'_>, fleet: &ir::Fleet, port: u16) -> Vec<FilterChain> {
    // By name: the order in which listeners are written decides nothing.
    let mut chains: BTreeMap<String, FilterChain> = BTreeMap::new();
    let listeners = || fleet.listeners.iter().filter(|listener| listener.port == port);
    let speaks = |protocol: Protocol| listeners().any(|listener| listener.protocol == protocol);
    // Where Gateways share a port, the first of one to speak another protocol must not end the connections of the others.
    let is_mixed =
        FleetOwner::is_shared(&fleet.name) || (speaks(Protocol::Http) && speaks(Protocol::Https));
    for listener in listeners() {
        let table = TableKey::of(&fleet.name, listener).to_string();
        chains.entry(table.clone()).or_insert_with(|| FilterChain {
            filter_chain_match: chosen_by(listener, is_mixed),
            filters: vec![connection_manager(&table)],
            transport_socket: match listener.protocol {
                Protocol::Http => None,
                Protocol::Https => Some(tls::downstream(reader, listener)),
            },
            name: table,
            ..Default::default()
        });
    }
    chains.into_values().collect()
}

/// Which connections are the listener's. On a port with both, HTTP and HTTPS are told apart by their first bytes.
fn chosen_by(listener: &ir::Listener, is_mixed: bool) -> Option<FilterChainMatch> {
    let chosen = FilterChainMatch {
        server_names: match (listener.protocol, &listener.hostname) {
            (Protocol::Http, _) | (Protocol::Https, Hostname::Any) => Vec::new(),
            (Protocol::Https, hostname) => vec![hostname.to_string()],
        },
        transport_protocol: match (is_mixed, listener.protocol) {
            (false, _) => String::new(),
            (true, Protocol::Http) => "raw_buffer".to_owned(),
            (true, Protocol::Https) => "tls".to_owned(),
        },
        ..Default::default()
    };
    (chosen != FilterChainMatch::default()).then_some(chosen)
}

fn connection_manager(table: &str) -> Filter {
    let manager = HttpConnectionManager {
        // HTTP/1.1, and HTTP/2 by ALPN or with prior knowledge.
        codec_type: CodecType::Auto.into(),
        stat_prefix: table.replace('/', "_"),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ads()),
            route_config_name: table.to_owned(),
        })),
        http_filters: filters::in_connection_manager(),
        upgrade_configs: vec![UpgradeConfig {
            upgrade_type: "websocket".to_owned(),
            ..Default::default()
        }],
        // The proxy stands at the edge: what clients claim about themselves is not believed.
        use_remote_address: Some(BoolValue { value: true }),
        normalize_path: Some(BoolValue { value: true }),
        ..Default::default()
    };
    Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
    }
}

fn tls_inspector() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(&TlsInspector::default()))),
        ..Default::default()
    }
}
