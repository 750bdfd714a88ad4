//! What every store promises, one test per promise.

use bytes::Bytes;
use heliograph_shared::store::{Claim, Store, StoreError, Subscription, Update};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Tests one store. `$open` is a future of a new and empty one, as `Arc<dyn Store>`.
macro_rules! cases {
    ($store:ident, $open:expr) => {
        $crate::contract::cases!(
            $store,
            $open,
            a_subscriber_hears_what_is_published
            updates_of_a_fleet_come_in_order
            a_late_subscriber_gets_everything_and_then_synced
            an_empty_store_is_synced_at_once
            a_slow_reader_gets_the_newest
            a_reader_that_gives_up_waiting_misses_nothing
            a_fleet_that_never_rests_does_not_starve_the_others
            a_claim_tells_the_heads
            a_fence_is_above_all_fences_before
            an_older_claim_is_refused
            a_stale_fence_is_refused
            of_two_writers_the_older_is_fenced
            an_unexpected_head_is_refused
            a_head_that_is_not_newer_is_refused
            a_refused_write_changes_nothing
            a_retired_fleet_leaves_a_tombstone
            a_late_subscriber_does_not_hear_of_the_retired
            many_fleets_reach_many_subscribers
            a_closed_store_ends_its_subscriptions
        );
    };
    ($store:ident, $open:expr, $($case:ident)*) => {
        mod $store {
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    $crate::contract::$case($open.await).await;
                }
            )*

            proptest::proptest! {
                #![proptest_config($crate::model::config())]
                #[test]
                fn readers_only_move_forward_and_arrive(steps in $crate::model::steps()) {
                    let walk = async { $crate::model::walk($open.await, steps).await };
                    $crate::model::runtime().block_on(walk)?;
                }
            }
        }
    };
}

pub(crate) use cases;

pub(crate) fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

pub(crate) fn snapshot(fleet: &FleetName, head: Head) -> Arc<Snapshot> {
    let body = Bytes::from(head.to_string());
    let resource = Arc::new(Resource::new("cluster", body));
    let changes = [Change::Set(ResourceType::Cluster, resource)];
    Arc::new(Snapshot::empty(fleet.clone()).with(head, changes))
}

/// The content is the head's own text, so that a head with another's content is found.
pub(crate) fn assert_whole(snapshot: &Snapshot) {
    let cluster = snapshot.get(ResourceType::Cluster, "cluster").expect("a cluster");
    assert_eq!(cluster.body, snapshot.head.to_string());
}

pub(crate) async fn next(subscription: &mut dyn Subscription) -> Update {
    let update = tokio::time::timeout(Duration::from_secs(10), subscription.next()).await;
    let update = update.expect("no update came").expect("the store closed");
    if let Update::Published(snapshot) = &update {
        assert_whole(snapshot);
    }
    update
}

/// A writer that remembers what it published, as the translator does.
struct Writer {
    store: Arc<dyn Store>,
    claim: Claim,
}

impl Writer {
    async fn claim(store: &Arc<dyn Store>) -> Self {
        Self { store: store.clone(), claim: store.claim(None).await.unwrap() }
    }

    fn head(&self, sequence: u64) -> Head {
        Head { epoch: self.claim.epoch, fence: self.claim.fence, sequence }
    }

    fn believed(&self, fleet: &FleetName) -> Option<Head> {
        self.claim.heads.get(fleet).copied()
    }

    fn following(&self, fleet: &FleetName) -> Head {
        self.head(self.believed(fleet).map_or(1, |head| head.sequence + 1))
    }

    async fn publish(&mut self, fleet: &FleetName) -> Result<Head, StoreError> {
        let head = self.following(fleet);
        self.store.publish(snapshot(fleet, head), self.believed(fleet)).await?;
        self.claim.heads.insert(fleet.clone(), head);
        Ok(head)
    }

    async fn retire(&mut self, fleet: &FleetName) -> Result<Head, StoreError> {
        let head = self.following(fleet);
        self.store.retire(fleet.clone(), head, self.believed(fleet)).await?;
        self.claim.heads.insert(fleet.clone(), head);
        Ok(head)
    }
}

async fn expect_published(subscription: &mut dyn Subscription, fleet: &FleetName, head: Head) {
    match next(subscription).await {
        Update::Published(snapshot) => {
            assert_eq!((&snapshot.fleet, snapshot.head), (fleet, head));
        }
        other => panic!("{fleet} at {head} was expected, not {other:?}"),
    }
}

async fn expect_synced(subscription: &mut dyn Subscription) {
    let update = next(subscription).await;
    assert!(matches!(update, Update::Synced), "Synced was expected, not {update:?}");
}

/// All that comes before `Synced`, which every fleet enters once.
async fn expect_all(subscription: &mut dyn Subscription) -> BTreeMap<FleetName, Head> {
    let mut heads = BTreeMap::new();
    loop {
        match next(subscription).await {
            Update::Published(snapshot) => {
                let again = heads.insert(snapshot.fleet.clone(), snapshot.head);
                assert_eq!(again, None, "{} came twice", snapshot.fleet);
            }
            Update::Retired(fleet, _) => panic!("{fleet} was retired before it was published"),
            Update::Synced => return heads,
        }
    }
}

pub(crate) async fn a_subscriber_hears_what_is_published(store: Arc<dyn Store>) {
    let mut subscription = store.subscribe();
    expect_synced(&mut *subscription).await;
    let mut writer = Writer::claim(&store).await;
    let head = writer.publish(&fleet("one")).await.unwrap();
    expect_published(&mut *subscription, &fleet("one"), head).await;
}

pub(crate) async fn updates_of_a_fleet_come_in_order(store: Arc<dyn Store>) {
    let mut subscription = store.subscribe();
    expect_synced(&mut *subscription).await;
    let mut writer = Writer::claim(&store).await;
    for _ in 0..20 {
        let head = writer.publish(&fleet("one")).await.unwrap();
        expect_published(&mut *subscription, &fleet("one"), head).await;
    }
}

pub(crate) async fn a_late_subscriber_gets_everything_and_then_synced(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    for name in ["one", "two", "three", "one"] {
        writer.publish(&fleet(name)).await.unwrap();
    }
    let mut subscription = store.subscribe();
    assert_eq!(expect_all(&mut *subscription).await, writer.claim.heads);
    let head = writer.publish(&fleet("two")).await.unwrap();
    expect_published(&mut *subscription, &fleet("two"), head).await;
}

pub(crate) async fn an_empty_store_is_synced_at_once(store: Arc<dyn Store>) {
    expect_synced(&mut *store.subscribe()).await;
}

pub(crate) async fn a_slow_reader_gets_the_newest(store: Arc<dyn Store>) {
    let mut slow = store.subscribe();
    expect_synced(&mut *slow).await;
    let mut writer = Writer::claim(&store).await;
    for _ in 0..100 {
        writer.publish(&fleet("one")).await.unwrap();
        writer.publish(&fleet("two")).await.unwrap();
    }
    for name in ["one", "two"] {
        let newest = writer.believed(&fleet(name)).unwrap();
        expect_published(&mut *slow, &fleet(name), newest).await;
    }
    // Nothing is left of the ninety-nine: the next update is of the next change.
    let head = writer.publish(&fleet("three")).await.unwrap();
    expect_published(&mut *slow, &fleet("three"), head).await;
}

pub(crate) async fn a_reader_that_gives_up_waiting_misses_nothing(store: Arc<dyn Store>) {
    let mut subscription = store.subscribe();
    expect_synced(&mut *subscription).await;
    let mut writer = Writer::claim(&store).await;
    for _ in 0..10 {
        let waited = tokio::time::timeout(Duration::ZERO, subscription.next()).await;
        assert!(waited.is_err(), "an update of nothing: {waited:?}");
        let head = writer.publish(&fleet("one")).await.unwrap();
        expect_published(&mut *subscription, &fleet("one"), head).await;
    }
}

pub(crate) async fn a_fleet_that_never_rests_does_not_starve_the_others(store: Arc<dyn Store>) {
    let mut subscription = store.subscribe();
    let mut writer = Writer::claim(&store).await;
    let fleets: Vec<_> = (0..5).map(|number| fleet(&format!("fleet-{number}"))).collect();
    let mut heard = BTreeSet::new();
    // Between two reads every fleet changes, always in the same order.
    for _ in 0..3 * fleets.len() {
        for fleet in &fleets {
            writer.publish(fleet).await.unwrap();
        }
        if let Update::Published(snapshot) = next(&mut *subscription).await {
            heard.insert(snapshot.fleet.clone());
        }
    }
    assert_eq!(heard.len(), fleets.len(), "only {heard:?} were heard of");
}

pub(crate) async fn a_claim_tells_the_heads(store: Arc<dyn Store>) {
    let mut first = Writer::claim(&store).await;
    assert!(first.claim.heads.is_empty());
    first.publish(&fleet("one")).await.unwrap();
    first.publish(&fleet("two")).await.unwrap();
    first.retire(&fleet("two")).await.unwrap();
    let second = Writer::claim(&store).await;
    assert_eq!(second.claim.heads, first.claim.heads);
}

pub(crate) async fn a_fence_is_above_all_fences_before(store: Arc<dyn Store>) {
    let first = store.claim(None).await.unwrap();
    let second = store.claim(None).await.unwrap();
    assert!(second.fence > first.fence);
    let given = second.fence + 1_000_000;
    assert_eq!(store.claim(Some(given)).await.unwrap().fence, given);
    assert!(store.claim(None).await.unwrap().fence > given);
    // Beyond what a double can tell apart.
    let large = 1 << 100;
    store.claim(Some(large + 1)).await.unwrap();
    let refused = store.claim(Some(large)).await;
    assert_eq!(refused, Err(StoreError::Fenced { ours: large, theirs: large + 1 }));
}

pub(crate) async fn an_older_claim_is_refused(store: Arc<dyn Store>) {
    store.claim(Some(7)).await.unwrap();
    let refused = store.claim(Some(6)).await;
    assert_eq!(refused, Err(StoreError::Fenced { ours: 6, theirs: 7 }));
    // Who asks again because it did not hear the answer is the same writer.
    store.claim(Some(7)).await.unwrap();
}

pub(crate) async fn a_stale_fence_is_refused(store: Arc<dyn Store>) {
    store.claim(Some(7)).await.unwrap();
    let (one, stale) = (fleet("one"), Head { epoch: 0, fence: 6, sequence: 9 });
    let fenced = Err(StoreError::Fenced { ours: 6, theirs: 7 });
    assert_eq!(store.publish(snapshot(&one, stale), None).await, fenced);
    assert_eq!(store.retire(one, stale, None).await, fenced);
}

pub(crate) async fn of_two_writers_the_older_is_fenced(store: Arc<dyn Store>) {
    let mut older = Writer::claim(&store).await;
    older.publish(&fleet("one")).await.unwrap();
    let mut newer = Writer::claim(&store).await;
    let fenced = StoreError::Fenced { ours: older.claim.fence, theirs: newer.claim.fence };
    // Before the newer one has written anything, and also where it never will.
    assert_eq!(older.publish(&fleet("one")).await, Err(fenced.clone()));
    assert_eq!(older.publish(&fleet("two")).await, Err(fenced.clone()));
    assert_eq!(older.retire(&fleet("one")).await, Err(fenced));
    let head = newer.publish(&fleet("one")).await.unwrap();
    assert_eq!(head.sequence, 2, "sequences go on across terms");
    assert_eq!(expect_all(&mut *store.subscribe()).await, newer.claim.heads);
}

pub(crate) async fn an_unexpected_head_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let (found, newer) = (writer.publish(&one).await.unwrap(), writer.head(9));
    for expected in [None, Some(writer.head(7))] {
        let conflict =
            Err(StoreError::Conflict { fleet: one.clone(), expected, found: Some(found) });
        assert_eq!(store.publish(snapshot(&one, newer), expected).await, conflict);
        assert_eq!(store.retire(one.clone(), newer, expected).await, conflict);
    }
    let (two, expected) = (fleet("two"), Some(found));
    let conflict = Err(StoreError::Conflict { fleet: two.clone(), expected, found: None });
    assert_eq!(store.publish(snapshot(&two, newer), expected).await, conflict);
}

pub(crate) async fn a_head_that_is_not_newer_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    writer.publish(&one).await.unwrap();
    let found = writer.publish(&one).await.unwrap();
    for offered in [found, writer.head(found.sequence - 1)] {
        let not_newer = Err(StoreError::NotNewer { fleet: one.clone(), offered, found });
        assert_eq!(store.publish(snapshot(&one, offered), Some(found)).await, not_newer);
        assert_eq!(store.retire(one.clone(), offered, Some(found)).await, not_newer);
    }
}

pub(crate) async fn a_refused_write_changes_nothing(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let (one, two) = (fleet("one"), fleet("two"));
    writer.publish(&one).await.unwrap();
    let mut subscription = store.subscribe();
    assert_eq!(expect_all(&mut *subscription).await, writer.claim.heads);
    // Of a later term, but wrong about the head: that must not end the term that is.
    let later = Head { epoch: 0, fence: writer.claim.fence + 1, sequence: 5 };
    store.publish(snapshot(&one, later), None).await.unwrap_err();
    store.retire(two.clone(), later, Some(later)).await.unwrap_err();
    let head = writer.publish(&two).await.unwrap();
    expect_published(&mut *subscription, &two, head).await;
}

pub(crate) async fn a_retired_fleet_leaves_a_tombstone(store: Arc<dyn Store>) {
    let mut subscription = store.subscribe();
    expect_synced(&mut *subscription).await;
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let published = writer.publish(&one).await.unwrap();
    expect_published(&mut *subscription, &one, published).await;
    let tombstone = writer.retire(&one).await.unwrap();
    match next(&mut *subscription).await {
        Update::Retired(fleet, head) => assert_eq!((fleet, head), (one.clone(), tombstone)),
        other => panic!("{one} was expected to retire, not {other:?}"),
    }

    let conflict =
        StoreError::Conflict { fleet: one.clone(), expected: None, found: Some(tombstone) };
    assert_eq!(store.publish(snapshot(&one, writer.head(9)), None).await, Err(conflict));
    let not_newer =
        StoreError::NotNewer { fleet: one.clone(), offered: published, found: tombstone };
    let again = store.publish(snapshot(&one, published), Some(tombstone)).await;
    assert_eq!(again, Err(not_newer));

    let head = writer.publish(&one).await.unwrap();
    expect_published(&mut *subscription, &one, head).await;
}

pub(crate) async fn a_late_subscriber_does_not_hear_of_the_retired(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    writer.publish(&fleet("gone")).await.unwrap();
    let mut waiting = store.subscribe();
    writer.retire(&fleet("gone")).await.unwrap();
    let mut late = store.subscribe();
    assert!(expect_all(&mut *late).await.is_empty());
    let head = writer.publish(&fleet("one")).await.unwrap();
    expect_published(&mut *late, &fleet("one"), head).await;
    // Retired before the first read: there is nothing to take away.
    expect_synced(&mut *waiting).await;
    expect_published(&mut *waiting, &fleet("one"), head).await;
}

pub(crate) async fn many_fleets_reach_many_subscribers(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let fleets: Vec<_> = (0..1_000).map(|number| fleet(&format!("fleet-{number}"))).collect();
    let mut early: Vec<_> = (0..5).map(|_| store.subscribe()).collect();
    for fleet in &fleets {
        writer.publish(fleet).await.unwrap();
    }
    for subscription in &mut early {
        expect_synced(&mut **subscription).await;
        for _ in &fleets {
            assert!(matches!(next(&mut **subscription).await, Update::Published(_)));
        }
    }
    let mut late = store.subscribe();
    assert_eq!(expect_all(&mut *late).await, writer.claim.heads);
    let head = writer.publish(&fleets[500]).await.unwrap();
    for subscription in early.iter_mut().chain([&mut late]) {
        expect_published(&mut **subscription, &fleets[500], head).await;
    }
}

pub(crate) async fn a_closed_store_ends_its_subscriptions(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let head = writer.publish(&fleet("one")).await.unwrap();
    let mut subscription = store.subscribe();
    drop((store, writer));
    // What was published before is still told.
    expect_published(&mut *subscription, &fleet("one"), head).await;
    expect_synced(&mut *subscription).await;
    assert!(subscription.next().await.is_none());
}
