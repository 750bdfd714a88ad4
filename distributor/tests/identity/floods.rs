//! Somebody who has no credential makes tokens up, as many as it can, and the others must not notice.

use crate::calls::{Connection, METHODS};
use crate::pki::Signer;
use crate::reviews::*;
use crate::site::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

const FLOODING: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HEALTH: &str = METHODS[2];

/// Shows tokens that `forge` makes, each another, from one address until it is dropped.
struct Flood {
    shown: Arc<AtomicUsize>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Flood {
    async fn start(
        site: &Arc<Site>,
        forge: impl Fn(usize) -> String + Send + Sync + 'static,
    ) -> Self {
        let (shown, forge) = (Arc::<AtomicUsize>::default(), Arc::new(forge));
        let task = |_| {
            let (site, shown, forge) = (site.clone(), shown.clone(), forge.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    let tls = site.ca.client(None);
                    let mut connection = Connection::from(FLOODING, &site, tls).await;
                    loop {
                        let number = shown.fetch_add(1, Ordering::Relaxed);
                        let token = format!("Bearer {}", forge(number));
                        let Some(code) = connection.call(HEALTH, &[&token]).await else { break };
                        assert!(
                            matches!(code, Code::Unauthenticated | Code::Unavailable),
                            "{code}"
                        );
                    }
                }
            }))
        };
        let tasks = (0..4).map(task).collect();
        let flood = Self { shown, _tasks: tasks };
        flood.goes_on(200).await;
        flood
    }

    /// Waits for so many more.
    async fn goes_on(&self, tokens: usize) {
        let enough = self.shown.load(Ordering::Relaxed) + tokens;
        until("the flood", async || self.shown.load(Ordering::Relaxed) >= enough).await;
    }
}

async fn code_from(address: IpAddr, site: &Site, token: &str) -> Code {
    let mut connection = Connection::from(address, site, site.ca.client(None)).await;
    connection.call(HEALTH, &[&format!("Bearer {token}")]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_that_makes_tokens_up_keeps_no_other_out() {
    let (cluster, site) = cluster_without_keys(50).await;
    let (site, forger, begun) = (Arc::new(site), Signer::new("one"), Instant::now());
    let flood =
        Flood::start(&site, move |n| forger.token(ENVOY_ACCOUNT, 3600, &json!({ "n": n }))).await;
    let mut codes = Vec::new();
    for last in 2..12 {
        flood.goes_on(20).await;
        let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
        codes.push(code_from(IpAddr::from([127, 0, 0, last]), &site, &token).await);
    }
    assert_eq!(codes, [Code::Ok; 10], "each has one try");
    assert!(reviews(&site, "delayed") > 0, "the address that floods has to wait");
    // What the flood costs the API server is a few questions each time that it may ask again: ten, and those under way.
    let (refused, most) = (reviews(&site, "refused"), 14 * (begun.elapsed().as_secs() + 2));
    assert!(refused <= most, "{refused} questions, at most {most} in that time");
}

/// The same token with other claims and the signature that it had.
fn forged(token: &str, number: usize) -> String {
    let mut parts = token.split('.');
    let (header, body, signature) =
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let mut claims: serde_json::Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap();
    claims["n"] = number.into();
    format!("{header}.{}.{signature}", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_keys_of_the_cluster_no_made_up_token_reaches_it() {
    let (cluster, site) = cluster().await;
    let keys = "heliograph_distributor_cluster_token_keys";
    until("the keys", async || site.metric(keys) == 1).await;
    let (site, pattern) = (Arc::new(site), cluster.token("edge", "idle", &[AUDIENCE]).await);
    let before = cluster.answered("tokenreviews").await;
    let flood = Flood::start(&site, move |n| forged(&pattern, n)).await;
    flood.goes_on(1000).await;
    let other = cluster.token("edge", "envoy", &["kubernetes"]).await;
    assert_eq!(code_from(FLOODING, &site, &other).await, Code::Unauthenticated);
    assert_eq!(cluster.answered("tokenreviews").await, before, "it is asked about none of them");
    assert!(reviews(&site, "offline") > 1000);
    // Also from the same address.
    for last in 1..=10 {
        let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
        let address = IpAddr::from([127, 0, 0, last / 2 + 1]);
        assert_eq!(code_from(address, &site, &token).await, Code::Ok, "{address}");
    }
    // It counts what it has answered a moment later.
    until("ten reviews", async || cluster.answered("tokenreviews").await == before + 10).await;
}

/// A cluster that got another key signs with it before a distributor knows of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_of_the_cluster_locks_nobody_out() {
    let (mut cluster, site) = cluster().await;
    let keys = "heliograph_distributor_cluster_token_keys";
    until("the keys", async || site.metric(keys) == 1).await;
    cluster.stop_server();
    cluster.replace_account_key();
    cluster.start_server().await;
    let own = cluster.token("heliograph", "distributor", &[]).await;
    std::fs::write(cluster.file("token"), own).unwrap();
    // As soon as the distributor shows its own new token.
    let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
    until("a review", async || code_from(FLOODING, &site, &token).await == Code::Ok).await;
    // Then it hears of the key, and refuses what was not signed with it.
    let number = AtomicUsize::default();
    let refused = async || {
        let forged = forged(&token, number.fetch_add(1, Ordering::Relaxed));
        assert_ne!(code_from(FLOODING, &site, &forged).await, Code::Ok);
        reviews(&site, "offline") > 0
    };
    until("the new key", refused).await;
    let another = cluster.token("edge", "other", &[AUDIENCE]).await;
    assert_eq!(code_from(FLOODING, &site, &another).await, Code::Ok);
}

#[tokio::test]
async fn a_connection_ends_after_some_refused_tokens() {
    let site = Site::start().await;
    let tls = site.ca.client(None);
    let mut connection = Connection::from(FLOODING, &site, tls).await;
    let good = format!("Bearer {}", site.signer.token(ENVOY_ACCOUNT, 3600, &json!({})));
    assert_eq!(connection.call(HEALTH, &[&good]).await, Some(Code::Ok));
    let mut refused = 0;
    while let Some(code) = connection.call(HEALTH, &["Bearer rubbish"]).await {
        assert_eq!(code, Code::Unauthenticated);
        refused += 1;
        assert!(refused < 1000, "it does not end");
    }
    assert!(refused >= 8, "{refused}");
    assert_eq!(code_from(FLOODING, &site, good.trim_start_matches("Bearer ")).await, Code::Ok);
}
