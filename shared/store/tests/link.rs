//! A link to real servers, and everything that it has to survive.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod servers;

use futures::future::join_all;
use heliograph_store::redis::link::{
    ChannelListener, Link, LinkError, LinkErrorKind, ListenerEvent, RedisArgs, RedisSettings,
};
use redis::cmd;
use servers::{Certificates, Cluster, Proxy, Sentinels, Server, until, until_found};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn link(url: &str) -> Link {
    Link::new(settings(url))
}

fn settings(url: &str) -> RedisSettings {
    url.parse().unwrap()
}

/// Gives up on silent servers soon, and not on those of a busy machine.
fn hasty_link(url: &str) -> Link {
    Link::new(settings(url).with_timeouts(Duration::from_secs(2), Duration::from_secs(2)))
}

fn args(url: &str) -> RedisArgs {
    RedisArgs { store: Some(url.parse().unwrap()), ..RedisArgs::default() }
}

fn link_with(args: &RedisArgs) -> Link {
    Link::new(RedisSettings::from_args(args).unwrap())
}

async fn set(link: &Link, key: &str, value: &str) -> Result<(), LinkError> {
    link.query(cmd("SET").arg(key).arg(value)).await
}

async fn get(link: &Link, key: &str) -> Result<Option<String>, LinkError> {
    link.query(cmd("GET").arg(key)).await
}

async fn until_set(link: &Link, key: &str, value: &str) {
    until("a write succeeds", async || set(link, key, value).await.is_ok()).await;
}

/// The error that comes once everything else that is under way has passed.
async fn until_refused(link: &Link, kind: LinkErrorKind) -> LinkError {
    let refused = async || set(link, "key", "value").await.err().filter(|error| error.kind == kind);
    until_found(&format!("a write fails: {kind}"), refused).await
}

async fn next(listener: &mut ChannelListener) -> ListenerEvent {
    timeout(TEST_TIMEOUT, listener.next()).await.expect("nothing is heard")
}

async fn until_subscribed(listener: &mut ChannelListener) {
    while next(listener).await != ListenerEvent::Subscribed {}
}

/// A message may be lost, so it is sent until it arrives.
async fn until_received(listener: &mut ChannelListener, ring: impl AsyncFn()) {
    let received = async {
        loop {
            ring().await;
            let wait = timeout(Duration::from_millis(100), listener.next()).await;
            if wait == Ok(ListenerEvent::Message("flash".into())) {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, received).await.expect("nothing is heard");
}

async fn connections_made(server: &Server) -> u64 {
    let told = server.field(&["INFO", "stats"], "total_connections_received").await;
    told.unwrap().parse().unwrap()
}

#[tokio::test]
async fn many_who_come_at_once_share_one_connection() {
    let server = Server::start(&[]).await;
    let link = link(&server.url());
    let before = connections_made(&server).await;
    let answers = join_all((0..100).map(|_| set(&link, "key", "value"))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    // The other one is the question itself.
    assert_eq!(connections_made(&server).await - before, 2);
    assert_eq!(get(&link, "key").await.unwrap().as_deref(), Some("value"));
}

#[tokio::test]
async fn an_absent_server_is_told_of_at_once_and_used_when_it_comes() {
    let mut server = Server::start(&[]).await;
    server.stop();
    let link = link(&server.url());
    let error = set(&link, "key", "value").await.unwrap_err();
    let place = format!("Redis at 127.0.0.1:{} is away: ", server.port());
    assert!(error.to_string().starts_with(&place), "{error}");
    assert_eq!(error.kind, LinkErrorKind::Unavailable);
    assert!(!error.outcome_unknown);
    server.restart().await;
    until_set(&link, "key", "value").await;
}

#[tokio::test]
async fn a_restart_costs_the_commands_under_way_and_no_more() {
    let mut server = Server::start(&[]).await;
    let link = link(&server.url());
    set(&link, "key", "value").await.unwrap();
    server.restart_with_data().await;
    until("a read succeeds", async || {
        get(&link, "key").await.is_ok_and(|value| value.as_deref() == Some("value"))
    })
    .await;
}

#[tokio::test]
async fn after_a_silence_the_outcome_is_unknown() {
    let server = Server::start(&[]).await;
    let link = hasty_link(&server.url());
    set(&link, "key", "old").await.unwrap();
    server.pause();
    let error = set(&link, "key", "new").await.unwrap_err();
    assert!(error.outcome_unknown, "{error}");
    assert!(error.to_string().contains("no reply in time"), "{error}");
    // From here on it is known that nothing was sent.
    let error = set(&link, "other", "value").await.unwrap_err();
    assert!(!error.outcome_unknown, "{error}");
    server.resume();
    until_set(&link, "other", "value").await;
    assert_eq!(get(&link, "key").await.unwrap().as_deref(), Some("new"), "it was obeyed after all");
}

#[tokio::test]
async fn a_lost_reply_leaves_the_outcome_unknown() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::start(server.port()).await;
    let link = link(&proxy.url());
    set(&link, "key", "old").await.unwrap();
    proxy.lose_reply_to(b"new");
    let error = set(&link, "key", "new").await.unwrap_err();
    assert!(error.outcome_unknown, "{error}");
    proxy.until_lost(1).await;
    until("the link is back", async || get(&link, "key").await.is_ok()).await;
    assert_eq!(get(&link, "key").await.unwrap().as_deref(), Some("new"));
}

#[tokio::test]
async fn a_cut_or_silent_network_heals() {
    let server = Server::start(&[]).await;
    let proxy = Proxy::start(server.port()).await;
    let link = hasty_link(&proxy.url());
    set(&link, "key", "value").await.unwrap();
    proxy.cut();
    until_refused(&link, LinkErrorKind::Unavailable).await;
    proxy.repair();
    until_set(&link, "key", "value").await;
    proxy.stall();
    until_refused(&link, LinkErrorKind::Unavailable).await;
    proxy.repair();
    until_set(&link, "key", "value").await;
}

#[tokio::test]
async fn while_a_server_is_away_it_is_not_hammered() {
    let server = Server::start(&["requirepass right"]).await;
    let link = link(&format!("redis://:wrong@127.0.0.1:{}", server.port()));
    until_refused(&link, LinkErrorKind::Auth).await;
    let before = connections_made(&server).await;
    for _ in 0..1000 {
        set(&link, "key", "value").await.unwrap_err();
    }
    // It is tried again after 50 ms, 100 ms and so on; a thousand refusals take far less than a second.
    let tries = connections_made(&server).await - before;
    assert!(tries < 20, "{tries} tries");
}

#[tokio::test]
async fn a_wrong_password_is_told_of_and_mended_in_its_file() {
    let server = Server::start(&["requirepass right"]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let args = RedisArgs { store_password_file: Some(file.clone()), ..args(&server.url()) };
    let link = link_with(&args);
    let error = set(&link, "key", "value").await.unwrap_err();
    assert_eq!(error.kind, LinkErrorKind::Auth);
    assert!(error.to_string().contains(file.to_str().unwrap()), "{error}");

    fs::write(&file, "wrong-secret\n").unwrap();
    until("the file is read again", async || {
        let error = set(&link, "key", "value").await.unwrap_err();
        assert!(!error.to_string().contains("wrong-secret"), "{error}");
        assert_eq!(error.kind, LinkErrorKind::Auth, "{error}");
        error.to_string().contains("WRONGPASS")
    })
    .await;

    fs::write(&file, "right\n").unwrap();
    until_set(&link, "key", "value").await;
}

#[tokio::test]
async fn a_password_may_rotate() {
    let server = Server::start(&["user default off", "user ann on >first ~* &* +@all"]).await;
    let directory = tempfile::tempdir().unwrap();
    let [user, password] = ["user", "password"].map(|name| directory.path().join(name));
    fs::write(&user, "ann").unwrap();
    fs::write(&password, "first").unwrap();
    let link = link_with(&RedisArgs {
        store_username_file: Some(user),
        store_password_file: Some(password.clone()),
        ..args(&server.url())
    });
    set(&link, "key", "value").await.unwrap();

    server.query::<()>(&["ACL", "SETUSER", "ann", "resetpass", ">second"]).await.unwrap();
    fs::write(&password, "second").unwrap();
    server.query::<u64>(&["CLIENT", "KILL", "USER", "ann"]).await.unwrap();
    until_set(&link, "key", "value").await;
}

#[tokio::test]
async fn tls_with_a_client_certificate() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]).await;
    let link = link_with(&tls_args(&server, &certificates.ca(), &certificates));
    set(&link, "key", "value").await.unwrap();
    let mut listener = link.listen("bell");
    until_subscribed(&mut listener).await;
}

#[tokio::test]
async fn a_wrong_ca_is_reported_and_repaired_in_its_file() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    fs::copy(Certificates::new().ca(), &file).unwrap();
    let link = link_with(&tls_args(&server, &file, &certificates));
    let error = set(&link, "key", "value").await.unwrap_err();
    assert_eq!(error.kind, LinkErrorKind::Tls, "{error}");
    assert!(error.to_string().contains("--store-ca"), "{error}");
    fs::copy(certificates.ca(), &file).unwrap();
    until_set(&link, "key", "value").await;
}

#[tokio::test]
async fn a_missing_client_certificate_is_told_of() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]).await;
    let args = RedisArgs { store_ca: Some(certificates.ca()), ..args(&server.tls_url()) };
    let error = set(&link_with(&args), "key", "value").await.unwrap_err();
    assert_eq!(error.kind, LinkErrorKind::Tls, "{error}");
    assert!(error.to_string().contains("--store-cert"), "{error}");
}

fn tls_args(server: &Server, ca: &Path, certificates: &Certificates) -> RedisArgs {
    let (certificate, key) = certificates.client();
    RedisArgs {
        store_ca: Some(ca.to_owned()),
        store_cert: Some(certificate),
        store_key: Some(key),
        ..args(&server.tls_url())
    }
}

#[tokio::test]
async fn refusals_are_told_apart_and_cost_no_connection() {
    let lines = ["maxmemory 64mb", "save 3600 1", "user ann on >secret ~* &* +get +set"];
    let server = Server::start(&lines).await;
    let any = link(&server.url());
    let ann = link(&format!("redis://ann:secret@127.0.0.1:{}", server.port()));
    set(&any, "key", "value").await.unwrap();
    set(&ann, "key", "value").await.unwrap();
    let before = connections_made(&server).await;

    let denied = ann.query::<()>(cmd("DEL").arg("key")).await.unwrap_err();
    assert_eq!(denied.kind, LinkErrorKind::NoPermission, "{denied}");
    let script = "return redis.call('SET', KEYS[1], ARGV[1])";
    any.query::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg("1")).await.unwrap();
    let full =
        any.query::<()>(cmd("EVAL").arg(script).arg(1).arg("key").arg("x")).await.unwrap_err();
    assert_eq!(full.kind, LinkErrorKind::OutOfMemory, "{full}");
    let full = set(&any, "key", "value").await.unwrap_err();
    assert_eq!(full.kind, LinkErrorKind::OutOfMemory, "{full}");
    any.query::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg("0")).await.unwrap();
    set(&any, "key", "value").await.unwrap();
    // It is the question itself.
    assert_eq!(connections_made(&server).await - before, 1);

    server.break_disk().await;
    let disk = set(&any, "key", "value").await.unwrap_err();
    assert_eq!(disk.kind, LinkErrorKind::DiskFull, "{disk}");
    assert_eq!(get(&any, "key").await.unwrap().as_deref(), Some("value"));
    server.repair_disk().await;
    set(&any, "key", "value").await.unwrap();
    for error in [denied, full, disk] {
        assert!(!error.outcome_unknown, "{error}");
    }
}

#[tokio::test]
async fn a_replica_serves_reads_until_it_is_a_master_again() {
    let master = Server::start(&[]).await;
    let server = Server::start(&[]).await;
    let link = link(&server.url());
    set(&link, "key", "value").await.unwrap();
    let port = master.port().to_string();
    server.query::<()>(&["REPLICAOF", "127.0.0.1", &port]).await.unwrap();
    let error = until_refused(&link, LinkErrorKind::ReadOnly).await;
    assert!(error.to_string().contains("redis+sentinel"), "{error}");
    until("reads succeed", async || get(&link, "key").await.is_ok()).await;
    for _ in 0..100 {
        get(&link, "key").await.unwrap();
        set(&link, "key", "value").await.unwrap_err();
    }
    server.query::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    until_set(&link, "key", "value").await;
}

#[tokio::test]
async fn a_listener_hears_and_says_when_it_may_have_missed_something() {
    let mut server = Server::start(&[]).await;
    let proxy = Proxy::start(server.port()).await;
    let mut listener = hasty_link(&proxy.url()).listen("bell");
    assert_eq!(next(&mut listener).await, ListenerEvent::Subscribed);
    server.query::<u64>(&["PUBLISH", "bell", "flash"]).await.unwrap();
    assert_eq!(next(&mut listener).await, ListenerEvent::Message("flash".into()));

    server.restart().await;
    until_subscribed(&mut listener).await;

    // Nothing but silence.
    let before = proxy.accepted();
    proxy.stall();
    until("the listener tries again", async || proxy.accepted() > before).await;
    proxy.repair();
    until_subscribed(&mut listener).await;

    proxy.cut();
    until("the listener has gone", async || listeners(&server).await == 0).await;
    proxy.repair();
    until_subscribed(&mut listener).await;
    server.query::<u64>(&["PUBLISH", "bell", "flash"]).await.unwrap();
    assert_eq!(next(&mut listener).await, ListenerEvent::Message("flash".into()));

    drop(listener);
    until("the listener has gone", async || listeners(&server).await == 0).await;
}

async fn listeners(server: &Server) -> u64 {
    let (_, count): (String, u64) = server.query(&["PUBSUB", "NUMSUB", "bell"]).await.unwrap();
    count
}

#[tokio::test]
async fn a_listener_that_is_not_read_holds_little_and_goes_on() {
    let server = Server::start(&[]).await;
    let mut listener = link(&server.url()).listen("bell");
    assert_eq!(next(&mut listener).await, ListenerEvent::Subscribed);
    let mut connection = server.connect().await.unwrap();
    for _ in 0..100 {
        let mut many = redis::pipe();
        (0..100).for_each(|_| {
            many.cmd("PUBLISH").arg("bell").arg("storm").ignore();
        });
        many.query_async::<()>(&mut connection).await.unwrap();
    }
    let ring = async || {
        server.query::<u64>(&["PUBLISH", "bell", "flash"]).await.unwrap();
    };
    until_received(&mut listener, ring).await;
}

#[tokio::test]
async fn sentinels_lead_to_the_new_master() {
    let mut sentinels = Sentinels::start().await;
    let link = hasty_link(&sentinels.url());
    let mut listener = link.listen("bell");
    until_subscribed(&mut listener).await;
    set(&link, "key", "value").await.unwrap();

    sentinels.fail_over().await;
    until_set(&link, "key", "by the second").await;
    let master = sentinels.master().await;
    assert_eq!(master.query::<String>(&["GET", "key"]).await.unwrap(), "by the second");

    sentinels.kill_master().await;
    until_set(&link, "key", "by the third").await;
    let master = sentinels.master().await;
    assert_eq!(master.query::<String>(&["GET", "key"]).await.unwrap(), "by the third");
    let ring = async || {
        master.query::<u64>(&["PUBLISH", "bell", "flash"]).await.unwrap();
    };
    until_received(&mut listener, ring).await;
}

#[tokio::test]
async fn sentinels_may_have_a_password_and_the_user_few_rights() {
    let user = "user ann on >secret ~* &* -@all +get +set +subscribe +ping";
    let sentinels = Sentinels::start_with(&[user], &["requirepass hush"]).await;
    let url = sentinels.url().replace("//", "//ann:secret@");
    let error = set(&link(&url), "key", "value").await.unwrap_err();
    assert_eq!(error.kind, LinkErrorKind::Auth, "{error}");
    assert!(error.to_string().starts_with("the Sentinel at 127.0.0.1"), "{error}");
    assert!(error.to_string().contains("--store-sentinel-password-file"), "{error}");

    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "hush").unwrap();
    let store_sentinel_password_file = Some(file.path().to_owned());
    let link = link_with(&RedisArgs { store_sentinel_password_file, ..args(&url) });
    set(&link, "key", "value").await.unwrap();
    until_subscribed(&mut link.listen("bell")).await;

    let unknown = url.replace("heliograph", "nobody");
    let args =
        RedisArgs { store_sentinel_password_file: Some(file.path().to_owned()), ..args(&unknown) };
    let error = set(&link_with(&args), "key", "value").await.unwrap_err();
    assert!(error.to_string().contains("knows no master \"nobody\""), "{error}");
}

#[tokio::test]
async fn a_cluster_goes_on_after_a_failover() {
    let mut cluster = Cluster::start().await;
    let link = link(&cluster.url());
    let mut listener = link.listen("bell");
    until_subscribed(&mut listener).await;
    let keys: Vec<_> = (0..100).map(|number| format!("key{number}")).collect();
    let written = join_all(keys.iter().map(|key| set(&link, key, "value"))).await;
    assert!(written.iter().all(Result::is_ok), "{written:?}");
    until_received(&mut listener, async || ring_shard(&link).await).await;

    let owner = cluster.master_of("key").await.port();
    let other = cluster.nodes.iter().find(|node| node.port() != owner).unwrap();
    let error = set(&Link::new(settings(&other.url())), "key", "value").await.unwrap_err();
    assert!(error.to_string().contains("is a Cluster"), "{error}");

    cluster.fail_over("bell").await;
    for key in &keys {
        until_set(&link, key, "second").await;
    }
    until_received(&mut listener, async || ring_shard(&link).await).await;

    cluster.kill_master_of("bell").await;
    for key in &keys {
        until_set(&link, key, "third").await;
    }
    until_received(&mut listener, async || ring_shard(&link).await).await;
}

async fn ring_shard(link: &Link) {
    let _ = link.query::<u64>(cmd("SPUBLISH").arg("bell").arg("flash")).await;
}

#[tokio::test]
async fn a_dead_shard_does_not_stop_the_others() {
    let mut cluster = Cluster::start_with(&["cluster-require-full-coverage no"]).await;
    let link = link(&cluster.url());
    set(&link, "key", "value").await.unwrap();
    let dead = cluster.master_of("key").await.port();
    let elsewhere = "b";
    assert_ne!(cluster.master_of(elsewhere).await.port(), dead);
    // Master and replica, so that no node takes over.
    let index = cluster.nodes.iter().position(|node| node.port() == dead).unwrap();
    let nodes = cluster.nodes.len();
    for index in [index, (index + nodes / 2) % nodes] {
        cluster.nodes[index].stop();
    }
    until_set(&link, elsewhere, "value").await;
    for _ in 0..20 {
        let (lost, kept) = tokio::join!(set(&link, "key", "value"), set(&link, elsewhere, "value"));
        lost.unwrap_err();
        kept.unwrap();
    }
}

#[tokio::test]
async fn a_cluster_user_needs_few_rights() {
    let user = "user ann on >secret ~* &* -@all +get +set +ssubscribe +ping +cluster|slots";
    let cluster = Cluster::start_with(&[user]).await;
    let link = link(&cluster.url().replace("//", "//ann:secret@"));
    set(&link, "key", "value").await.unwrap();
    until_subscribed(&mut link.listen("bell")).await;
    let stranger = link_with(&args(&cluster.url().replace("//", "//ann:wrong@")));
    let error = set(&stranger, "key", "value").await.unwrap_err();
    assert_eq!(error.kind, LinkErrorKind::Auth, "{error}");
}
