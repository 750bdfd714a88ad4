//! On a real API server: what is watched, who leads, and what is written back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod infra;
#[path = "../../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kubernetes::Kubernetes;

/// A client of the cluster's administrator.
async fn client(cluster: &Kubernetes) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.file("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn the_kinds_of_gateway_api_are_served() {
    let cluster = Kubernetes::shared().await;
    let served = client(&cluster).await;
    let resources = served.list_api_group_resources("gateway.networking.k8s.io/v1").await.unwrap();
    let kinds: Vec<&str> = resources.resources.iter().map(|found| found.kind.as_str()).collect();
    for kind in ["Gateway", "GatewayClass", "HTTPRoute", "GRPCRoute", "ReferenceGrant"] {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
}
