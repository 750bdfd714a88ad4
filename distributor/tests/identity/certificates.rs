use crate::calls::{METHODS, call};
use crate::pki::CertificateAuthority;
use crate::site::*;
use heliograph_client::Protocol;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tonic::Code;

#[tokio::test]
async fn a_workload_reads_the_fleets_of_its_namespace() {
    let site = Site::start().await;
    let envoy = site.ca.issue(ENVOY);
    for protocol in BOTH {
        serves(&site.shows(&envoy, protocol, "edge/gateway")).await;
    }
}

#[tokio::test]
async fn another_fleets_node_is_denied_on_both_protocols() {
    let site = Site::start().await;
    let envoy = site.ca.issue(ENVOY);
    for protocol in BOTH {
        // Also of a fleet that does not exist: who may not read it does not learn that either.
        for fleet in ["default/gateway", "elsewhere/gateway"] {
            let client = site.shows(&envoy, protocol, fleet);
            let (code, message) = end(&client).await;
            assert_eq!(code, Code::PermissionDenied);
            assert!(message.contains(ENVOY) && message.contains("edge/*"), "{message}");
            assert!(client.state().received.is_empty());
        }
    }
    let denied = r#"heliograph_distributor_refused_calls_total{reason="not-allowed"}"#;
    assert_eq!(site.metric(denied), 4);
}

#[tokio::test]
async fn who_no_rule_names_is_denied_before_it_says_anything() {
    let site = Site::start().await;
    let stranger = site.ca.issue("envoy.example.org");
    for method in METHODS {
        let tls = site.ca.client(Some(&stranger));
        assert_eq!(call(&site, tls, method, &[]).await, Code::PermissionDenied, "{method}");
    }
}

#[tokio::test]
async fn a_host_reads_what_a_rule_gives_it() {
    let site = Site::with(|mut args| {
        args.xds_access = args.xds_cert.as_ref().map(|file| file.with_file_name("access.yaml"));
        let rules = "rules: [{dns: '{name}.edge.example.org', fleets: ['edge/{name}']}]";
        std::fs::write(args.xds_access.as_ref().unwrap(), rules).unwrap();
        args
    })
    .await;
    let host = site.ca.issue("gateway.edge.example.org");
    for protocol in BOTH {
        serves(&site.shows(&host, protocol, "edge/gateway")).await;
        let (code, _) = end(&site.shows(&host, protocol, "default/gateway")).await;
        assert_eq!(code, Code::PermissionDenied);
    }
}

#[tokio::test]
async fn every_method_denies_the_unauthenticated() {
    let site = Site::start().await;
    for method in METHODS {
        for authorization in [&[][..], &["Basic eDp5"], &["Bearer"], &["Bearer x", "Bearer y"]] {
            let tls = site.ca.client(None);
            let code = call(&site, tls, method, authorization).await;
            assert_eq!(code, Code::Unauthenticated, "{method} {authorization:?}");
        }
    }
    let envoy = site.ca.issue(ENVOY);
    let known = site.ca.client(Some(&envoy));
    assert_eq!(call(&site, known, METHODS[2], &[]).await, Code::Ok, "health is for who is known");
}

#[tokio::test]
async fn certificates_of_others_and_of_the_past_make_no_connection() {
    let site = Site::start().await;
    let failed = r#"heliograph_distributor_failed_handshakes_total{reason="certificate"}"#;
    let (of_others, expired) =
        (CertificateAuthority::new().issue(ENVOY), site.ca.issue_until(ENVOY, 2020));
    for (count, wrong) in [of_others, expired].iter().enumerate() {
        let (code, message) = end(&site.shows(wrong, Protocol::Delta, "edge/gateway")).await;
        assert_eq!(code, Code::Unavailable, "{message}");
        until("counted", async || site.metric(failed) == count as u64 + 1).await;
    }
}

#[tokio::test]
async fn an_envoy_with_its_own_settings_speaks_tls_1_2() {
    let site = Site::start().await;
    let envoy = site.ca.issue(ENVOY);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let tls = site.ca.client_of(Some(&envoy), &[version]);
        serves(&site.client(tls, None, Protocol::Delta, "edge/gateway")).await;
    }
}

#[tokio::test]
async fn half_a_handshake_ends_and_nobody_waits_for_it() {
    let site = Site::start().await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(&site.address).await.unwrap());
    }
    let envoy = site.ca.issue(ENVOY);
    let client = site.shows(&envoy, Protocol::Delta, "edge/gateway");
    serves(&client).await;
    for stream in &mut silent {
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut [0; 64])).await;
        assert!(!matches!(read.unwrap(), Ok(1..)));
    }
    let timeouts = r#"heliograph_distributor_failed_handshakes_total{reason="timeout"}"#;
    until("counted", async || site.metric(timeouts) == 200).await;
    assert_eq!(client.state().ended, None);
}
