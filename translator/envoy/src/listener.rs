use heliograph_model::{
    EscapedSlashes, HeadersWithUnderscores, Hostname, HttpSettings, Listener, Port, Protocol, Traffic,
};
use crate::names;
use crate::endpoints::socket_address;
use crate::{ads, duration, tcp_proxy, tls};
use crate::filters;
use heliograph_envoy::envoy::config::core::v3::http_protocol_options::HeadersWithUnderscoresAction;
use heliograph_envoy::envoy::config::core::v3::{Http2ProtocolOptions, HttpProtocolOptions};
use heliograph_envoy::envoy::config::listener::v3::{
    self as envoy, Filter, FilterChain, FilterChainMatch, ListenerFilter, filter, listener_filter,
};
use heliograph_envoy::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::{
    CodecType, PathWithEscapedSlashesAction, RouteSpecifier, UpgradeConfig,
};
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use heliograph_envoy::google::protobuf::{BoolValue, UInt32Value};
use heliograph_envoy::{Message, any};
use heliograph_snapshot::Resource;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A client that does not read must not fill the proxy's memory.
const CONNECTION_BUFFER: u32 = 32 * 1024;
/// How much a client may send before Envoy has passed it on, of one request and of all on a connection. Envoy's defaults are
/// 16 and 24 MiB.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// How long a client may take for its TLS handshake, for which Envoy would wait for ever.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Envoy's Listener for one port.
pub fn listener(port: &Port) -> Arc<Resource> {
    let chains = filter_chains(port);
    let is_secure = || chains.iter().any(|chain| chain.transport_socket.is_some());
    // It waits for the first bytes of a client, and of a protocol in which the server begins there are none.
    let by_first_bytes = may_be_mixed(port) && (port.is_shared || is_secure());
    let name = names::listener(port.port.transport_port());
    let message = envoy::Listener {
        name: name.clone(),
        address: Some(socket_address("0.0.0.0".to_owned(), port.port.bind_port)),
        filter_chains: chains,
        listener_filters: if by_first_bytes { vec![tls_inspector()] } else { Vec::new() },
        per_connection_buffer_limit_bytes: Some(UInt32Value { value: CONNECTION_BUFFER }),
        ..Default::default()
    };
    Arc::new(Resource::new(name, message.encode_to_vec().into()))
}

/// Whether listeners with several protocols may share the port.
fn may_be_mixed(port: &Port) -> bool {
    port.listeners.iter().all(|served| served.listener.protocol.may_share_port())
}

/// One chain for all HTTP listeners of the port, and one for each HTTPS listener, chosen by SNI. A listener whose connections
/// are passed on is alone.
fn filter_chains(port: &Port) -> Vec<FilterChain> {
    // By name: the order in which listeners are written decides nothing.
    let mut chains: BTreeMap<String, FilterChain> = BTreeMap::new();
    let speaks = |protocol| port.listeners.iter().any(|it| it.listener.protocol == protocol);
    // Where Gateways share a port, the first of one to speak another protocol must not end the connections of the others.
    let is_mixed = port.is_shared || (speaks(Protocol::Http) && speaks(Protocol::Https));
    for served in &port.listeners {
        let listener = &served.listener;
        let name = match &served.traffic {
            Traffic::Requests(table) => names::table(table),
            Traffic::Connections(_) => names::connections(listener),
        };
        chains.entry(name.clone()).or_insert_with(|| FilterChain {
            filter_chain_match: chosen_by(listener, is_mixed),
            filters: vec![match &served.traffic {
                Traffic::Requests(_) => connection_manager(&name, &port.http),
                Traffic::Connections(route) => tcp_proxy::proxy(&name, route.as_ref()),
            }],
            transport_socket: match listener.protocol {
                Protocol::Http | Protocol::Tcp => None,
                Protocol::Https => Some(tls::downstream(served)),
            },
            transport_socket_connect_timeout: match listener.protocol {
                Protocol::Http | Protocol::Tcp => None,
                Protocol::Https => Some(duration(HANDSHAKE)),
            },
            name,
            ..Default::default()
        });
    }
    chains.into_values().collect()
}

/// Matches the connections of the listener. On a port with both, the first bytes distinguish HTTP and HTTPS.
fn chosen_by(listener: &Listener, is_mixed: bool) -> Option<FilterChainMatch> {
    let chosen = FilterChainMatch {
        server_names: match (listener.protocol, &listener.hostname) {
            (Protocol::Http | Protocol::Tcp, _) | (Protocol::Https, Hostname::Any) => Vec::new(),
            (Protocol::Https, hostname) => vec![hostname.to_string()],
        },
        transport_protocol: match (is_mixed, listener.protocol) {
            (false, _) | (true, Protocol::Tcp) => String::new(),
            (true, Protocol::Http) => "raw_buffer".to_owned(),
            (true, Protocol::Https) => "tls".to_owned(),
        },
        ..Default::default()
    };
    (chosen != FilterChainMatch::default()).then_some(chosen)
}

/// With what Envoy's documentation recommends for proxies at the edge. There is no `request_timeout`: it would end uploads.
fn connection_manager(table: &str, http: &HttpSettings) -> Filter {
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
        merge_slashes: http.merge_slashes,
        path_with_escaped_slashes_action: escaped_slashes(http).into(),
        common_http_protocol_options: Some(HttpProtocolOptions {
            headers_with_underscores_action: headers_with_underscores(http).into(),
            ..Default::default()
        }),
        http2_protocol_options: Some(http2(http)),
        request_headers_timeout: Some(duration(http.request_headers_timeout)),
        stream_idle_timeout: Some(duration(http.stream_idle_timeout)),
        ..Default::default()
    };
    Filter {
        name: "envoy.filters.network.http_connection_manager".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
    }
}

fn escaped_slashes(http: &HttpSettings) -> PathWithEscapedSlashesAction {
    match http.escaped_slashes {
        EscapedSlashes::Redirect => PathWithEscapedSlashesAction::UnescapeAndRedirect,
        EscapedSlashes::Reject => PathWithEscapedSlashesAction::RejectRequest,
        EscapedSlashes::Unescape => PathWithEscapedSlashesAction::UnescapeAndForward,
        EscapedSlashes::Keep => PathWithEscapedSlashesAction::KeepUnchanged,
    }
}

fn headers_with_underscores(http: &HttpSettings) -> HeadersWithUnderscoresAction {
    match http.headers_with_underscores {
        HeadersWithUnderscores::Reject => HeadersWithUnderscoresAction::RejectRequest,
        HeadersWithUnderscores::Drop => HeadersWithUnderscoresAction::DropHeader,
        HeadersWithUnderscores::Allow => HeadersWithUnderscoresAction::Allow,
    }
}

fn http2(http: &HttpSettings) -> Http2ProtocolOptions {
    let value = |value| Some(UInt32Value { value });
    Http2ProtocolOptions {
        max_concurrent_streams: value(http.max_concurrent_streams),
        initial_stream_window_size: value(STREAM_WINDOW),
        initial_connection_window_size: value(CONNECTION_WINDOW),
        ..Default::default()
    }
}

fn tls_inspector() -> ListenerFilter {
    ListenerFilter {
        name: "envoy.filters.listener.tls_inspector".to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(&TlsInspector::default()))),
        ..Default::default()
    }
}
