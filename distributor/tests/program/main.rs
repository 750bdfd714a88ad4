//! The program as operators run it: what it says, when it is ready, how it ends, and what it withstands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cache;
#[allow(dead_code, reason = "the tests of identity use the rest")]
#[path = "../identity/pki.rs"]
mod pki;
mod running;
mod siege;
mod site;
mod waiting;
#[allow(dead_code, reason = "the tests of load use the rest")]
#[path = "../wire/mod.rs"]
mod wire;

use heliograph_testing::Port;
use running::*;
use std::process::Output;
use tokio::net::TcpStream;

#[tokio::test]
async fn it_starts_without_redis_and_is_ready_once_it_is_there() {
    let port = Port::reserve().unwrap().number();
    let mut distributor = Distributor::start(port, &[]);
    let awaits = "not ready, awaiting: snapshots";
    until("not ready", async || distributor.responds_with("/readyz", awaits).await).await;
    assert!(distributor.responds_with("/livez", "200 OK").await);
    let place = format!("127.0.0.1:{port}");
    until("a line", async || distributor.log().contains(&place)).await;
    assert_eq!(distributor.log().matches(&place).count(), 1, "{}", distributor.log());

    let server = redis(port);
    until("ready", async || distributor.responds_with("/readyz", "200 OK").await).await;
    assert!(distributor.responds_with("/fleets", "{}").await);
    drop(server);
    let away = format!("Redis at {place} is away");
    until("a line about this outage", async || {
        distributor.log().split_once(" is back ").is_some_and(|(_, since)| since.contains(&away))
    })
    .await;
    assert!(distributor.responds_with("/readyz", "200 OK").await, "what it has it can serve");
    assert!(distributor.end().await.success(), "{}", distributor.log());
}

#[tokio::test]
async fn while_it_drains_it_is_not_ready_and_takes_nobody() {
    let port = Port::reserve().unwrap().number();
    let _server = redis(port);
    // Otherwise silent connections would be gone sooner.
    let flags = ["--drain-time", "8s", "--first-request-timeout", "60s"];
    let mut distributor = Distributor::start(port, &flags);
    until("ready", async || distributor.responds_with("/readyz", "200 OK").await).await;
    let xds = distributor.address("xds=").unwrap();
    let mut connections = Vec::new();
    for _ in 0..20 {
        connections.push(TcpStream::connect(&xds).await.unwrap());
    }
    let open = "heliograph_distributor_connections 20";
    until("connections", async || distributor.responds_with("/metrics", open).await).await;
    distributor.terminate();
    until("not ready", async || distributor.responds_with("/readyz", "awaiting: shutdown").await)
        .await;
    assert!(distributor.responds_with("/livez", "200 OK").await);
    // Two tasks hear of it, either one first.
    until("nobody listens any more", async || TcpStream::connect(&xds).await.is_err()).await;
    assert!(distributor.responds_with("/readyz", "awaiting: shutdown").await, "it has not ended");
    assert!(distributor.end().await.success(), "{}", distributor.log());
}

#[tokio::test]
async fn it_may_have_as_many_files_open_as_it_is_let() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap();
    let streams = format!("--max-streams={most}");
    let distributor =
        Distributor::start_after("ulimit -Sn 100;", Port::reserve().unwrap().number(), &[&streams]);
    until("it serves", async || distributor.responds_with("/livez", "200 OK").await).await;
    assert_eq!(distributor.metric("process_max_fds ").await, most);
    let log = distributor.log();
    assert!(log.contains(&format!("open_files={most}")), "{log}");
    assert!(!log.contains("--max-streams"), "{log}");

    // Soft and hard.
    let distributor =
        Distributor::start_after("ulimit -n 100;", Port::reserve().unwrap().number(), &[]);
    until("it serves", async || distributor.responds_with("/livez", "200 OK").await).await;
    let log = distributor.log();
    assert!(log.contains("open_files=100"), "{log}");
    let lines: Vec<_> = log.lines().filter(|line| line.contains("--max-streams=20000")).collect();
    assert!(lines.len() == 1 && lines[0].contains("WARN"), "{log}");
}

#[test]
fn what_is_missing_is_one_line() {
    let refused = |args: &[&str], expected: &str| {
        let Output { status, stderr, .. } = distributor().args(args).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(!status.success());
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    };
    let store = ["--store", "redis://127.0.0.1:1"];
    refused(&[], "--store");
    refused(&store, "helio store keys new");
    refused(&[&store[..], &["--store-keys", "/nowhere"]].concat(), "/nowhere");
    let same = ["--admin-address", "127.0.0.1:18000"];
    refused(&[&store[..], &same].concat(), "--xds-address");
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), &*heliograph_store::keys::KeyRing::generate("one").unwrap())
        .unwrap();
    let keys = ["--store-keys", keys.path().to_str().unwrap()];
    let nowhere = ["--snapshot-cache", "/proc/nowhere"];
    refused(&[&store[..], &keys, &nowhere].concat(), "--snapshot-cache");
}
