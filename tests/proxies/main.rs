//! Envoys that start with what is generated for them, and get what they serve from a distributor that asks who they are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../../shared/tests/kubernetes/mod.rs"]
mod kubernetes;
mod proxy;
mod site;

use heliograph_distributor::SecurityArgs;
use heliograph_testing::program;
use kubernetes::{Kubernetes, until};
use proxy::Proxy;
use serde_json::json;
use site::{FLEET, NAMESPACE, Site};
use std::fs;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn an_envoy_with_a_printed_bootstrap_shows_a_certificate_and_serves() {
    let site = Site::start(|folder| SecurityArgs {
        xds_client_ca: Some(folder.join("ca.crt")),
        ..SecurityArgs::default()
    })
    .await;
    let own = format!("spiffe://example.org/ns/{NAMESPACE}/sa/envoy");
    site.issue(&own, "envoy");
    let dir = site.file("envoy");
    let file = |name: &str| site.file(name).to_str().unwrap().to_owned();
    let output = Command::new(program("helio"))
        .args(["bootstrap", "--fleet", FLEET, "--xds", &site.xds, "--node-id", "vm-1"])
        .args(["--zone", "north", "--dir", dir.to_str().unwrap()])
        .args(["--ca", &file("ca.crt"), "--cert", &file("envoy.crt"), "--key", &file("envoy.key")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let proxy = Proxy::start(dir, &[]);
    proxy.until_ready().await;
    assert_eq!(site.ask().await, "backend");
    let said = proxy.admin("/server_info").await;
    assert!(said.contains("vm-1") && said.contains("north"), "{said}");
}

#[tokio::test]
async fn an_envoy_of_a_rendered_deployment_shows_its_token_serves_and_drains() {
    let cluster = Kubernetes::start().await;
    for namespace in [NAMESPACE, "heliograph"] {
        let object = json!({ "metadata": { "name": namespace } });
        cluster.create("/api/v1/namespaces", object).await;
    }
    cluster.create_account(NAMESPACE, "heliograph-web").await;
    cluster.create_account("heliograph", "distributor").await;
    let binding = json!({
        "metadata": { "name": "distributor" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator",
        },
        "subjects": [{ "kind": "ServiceAccount", "namespace": "heliograph", "name": "distributor" }],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    let own = cluster.token("heliograph", "distributor", &[]).await;
    fs::write(cluster.file("token"), own).unwrap();
    let site = Site::start(|_| SecurityArgs {
        xds_token_review: true,
        kubernetes_api: Some(cluster.url()),
        kubernetes_ca: Some(cluster.file("ca.crt")),
        kubernetes_token: Some(cluster.file("token")),
        ..SecurityArgs::default()
    })
    .await;

    // What is mounted first is for somebody else.
    let foreign = cluster.token(NAMESPACE, "heliograph-web", &["elsewhere"]).await;
    let mut mount = site.mount("token", &foreign);
    let (dir, args) = site.unpack();
    let proxy = Proxy::start(dir, &args);
    let refused = r#"heliograph_distributor_refused_calls_total{reason="token"}"#;
    until("it is refused, and tries again", async || site.metric(refused) > 1).await;
    assert!(!proxy.is_ready().await, "it has nothing to serve");

    // The mount is swapped as a kubelet does when it renews the token.
    let token = cluster.token(NAMESPACE, "heliograph-web", &["heliograph"]).await;
    mount.swap(&token);
    proxy.until_ready().await;
    assert_eq!(site.ask().await, "backend");
    assert!(proxy.stats().await.contains("envoy_server_live"), "no statistics");
    assert!(proxy.admin("/server_info").await.contains("pod-1.shop"));

    drains(&site, &proxy).await;
}

/// Envoy asks the client of an open connection to close it, and waits for that.
async fn drains(site: &Site, proxy: &Proxy) {
    let mut kept = TcpStream::connect(("127.0.0.1", site.gateway)).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: web\r\n\r\n";
    kept.write_all(request).await.unwrap();
    let mut answer = [0; 4096];
    assert!(kept.read(&mut answer).await.unwrap() > 0);

    let mut hook = proxy.pre_stop(&site.pre_stop());
    until("its health fails", async || !proxy.is_ready().await).await;
    assert!(hook.try_wait().unwrap().is_none(), "it does not wait for the connection");
    kept.write_all(request).await.unwrap();
    let mut answer = String::new();
    kept.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("connection: close"), "{answer}");
    until("nothing is left to wait for", async || proxy.total_connections().await == 0).await;
    let status = tokio::task::spawn_blocking(move || hook.wait().unwrap()).await.unwrap();
    assert!(status.success());
}
