//! A reader that starts while Redis is away, or with little to ask of it.

mod files;
mod reader;
mod site;

use crate::raw::Raw;
use crate::servers::{Proxy, Server, until};
use crate::world::{Keys, Leader, Program, cluster, fleet, next_update, secret, set, until_at};
use heliograph_snapshot::{FleetName, ResourceType};
use heliograph_store::keys::KeyRing;
use heliograph_store::{PinState, Publication, Reader as _, Subscription, Update};
use reader::{Disk, Reader};
use site::{Site, at_every_site};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const UNCONFIRMED: &str = "cache_unconfirmed_fleets";

/// A leader with a fleet at its second head, and a disk of a reader that knew it.
struct Scene<S = Server> {
    server: S,
    keys: Keys,
    disk: Disk,
    leader: Leader,
    one: FleetName,
}

impl Scene {
    async fn new() -> Self {
        Self::at(Server::start(&[]).await).await
    }
}

impl<S: Site> Scene<S> {
    async fn at(server: S) -> Self {
        let (keys, disk) = (Keys::new(), Disk::new());
        let mut leader = Program::open(&server.url(), &keys).lead(1).await;
        let one = fleet("one");
        for body in ["first", "second"] {
            leader.publish(&one, [cluster(body)]).await.unwrap();
        }
        let mut reader = disk.open(&server.url(), &keys);
        reader.start().await;
        reader.end_with(1).await;
        Self { server, keys, disk, leader, one }
    }

    fn open(&self) -> Reader {
        self.disk.open(&self.server.url(), &self.keys)
    }

    async fn open_and_start(&self) -> Reader {
        let mut reader = self.open();
        assert_eq!(reader.start().await.len(), 1);
        reader
    }

    /// A reader that begins with what is on its disk.
    async fn started_without_redis(&self) -> Reader {
        let mut reader = self.open();
        let found = reader.start().await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[&self.one].head, self.leader.head(2));
        assert!(found[&self.one].same_content(&self.leader.held[&self.one]));
        assert!(reader.program.store.is_unconfirmed(&self.one));
        assert_eq!(reader.program.metric(UNCONFIRMED), 1);
        let served = reader.program.store.snapshot_cache().served().unwrap();
        assert_eq!(served.fleets, 1);
        assert!(served.age.unwrap() < Duration::from_secs(60), "{served:?}");
        reader
    }
}

at_every_site! {
    a_start_while_redis_is_gone,
    a_start_while_redis_is_empty,
    a_start_while_redis_has_gone_back,
    a_start_after_redis_and_the_leader_lost_a_rollback,
}

async fn a_start_while_redis_is_gone(site: impl Site) {
    let mut scene = Scene::at(site).await;
    scene.server.stop_all().await;
    let mut reader = scene.started_without_redis().await;
    // It has nothing new to say when it is back, and is asked for nothing but heads.
    scene.server.start_again().await;
    reader.until("Redis has confirmed it", |it| it.metric(UNCONFIRMED) == 0).await;
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
    assert_eq!(reader.program.store.snapshot_cache().served(), None);
    assert_eq!(reader.program.metric("objects_total{direction=\"read\"}"), 0);
    // From here on it is as any other.
    let mut leader = Program::open(&scene.server.url(), &scene.keys).lead(2).await;
    leader.publish(&scene.one, [cluster("third")]).await.unwrap();
    until_at(&mut reader.subscription, leader.head(3)).await;
}

#[tokio::test]
async fn a_start_while_redis_does_not_answer() {
    let mut scene = Scene::new().await;
    let way = Proxy::start(scene.server.port()).await;
    way.stall();
    let started = Instant::now();
    let mut reader = scene.disk.open(&way.url(), &scene.keys);
    assert_eq!(reader.start().await.len(), 1);
    assert!(started.elapsed() >= Duration::from_secs(2), "Redis has a moment to answer");
    assert!(reader.program.store.is_unconfirmed(&scene.one));
    scene.leader.publish(&scene.one, [cluster("third")]).await.unwrap();
    way.repair();
    until_at(&mut reader.subscription, scene.leader.head(3)).await;
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
}

/// It may be that the translator has not published again yet, or that none runs.
async fn a_start_while_redis_is_empty(site: impl Site) {
    let mut scene = Scene::at(site).await;
    scene.server.empty().await;
    let mut reader = scene.started_without_redis().await;
    reader.receives_nothing().await;
    assert!(reader.program.store.is_unconfirmed(&scene.one), "an empty Redis confirms nothing");
    scene.leader.repair().await.unwrap();
    until_at(&mut reader.subscription, scene.leader.head(3)).await;
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
}

/// A failover lost the last write, and the reader that knew of it was started again.
async fn a_start_while_redis_has_gone_back(site: impl Site) {
    let mut scene = Scene::at(site).await;
    scene.server.empty().await;
    let mut other = Program::open(&scene.server.url(), &scene.keys).lead(1).await;
    other.publish(&scene.one, [cluster("first")]).await.unwrap();
    let mut reader = scene.started_without_redis().await;
    let older = "refused_records_total{reason=\"older\"}";
    reader.until("what is older is refused", |it| it.metric(older) == 1).await;
    assert!(reader.program.store.is_unconfirmed(&scene.one));
    scene.leader.repair().await.unwrap();
    until_at(&mut reader.subscription, scene.leader.head(3)).await;
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
}

/// Only this reader still knows of the order, and it has been restarted since.
async fn a_start_after_redis_and_the_leader_lost_a_rollback(site: impl Site) {
    let mut scene = Scene::at(site).await;
    let ordered = |draft: Publication, number| {
        let pin = PinState { number, ..PinState::default() };
        Publication { pin, ..draft }
    };
    let held = scene.leader.draft(&scene.one, [cluster("held")]);
    scene.leader.send(ordered(held, 7)).await.unwrap();
    let mut reader = scene.open();
    reader.start().await;
    reader.end_with(1).await;
    scene.server.empty().await;
    let mut next = Program::open(&scene.server.url(), &scene.keys).lead(2).await;
    next.publish(&scene.one, [cluster("undone")]).await.unwrap();

    let mut reader = scene.open();
    assert_eq!(reader.start().await[&scene.one].head, scene.leader.head(3));
    let unordered = "refused_records_total{reason=\"unordered\"}";
    reader.until("it is refused", |it| it.metric(unordered) == 1).await;
    assert!(reader.program.store.is_unconfirmed(&scene.one));
    let remembered = reader.subscription.remembered();
    assert_eq!(
        remembered.iter().map(|it| it.pin.number).collect::<Vec<_>>(),
        [7],
        "for the leader"
    );

    let released = next.draft(&scene.one, [cluster("released")]);
    next.send(ordered(released, 8)).await.unwrap();
    until_at(&mut reader.subscription, next.head(2)).await;
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
}

/// The tombstone is lost with the rest, and Redis changes no more: the translator has to be told what became of the fleet.
#[tokio::test]
async fn a_fleet_that_redis_lost_is_reported_although_nothing_changes() {
    let scene = Scene::new().await;
    scene.server.query::<()>(&["FLUSHALL"]).await.unwrap();
    let mut next = Program::open(&scene.server.url(), &scene.keys).lead(2).await;
    next.publish(&fleet("two"), [cluster("first")]).await.unwrap();
    let mut reader = scene.open();
    assert_eq!(reader.start().await.len(), 2, "one from Redis, one from the disk");
    reader.receives_nothing().await;
    let remembered = reader.subscription.remembered();
    let fleets: Vec<_> = remembered.iter().map(|record| &record.fleet).collect();
    assert_eq!(fleets, [&scene.one]);
}

/// What cannot be read is no reason to refuse what Redis has.
#[tokio::test]
async fn a_start_while_redis_has_gone_back_and_the_disk_is_damaged() {
    let scene = Scene::new().await;
    scene.server.query::<()>(&["FLUSHALL"]).await.unwrap();
    let mut other = Program::open(&scene.server.url(), &scene.keys).lead(1).await;
    other.publish(&scene.one, [cluster("first")]).await.unwrap();
    std::fs::write(scene.disk.file(), "damaged").unwrap();
    let mut reader = scene.open();
    let started = reader.start().await;
    assert!(started.is_empty(), "told with the next comparison");
    until_at(&mut reader.subscription, other.head(1)).await;
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
}

#[tokio::test]
async fn a_fleet_that_was_retired_meanwhile_is_gone_from_the_disk() {
    let mut scene = Scene::new().await;
    scene.leader.retire(&scene.one, SystemTime::now()).await.unwrap();
    let mut reader = scene.open();
    assert!(reader.start().await.is_empty());
    assert_eq!(reader.program.store.snapshot_cache().served(), None);
    until("its file is gone", async || scene.disk.files().is_empty()).await;

    // The same for one that it knew.
    let two = fleet("two");
    scene.leader.publish(&two, [cluster("first")]).await.unwrap();
    until_at(&mut reader.subscription, scene.leader.head(1)).await;
    until("it has a file", async || scene.disk.files().len() == 1).await;
    scene.leader.retire(&two, SystemTime::now()).await.unwrap();
    assert!(matches!(next_update(&mut reader.subscription).await, Update::Retired(..)));
    until("its file is gone", async || scene.disk.files().is_empty()).await;
}

/// Redis has the fleet's tombstone when it is back: the reader reads it and takes the fleet away.
#[tokio::test]
async fn a_fleet_that_was_retired_while_the_reader_had_no_redis_goes() {
    let mut scene = Scene::new().await;
    let way = Proxy::start(scene.server.port()).await;
    way.cut();
    let mut reader = scene.disk.open(&way.url(), &scene.keys);
    assert_eq!(reader.start().await.len(), 1);
    scene.leader.retire(&scene.one, SystemTime::now()).await.unwrap();
    way.repair();
    assert!(matches!(next_update(&mut reader.subscription).await, Update::Retired(..)));
    assert!(!reader.program.store.is_unconfirmed(&scene.one));
    until("its file is gone", async || scene.disk.files().is_empty()).await;
}

/// Nothing newer is loaded of it, so its head alone must do.
#[tokio::test]
async fn a_fleet_that_was_dropped_from_memory_is_confirmed_by_redis() {
    let mut scene = Scene::new().await;
    let way = Proxy::start(scene.server.port()).await;
    way.cut();
    let mut reader = scene.disk.open(&way.url(), &scene.keys);
    reader.subscription = Subscription::choosing(Arc::new(reader.program.store.clone()));
    let newest = scene.leader.head(3);
    loop {
        match next_update(&mut reader.subscription).await {
            Update::Known(record) if record.head == newest => break,
            Update::Known(record) => reader.subscription.keep(&record.fleet),
            Update::Published(snapshot, _) => {
                reader.subscription.release(&snapshot.fleet);
                assert!(reader.program.store.is_unconfirmed(&snapshot.fleet));
                scene.leader.publish(&scene.one, [cluster("third")]).await.unwrap();
                way.repair();
            }
            Update::Listed | Update::Synced => {}
            other => panic!("{other:?}"),
        }
    }
    reader.until("Redis has confirmed it", |it| it.metric(UNCONFIRMED) == 0).await;
    assert_eq!(reader.program.store.snapshot_cache().served(), None);
}

/// That a file is sealed again does not mean that somebody is served what is in it.
#[tokio::test]
async fn a_fleet_whose_file_is_sealed_again_is_confirmed_by_redis() {
    let mut scene = Scene::new().await;
    let tls = secret(&scene.leader.store, "tls", b"a private key");
    scene.leader.publish(&scene.one, [tls]).await.unwrap();
    let mut reader = scene.open();
    reader.start().await;
    reader.end_with(1).await;
    scene.server.query::<()>(&["FLUSHALL"]).await.unwrap();
    let mut reader = scene.open();
    reader.subscription = Subscription::choosing(Arc::new(reader.program.store.clone()));
    while !matches!(next_update(&mut reader.subscription).await, Update::Synced) {}
    assert!(reader.program.store.is_unconfirmed(&scene.one));

    scene.keys.write(&KeyRing::rotate(&scene.keys.text(), "later").unwrap());
    let two = fleet("two");
    let is_sealed =
        |_: &Program| scene.disk.everything().windows(5).any(|window| window == b"later");
    let mut next = Program::open(&scene.server.url(), &scene.keys).lead(2).await;
    // The writer has something to do then, and finds the newer key.
    next.publish(&two, [cluster("first")]).await.unwrap();
    assert!(matches!(next_update(&mut reader.subscription).await, Update::Known(_)));
    reader.subscription.keep(&two);
    until_at(&mut reader.subscription, next.head(1)).await;
    reader.until("it is sealed again", is_sealed).await;

    next.publish(&scene.one, [cluster("newer")]).await.unwrap();
    assert!(matches!(next_update(&mut reader.subscription).await, Update::Known(_)));
    reader.until("Redis has confirmed it", |it| it.metric(UNCONFIRMED) == 0).await;
}

#[tokio::test]
async fn a_start_with_a_thousand_unchanged_fleets_reads_heads_alone() {
    const FLEETS: usize = 1_000;
    let (server, keys, disk) = (Server::start(&[]).await, Keys::new(), Disk::new());
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    for number in 0..FLEETS {
        let body = set(ResourceType::Route, "table", "x".repeat(2_000));
        let one = fleet(&number.to_string());
        leader.publish(&one, [cluster(&number.to_string()), body]).await.unwrap();
    }
    let mut reader = disk.open(&server.url(), &keys);
    assert_eq!(reader.start().await.len(), FLEETS);
    // The writer rests four times as long as a write takes, so a busy machine gets time for each hundred.
    for written in (100..=FLEETS as u64).step_by(100) {
        reader.until("a hundred more are written", |it| it.metric("cache_fleets") >= written).await;
    }
    reader.end_with(FLEETS as u64).await;

    let mut raw = Raw::of(&server).await;
    raw.ask::<()>("CONFIG", "RESETSTAT").await;
    let mut reader = disk.open(&server.url(), &keys);
    let found = reader.start().await;
    assert_eq!(found.len(), FLEETS);
    for (fleet, snapshot) in &found {
        assert!(snapshot.same_content(&leader.held[fleet]), "{fleet}");
    }
    assert_eq!(reader.program.metric("objects_total{direction=\"read\"}"), 0);
    assert_eq!(reader.program.metric(UNCONFIRMED), 0);
    let stats: String = raw.ask("INFO", "commandstats").await;
    assert!(!stats.contains("cmdstat_hmget"), "objects were asked for: {stats}");
    assert!(stats.contains("cmdstat_mget"), "{stats}");

    // One change is one change, also for who starts with the rest on its disk.
    reader.end_with(FLEETS as u64).await;
    let seven = fleet("7");
    leader.publish(&seven, [cluster("changed")]).await.unwrap();
    let mut reader = disk.open(&server.url(), &keys);
    let found = reader.start().await;
    assert!(found[&seven].same_content(&leader.held[&seven]));
    let objects = reader.program.metric("objects_total{direction=\"read\"}");
    assert_eq!(objects, 1, "the leaf that changed");
}
