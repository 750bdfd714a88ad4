//! On a Kubernetes API: what is watched, who leads, and what is written back. The API is a real one, but where it is to do
//! what a real one does not do on demand.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod contents;
mod elections;
mod faulty;
mod infra;
#[path = "../../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;
mod obstructed;
mod policies;
mod programs;
mod protection;
mod relists;
mod status;
mod watches;

use kube::Client;
use kubernetes::Kubernetes;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// A client of the cluster's administrator.
async fn client(cluster: &Kubernetes) -> Client {
    client_of(cluster, "kubeconfig").await
}

/// A client of whom a kubeconfig of the cluster names.
async fn client_of(cluster: &Kubernetes, kubeconfig: &str) -> Client {
    let kubeconfig = Some(cluster.file(kubeconfig));
    watches::args(kubeconfig).connect().await.unwrap()
}
