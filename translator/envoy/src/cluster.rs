use crate::names;
use crate::{ads, duration, tls};
use heliograph_model::{Upstream, UpstreamId, UpstreamProtocol};
use heliograph_envoy::envoy::config::cluster::v3 as envoy;
use heliograph_envoy::envoy::config::core::v3::{
    Http2ProtocolOptions, HttpProtocolOptions as Common, TransportSocket,
};
use heliograph_envoy::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use heliograph_envoy::envoy::extensions::upstreams::http::v3::http_protocol_options::explicit_http_config::ProtocolConfig;
use heliograph_envoy::envoy::extensions::upstreams::http::v3::http_protocol_options::{
    ExplicitHttpConfig, UpstreamProtocolOptions,
};
use heliograph_envoy::{Message, any};
use heliograph_snapshot::Resource;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub fn cluster(id: &UpstreamId, upstream: &Upstream) -> Arc<Resource> {
    let certificate = upstream.client_certificate.as_ref();
    let socket = upstream.tls.as_ref().map(|tls| tls::upstream(tls, id.protocol, certificate));
    let message = build(id, socket);
    Arc::new(Resource::new(message.name.as_str(), message.encode_to_vec().into()))
}

fn build(id: &UpstreamId, transport_socket: Option<TransportSocket>) -> envoy::Cluster {
    envoy::Cluster {
        transport_socket,
        name: names::cluster(id),
        cluster_discovery_type: Some(envoy::cluster::ClusterDiscoveryType::Type(
            envoy::cluster::DiscoveryType::Eds.into(),
        )),
        // The endpoints have the name of their cluster: the distributor orders pushes by it.
        eds_cluster_config: Some(envoy::cluster::EdsClusterConfig {
            eds_config: Some(ads()),
            ..Default::default()
        }),
        connect_timeout: Some(duration(CONNECT_TIMEOUT)),
        lb_policy: envoy::cluster::LbPolicy::LeastRequest.into(),
        // An endpoint that is gone from Kubernetes is gone, whatever health checks last said.
        ignore_health_on_host_removal: true,
        typed_extension_protocol_options: match id.protocol {
            UpstreamProtocol::Http1 | UpstreamProtocol::Tcp => Default::default(),
            UpstreamProtocol::Http2 => [(
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions".to_owned(),
                any(&http2()),
            )]
            .into(),
        },
        ..Default::default()
    }
}

fn http2() -> HttpProtocolOptions {
    HttpProtocolOptions {
        common_http_protocol_options: Some(Common::default()),
        upstream_protocol_options: Some(UpstreamProtocolOptions::ExplicitHttpConfig(
            ExplicitHttpConfig {
                protocol_config: Some(ProtocolConfig::Http2ProtocolOptions(
                    Http2ProtocolOptions::default(),
                )),
            },
        )),
        ..Default::default()
    }
}
