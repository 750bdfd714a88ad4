//! The name of a resource and the resources that it refers to, read from its body.

use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use heliograph_envoy::envoy::config::core::v3::{
    TransportSocket, TypedExtensionConfig, transport_socket,
};
use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
use heliograph_envoy::envoy::config::listener::v3::{
    Filter, FilterChain, Listener, filter, listener_filter,
};
use heliograph_envoy::envoy::config::route::v3::route::Action;
use heliograph_envoy::envoy::config::route::v3::route_action::ClusterSpecifier;
use heliograph_envoy::envoy::config::route::v3::{RouteAction, RouteConfiguration};
use heliograph_envoy::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier, http_filter,
};
use heliograph_envoy::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use heliograph_envoy::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, Secret, UpstreamTlsContext,
    common_tls_context::ValidationContextType,
};
use heliograph_envoy::{Message, Name, type_url};
use heliograph_snapshot::ResourceType;

/// `None`: this is no such resource.
pub(crate) fn name(kind: ResourceType, body: &[u8]) -> Option<String> {
    match kind {
        ResourceType::Secret => Secret::decode(body).ok().map(|secret| secret.name),
        ResourceType::Cluster => Cluster::decode(body).ok().map(|cluster| cluster.name),
        ResourceType::Endpoints => {
            ClusterLoadAssignment::decode(body).ok().map(|endpoints| endpoints.cluster_name)
        }
        ResourceType::ExtensionConfig => {
            TypedExtensionConfig::decode(body).ok().map(|config| config.name)
        }
        ResourceType::Listener => Listener::decode(body).ok().map(|listener| listener.name),
        ResourceType::Route => RouteConfiguration::decode(body).ok().map(|routes| routes.name),
    }
}

/// The resources that Envoy asks for because of this one.
pub(crate) fn needs(kind: ResourceType, body: &[u8]) -> Vec<(ResourceType, String)> {
    match kind {
        ResourceType::Cluster => Cluster::decode(body).map(cluster).unwrap_or_default(),
        ResourceType::Listener => Listener::decode(body).map(listener).unwrap_or_default(),
        // What a filter of a given type refers to would have to be known here.
        ResourceType::ExtensionConfig => Vec::new(),
        ResourceType::Secret | ResourceType::Endpoints | ResourceType::Route => Vec::new(),
    }
}

/// All that a resource refers to: what Envoy asks for because of it, and the clusters that its requests or connections go to.
pub fn references(kind: ResourceType, body: &[u8]) -> Vec<(ResourceType, String)> {
    match kind {
        ResourceType::Route => RouteConfiguration::decode(body).map(table).unwrap_or_default(),
        ResourceType::Listener => {
            let proxied = Listener::decode(body).map(proxied).unwrap_or_default();
            needs(kind, body).into_iter().chain(proxied).collect()
        }
        _ => needs(kind, body),
    }
}

fn table(table: RouteConfiguration) -> Vec<(ResourceType, String)> {
    let routes = table.virtual_hosts.into_iter().flat_map(|host| host.routes);
    let actions = routes.filter_map(|route| match route.action? {
        Action::Route(action) => Some(action),
        _ => None,
    });
    actions.flat_map(clusters).map(|name| (ResourceType::Cluster, name)).collect()
}

fn clusters(action: RouteAction) -> Vec<String> {
    let mut found: Vec<_> =
        action.request_mirror_policies.into_iter().map(|mirror| mirror.cluster).collect();
    match action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => found.push(name),
        Some(ClusterSpecifier::WeightedClusters(weighted)) => {
            found.extend(weighted.clusters.into_iter().map(|cluster| cluster.name));
        }
        _ => {}
    }
    found.retain(|name| !name.is_empty());
    found
}

fn cluster(cluster: Cluster) -> Vec<(ResourceType, String)> {
    let mut found = Vec::new();
    let eds = ClusterDiscoveryType::Type(DiscoveryType::Eds.into());
    if cluster.cluster_discovery_type == Some(eds) {
        let service = cluster.eds_cluster_config.map(|config| config.service_name);
        let name = service.filter(|service| !service.is_empty()).unwrap_or(cluster.name);
        found.push((ResourceType::Endpoints, name));
    }
    let sockets = cluster.transport_socket.iter().chain(
        cluster
            .transport_socket_matches
            .iter()
            .filter_map(|socket| socket.transport_socket.as_ref()),
    );
    sockets.for_each(|socket| secrets(socket, &mut found));
    found
}

fn listener(listener: Listener) -> Vec<(ResourceType, String)> {
    let mut found = Vec::new();
    for filter in &listener.listener_filters {
        if let Some(listener_filter::ConfigType::ConfigDiscovery(_)) = filter.config_type {
            found.push((ResourceType::ExtensionConfig, filter.name.clone()));
        }
    }
    for chain in chains(&listener) {
        chain.transport_socket.iter().for_each(|socket| secrets(socket, &mut found));
        chain.filters.iter().for_each(|filter| network_filter(filter, &mut found));
    }
    found
}

/// A filter with `config_discovery` refers to an extension configuration by the name of the filter.
fn network_filter(filter: &Filter, found: &mut Vec<(ResourceType, String)>) {
    let config = match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config)) => config,
        Some(filter::ConfigType::ConfigDiscovery(_)) => {
            found.push((ResourceType::ExtensionConfig, filter.name.clone()));
            return;
        }
        None => return,
    };
    if config.type_url != type_url::<HttpConnectionManager>() {
        return;
    }
    let manager = HttpConnectionManager::decode(config.value.clone()).unwrap_or_default();
    if let Some(RouteSpecifier::Rds(routes)) = manager.route_specifier {
        found.push((ResourceType::Route, routes.route_config_name));
    }
    for filter in manager.http_filters {
        if let Some(http_filter::ConfigType::ConfigDiscovery(_)) = filter.config_type {
            found.push((ResourceType::ExtensionConfig, filter.name));
        }
    }
}

/// The clusters that connections are passed on to.
fn proxied(listener: Listener) -> Vec<(ResourceType, String)> {
    let proxies = chains(&listener).flat_map(filters::<TcpProxy>);
    let clusters = proxies.flat_map(|proxy| match proxy.cluster_specifier {
        Some(tcp_proxy::ClusterSpecifier::Cluster(name)) => vec![name],
        Some(tcp_proxy::ClusterSpecifier::WeightedClusters(weighted)) => {
            weighted.clusters.into_iter().map(|cluster| cluster.name).collect()
        }
        None => Vec::new(),
    });
    clusters.map(|name| (ResourceType::Cluster, name)).collect()
}

fn chains(listener: &Listener) -> impl Iterator<Item = &FilterChain> {
    listener.filter_chains.iter().chain(&listener.default_filter_chain)
}

/// The filters of one type.
fn filters<T: Message + Name + Default>(chain: &FilterChain) -> impl Iterator<Item = T> {
    chain.filters.iter().filter_map(|filter| match &filter.config_type {
        Some(filter::ConfigType::TypedConfig(config)) if config.type_url == type_url::<T>() => {
            Some(T::decode(config.value.clone()).unwrap_or_default())
        }
        _ => None,
    })
}

fn secrets(socket: &TransportSocket, found: &mut Vec<(ResourceType, String)>) {
    let Some(transport_socket::ConfigType::TypedConfig(config)) = &socket.config_type else {
        return;
    };
    let tls = if config.type_url == type_url::<UpstreamTlsContext>() {
        UpstreamTlsContext::decode(config.value.clone()).ok().and_then(|tls| tls.common_tls_context)
    } else if config.type_url == type_url::<DownstreamTlsContext>() {
        DownstreamTlsContext::decode(config.value.clone())
            .ok()
            .and_then(|tls| tls.common_tls_context)
    } else {
        None
    };
    let Some(tls) = tls else { return };
    let names = tls.tls_certificate_sds_secret_configs.iter().map(|secret| secret.name.clone());
    found.extend(names.map(|name| (ResourceType::Secret, name)));
    found.extend(authority(&tls).map(|name| (ResourceType::Secret, name)));
}

fn authority(tls: &CommonTlsContext) -> Option<String> {
    match tls.validation_context_type.as_ref()? {
        ValidationContextType::ValidationContextSdsSecretConfig(secret) => {
            Some(secret.name.clone())
        }
        ValidationContextType::CombinedValidationContext(combined) => {
            combined.validation_context_sds_secret_config.as_ref().map(|secret| secret.name.clone())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::any;
    use heliograph_envoy::envoy::config::listener::v3::Filter;
    use tcp_proxy::weighted_cluster::ClusterWeight;
    use tcp_proxy::{ClusterSpecifier, WeightedCluster};

    #[test]
    fn a_listener_refers_to_the_clusters_that_it_passes_connections_on_to() {
        let chain = |cluster_specifier| FilterChain {
            filters: vec![Filter {
                config_type: Some(filter::ConfigType::TypedConfig(any(&TcpProxy {
                    cluster_specifier: Some(cluster_specifier),
                    ..Default::default()
                }))),
                ..Default::default()
            }],
            ..Default::default()
        };
        let share = |name: &str| ClusterWeight { name: name.to_owned(), ..Default::default() };
        let clusters = vec![share("b"), share("c")];
        let listener = Listener {
            filter_chains: vec![
                chain(ClusterSpecifier::Cluster("a".to_owned())),
                chain(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters })),
            ],
            ..Default::default()
        };
        let body = listener.encode_to_vec();
        let expected = ["a", "b", "c"].map(|name| (ResourceType::Cluster, name.to_owned()));
        assert_eq!(references(ResourceType::Listener, &body), expected);
        // Envoy asks for nothing because of them: it has all clusters already.
        assert_eq!(needs(ResourceType::Listener, &body), []);
    }
}
