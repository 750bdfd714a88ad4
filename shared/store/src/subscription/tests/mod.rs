//! The faults that no store at hand produces: all else is in the contract that every store keeps.

mod choosing;
mod faulty;

use self::faulty::{Fault, Faulty, HoldPoint};
use super::scheduler::{BACKOFF, LOADS, START_ATTEMPTS};
use super::*;
use crate::{
    Inspector, Loaded, Notice, PinState, Publication, Record, Retirement, State, StoreError, Writer,
};
use bytes::Bytes;
use futures::FutureExt;
use heliograph_snapshot::{Change, Resource, ResourceType};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

struct Bench {
    store: Arc<Faulty>,
    subscription: Subscription,
    sequence: u64,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::new(Faulty::default());
        Self { subscription: Subscription::new(store.clone()), store, sequence: 0 }
    }

    /// Begins anew, with what is published by now as the start.
    fn subscribe(&mut self) {
        self.subscription = Subscription::new(self.store.clone());
    }

    /// Publishes a cluster and a secret.
    async fn publish(&mut self, name: &str) -> Head {
        self.publish_types(name, &[ResourceType::Cluster, ResourceType::Secret]).await
    }

    async fn publish_types(&mut self, name: &str, kinds: &[ResourceType]) -> Head {
        self.sequence += 1;
        let head = Head { epoch: 0, fence: 1, sequence: self.sequence };
        let fleet = fleet(name);
        let body = Bytes::from(head.to_string());
        let resource = Arc::new(Resource::new("resource", body));
        let changes = kinds.iter().map(|kind| Change::Set(*kind, resource.clone()));
        let snapshot = Arc::new(Snapshot::empty(fleet.clone()).with(head, changes));
        let expected = self.expected(&fleet).await;
        // Endpoints alone are no step, and so cannot be loaded any more when they are replaced.
        let held = (kinds == [ResourceType::Endpoints]).then(|| snapshot.clone());
        let publication = Publication {
            snapshot,
            expected,
            held,
            time: SystemTime::UNIX_EPOCH,
            cause: "test".into(),
            pin: PinState::default(),
        };
        self.store.inner.publish(publication).await.unwrap();
        head
    }

    async fn retire(&mut self, name: &str) -> Head {
        self.sequence += 1;
        let fleet = fleet(name);
        let tombstone = Head { epoch: 0, fence: 1, sequence: self.sequence };
        let expected = self.expected(&fleet).await;
        let (time, cause) = (SystemTime::UNIX_EPOCH, "test".into());
        let retirement = Retirement { fleet, tombstone, expected, time, cause, order: 0 };
        self.store.inner.retire(retirement).await.unwrap();
        tombstone
    }

    async fn expected(&self, fleet: &FleetName) -> Option<Head> {
        let found = self.store.inner.inspect(vec![fleet.clone()]).await.unwrap();
        found.heads.get(fleet).copied()
    }

    /// The next update in short. The clock jumps ahead while all wait, so this does not take long.
    async fn next(&mut self) -> String {
        let update = tokio::time::timeout(Duration::from_secs(60), self.subscription.next()).await;
        in_short(&update.expect("no update came"))
    }

    /// Lets the subscription work until it waits; it must not yield.
    fn expect_nothing(&mut self) {
        let update = self.subscription.next().now_or_never();
        assert!(update.is_none(), "{update:?}");
    }

    /// Lets the subscription work for a while; it must not yield.
    async fn expect_nothing_for(&mut self, seconds: u64) {
        let waiting = self.subscription.next();
        let update = tokio::time::timeout(Duration::from_secs(seconds), waiting).await;
        assert!(update.is_err(), "{update:?}");
    }
}

fn record(name: &str, sequence: u64) -> Arc<Record> {
    Arc::new(Record {
        fleet: fleet(name),
        head: Head { epoch: 0, fence: 1, sequence },
        state: State::Live(BTreeMap::new()),
        time: SystemTime::UNIX_EPOCH,
        cause: "test".into(),
        pin: PinState::default(),
        bytes: 0,
        partly_sealed: std::collections::BTreeSet::new(),
        has_unknown_types: false,
    })
}

fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

fn published(name: &str, head: Head) -> String {
    format!("default/{name} {head} with 2")
}

fn in_short(update: &Update) -> String {
    match update {
        Update::Published(snapshot, _) => {
            let sizes = ResourceType::ALL.map(|kind| snapshot.tree(kind).len());
            format!("{} {} with {}", snapshot.fleet, snapshot.head, sizes.iter().sum::<usize>())
        }
        Update::Retired(fleet, head) => format!("{fleet} {head} retired"),
        Update::Synced => "synced".to_owned(),
        Update::Known(record) => format!("{} {} known", record.fleet, record.head),
        Update::Listed => "listed".to_owned(),
        Update::Failed(fleet, error) => format!("{fleet} failed: {error}"),
    }
}

fn damaged(name: &str) -> Fault {
    Fault::Fails(StoreError::Damaged { fleet: fleet(name), reason: "an object is missing".into() })
}

fn away() -> Fault {
    Fault::Fails(StoreError::Unavailable("the store is away".into()))
}

#[tokio::test(start_paused = true)]
async fn a_damaged_fleet_holds_up_nobody_and_comes_once_it_is_mended() {
    let mut bench = Bench::new();
    let (bad, good) = (bench.publish("bad").await, bench.publish("good").await);
    bench.subscribe();
    bench.store.break_fleet(fleet("bad"), damaged("bad"));
    assert_eq!(bench.next().await, published("good", good));
    assert_eq!(bench.next().await, "synced");
    assert_eq!(bench.subscription.damaged(), 1);
    bench.expect_nothing_for(30).await;
    let tries = bench.store.loading.borrow().begun;
    assert!((5..60).contains(&tries), "{tries} loads in half a minute");
    bench.store.repair();
    assert_eq!(bench.next().await, published("bad", bad));
    assert_eq!(bench.subscription.damaged(), 0);
    bench.expect_nothing_for(30).await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_snapshot_does_not_wait_for_the_retry_of_a_damaged_one() {
    let mut bench = Bench::new();
    let first = bench.publish("one").await;
    bench.subscribe();
    assert_eq!(bench.next().await, published("one", first));
    assert_eq!(bench.next().await, "synced");
    bench.store.break_fleet(fleet("one"), damaged("one"));
    bench.publish("one").await;
    bench.expect_nothing_for(30).await;
    assert_eq!(bench.subscription.damaged(), 1);
    bench.store.repair();
    let third = bench.publish("one").await;
    let begun = Instant::now();
    assert_eq!(bench.next().await, published("one", third));
    assert!(begun.elapsed() < BACKOFF.first);
    assert_eq!(bench.store.loading.borrow().known, Some(first), "to build on");
    assert_eq!(bench.subscription.damaged(), 0);
}

#[tokio::test(start_paused = true)]
async fn damage_is_known_as_such_though_newer_snapshots_keep_coming() {
    let mut bench = Bench::new();
    bench.publish("one").await;
    bench.subscribe();
    bench.store.break_fleet(fleet("one"), damaged("one"));
    bench.expect_nothing();
    bench.publish("one").await;
    assert_eq!(
        bench.subscription.next().now_or_never().as_ref().map(in_short),
        Some("synced".into())
    );
    assert_eq!(bench.subscription.damaged(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_fleet_that_is_retired_is_no_longer_tried() {
    let mut bench = Bench::new();
    let first = bench.publish("one").await;
    bench.subscribe();
    assert_eq!(bench.next().await, published("one", first));
    assert_eq!(bench.next().await, "synced");
    bench.store.break_fleet(fleet("one"), damaged("one"));
    bench.publish("one").await;
    bench.expect_nothing_for(10).await;
    let tombstone = bench.retire("one").await;
    assert_eq!(bench.next().await, format!("default/one {tombstone} retired"));
    assert_eq!(bench.subscription.damaged(), 0);
    let tries = bench.store.loading.borrow().begun;
    bench.expect_nothing_for(30).await;
    assert_eq!(bench.store.loading.borrow().begun, tries);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_waited_for_and_damages_nothing() {
    let mut bench = Bench::new();
    let one = bench.publish("one").await;
    bench.subscribe();
    bench.store.break_fleet(fleet("one"), away());
    bench.expect_nothing_for(1).await;
    assert_eq!(bench.subscription.damaged(), 0);
    bench.store.repair();
    assert_eq!(bench.next().await, published("one", one));
    assert_eq!(bench.next().await, "synced");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_whose_loads_never_get_through_does_not_hold_up_the_start_for_ever() {
    let mut bench = Bench::new();
    bench.publish("one").await;
    bench.subscribe();
    bench.store.break_fleet(fleet("one"), away());
    assert_eq!(bench.next().await, "synced");
    assert_eq!(bench.store.loading.borrow().begun, START_ATTEMPTS as usize);
}

#[tokio::test(start_paused = true)]
async fn what_can_be_opened_is_yielded_and_the_rest_once_the_key_is_there() {
    let mut bench = Bench::new();
    let one = bench.publish("one").await;
    bench.subscribe();
    bench.store.break_fleet(fleet("one"), Fault::Unopened);
    assert_eq!(bench.next().await, format!("default/one {one} with 1"));
    assert_eq!(bench.next().await, "synced");
    assert_eq!(bench.subscription.unopened(), 1);
    bench.expect_nothing_for(30).await;
    bench.store.repair();
    assert_eq!(bench.next().await, published("one", one));
    assert_eq!(bench.subscription.unopened(), 0);
    bench.expect_nothing_for(30).await;
}

#[tokio::test(start_paused = true)]
async fn many_fleets_are_loaded_at_once_but_not_all() {
    let mut bench = Bench::new();
    let fleets = 3 * LOADS;
    for number in 0..fleets {
        bench.publish(&number.to_string()).await;
    }
    bench.subscribe();
    bench.store.hold(HoldPoint::BeforeRead);
    bench.expect_nothing_for(10).await;
    assert_eq!(bench.store.loading.borrow().begun, LOADS);
    bench.store.resume();
    for _ in 0..fleets {
        bench.next().await;
    }
    assert_eq!(bench.next().await, "synced");
    let loads = *bench.store.loading.borrow();
    assert_eq!((loads.begun, loads.most, loads.now), (fleets, LOADS, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_is_loaded_once_at_a_time_and_the_newest_next() {
    let mut bench = Bench::new();
    bench.store.hold(HoldPoint::BeforeRead);
    let first = bench.publish("one").await;
    bench.subscribe();
    bench.expect_nothing_for(1).await;
    bench.publish("one").await;
    bench.expect_nothing_for(1).await;
    let third = bench.publish("one").await;
    bench.expect_nothing_for(1).await;
    assert_eq!(bench.store.loading.borrow().begun, 1);
    bench.store.resume();
    // Not skipped, or a fleet that changes faster than it is loaded would never be yielded.
    assert_eq!(bench.next().await, published("one", first));
    let mut rest = [bench.next().await, bench.next().await];
    rest.sort();
    assert_eq!(rest, [published("one", third), "synced".to_owned()]);
    bench.expect_nothing_for(30).await;
    assert_eq!(bench.store.loading.borrow().begun, 2);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_was_replaced_while_it_was_loaded_is_no_damage() {
    let mut bench = Bench::new();
    bench.store.hold(HoldPoint::BeforeRead);
    bench.publish_types("one", &[ResourceType::Endpoints]).await;
    bench.subscribe();
    bench.expect_nothing_for(1).await;
    let second = bench.publish("one").await;
    bench.store.resume();
    assert_eq!(bench.next().await, published("one", second));
    assert_eq!(bench.next().await, "synced");
    assert_eq!(bench.subscription.damaged(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_loaded_when_its_fleet_retires_is_not_yielded() {
    for held in [HoldPoint::BeforeRead, HoldPoint::AfterRead] {
        let mut bench = Bench::new();
        assert_eq!(bench.next().await, "synced");
        bench.store.hold(held);
        bench.publish("one").await;
        bench.expect_nothing_for(1).await;
        bench.retire("one").await;
        bench.expect_nothing_for(1).await;
        bench.store.resume();
        bench.expect_nothing_for(30).await;
        assert_eq!(bench.store.loading.borrow().begun, 1);
        let back = bench.publish("one").await;
        assert_eq!(bench.next().await, published("one", back));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_waiting_keeps_the_loads_that_it_began() {
    let mut bench = Bench::new();
    let one = bench.publish("one").await;
    bench.subscribe();
    bench.store.hold(HoldPoint::BeforeRead);
    for _ in 0..10 {
        bench.expect_nothing();
    }
    bench.store.resume();
    assert_eq!(bench.next().await, published("one", one));
    assert_eq!(bench.next().await, "synced");
    assert_eq!(bench.store.loading.borrow().begun, 1);
}

#[test]
fn an_older_record_is_not_wanted_and_an_equal_one_not_again() {
    let (mut scheduler, now) = (LoadScheduler::default(), Instant::now());
    for sequence in [5, 4, 5] {
        scheduler.receive(Notice::Fleet(record("one", sequence)));
    }
    assert_eq!(scheduler.begin_load(now).unwrap().record.head.sequence, 5);
    for sequence in [4, 5] {
        scheduler.receive(Notice::Fleet(record("one", sequence)));
    }
    let away = StoreError::Unavailable("the store is away".into());
    scheduler.settle(Outcome { record: record("one", 5), loaded: Err(away) }, now, 0.0);
    assert!(scheduler.begin_load(now).is_none());
    let due = scheduler.next_retry().unwrap();
    assert_eq!(scheduler.begin_load(due).unwrap().record.head.sequence, 5);
}

#[test]
fn nothing_is_left_of_a_fleet_that_retires_before_its_turn() {
    let (mut scheduler, now) = (LoadScheduler::default(), Instant::now());
    for number in 0..=LOADS {
        scheduler.receive(Notice::Fleet(record(&number.to_string(), 1)));
    }
    let loads: Vec<_> = std::iter::from_fn(|| scheduler.begin_load(now)).collect();
    assert_eq!(loads.len(), LOADS);
    let last = record(&LOADS.to_string(), 2);
    scheduler
        .receive(Notice::Fleet(Arc::new(Record { state: State::Retired, ..Record::clone(&last) })));
    for Request { record, .. } in loads {
        let snapshot = Arc::new(Snapshot::empty(record.fleet.clone()).at(record.head));
        let loaded = Ok(Loaded { snapshot, unopened: Vec::new() });
        scheduler.settle(Outcome { record, loaded }, now, 0.0);
        assert!(scheduler.begin_load(now).is_none());
    }
    scheduler.receive(Notice::Synced);
    assert_eq!(scheduler.fleets(), LOADS);
}

/// What comes of a load that had to leave a secret out.
fn incomplete(record: Arc<Record>) -> Outcome {
    let snapshot = Arc::new(Snapshot::empty(record.fleet.clone()).at(record.head));
    Outcome { record, loaded: Ok(Loaded { snapshot, unopened: vec!["tls".into()] }) }
}

/// Who has no key at all must not read the same again and again, and who gets one must not wait.
#[test]
fn sealed_secrets_are_looked_at_ever_less_and_at_once_with_another_key() {
    let (mut scheduler, mut now) = (LoadScheduler::default(), Instant::now());
    scheduler.receive(Notice::Fleet(record("one", 1)));
    let load = |scheduler: &mut LoadScheduler, now| {
        let record = scheduler.begin_load(now).unwrap().record;
        scheduler.settle(incomplete(record), now, 1.0);
        scheduler.next_retry().unwrap().duration_since(now)
    };
    let mut pauses = Vec::new();
    for _ in 0..6 {
        let pause = load(&mut scheduler, now);
        pauses.push(pause.as_secs());
        now += pause;
    }
    assert_eq!(pauses, [4, 8, 16, 32, 60, 60]);

    load(&mut scheduler, now);
    assert!(scheduler.begin_load(now).is_none());
    scheduler.keys_changed();
    assert_eq!(load(&mut scheduler, now).as_secs(), 4);

    // While it is being loaded with the keys from before.
    now += load(&mut scheduler, now + Duration::from_secs(4));
    now += Duration::from_secs(60);
    let record = scheduler.begin_load(now).unwrap().record;
    scheduler.keys_changed();
    assert!(scheduler.begin_load(now).is_none());
    scheduler.settle(incomplete(record), now, 1.0);
    assert_eq!(scheduler.next_retry().unwrap().duration_since(now).as_secs(), 4);
}

#[test]
fn the_fleets_that_cannot_be_loaded_are_named_until_they_can() {
    let (mut scheduler, mut now) = (LoadScheduler::default(), Instant::now());
    scheduler.receive(Notice::Fleet(record("one", 1)));
    let head = record("one", 1).head;
    for named in [BTreeMap::new(), BTreeMap::from([(fleet("one"), head)])] {
        let record = scheduler.begin_load(now).unwrap().record;
        let loaded = Err(StoreError::Damaged { fleet: fleet("one"), reason: "gone".into() });
        scheduler.settle(Outcome { record, loaded }, now, 0.0);
        assert_eq!(scheduler.damaged_fleets(), named);
        now = scheduler.next_retry().unwrap();
    }
    let record = scheduler.begin_load(now).unwrap().record;
    let loaded = Err(StoreError::Refused("this program is too old".into()));
    scheduler.settle(Outcome { record, loaded }, now, 0.0);
    assert_eq!(
        (scheduler.damaged_fleets().len(), scheduler.damaged()),
        (0, 1),
        "nobody can repair that"
    );
    now = scheduler.next_retry().unwrap();
    let record = scheduler.begin_load(now).unwrap().record;
    scheduler.settle(incomplete(record), now, 0.0);
    assert_eq!(scheduler.damaged(), 0);
}
