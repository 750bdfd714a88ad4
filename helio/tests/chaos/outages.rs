//! Redis is away, for some or for all, or does not take what it is given.

use crate::scene::fleet;
use crate::servers::Server;
use crate::world::{World, comes_true};
use std::time::{Duration, Instant};

/// Two seconds between two comparisons, two until the next try to connect, and room for a busy machine.
const SOON: Duration = Duration::from_secs(10);
const COMMIT: &[u8] = b"{index}:bell";
const PENDING: &str = "heliograph_translator_pending_fleets";
const STALENESS: &str = "heliograph_store_staleness_seconds";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_publishes_each_change_once() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    let edge = fleet("edge");
    let before = world.log.published(&edge).len();
    world.way().cut();
    for _ in 0..10 {
        world.tell(|scene| scene.change_endpoints());
    }
    let failures = || world.leader.metric("heliograph_translator_store_failures_total");
    let first = failures();
    comes_true("it was tried several times", || failures() >= first + 3.0).await;
    world.way().mend();
    world.settle().await;
    assert_once_each(&world, before);
    assert_eq!(world.leader.metric("heliograph_translator_repairs_total"), 0.0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_one_version() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    let edge = fleet("edge");
    let before = world.log.published(&edge).len();
    world.way().lose_reply_to(COMMIT);
    let mark = world.mark();
    world.way().until_lost(1).await;
    world.until_marked(&[0, 1, 2], mark).await;
    let both = world.fleets();
    comes_true("the writer knows", || {
        both.iter().all(|fleet| world.log.published(fleet).len() > before)
    })
    .await;
    let asks =
        both.iter().map(|fleet| world.log.asks(world.log.newest(fleet).unwrap())).sum::<usize>();
    assert!(asks > 2, "one was asked for again");
    assert_once_each(&world, before);
    world.end().await;
}

/// One change of each fleet was published since there were `before` of them, and without a gap.
#[track_caller]
fn assert_once_each(world: &World, before: usize) {
    for fleet in world.fleets() {
        let published: Vec<_> = world.log.published(&fleet).into_iter().collect();
        let since = &published[before.saturating_sub(1)..];
        assert!(since.len() > 1, "{fleet}: nothing was published");
        for pair in since.windows(2) {
            assert_ne!(pair[0].1, pair[1].1, "{fleet}: {} says nothing new", pair[1].0);
            assert_eq!(pair[0].0.sequence + 1, pair[1].0.sequence, "{fleet}: there is a gap");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_cut_off_serve_what_they_have() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    world.replicas.iter().for_each(|replica| replica.way().cut());
    let responses = world.log.responses(None);
    world.churn(5);
    let stale = |world: &World| world.replicas.iter().all(|it| it.metric(STALENESS) > 3.0);
    comes_true("the gauge shows it", || stale(&world)).await;
    assert_eq!(world.log.responses(None), responses, "nobody is sent anything");
    let old = world.envoys.len();
    (0..3).for_each(|replica| world.add_envoys(replica));
    for envoy in &world.envoys[old..] {
        envoy.until_warm().await;
    }
    assert!(world.envoys.iter().all(|envoy| envoy.is_connected()), "no stream was dropped");
    assert!(world.replicas.iter().all(|replica| replica.is_ready()));
    world.replicas.iter().for_each(|replica| replica.way().mend());
    comes_true("the gauge shows it", || {
        world.replicas.iter().all(|replica| replica.metric(STALENESS) < 3.0)
    })
    .await;
    world.end().await;
}

/// As long as it takes for whoever gives up after some tries to have given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_subscriber_catches_up_after_a_long_outage() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    world.replicas.iter().for_each(|replica| replica.way().cut());
    for seconds in [20.0, 40.0, 60.0] {
        comes_true("so many seconds have passed", || {
            world.replicas.iter().all(|replica| replica.metric(STALENESS) > seconds)
        })
        .await;
    }
    let mark = world.mark();
    comes_true("it is published", || world.leader.metric(PENDING) == 0.0).await;
    let mended = Instant::now();
    world.replicas.iter().for_each(|replica| replica.way().mend());
    world.until_marked(&[0, 1, 2], mark).await;
    assert!(mended.elapsed() < SOON, "{:?}", mended.elapsed());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_doorbell_changes_arrive_within_a_comparison() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    // What a subscriber is told begins with this word.
    world.replicas.iter().for_each(|replica| replica.way().drop_replies_with(b"$7\r\nmessage"));
    for _ in 0..3 {
        let started = Instant::now();
        world.settle().await;
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
    for replica in &world.replicas {
        replica.way().until_lost(1).await;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_takes_no_writes_harms_no_reader_and_recovers() {
    let server = Server::start(&["save 3600 1"]).await;
    let mut world = World::over(&server).await;

    server.query::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    until_writes_fail(&mut world).await;
    server.query::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    world.settle().await;

    server.break_disk().await;
    until_writes_fail(&mut world).await;
    server.mend_disk().await;
    world.settle().await;

    // As what was the master before a failover. Nobody listens at this port.
    server.query::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
    until_writes_fail(&mut world).await;
    server.query::<()>(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    world.settle().await;
    world.end().await;
}

/// A change cannot be published, and all who read go on with what there is.
async fn until_writes_fail(world: &mut World) {
    let failed = |world: &World| world.leader.metric("heliograph_translator_store_failures_total");
    let before = failed(world);
    let responses = world.log.responses(None);
    world.mark();
    comes_true("it fails", || failed(world) > before + 1.0).await;
    assert_eq!(world.log.responses(None), responses, "nobody is sent anything");
    world.add_envoys(0);
    for envoy in world.envoys.split_off(world.envoys.len() - 4) {
        envoy.until_warm().await;
    }
    assert!(world.envoys.iter().all(|envoy| envoy.is_connected()), "no stream was dropped");
}
