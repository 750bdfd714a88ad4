use super::*;
use crate::view::{ClassHandle, ClientInfo};
use bytes::Bytes;
use heliograph_distributor_protocol::{Protocol, Request, Session};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{Change, Resource, ResourceType};
use heliograph_store::{Embedded, PinState, Publication, Retirement, StoreError, Writer};
use prometheus::Registry;
use std::collections::BTreeSet;

fn snapshot(fleet: &str, sequence: u64) -> Arc<Snapshot> {
    let head = Head { epoch: 0, fence: 1, sequence };
    Arc::new(Snapshot::empty(FleetName::new("default", fleet)).with(head, []))
}

fn class_limit_exceeded() -> IntCounter {
    IntCounter::new("class_limit_exceeded", "in a test").unwrap()
}

#[tokio::test]
async fn a_stream_that_came_before_a_retirement_hears_of_the_return() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
    let (_, views_receiver) = fleets.wait_for(&name).await.unwrap();
    feed.retire(&name);
    feed.publish(snapshot("a", 3), SystemTime::UNIX_EPOCH).await;
    assert!(views_receiver.borrow().is_some());
}

#[tokio::test]
async fn a_retired_fleet_goes_once_its_last_stream_has_ended() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
    let stream = fleets.wait_for(&name).await.unwrap();
    feed.retire(&name);
    feed.publish(snapshot("b", 1), SystemTime::UNIX_EPOCH).await;
    assert!(fleets.state(&name).is_some());
    drop(stream);
    feed.publish(snapshot("c", 1), SystemTime::UNIX_EPOCH).await;
    feed.retire(&FleetName::new("default", "b"));
    assert!(fleets.state(&name).is_none());
    assert_eq!(fleets.all().len(), 1);
}

/// A snapshot with a cluster, so that there is something to send.
fn with_cluster(fleet: &str) -> Arc<Snapshot> {
    let resource = Arc::new(Resource::new("blue", Bytes::from_static(b"blue")));
    let change = Change::Set(ResourceType::Cluster, resource);
    Arc::new(snapshot(fleet, 1).with(Head { epoch: 0, fence: 1, sequence: 1 }, [change]))
}

/// A client that asks for clusters, receives them, and disconnects.
fn visit((fleet, views_receiver): (Arc<Fleet>, ViewsReceiver)) {
    let views = views_receiver.borrow().clone().unwrap();
    let view = views.of(&ClientInfo::default(), &mut ClassHandle::default());
    let mut session = Session::new(Protocol::Delta, view, fleet.transitions.clone());
    let type_url = ResourceType::Cluster.type_url().to_owned();
    let request = DeltaDiscoveryRequest { type_url, ..Default::default() };
    let (request, _) = Request::scan(Protocol::Delta, request.encode_to_vec().into()).unwrap();
    let output = session.on_request(Duration::ZERO, &request).unwrap();
    let message = fleet.encodings.message(Protocol::Delta, &output.replies[0], "replica");
    assert!(!message.shared.is_empty());
}

#[tokio::test]
async fn nothing_is_left_of_a_fleet_that_is_dropped() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    let loaded = with_cluster("a");
    let (trace, bytes) = (Arc::downgrade(&loaded), loaded.bytes() as u64);
    feed.publish(loaded, SystemTime::UNIX_EPOCH).await;
    visit(fleets.subscribe(&name).unwrap());
    let slot = feed.slots.borrow()[&name].clone();
    let fleet = Arc::downgrade(&slot.fleet().unwrap());
    assert!(slot.drop_unused());
    assert!(trace.upgrade().is_none(), "the snapshot is still somewhere");
    assert!(fleet.upgrade().is_none(), "what its streams shared is still somewhere");
    let Some(FleetState::Known { head, bytes: known }) = fleets.state(&name) else {
        panic!("it is known")
    };
    assert_eq!((head.sequence, known), (1, bytes));
    assert!(fleets.all().is_empty());
}

#[tokio::test]
async fn a_fleet_with_a_stream_is_not_dropped_nor_one_that_is_waited_for() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
    let slot = feed.slots.borrow()[&name].clone();
    let stream = fleets.subscribe(&name).unwrap();
    assert!(slot.is_in_use() && !slot.drop_unused());
    drop(stream);
    assert!(!slot.is_in_use() && slot.drop_unused());
    assert!(fleets.subscribe(&name).is_none());

    let waiting = fleets.wait_for(&name);
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(feed.requested.next().await, BTreeSet::from([name.clone()]));
    assert!(slot.is_in_use() && !slot.drop_unused());
    feed.publish(snapshot("a", 2), SystemTime::UNIX_EPOCH).await;
    let (fleet, _views_receiver) = waiting.await.unwrap();
    assert_eq!(fleet.head().unwrap().sequence, 2);
}

#[tokio::test]
async fn many_who_wait_for_a_fleet_ask_for_it_once_and_hear_at_once_that_it_cannot_be_had() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
    let slot = feed.slots.borrow()[&name].clone();
    assert!(slot.drop_unused());
    let mut waiting: Vec<_> = (0..100).map(|_| Box::pin(fleets.wait_for(&name))).collect();
    for waiting in &mut waiting {
        assert!(futures::poll!(waiting).is_pending());
    }
    assert_eq!(feed.requested.next().await.len(), 1);
    slot.fail(&StoreError::Unavailable("no route to redis://10.0.0.1".into()));
    for waiting in waiting {
        let unserved = waiting.await.err();
        assert_eq!(unserved, Some(Unserved::StoreAway(name.clone())));
    }
    // A new stream gets the same error, without the address of the store.
    let message = fleets.wait_for(&name).await.err().unwrap().to_string();
    assert!(
        message.contains("the store does not answer") && !message.contains("10.0.0.1"),
        "{message}"
    );
    assert!(slot.drop_unused());
    assert!(futures::poll!(Box::pin(fleets.wait_for(&name))).is_pending(), "it is tried again");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_load_does_not_wait_for_ever_but_for_a_publication_does() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    let waiting = fleets.wait_for(&name);
    let mut waiting = std::pin::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_secs(3600), &mut waiting).await.is_err());
    feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
    waiting.await.unwrap();
    let slot = feed.slots.borrow()[&name].clone();
    assert!(slot.drop_unused());
    assert_eq!(fleets.wait_for(&name).await.err(), Some(Unserved::Late(name.clone())));
}

/// Retired while it was only known, it may come back under another place.
#[tokio::test]
async fn who_waits_for_a_fleet_that_is_retired_waits_for_its_return() {
    let (feed, fleets) = Feed::new(class_limit_exceeded());
    let name = FleetName::new("default", "a");
    feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
    assert!(feed.slots.borrow()[&name].drop_unused());
    let waiting = fleets.wait_for(&name);
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    feed.retire(&name);
    assert!(fleets.state(&name).is_none());
    assert!(futures::poll!(&mut waiting).is_pending());
    feed.publish(snapshot("a", 3), SystemTime::UNIX_EPOCH).await;
    waiting.await.unwrap();
}

/// A writer of one fleet, which a feed without memory for it follows.
struct Site {
    store: Arc<Embedded>,
    fleets: Fleets,
    head: Option<Head>,
}

impl Site {
    async fn new() -> Self {
        let (feed, fleets) = Feed::new(class_limit_exceeded());
        let store = Arc::new(Embedded::new());
        let readiness = Readiness::new();
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let feed = feed.within(Budget::new(1, Duration::ZERO));
        let updates = Subscription::choosing(store.clone());
        tokio::spawn(feed.run(updates, readiness.token("snapshots"), metrics));
        readiness.ready().await;
        Self { store, fleets, head: None }
    }

    fn name() -> FleetName {
        FleetName::new("default", "a")
    }

    fn next_head(&mut self) -> (Option<Head>, Head) {
        let before = self.head;
        let next = Head { epoch: 0, fence: 1, sequence: before.map_or(1, |it| it.sequence + 1) };
        self.head = Some(next);
        (before, next)
    }

    async fn publish(&mut self) {
        let (expected, head) = self.next_head();
        let publication = Publication {
            snapshot: Arc::new(with_cluster("a").at(head)),
            expected,
            held: None,
            time: SystemTime::UNIX_EPOCH,
            cause: "test".into(),
            pin: PinState::default(),
        };
        self.store.publish(publication).await.unwrap();
    }

    async fn retire(&mut self) {
        let (expected, tombstone) = self.next_head();
        let (time, cause) = (SystemTime::UNIX_EPOCH, "test".into());
        let retirement =
            Retirement { fleet: Self::name(), tombstone, expected, time, cause, order: 0 };
        self.store.retire(retirement).await.unwrap();
    }

    async fn enter(&self) -> (Arc<Fleet>, ViewsReceiver) {
        self.fleets.wait_for(&Self::name()).await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_does_not_fit_is_loaded_for_its_streams_and_goes_with_the_last() {
    let mut site = Site::new().await;
    site.publish().await;
    let (fleet, mut views_receiver) = site.enter().await;
    site.publish().await;
    let newest = site.head;
    views_receiver
        .wait_for(|views| views.as_ref().map(|views| views.head()) == newest)
        .await
        .unwrap();
    let trace = Arc::downgrade(&fleet);
    drop((fleet, views_receiver));
    let mut ticker = tokio::time::interval(CHECK_INTERVAL);
    let gone = async {
        while trace.strong_count() > 0 {
            ticker.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    assert_eq!(site.enter().await.0.head(), newest, "it comes back where it was");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_comes_back_to_streams_and_to_who_comes_after_them() {
    for stays in [true, false] {
        let mut site = Site::new().await;
        site.publish().await;
        let (fleet, mut views_receiver) = site.enter().await;
        site.retire().await;
        views_receiver.wait_for(Option::is_none).await.unwrap();
        drop(fleet);
        let stream = stays.then_some(views_receiver);
        site.publish().await;
        let head = site.head;
        let back = |views: &Option<Arc<Views>>| views.as_ref().map(|views| views.head()) == head;
        if let Some(mut views_receiver) = stream {
            views_receiver.wait_for(back).await.unwrap();
        }
        let (_, mut views_receiver) = site.enter().await;
        let came =
            tokio::time::timeout(Duration::from_secs(60), views_receiver.wait_for(back)).await;
        assert!(came.is_ok_and(|came| came.is_ok()), "with a stream that stays: {stays}");
    }
}
