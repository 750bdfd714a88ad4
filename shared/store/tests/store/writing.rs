use crate::Store;
use crate::follower::Follower;
use crate::writer::{Kind, Write, Writer, fleet, publication, retirement};
use heliograph_snapshot::{Head, Snapshot};
use heliograph_store::{StoreError, Term};
use std::sync::Arc;

pub(crate) async fn a_stale_fence_is_refused(store: Arc<dyn Store>) {
    store.claim(Some(7)).await.unwrap();
    let stale = Head { epoch: 0, fence: 6, sequence: 9 };
    let ours = Term { epoch: 0, fence: 6 };
    let fenced = Err(StoreError::Fenced { ours, theirs: Term { epoch: 0, fence: 7 } });
    for write in [publication(&fleet("one"), stale, None), retirement(&fleet("one"), stale, None)] {
        assert_eq!(write.send(&*store).await, fenced);
    }
}

pub(crate) async fn of_two_writers_the_older_is_fenced(store: Arc<dyn Store>) {
    let mut older = Writer::claim(&store).await;
    older.publish(&fleet("one")).await.unwrap();
    let mut newer = Writer::claim(&store).await;
    let fenced = StoreError::Fenced { ours: older.term, theirs: newer.term };
    // Before the newer one has written anything, and also where it never will.
    assert_eq!(older.publish(&fleet("one")).await, Err(fenced.clone()));
    assert_eq!(older.publish(&fleet("two")).await, Err(fenced.clone()));
    assert_eq!(older.retire(&fleet("one")).await, Err(fenced));
    let head = newer.publish(&fleet("one")).await.unwrap();
    assert_eq!(head.sequence, 2, "sequences go on across terms");
    assert_eq!(Follower::synced(&store).await.live, newer.live());
}

pub(crate) async fn an_unexpected_head_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let (found, newer) = (writer.publish(&one).await.unwrap(), writer.head(9));
    for expected in [None, Some(writer.head(7))] {
        let conflict =
            Err(StoreError::Conflict { fleet: one.clone(), expected, found: Some(found) });
        assert_eq!(publication(&one, newer, expected).send(&*store).await, conflict);
        assert_eq!(retirement(&one, newer, expected).send(&*store).await, conflict);
    }
    let (two, expected) = (fleet("two"), Some(found));
    let conflict = Err(StoreError::Conflict { fleet: two.clone(), expected, found: None });
    assert_eq!(publication(&two, newer, expected).send(&*store).await, conflict);
}

pub(crate) async fn a_head_that_is_not_newer_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let first = writer.publish(&one).await.unwrap();
    let found = writer.publish_endpoints(&one).await.unwrap();
    for offered in [found, first] {
        let not_newer = Err(StoreError::NotNewer { fleet: one.clone(), offered, found });
        assert_eq!(publication(&one, offered, Some(found)).send(&*store).await, not_newer);
        assert_eq!(retirement(&one, offered, Some(found)).send(&*store).await, not_newer);
    }
}

pub(crate) async fn a_refused_write_changes_nothing(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let (one, two) = (fleet("one"), fleet("two"));
    writer.publish(&one).await.unwrap();
    let mut follower = Follower::synced(&store).await;
    // Of a later term, but wrong about the head: that must not end the term that is.
    let later = Head { epoch: 0, fence: writer.term.fence + 1, sequence: 5 };
    publication(&one, later, None).send(&*store).await.unwrap_err();
    retirement(&two, later, Some(later)).send(&*store).await.unwrap_err();
    assert_eq!(store.history(one.clone()).await.unwrap().len(), 1);
    assert_eq!(store.term().await.unwrap(), writer.term);
    let head = writer.publish(&two).await.unwrap();
    follower.expect_published(&two, head).await;
}

pub(crate) async fn a_retired_fleet_leaves_a_tombstone(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let published = writer.publish(&one).await.unwrap();
    let tombstone = writer.retire(&one).await.unwrap();
    let conflict =
        StoreError::Conflict { fleet: one.clone(), expected: None, found: Some(tombstone) };
    assert_eq!(publication(&one, writer.head(9), None).send(&*store).await, Err(conflict));
    let not_newer =
        StoreError::NotNewer { fleet: one.clone(), offered: published, found: tombstone };
    let again = publication(&one, published, Some(tombstone)).send(&*store).await;
    assert_eq!(again, Err(not_newer));
    assert!(Follower::synced(&store).await.live.is_empty());
}

pub(crate) async fn a_write_that_is_asked_again_changes_nothing(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let (one, two) = (fleet("one"), fleet("two"));
    let mut follower = Follower::synced(&store).await;
    for kind in [Kind::Everything, Kind::Everything, Kind::Retirement] {
        let write = writer.draft(&one, 1, kind);
        writer.write(write.clone()).await.unwrap();
        follower.next().await;
        let history = store.history(one.clone()).await.unwrap();
        let inspection = store.inspect(vec![one.clone()]).await.unwrap();
        write.send(&*store).await.unwrap();
        assert_eq!(store.history(one.clone()).await.unwrap(), history);
        assert_eq!(store.inspect(vec![one.clone()]).await.unwrap(), inspection);
        let head = writer.publish(&two).await.unwrap();
        follower.expect_published(&two, head).await;
    }
}

pub(crate) async fn a_write_that_is_asked_again_is_recognised_in_the_next_term(
    store: Arc<dyn Store>,
) {
    let mut older = Writer::claim(&store).await;
    let one = fleet("one");
    let write = older.draft(&one, 1, Kind::Everything);
    older.write(write.clone()).await.unwrap();
    let mut newer = Writer::claim(&store).await;
    // It is in the store, so the answer is that it was published.
    write.send(&*store).await.unwrap();
    newer.publish(&one).await.unwrap();
    let fenced = StoreError::Fenced { ours: older.term, theirs: newer.term };
    assert_eq!(write.send(&*store).await, Err(fenced));
}

pub(crate) async fn another_write_at_the_same_head_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let write = writer.draft(&one, 1, Kind::Everything);
    let found = writer.write(write.clone()).await.unwrap();
    let Write::Publish(publication) = write else { unreachable!("a draft to publish") };
    let mut other_cause = publication.clone();
    other_cause.cause = "another".into();
    let mut other_content = publication.clone();
    other_content.snapshot = Arc::new(Snapshot::empty(one.clone()).at(found));
    for other in [other_cause, other_content].map(Write::Publish) {
        let conflict =
            StoreError::Conflict { fleet: one.clone(), expected: None, found: Some(found) };
        assert_eq!(other.send(&*store).await, Err(conflict));
        let not_newer = StoreError::NotNewer { fleet: one.clone(), offered: found, found };
        assert_eq!(other.expecting(Some(found)).send(&*store).await, Err(not_newer));
    }
    let record = Arc::new(publication.record());
    let loaded = store.load(record, None).await.unwrap().snapshot;
    assert!(loaded.same_content(&publication.snapshot));
}

pub(crate) async fn an_inspection_tells_all_heads(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    for name in ["one", "two", "gone"] {
        writer.publish(&fleet(name)).await.unwrap();
    }
    writer.publish_endpoints(&fleet("two")).await.unwrap();
    writer.retire(&fleet("gone")).await.unwrap();
    // Of those that the writer knows, those it does not, and those that are not there.
    for known in [vec![], vec![fleet("one"), fleet("never")]] {
        let inspection = store.inspect(known).await.unwrap();
        assert_eq!(inspection.term, writer.term);
        assert_eq!(inspection.heads, writer.believed);
        assert!(inspection.orders.is_empty());
    }
}

pub(crate) async fn garbage_collection_keeps_what_is_in_use(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    for _ in 0..5 {
        writer.publish(&one).await.unwrap();
        writer.publish_endpoints(&one).await.unwrap();
        store.clean(writer.held[&one].clone()).await.unwrap();
    }
    for record in store.history(one.clone()).await.unwrap() {
        let loaded = store.load(record.clone(), None).await.unwrap().snapshot;
        assert_eq!((loaded.head, loaded.roots()), (record.head, record.roots()));
    }
    assert_eq!(Follower::synced(&store).await.live, writer.live());
}
