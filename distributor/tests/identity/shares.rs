//! What one identity, and one namespace, may have of a replica.

use crate::calls::{Call, METHODS, call};
use crate::pki::Issued;
use crate::site::*;
use heliograph_client::{Client, Protocol};
use heliograph_distributor::LoadArgs;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heliograph_snapshot::ResourceType;
use std::cell::Cell;
use tonic::Code;

const STREAMS: usize = 20;
const OTHER: &str = "spiffe://example.org/ns/default/sa/envoy";

async fn site() -> Site {
    let load = LoadArgs { max_streams: STREAMS, ..LoadArgs::default() };
    Site::under(load, |args| args).await
}

fn rejected_clients(site: &Site, reason: &str) -> u64 {
    site.metric(&format!("heliograph_distributor_rejected_clients_total{{reason=\"{reason}\"}}"))
}

/// As many streams as it is let.
async fn fill(site: &Site, envoy: &Issued, fleet: &str) -> (Vec<Client>, String) {
    let mut clients = Vec::new();
    loop {
        let client = site.shows(envoy, BOTH[clients.len() % 2], fleet);
        let settled = |state: &heliograph_client::State| state.is_warm() || state.ended.is_some();
        match client.until("word", DEADLINE, settled).await.unwrap().ended {
            None => clients.push(client),
            Some((code, message)) => {
                assert_eq!(code, Code::Unavailable);
                return (clients, message);
            }
        }
    }
}

#[tokio::test]
async fn an_identity_that_takes_all_it_can_leaves_room_for_others() {
    let site = site().await;
    let envoy = site.ca.issue(ENVOY);
    let (streams, message) = fill(&site, &envoy, "edge/gateway").await;
    assert_eq!(streams.len(), 18, "nine tenths");
    assert!(message.contains("--max-identity-share"), "{message}");
    assert_eq!(rejected_clients(&site, "identity"), 1);
    let other = site.ca.issue(OTHER);
    serves(&site.shows(&other, Protocol::Delta, "default/gateway")).await;
    assert!(streams.iter().all(|client| client.state().ended.is_none()));
    let page = site.page("/limits").await;
    let first = format!("\"name\": \"{ENVOY}\",\n      \"streams\": 18,");
    assert!(page.contains(&first) && page.contains("\"limit\": 20\n"), "{page}");
}

/// Streams that wait for a fleet that is not published count as well.
#[tokio::test]
async fn streams_that_wait_count_and_accounts_of_one_namespace_count_together() {
    let site = site().await;
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    let mut waiting = Vec::new();
    for number in 0..4 {
        let envoy = site.ca.issue(&format!("spiffe://example.org/ns/edge/sa/{number}"));
        for _ in 0..4 {
            waiting.push(site.shows(&envoy, Protocol::Delta, "edge/nowhere"));
            let count = waiting.len() as u64;
            until("a stream", async || site.metric(streams) == count).await;
        }
    }
    let last = site.ca.issue("spiffe://example.org/ns/edge/sa/last");
    for _ in 0..3 {
        waiting.push(site.shows(&last, Protocol::Delta, "edge/nowhere"));
        let count = waiting.len() as u64;
        until("a stream", async || site.metric(streams) == count).await;
    }
    let (code, message) = end(&site.shows(&last, Protocol::Delta, "edge/gateway")).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("--max-namespace-share"), "{message}");
    assert_eq!(rejected_clients(&site, "namespace"), 1);
    let other = site.ca.issue(OTHER);
    serves(&site.shows(&other, Protocol::Delta, "default/gateway")).await;
}

/// Such as requests that wait for a fleet that is not published.
#[tokio::test]
async fn accounts_of_one_namespace_together_leave_memory_to_others() {
    let load = LoadArgs { subscription_memory: 4 << 20, ..LoadArgs::default() };
    let site = Site::under(load, |args| args).await;
    let kept = || site.metric("heliograph_distributor_subscription_bytes");
    let refused = || {
        let reasons = ["identity_memory", "namespace_memory", "replica_memory"];
        reasons.iter().map(|reason| rejected_clients(&site, reason)).sum::<u64>()
    };
    let mut waiting = Vec::new();
    // As many streams as it may have; how many bytes are those?
    let mut fill = async |namespace: &str, name: usize| {
        let id = format!("spiffe://example.org/ns/{namespace}/sa/{name}");
        let account = site.ca.issue(&id);
        // A little less than what counts as a large request.
        let message = first_request(&format!("{namespace}/nowhere"), 740).encode_to_vec();
        let bytes = [&[0], &(message.len() as u32).to_be_bytes()[..], message.as_slice()].concat();
        let (before, refusals) = (kept(), refused());
        while refused() == refusals {
            let now = kept();
            let call = Call::open(&site, site.ca.client(Some(&account)), METHODS[0], &[]);
            waiting.push(call.await.begin(&bytes));
            until("it waits or is refused", async || kept() > now || refused() > refusals).await;
        }
        kept() - before
    };
    let (mut all, mut last) = (0, 0);
    for number in 0..6 {
        last = fill("edge", number).await;
        all += last;
    }
    let other = fill("default", 0).await;
    assert!(last == 0 && all <= 2 << 20, "{all} bytes, and {last} for the last account");
    assert!(rejected_clients(&site, "namespace_memory") >= 5);
    assert!(other > 600 << 10, "{other} bytes for another namespace");
    let page = site.page("/limits").await;
    let namespaces = page.split_once("\"namespaces\"").unwrap().1;
    assert!(namespaces.contains(&format!("\"subscriptionBytes\": {all}")), "{page}");
}

/// Each has a stream here. A call for health counts as well, and is refused beyond the share.
#[tokio::test]
async fn an_identity_cannot_take_all_connections_either() {
    let load = LoadArgs { max_connections: 10, ..LoadArgs::default() };
    let site = Site::under(load, |args| args).await;
    let envoy = site.ca.issue(ENVOY);
    let (streams, message) = fill(&site, &envoy, "edge/gateway").await;
    assert_eq!(streams.len(), 9);
    assert!(message.contains("--max-identity-share"), "{message}");
    // Of health, too.
    let tls = site.ca.client(Some(&envoy));
    assert_eq!(call(&site, tls, METHODS[2], &[]).await, Code::Unavailable);
    let other = site.ca.issue(OTHER);
    serves(&site.shows(&other, Protocol::Delta, "default/gateway")).await;
    let open = "heliograph_distributor_connections";
    until("the others are closed", async || site.metric(open) == 10).await;
}

/// A first request that names so many resources the client holds.
fn first_request(fleet: &str, held: usize) -> DeltaDiscoveryRequest {
    let versions = (0..held).map(|n| (format!("{n:0>100}"), "0123456789abcdef".to_owned()));
    DeltaDiscoveryRequest {
        node: Some(Node { cluster: fleet.to_owned(), ..Default::default() }),
        type_url: ResourceType::Cluster.type_url().to_owned(),
        initial_resource_versions: versions.collect(),
        ..Default::default()
    }
}

/// So many requests of which the first bytes are sent, with the length that they announce.
async fn half_sent(site: &Site, envoy: &Issued, count: usize, length: u32) -> Vec<Call> {
    let bytes = [&[0], &length.to_be_bytes()[..], &[7]].concat();
    let mut calls = Vec::new();
    for _ in 0..count {
        let tls = site.ca.client(Some(envoy));
        calls.push(Call::open(site, tls, METHODS[0], &[]).await.begin(&bytes));
    }
    calls
}

#[tokio::test]
async fn large_requests_that_one_identity_sends_slowly_leave_room_for_those_of_others() {
    let site = Site::start().await;
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    let (hog, other) = (site.ca.issue(ENVOY), site.ca.issue(OTHER));
    // Eight of 32 MiB would fill the room for all.
    let _half = half_sent(&site, &hog, 8, 32 << 20).await;
    until("half of them are refused", async || rejected_clients(&site, "receiving") == 4).await;
    until("the others are being received", async || site.metric(streams) == 4).await;
    // What an Envoy sends that comes back with 5,000 resources.
    for _ in 0..3 {
        let call = Call::open(&site, site.ca.client(Some(&other)), METHODS[0], &[]).await;
        assert_eq!(call.send(&first_request("default/gateway", 5000)).await, Ok(()));
    }
    assert_eq!(rejected_clients(&site, "receiving"), 4);
}

#[tokio::test]
async fn an_identity_that_opens_streams_as_fast_as_it_can_keeps_no_other_out() {
    // The first identity takes nine of these at most, also where a slow machine makes few attempts, and the second the rest.
    const RATE: u32 = 10;
    let load = LoadArgs { admission_rate: RATE, ..LoadArgs::default() };
    let site = Site::under(load, |args| args).await;
    let (hog, other) = (site.ca.issue(ENVOY), site.ca.issue(OTHER));
    let attempt = async |envoy: &Issued, fleet: &str| {
        let call = Call::open(&site, site.ca.client(Some(envoy)), METHODS[0], &[]).await;
        call.send(&first_request(fleet, 0)).await
    };
    let admitted = Cell::new(0);
    let hammer = async || -> () {
        loop {
            let is_admitted = attempt(&hog, "edge/gateway").await.is_ok();
            admitted.set(admitted.get() + u32::from(is_admitted));
        }
    };
    let others = async {
        until("refusals", async || rejected_clients(&site, "rate") > 100).await;
        for number in 0..3 {
            let outcome = attempt(&other, "default/gateway").await;
            assert_eq!(outcome, Ok(()), "the {number}. stream of another identity");
            // After so many more, what this one took is free again: tokens are refilled in the order in which they were taken.
            let before = admitted.get();
            until("its token is refilled", async || admitted.get() >= before + RATE).await;
        }
    };
    tokio::select! {
        () = others => {}
        _ = futures::future::join_all((0..4).map(|_| hammer())) => {}
    }
}
