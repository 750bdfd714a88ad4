//! What clients send while their streams and calls wait for something.

use crate::pki::Signer;
use crate::running::*;
use crate::siege::*;
use crate::site::{Certificates, Site};
use crate::wire::raw_stream::{self, RawStream, framed};
use bytes::Bytes;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use serde_json::json;
use std::fs;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;

/// As many streams on a connection as fill its receive window, if each fills its own.
const ON_EACH: usize = 4;
/// Nearly a window of a stream.
const UNREAD: usize = 240 << 10;

/// HTTP/2 would keep a whole window for each of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_wait_for_a_fleet_take_a_bounded_memory() {
    const STREAMS: usize = 1600;
    let mut site = Site::start(&OPEN, None).await;
    let before = site.distributor.peak_memory();
    let node = Node { cluster: "not/there".to_owned(), ..Default::default() };
    let first = framed(&DeltaDiscoveryRequest { node: Some(node), ..request(Vec::new()) });
    // Empty messages, which are not read yet.
    let words: Bytes = [first, vec![0; UNREAD]].concat().into();
    let mut raw_streams = Vec::new();
    for _ in 0..STREAMS / ON_EACH {
        let opener = raw_stream::connect(&site.server).await;
        for _ in 0..ON_EACH {
            let mut raw_stream = RawStream::open_on(opener.clone()).await.unwrap();
            // Those for which there is no room are ended under way.
            let _ = raw_stream.send(words.clone()).await;
            raw_streams.push(raw_stream);
        }
        if raw_streams.len() % 400 == 0 {
            site.goes_on().await;
        }
    }
    let taken = site.distributor.peak_memory().saturating_sub(before);
    let all = (STREAMS * UNREAD) >> 20;
    assert!(taken < 150, "{taken} MiB, and all of them have sent {all} MiB");
    let refused = async || rejected_clients(&site, "identity_memory").await as usize;
    until("refusals", async || refused().await > STREAMS - 150).await;
    // Envoys that wait for it have sent little.
    let mut envoy = RawStream::open(&site.server).await;
    let waits = "heliograph_distributor_subscription_bytes";
    drop(raw_streams);
    until("nothing is kept", async || site.distributor.metric(waits).await == 0).await;
    envoy.send(words.slice(..words.len() - UNREAD)).await.unwrap();
    until("it waits", async || site.distributor.metric(waits).await > 0).await;
    site.goes_on().await;
}

/// No call is authenticated yet, and the API server does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_a_token_review_take_a_bounded_memory() {
    const CONNECTIONS: usize = 200;
    allow_many_files();
    let certificates = Certificates::new();
    // It takes connections, and says nothing.
    let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", api.local_addr().unwrap());
    let (token, trust) = (certificates.path("token"), certificates.path("ca.pem"));
    fs::write(&token, "a token of the replica").unwrap();
    let flags = [
        &OPEN[..],
        &["--first-request-timeout", "60s", "--xds-token-review"],
        &["--xds-token-review-rate", "100000", "--kubernetes-api", &url],
        &["--kubernetes-ca", &trust, "--kubernetes-token", &token],
    ];
    let mut site = Site::start(&flags.concat(), Some(&certificates)).await;
    let connector = TlsConnector::from(Arc::new({
        let mut tls = certificates.client();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        tls
    }));
    let address = site.server.strip_prefix("http://").unwrap().to_owned();
    let mut openers = Vec::new();
    for _ in 0..CONNECTIONS {
        let tcp = TcpStream::connect(&address).await.unwrap();
        let tls = connector.connect("127.0.0.1".try_into().unwrap(), tcp).await.unwrap();
        openers.push(raw_stream::connect_over(tls).await);
    }
    let bearer = Signer::new("one").token("system:serviceaccount:edge:envoy", 3600, &json!({}));
    let headers = [("authorization", format!("Bearer {bearer}"))];
    let before = site.distributor.peak_memory();
    let words = Bytes::from(vec![0; UNREAD]);
    let mut sent = Vec::new();
    for opener in &openers {
        for _ in 0..ON_EACH {
            let (opener, headers, words) = (opener.clone(), headers.clone(), words.clone());
            sent.push(tokio::spawn(async move {
                let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
                let mut raw_stream = RawStream::open_with(opener, &headers).await?;
                raw_stream.send(words).await?;
                Ok::<_, h2::Error>(raw_stream)
            }));
        }
    }
    let mut raw_streams = Vec::new();
    for sent in sent {
        raw_streams.extend(tokio::time::timeout(DEADLINE, sent).await.unwrap().unwrap());
    }
    site.goes_on().await;
    let taken = site.distributor.peak_memory().saturating_sub(before);
    let all = (CONNECTIONS * ON_EACH * UNREAD) >> 20;
    assert!(taken < 100, "{taken} MiB, and all of them have sent {all} MiB");
    assert!(rejected_clients(&site, "receiving").await > 0);
    drop(raw_streams);
    site.goes_on().await;
}
