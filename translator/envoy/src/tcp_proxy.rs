use crate::{duration, names};
use heliograph_envoy::any;
use heliograph_envoy::envoy::config::listener::v3::{Filter, filter};
use heliograph_envoy::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use heliograph_envoy::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::weighted_cluster::ClusterWeight;
use heliograph_envoy::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, WeightedCluster,
};
use heliograph_model::{Target, TcpRoute, TcpTarget};
use std::time::Duration;

/// A connection on which neither side has sent anything for so long is closed: one whose client is gone without a word would
/// stay for ever. It is what Envoy itself has as default.
const IDLE: Duration = Duration::from_secs(3600);

/// Forwards connections to the targets of a route. Envoy closes the share of a target that cannot be resolved.
pub(crate) fn proxy(name: &str, route: Option<&TcpRoute>) -> Filter {
    let targets = route.map_or(&[][..], |route| &route.targets);
    let proxy = TcpProxy {
        stat_prefix: name.replace('/', "_"),
        cluster_specifier: Some(cluster(targets)),
        idle_timeout: Some(duration(IDLE)),
        ..Default::default()
    };
    Filter {
        name: "envoy.filters.network.tcp_proxy".to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(any(&proxy))),
    }
}

fn cluster(targets: &[TcpTarget]) -> ClusterSpecifier {
    // Envoy has no weight of zero here.
    let live: Vec<&TcpTarget> = targets.iter().filter(|target| target.weight > 0).collect();
    let name = |target: &TcpTarget| match &target.target {
        Target::Upstream(upstream) => names::cluster(upstream),
        Target::Invalid => names::NO_CLUSTER.to_owned(),
    };
    match live.as_slice() {
        [] => ClusterSpecifier::Cluster(names::NO_CLUSTER.to_owned()),
        [only] => ClusterSpecifier::Cluster(name(only)),
        targets => {
            let share = |target: &&TcpTarget| ClusterWeight {
                name: name(target),
                weight: target.weight,
                ..Default::default()
            };
            let clusters = targets.iter().map(share).collect();
            ClusterSpecifier::WeightedClusters(WeightedCluster { clusters })
        }
    }
}
