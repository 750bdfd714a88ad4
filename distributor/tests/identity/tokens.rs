use crate::calls::{METHODS, call};
use crate::pki::Signer;
use crate::site::*;
use heliograph_client::{Client, Options, Protocol, Server};
use serde_json::json;
use tonic::Code;

const ACCOUNT: &str = "system:serviceaccount:edge:envoy";

#[tokio::test]
async fn a_token_reads_the_fleets_of_its_namespace_and_no_others() {
    let site = Site::start().await;
    for subject in [ACCOUNT, ENVOY] {
        let token = site.signer.token(subject, 3600, &json!({}));
        for protocol in BOTH {
            serves(&site.bears(&token, protocol, "edge/gateway")).await;
            let (code, message) = end(&site.bears(&token, protocol, "default/gateway")).await;
            assert_eq!(code, Code::PermissionDenied);
            assert!(message.contains(subject) && message.contains("edge/*"), "{message}");
        }
    }
}

#[tokio::test]
async fn the_admin_port_tells_who_a_client_is_and_not_how_it_proved_that() {
    let site = Site::start().await;
    let token = site.signer.token(ACCOUNT, 3600, &json!({}));
    let client = site.bears(&token, Protocol::Delta, "edge/gateway");
    serves(&client).await;
    let certificate = site.ca.issue(ENVOY);
    let other = site.shows(&certificate, Protocol::StateOfTheWorld, "edge/gateway");
    serves(&other).await;
    let signature = token.rsplit('.').next().unwrap();
    for path in ["/clients", "/clients?format=json"] {
        let page = site.page(path).await;
        assert!(page.contains(ACCOUNT) && page.contains(ENVOY), "{page}");
        assert!(!page.contains(signature), "{page}");
    }
}

#[tokio::test]
async fn a_bad_token_is_refused_by_every_method() {
    let site = Site::start().await;
    let bad = [
        ("not a token", "rubbish".to_owned()),
        ("of another signer", Signer::new("one").token(ACCOUNT, 3600, &json!({}))),
        ("of another issuer", site.signer.token(ACCOUNT, 3600, &json!({ "iss": "https://other" }))),
        ("for another audience", site.signer.token(ACCOUNT, 3600, &json!({ "aud": "kubernetes" }))),
        ("expired", site.signer.token(ACCOUNT, -60, &json!({}))),
        ("of the future", site.signer.token(ACCOUNT, 3600, &json!({ "nbf": 4_000_000_000_u64 }))),
        ("of nobody", site.signer.token("system:serviceaccount:edge", 3600, &json!({}))),
    ];
    for (what, token) in &bad {
        for method in METHODS {
            let bearer = format!("bearer {token}");
            let code = call(&site, site.ca.client(None), method, &[&bearer]).await;
            assert_eq!(code, Code::Unauthenticated, "{what}: {method}");
        }
        let (_, message) = end(&site.bears(token, Protocol::Delta, "edge/gateway")).await;
        assert!(!message.contains(token.as_str()), "{message}");
    }
    let refused = r#"heliograph_distributor_refused_calls_total{reason="token"}"#;
    assert_eq!(site.metric(refused), (bad.len() * (METHODS.len() + 1)) as u64);
}

#[tokio::test]
async fn a_certificate_counts_before_a_token() {
    let site = Site::start().await;
    let other = site.ca.issue("spiffe://example.org/ns/default/sa/envoy");
    let token = site.signer.token(ACCOUNT, 3600, &json!({}));
    let tls = || site.ca.client(Some(&other));
    let client = site.client(tls(), Some(&token), Protocol::Delta, "edge/gateway");
    assert_eq!(end(&client).await.0, Code::PermissionDenied);
    serves(&site.client(tls(), Some(&token), Protocol::Delta, "default/gateway")).await;
}

#[tokio::test]
async fn a_token_that_expires_ends_its_stream() {
    let site = Site::with(|mut args| {
        // So that it is not found out by a look between.
        args.xds_recheck_seconds = Some(3600);
        args
    })
    .await;
    // Clocks may be half a minute apart, so these have ten seconds left.
    let clients = BOTH.map(|protocol| {
        site.bears(&site.signer.token(ACCOUNT, -20, &json!({})), protocol, "edge/gateway")
    });
    for client in &clients {
        serves(client).await;
    }
    for client in &clients {
        let (code, message) = end(client).await;
        assert_eq!(code, Code::Unauthenticated);
        assert!(message.contains("expired"), "{message}");
    }
}

#[tokio::test]
async fn keys_are_rotated_under_way() {
    let site = Site::start().await;
    let (old, next) = (&site.signer, Signer::new("two"));
    let of_old = site.bears(&old.token(ACCOUNT, 3600, &json!({})), Protocol::Delta, "edge/gateway");
    serves(&of_old).await;
    site.write("jwks.json", &Signer::jwks(&[old, &next]));
    let token = next.token(ACCOUNT, 3600, &json!({}));
    let bearer = format!("Bearer {token}");
    until("the new key", async || {
        call(&site, site.ca.client(None), METHODS[2], &[&bearer]).await == Code::Ok
    })
    .await;
    let of_next = site.bears(&token, Protocol::StateOfTheWorld, "edge/gateway");
    serves(&of_next).await;
    // A broken file changes nothing.
    site.write("jwks.json", "{");
    let bad = r#"heliograph_distributor_bad_security_files{files="jwks"}"#;
    until("noticed", async || site.metric(bad) == 1).await;
    assert_eq!(of_old.state().ended, None);
    site.write("jwks.json", &Signer::jwks(&[&next]));
    assert_eq!(end(&of_old).await.0, Code::Unauthenticated);
    assert_eq!(of_next.state().ended, None);
}

/// As behind something that ends TLS on the same machine.
#[tokio::test]
async fn tokens_are_asked_for_also_without_tls() {
    let site = Site::with(|mut args| {
        (args.xds_cert, args.xds_key, args.xds_client_ca) = (None, None, None);
        args
    })
    .await;
    let address = format!("http://{}", site.address);
    let client = |token: Option<&str>| {
        let server = Server::new(&address, None, token).unwrap();
        Client::connect_to(server, Options::new(&address, Protocol::Delta, "edge/gateway"))
    };
    assert_eq!(end(&client(None)).await.0, Code::Unauthenticated);
    let token = site.signer.token(ACCOUNT, 3600, &json!({}));
    serves(&client(Some(&token))).await;
}
