use crate::calls::{Call, METHODS};
use crate::pki::CertificateAuthority;
use crate::site::*;
use heliograph_client::Protocol;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heliograph_snapshot::ResourceType;
use std::os::unix::fs::symlink;
use tonic::Code;

const EXPIRY: &str =
    r#"heliograph_distributor_certificate_expiry_timestamp_seconds{certificate="server"}"#;
const BAD: &str = r#"heliograph_distributor_bad_security_files{files="tls"}"#;
const YEAR_2040: u64 = 2_208_988_800;
const YEAR_2041: u64 = 2_240_611_200;

#[tokio::test]
async fn the_servers_certificate_is_replaced_under_way() {
    let site = Site::start().await;
    let envoy = site.ca.issue(ENVOY);
    let before = site.shows(&envoy, Protocol::Delta, "edge/gateway");
    serves(&before).await;
    assert_eq!(site.metric(EXPIRY), YEAR_2040);

    // Of another authority, so that only who is served the new one connects.
    let next = CertificateAuthority::new();
    site.place(&next.issue_until("127.0.0.1", 2041));
    until("the new one", async || site.metric(EXPIRY) == YEAR_2041).await;
    let after = site.client(next.client(Some(&envoy)), None, Protocol::Delta, "edge/gateway");
    serves(&after).await;
    let (code, _) = end(&site.shows(&envoy, Protocol::Delta, "edge/gateway")).await;
    assert_eq!(code, Code::Unavailable, "it trusts only the old one");
    assert_eq!(before.state().ended, None, "what is open stays open");
}

#[tokio::test]
async fn a_mount_is_swapped_as_kubernetes_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let site = Site::with(|mut args| {
        // What the test writes through the links is what the first mount has.
        std::fs::create_dir(at("1")).unwrap();
        symlink("1", at("data")).unwrap();
        for (flag, name) in [(&mut args.xds_cert, "cert.pem"), (&mut args.xds_key, "key.pem")] {
            symlink(at("data").join(name), at(name)).unwrap();
            symlink(at(name), flag.as_ref().unwrap()).unwrap();
            *flag = Some(at(name));
        }
        args
    })
    .await;
    let issued = site.ca.issue_until("127.0.0.1", 2041);
    std::fs::create_dir(at("2")).unwrap();
    std::fs::write(at("2").join("cert.pem"), &issued.certificate).unwrap();
    std::fs::write(at("2").join("key.pem"), &issued.key).unwrap();
    symlink("2", at("swap")).unwrap();
    std::fs::rename(at("swap"), at("data")).unwrap();
    std::fs::remove_dir_all(at("1")).unwrap();
    until("the new one", async || site.metric(EXPIRY) == YEAR_2041).await;
    serves(&site.shows(&site.ca.issue(ENVOY), Protocol::Delta, "edge/gateway")).await;
}

#[tokio::test]
async fn a_broken_file_leaves_the_certificate_that_was_good() {
    let site = Site::start().await;
    let envoy = site.ca.issue(ENVOY);
    site.write("cert.pem", "broken");
    until("noticed", async || site.metric(BAD) == 1).await;
    serves(&site.shows(&envoy, Protocol::Delta, "edge/gateway")).await;
    assert_eq!(site.metric(EXPIRY), YEAR_2040);
    site.place(&site.ca.issue_until("127.0.0.1", 2041));
    until("mended", async || site.metric(BAD) == 0 && site.metric(EXPIRY) == YEAR_2041).await;
    serves(&site.shows(&envoy, Protocol::Delta, "edge/gateway")).await;
}

#[tokio::test]
async fn an_authority_that_is_taken_away_ends_the_streams_of_its_clients() {
    let site = Site::start().await;
    let other = CertificateAuthority::new();
    site.write("ca.pem", &format!("{}{}", site.ca.pem(), other.pem()));
    let (ours, theirs) = (site.ca.issue(ENVOY), other.issue(ENVOY));
    // The new authority is known as soon as one of its clients is.
    until("both are known", async || {
        let client = site.shows(&theirs, Protocol::Delta, "edge/gateway");
        let settled =
            |state: &heliograph_client::State| state.ended.is_some() || !state.received.is_empty();
        client.until("answer", DEADLINE, settled).await.unwrap().ended.is_none()
    })
    .await;
    let clients = [
        site.shows(&ours, Protocol::Delta, "edge/gateway"),
        site.shows(&theirs, Protocol::Delta, "edge/gateway"),
        site.shows(&theirs, Protocol::StateOfTheWorld, "edge/gateway"),
    ];
    for client in &clients {
        serves(client).await;
    }
    site.write("ca.pem", &site.ca.pem());
    for client in &clients[1..] {
        assert_eq!(end(client).await.0, Code::Unauthenticated);
    }
    assert_eq!(clients[0].state().ended, None);
    let connections = "heliograph_distributor_connections";
    until("their connections end", async || site.metric(connections) == 1).await;
}

#[tokio::test]
async fn a_rule_that_is_taken_away_ends_the_streams_that_need_it() {
    let site = Site::with(|mut args| {
        args.xds_access = args.xds_cert.as_ref().map(|file| file.with_file_name("access.yaml"));
        let rules = "rules: [{spiffe: 'spiffe://*/ns/edge/sa/*', fleets: ['*/gateway']}]";
        std::fs::write(args.xds_access.as_ref().unwrap(), rules).unwrap();
        args
    })
    .await;
    let envoy = site.ca.issue(ENVOY);
    for protocol in BOTH {
        let (stays, goes) = (
            site.shows(&envoy, protocol, "edge/gateway"),
            site.shows(&envoy, protocol, "default/gateway"),
        );
        serves(&stays).await;
        serves(&goes).await;
        let narrow = "rules: [{spiffe: 'spiffe://*/ns/{ns}/sa/*', fleets: ['{ns}/gateway']}]";
        site.write("access.yaml", narrow);
        assert_eq!(end(&goes).await.0, Code::PermissionDenied);
        assert_eq!(stays.state().ended, None);
        site.write("access.yaml", &narrow.replace("{ns}/gateway", "*/gateway"));
        until("wide again", async || {
            let client = site.shows(&envoy, protocol, "default/gateway");
            let settled = |state: &heliograph_client::State| {
                state.ended.is_some() || !state.received.is_empty()
            };
            client.until("answer", DEADLINE, settled).await.unwrap().ended.is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn a_rule_that_is_taken_away_before_a_fleet_is_named_counts() {
    let site = Site::with(|mut args| {
        args.xds_access = args.xds_cert.as_ref().map(|file| file.with_file_name("access.yaml"));
        let rules = "rules: [{spiffe: 'spiffe://*/ns/edge/sa/*', fleets: ['*/gateway']}]";
        std::fs::write(args.xds_access.as_ref().unwrap(), rules).unwrap();
        // No stream is authenticated again meanwhile.
        args.xds_recheck_seconds = Some(3600);
        args
    })
    .await;
    let envoy = site.ca.issue(ENVOY);
    let open = async || Call::open(&site, site.ca.client(Some(&envoy)), METHODS[0], &[]).await;
    let (stays, goes) = (open().await, open().await);
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    until("both are open", async || site.metric(streams) == 2).await;
    site.write(
        "access.yaml",
        "rules: [{spiffe: 'spiffe://*/ns/{ns}/sa/*', fleets: ['{ns}/gateway']}]",
    );
    until("the rules are narrow", async || {
        let client = site.shows(&envoy, Protocol::Delta, "default/gateway");
        let settled =
            |state: &heliograph_client::State| state.ended.is_some() || !state.received.is_empty();
        client.until("answer", DEADLINE, settled).await.unwrap().ended.is_some()
    })
    .await;
    let names = |fleet: &str| DeltaDiscoveryRequest {
        node: Some(Node { cluster: fleet.to_owned(), ..Default::default() }),
        type_url: ResourceType::Cluster.type_url().to_owned(),
        ..Default::default()
    };
    assert_eq!(goes.send(&names("default/gateway")).await, Err(Code::PermissionDenied));
    assert_eq!(stays.send(&names("edge/gateway")).await, Ok(()));
}
