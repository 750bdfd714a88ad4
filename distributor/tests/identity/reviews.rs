use crate::accounts::{add_accounts, withhold_keys};
use crate::calls::{METHODS, call};
use crate::kubernetes::Kubernetes;
use crate::pki::Signer;
use crate::site::*;
use heliograph_client::Protocol;
use serde_json::json;
use tonic::Code;

pub(crate) use crate::accounts::AUDIENCE;

pub(crate) const ENVOY_ACCOUNT: &str = "system:serviceaccount:edge:envoy";

/// A cluster with two proxies in one namespace, and a distributor that may ask about tokens.
pub(crate) async fn cluster() -> (Kubernetes, Site) {
    let cluster = Kubernetes::start().await;
    let site = distributor_of(&cluster, None).await;
    (cluster, site)
}

/// The same, with a bound on the questions about new tokens, where the distributor cannot check them itself.
pub(crate) async fn cluster_without_keys(rate: u32) -> (Kubernetes, Site) {
    let cluster = Kubernetes::start().await;
    withhold_keys(&cluster).await;
    let site = distributor_of(&cluster, Some(rate)).await;
    (cluster, site)
}

async fn distributor_of(cluster: &Kubernetes, rate: Option<u32>) -> Site {
    add_accounts(cluster, &[("edge", "envoy"), ("edge", "other"), ("edge", "idle")]).await;
    Site::with(|mut args| {
        (args.xds_jwks, args.xds_token_issuer, args.xds_token_review) = (None, None, true);
        args.xds_token_review_rate = rate;
        if rate.is_some() {
            // A refusal is remembered for half of it, which has to do for many calls on a busy machine.
            args.xds_recheck_seconds = Some(20);
        }
        args.kubernetes_api = Some(cluster.url());
        args.kubernetes_ca = Some(cluster.file("ca.crt"));
        args.kubernetes_token = Some(cluster.file("token"));
        args
    })
    .await
}

pub(crate) async fn code(site: &Site, method: &str, token: &str) -> Code {
    call(site, site.ca.client(None), method, &[&format!("Bearer {token}")]).await
}

#[tokio::test]
async fn kubernetes_says_whose_a_token_is() {
    let (cluster, site) = cluster().await;
    let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
    let mut clients = Vec::new();
    for protocol in BOTH {
        let client = site.bears(&token, protocol, "edge/gateway");
        serves(&client).await;
        clients.push(client);
        let (code, message) = end(&site.bears(&token, protocol, "default/gateway")).await;
        assert_eq!(code, Code::PermissionDenied);
        assert!(message.contains("system:serviceaccount:edge:envoy may read edge/*"), "{message}");
    }
    let for_another = cluster.token("edge", "envoy", &["kubernetes"]).await;
    for bad in [for_another.as_str(), "rubbish", "admin-of-the-test"] {
        for method in METHODS {
            assert_eq!(code(&site, method, bad).await, Code::Unauthenticated, "{method}");
        }
    }
    // An account that is gone takes its streams with it, and no others.
    let other = cluster.token("edge", "other", &[AUDIENCE]).await;
    let stays = site.bears(&other, Protocol::Delta, "edge/gateway");
    serves(&stays).await;
    cluster.delete("/api/v1/namespaces/edge/serviceaccounts/envoy").await;
    for client in &clients {
        assert_eq!(end(client).await.0, Code::Unauthenticated);
    }
    assert_eq!(code(&site, METHODS[0], &token).await, Code::Unauthenticated);
    assert_eq!(stays.state().ended, None);
}

#[tokio::test]
async fn who_is_known_stays_while_the_api_is_away() {
    let (mut cluster, site) = cluster().await;
    let known = cluster.token("edge", "envoy", &[AUDIENCE]).await;
    let unknown = cluster.token("edge", "idle", &[AUDIENCE]).await;
    let client = site.bears(&known, Protocol::Delta, "edge/gateway");
    serves(&client).await;
    cluster.stop_server();
    // Each look at the stream asks in vain.
    let failed = r#"heliograph_distributor_token_reviews_total{outcome="failed"}"#;
    until("some looks", async || site.metric(failed) >= 3).await;
    assert_eq!(client.state().ended, None);
    assert_eq!(code(&site, METHODS[2], &unknown).await, Code::Unavailable, "it may be good");
    serves(&site.bears(&known, Protocol::StateOfTheWorld, "edge/gateway")).await;
    cluster.start_server().await;
    until("an answer", async || code(&site, METHODS[2], &unknown).await == Code::Ok).await;
    assert_eq!(client.state().ended, None);
}

#[tokio::test]
async fn a_distributor_that_may_not_ask_is_told_what_it_lacks() {
    let (cluster, site) = cluster().await;
    std::fs::write(cluster.file("token"), cluster.token("edge", "idle", &[]).await).unwrap();
    let refused = async || {
        // A new one each time: what is known stays known.
        let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
        let client = site.bears(&token, Protocol::Delta, "edge/gateway");
        let settled =
            |state: &heliograph_client::State| state.ended.is_some() || !state.received.is_empty();
        let state = client.until("answer", DEADLINE, settled).await.unwrap();
        state.ended.is_some_and(|(code, message)| {
            code == Code::Unavailable && message.contains("system:auth-delegator")
        })
    };
    until("the other token is in use", refused).await;
}

pub(crate) fn reviews(site: &Site, outcome: &str) -> u64 {
    site.metric(&format!("heliograph_distributor_token_reviews_total{{outcome=\"{outcome}\"}}"))
}

#[tokio::test]
async fn tokens_that_are_made_up_do_not_flood_the_api() {
    let (cluster, site) = cluster_without_keys(5).await;
    let token = cluster.token("edge", "envoy", &[AUDIENCE]).await;
    let client = site.bears(&token, Protocol::Delta, "edge/gateway");
    serves(&client).await;
    // Text that is not a token is not reviewed at all, and a recently rejected token not again.
    assert_eq!(code(&site, METHODS[0], "rubbish").await, Code::Unauthenticated);
    assert_eq!(reviews(&site, "refused"), 0);
    let forger = Signer::new("one");
    let forged = |n: usize| forger.token(ENVOY_ACCOUNT, 3600, &json!({ "n": n }));
    let first = forged(0);
    for _ in 0..20 {
        assert_eq!(code(&site, METHODS[0], &first).await, Code::Unauthenticated);
    }
    assert_eq!(reviews(&site, "refused"), 1);

    let (begun, before) = (std::time::Instant::now(), reviews(&site, "known"));
    let mut codes = Vec::new();
    for n in 1..=200 {
        codes.push(code(&site, METHODS[n % METHODS.len()], &forged(n)).await);
    }
    let refused = codes.iter().filter(|code| **code == Code::Unauthenticated).count() as u64;
    let later = codes.iter().filter(|code| **code == Code::Unavailable).count() as u64;
    assert_eq!(refused + later, 200, "{codes:?}");
    let most = 5 * (begun.elapsed().as_secs() + 2);
    assert!(refused <= most, "{refused} questions, at most {most} in that time");
    assert_eq!(reviews(&site, "refused"), 1 + refused);
    assert_eq!(reviews(&site, "withheld") + reviews(&site, "delayed"), later);
    // Who is known is asked about as ever.
    until("a look", async || reviews(&site, "known") > before).await;
    assert_eq!(client.state().ended, None);
}
