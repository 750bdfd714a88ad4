//! Who has one vote where proxies are counted.

use crate::kubernetes::Kubernetes;
use crate::reviews::{AUDIENCE, cluster};
use crate::site::*;
use heliograph_client::{Client, Options, Protocol, Server};
use heliograph_snapshot::FleetName;
use heliograph_store::FeedbackReader;
use serde_json::json;

const ACCOUNT: &str = "system:serviceaccount:edge:envoy";

fn connect(site: &Site, token: &str, node: &str) -> Client {
    let address = format!("https://{}", site.address);
    let server = Server::new(&address, Some(site.ca.client(None)), Some(token)).unwrap();
    let options = Options::new(address, Protocol::Delta, "edge/gateway");
    Client::connect_to(server, Options { node_id: node.to_owned(), ..options })
}

/// Waits until so many streams are reported, of so many proxies.
async fn until_voters(site: &Site, streams: u64, voters: u64) {
    until("the streams are counted", async || {
        let reports = site.store.read_reports().await.unwrap();
        let fleet = reports.iter().find_map(|it| it.fleets.get(&FleetName::new("edge", "gateway")));
        fleet.is_some_and(|it| it.connected == streams && it.voters.count == voters)
    })
    .await;
}

async fn bound_token(cluster: &Kubernetes, pod: &str) -> String {
    let bound = json!({ "kind": "Pod", "apiVersion": "v1", "name": pod });
    let spec =
        json!({ "audiences": [AUDIENCE], "expirationSeconds": 3600, "boundObjectRef": bound });
    let path = "/api/v1/namespaces/edge/serviceaccounts/envoy/token";
    let answer = cluster.create(path, json!({ "spec": spec })).await;
    answer["status"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_pod_is_one_voter_whatever_its_tokens_and_node_ids() {
    let (cluster, site) = cluster().await;
    for name in ["one", "two"] {
        let containers = json!([{ "name": "envoy", "image": "envoy" }]);
        let pod = json!({
            "metadata": { "name": name },
            "spec": { "serviceAccountName": "envoy", "containers": containers },
        });
        cluster.create("/api/v1/namespaces/edge/pods", pod).await;
    }
    let mut clients = Vec::new();
    for (pod, node) in [("one", "a"), ("one", "b"), ("one", "c"), ("two", "a")] {
        clients.push(connect(&site, &bound_token(&cluster, pod).await, node));
    }
    until_voters(&site, 4, 2).await;
    // Without a pod, the node id is all there is to tell them apart by.
    let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
    for node in ["a", "b", "b"] {
        clients.push(connect(&site, &token, node));
    }
    until_voters(&site, 7, 4).await;
}

#[tokio::test]
async fn a_signed_token_says_the_pod_too() {
    let site = Site::start().await;
    let token = |pod: Option<&str>| {
        let bound = pod.map(|uid| json!({ "pod": { "name": "envoy", "uid": uid } }));
        site.signer.token(ACCOUNT, 3600, &json!({ "kubernetes.io": bound }))
    };
    let mut clients = Vec::new();
    for (pod, node) in [("f3c2", "a"), ("f3c2", "b"), ("f3c2", "c"), ("f3c3", "a")] {
        clients.push(connect(&site, &token(Some(pod)), node));
    }
    until_voters(&site, 4, 2).await;
    for node in ["a", "b", "b"] {
        clients.push(connect(&site, &token(None), node));
    }
    until_voters(&site, 7, 4).await;
}
