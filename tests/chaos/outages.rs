//! Redis is away, for some or for all, or does not take what it is given.

use crate::scene::fleet;
use crate::site::{Site, at_every_site};
use crate::world::{PENDING, World, comes_true};
use heliograph_testing::Stopwatch;
use std::time::Duration;

/// Two seconds between two comparisons, two until the next try to connect, and room for a busy machine.
const SOON: Duration = Duration::from_secs(10);
const COMMIT: &[u8] = b"{index}:bell";
const STALENESS: &str = "heliograph_store_staleness_seconds";

at_every_site! {
    a_leader_that_is_cut_off_publishes_each_change_once,
    a_commit_whose_answer_is_lost_is_one_version,
    replicas_that_are_cut_off_serve_what_they_have,
    an_idle_subscriber_catches_up_after_a_long_outage,
    without_the_doorbell_changes_arrive_within_a_comparison,
    a_redis_that_takes_no_writes_harms_no_reader_and_recovers,
}

async fn a_leader_that_is_cut_off_publishes_each_change_once(site: Site) {
    let mut world = site.world().await;
    let edge = fleet("edge");
    let before = world.log.published(&edge).len();
    let repairs = |world: &World| world.leader.metric("heliograph_translator_repairs_total");
    let repaired = repairs(&world);
    world.way.cut();
    for _ in 0..10 {
        world.change(|scene| scene.change_endpoints());
    }
    let failures = || world.leader.metric("heliograph_translator_store_failures_total");
    let first = failures();
    comes_true("it was tried several times", || failures() >= first + 3.0).await;
    site.fail_over().await;
    world.way.repair();
    world.settle().await;
    assert_once_each(&world, before);
    assert_eq!(repairs(&world), repaired);
    world.end().await;
}

async fn a_commit_whose_answer_is_lost_is_one_version(site: Site) {
    let mut world = site.world().await;
    let edge = fleet("edge");
    let before = world.log.published(&edge).len();
    world.way.lose_reply_to(COMMIT);
    let mark = world.mark();
    world.way.until_lost(1).await;
    world.until_marked(&[0, 1, 2], mark).await;
    let both = world.fleets();
    comes_true("the writer knows", || {
        both.iter().all(|fleet| world.log.published(fleet).len() > before)
    })
    .await;
    let asks =
        both.iter().map(|fleet| world.log.asks(world.log.newest(fleet).unwrap())).sum::<usize>();
    // The client of a Cluster asks again by itself.
    assert!(asks > 2 || site.is_cluster(), "one was asked for again");
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

async fn replicas_that_are_cut_off_serve_what_they_have(site: Site) {
    let mut world = site.world().await;
    world.replicas.iter().for_each(|replica| replica.way.cut());
    let (responses, lost) = (world.log.responses(None), world.lost_streams());
    world.churn(5);
    let stale = |world: &World| world.replicas.iter().all(|it| it.metric(STALENESS) > 3.0);
    comes_true("the gauge shows it", || stale(&world)).await;
    assert_eq!(world.log.responses(None), responses, "nobody is sent anything");
    site.fail_over().await;
    let old = world.envoys.len();
    (0..3).for_each(|replica| world.add_envoys(replica));
    for envoy in &world.envoys[old..] {
        envoy.until_warm().await;
    }
    assert_eq!(world.lost_streams(), lost, "no stream was dropped");
    assert!(world.replicas.iter().all(|replica| replica.is_ready()));
    world.replicas.iter().for_each(|replica| replica.way.repair());
    comes_true("the gauge shows it", || {
        world.replicas.iter().all(|replica| replica.metric(STALENESS) < 3.0)
    })
    .await;
    world.end().await;
}

/// As long as it takes for whoever gives up after some tries to have given up.
async fn an_idle_subscriber_catches_up_after_a_long_outage(site: Site) {
    let mut world = site.world().await;
    world.replicas.iter().for_each(|replica| replica.way.cut());
    for outage in site.outage() {
        comes_true("so much time has passed", || {
            world.replicas.iter().all(|replica| replica.metric(STALENESS) > outage.as_secs_f64())
        })
        .await;
    }
    site.fail_over().await;
    let mark = world.mark();
    comes_true("it is published", || world.leader.metric(PENDING) == 0.0).await;
    let repaired = Stopwatch::start();
    world.replicas.iter().for_each(|replica| replica.way.repair());
    world.until_marked(&[0, 1, 2], mark).await;
    assert!(repaired.elapsed() < SOON, "{:?}", repaired.elapsed());
    world.end().await;
}

async fn without_the_doorbell_changes_arrive_within_a_comparison(site: Site) {
    let mut world = site.world().await;
    // A message to a subscriber begins with this word, or in a Cluster with one that ends so.
    world.replicas.iter().for_each(|replica| replica.way.drop_replies_with(b"message\r\n"));
    for _ in 0..3 {
        let started = Stopwatch::start();
        world.settle().await;
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
    for replica in &world.replicas {
        replica.way.until_lost(1).await;
    }
    site.fail_over().await;
    world.end().await;
}

async fn a_redis_that_takes_no_writes_harms_no_reader_and_recovers(site: Site) {
    let mut world = site.world().await;

    site.configure("maxmemory", "1").await;
    until_writes_fail(&site, &mut world).await;
    site.configure("maxmemory", "0").await;
    world.settle().await;

    site.break_disks().await;
    until_writes_fail(&site, &mut world).await;
    site.repair_disks().await;
    world.settle().await;

    site.forbid_writes("edge").await;
    until_writes_fail(&site, &mut world).await;
    site.allow_writes().await;
    world.settle().await;
    world.end().await;
}

/// A change cannot be published, and all who read go on with what there is.
async fn until_writes_fail(site: &Site, world: &mut World) {
    let failed = |world: &World| world.leader.metric("heliograph_translator_store_failures_total");
    let before = failed(world);
    let (responses, lost) = (world.log.responses(None), world.lost_streams());
    world.mark();
    // Twice, so that it was tried again. Sentinels may have found another master by then, and the shard of a Cluster too.
    let least = if site.is_single() { before + 2.0 } else { before + 1.0 };
    comes_true("it fails", || failed(world) >= least).await;
    assert_eq!(world.log.responses(None), responses, "nobody is sent anything");
    world.add_envoys(0);
    for envoy in world.envoys.split_off(world.envoys.len() - 4) {
        envoy.until_warm().await;
    }
    assert_eq!(world.lost_streams(), lost, "no stream was dropped");
}
