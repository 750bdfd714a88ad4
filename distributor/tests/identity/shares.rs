//! What one identity, and one namespace, may have of a replica.

use crate::calls::{METHODS, call};
use crate::pki::Issued;
use crate::site::*;
use heliograph_client::{Client, Protocol};
use heliograph_distributor::LoadArgs;
use tonic::Code;

const STREAMS: usize = 20;

async fn site() -> Site {
    let load = LoadArgs { max_streams: STREAMS, ..LoadArgs::default() };
    Site::under(load, |args| args).await
}

fn turned_away(site: &Site, reason: &str) -> u64 {
    site.metric(&format!("heliograph_distributor_turned_away_total{{reason=\"{reason}\"}}"))
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
    let envoy = site.authority.issue(ENVOY);
    let (streams, message) = fill(&site, &envoy, "edge/gateway").await;
    assert_eq!(streams.len(), 18, "nine tenths");
    assert!(message.contains("--max-identity-share"), "{message}");
    assert_eq!(turned_away(&site, "identity"), 1);
    let other = site.authority.issue("spiffe://example.org/ns/default/sa/envoy");
    serves(&site.shows(&other, Protocol::Delta, "default/gateway")).await;
    assert!(streams.iter().all(|client| client.state().ended.is_none()));
    let page = site.page("/limits").await;
    let first = format!("\"name\": \"{ENVOY}\",\n      \"streams\": 18,");
    assert!(page.contains(&first) && page.contains("\"limit\": 20\n"), "{page}");
}

/// Those that wait for a fleet that nobody publishes are streams as well.
#[tokio::test]
async fn streams_that_wait_count_and_accounts_of_one_namespace_count_together() {
    let site = site().await;
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    let mut waiting = Vec::new();
    for number in 0..4 {
        let envoy = site.authority.issue(&format!("spiffe://example.org/ns/edge/sa/{number}"));
        for _ in 0..4 {
            waiting.push(site.shows(&envoy, Protocol::Delta, "edge/nowhere"));
            let count = waiting.len() as u64;
            until("a stream", async || site.metric(streams) == count).await;
        }
    }
    let last = site.authority.issue("spiffe://example.org/ns/edge/sa/last");
    for _ in 0..3 {
        waiting.push(site.shows(&last, Protocol::Delta, "edge/nowhere"));
        let count = waiting.len() as u64;
        until("a stream", async || site.metric(streams) == count).await;
    }
    let (code, message) = end(&site.shows(&last, Protocol::Delta, "edge/gateway")).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("--max-namespace-share"), "{message}");
    assert_eq!(turned_away(&site, "namespace"), 1);
    let other = site.authority.issue("spiffe://example.org/ns/default/sa/envoy");
    serves(&site.shows(&other, Protocol::Delta, "default/gateway")).await;
}

/// Each has a stream here. A call for health counts as well, and is refused beyond the share.
#[tokio::test]
async fn an_identity_cannot_take_all_connections_either() {
    let load = LoadArgs { max_connections: 10, ..LoadArgs::default() };
    let site = Site::under(load, |args| args).await;
    let envoy = site.authority.issue(ENVOY);
    let (streams, message) = fill(&site, &envoy, "edge/gateway").await;
    assert_eq!(streams.len(), 9);
    assert!(message.contains("--max-identity-share"), "{message}");
    // Of health, too.
    let tls = site.authority.client(Some(&envoy));
    assert_eq!(call(&site, tls, METHODS[2], &[]).await, Code::Unavailable);
    let other = site.authority.issue("spiffe://example.org/ns/default/sa/envoy");
    serves(&site.shows(&other, Protocol::Delta, "default/gateway")).await;
    let open = "heliograph_distributor_connections";
    until("the others are closed", async || site.metric(open) == 10).await;
}
