use crate::Store;
use crate::contract::HISTORY;
use crate::follower::Follower;
use crate::writer::{Kind, Writer, cause_of, fleet, time_of};
use heliograph_snapshot::{FleetName, Head, ResourceType};
use heliograph_store::{PinOrder, Record, State, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) async fn steps_are_listed_with_time_and_cause(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    assert!(store.history(one.clone()).await.unwrap().is_empty());
    let mut records = Vec::new();
    for _ in 0..3 {
        let write = writer.draft(&one, 1, Kind::Everything);
        writer.write(write.clone()).await.unwrap();
        records.insert(0, Arc::new(write.record()));
    }
    writer.publish(&fleet("another")).await.unwrap();
    let history = store.history(one).await.unwrap();
    assert_eq!(history, records);
    assert_eq!(history[2].time, time_of(writer.head(1)));
    assert_eq!(history[2].cause, cause_of(writer.head(1)));
}

pub(crate) async fn endpoints_alone_are_no_step(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let first = writer.publish(&one).await.unwrap();
    writer.publish_endpoints(&one).await.unwrap();
    writer.publish_endpoints(&one).await.unwrap();
    assert_eq!(heads(&*store, &one).await, [first]);
    let second = writer.publish(&one).await.unwrap();
    assert_eq!(heads(&*store, &one).await, [second, first]);
}

pub(crate) async fn so_many_steps_are_kept_and_no_more(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let mut steps = Vec::new();
    for _ in 0..HISTORY + 3 {
        steps.insert(0, writer.publish(&one).await.unwrap());
    }
    steps.truncate(HISTORY);
    assert_eq!(heads(&*store, &one).await, steps);
}

pub(crate) async fn a_step_can_be_loaded_and_compared(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    for _ in 0..3 {
        writer.publish(&one).await.unwrap();
        writer.publish_endpoints(&one).await.unwrap();
    }
    let mut snapshots = Vec::new();
    for record in store.history(one.clone()).await.unwrap() {
        let snapshot = store.load(record.clone(), None).await.unwrap().snapshot;
        let text = record.head.to_string();
        for (kind, name) in
            [(ResourceType::Cluster, "cluster"), (ResourceType::Endpoints, "endpoints")]
        {
            assert_eq!(snapshot.get(kind, name).unwrap().body, text);
        }
        assert_eq!((&snapshot.fleet, snapshot.head), (&one, record.head));
        snapshots.push(snapshot);
    }
    let [newest, _, oldest] = &snapshots[..] else { panic!("three steps: {snapshots:?}") };
    let differences =
        newest.tree(ResourceType::Cluster).differences(oldest.tree(ResourceType::Cluster));
    assert_eq!(differences.len(), 1);
    assert_eq!(differences[0].before.unwrap().body, oldest.head.to_string());
    assert_eq!(differences[0].after.unwrap().body, newest.head.to_string());
}

pub(crate) async fn a_pin_is_told_until_it_is_released(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    writer.publish(&one).await.unwrap();
    writer.publish(&one).await.unwrap();
    let history = store.history(one.clone()).await.unwrap();
    // The later order replaces the earlier. A release is one, too, and stays.
    let orders = [pin(1, &history[0]), pin(2, &history[1]), release(3)];
    for order in &orders {
        store.order(one.clone(), order.clone()).await.unwrap();
        let told = [(one.clone(), order.clone())].into();
        assert_eq!(store.inspect(vec![one.clone()]).await.unwrap().orders, told);
        assert_eq!(store.claim(None).await.unwrap().orders, told);
        // The answer was lost, and it is asked for again.
        store.order(one.clone(), order.clone()).await.unwrap();
    }
    assert_eq!(store.history(one.clone()).await.unwrap(), history, "an order is no write");
    for late in [pin(1, &history[0]), pin(3, &history[0])] {
        let refused = store.order(one.clone(), late).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    let told = [(one.clone(), orders[2].clone())].into();
    assert_eq!(store.inspect(vec![one]).await.unwrap().orders, told);
}

pub(crate) async fn the_number_of_the_next_order_is_above_all_before(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    writer.publish(&one).await.unwrap();
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(77);
    assert_eq!(PinOrder::next_number(&*store, &*store, &one, now).await.unwrap(), 77);
    let record = store.history(one.clone()).await.unwrap().remove(0);
    store.order(one.clone(), pin(100, &record)).await.unwrap();
    assert_eq!(PinOrder::next_number(&*store, &*store, &one, now).await.unwrap(), 101);
}

pub(crate) async fn a_pinned_snapshot_outlives_the_history(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let pinned = writer.publish(&one).await.unwrap();
    let record = store.history(one.clone()).await.unwrap().remove(0);
    store.order(one.clone(), pin(1, &record)).await.unwrap();
    for _ in 0..HISTORY {
        writer.publish(&one).await.unwrap();
        store.clean(writer.held[&one].clone()).await.unwrap();
    }
    assert!(!heads(&*store, &one).await.contains(&pinned));
    let snapshot = store.load(record.clone(), None).await.unwrap().snapshot;
    assert_eq!((snapshot.head, snapshot.roots()), (pinned, record.roots()));
}

pub(crate) async fn a_pin_outside_the_history_is_refused(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let (one, two) = (fleet("one"), fleet("two"));
    writer.publish(&one).await.unwrap();
    let listed = store.history(one.clone()).await.unwrap().remove(0);
    let never = Record { head: writer.head(9), ..Record::clone(&listed) };
    let other = Record { state: State::Live(BTreeMap::new()), ..Record::clone(&listed) };
    for (fleet, record) in [(&one, &never), (&one, &other), (&two, &*listed)] {
        let refused = store.order(fleet.clone(), pin(1, &Arc::new(record.clone()))).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    assert!(store.inspect(vec![one, two]).await.unwrap().orders.is_empty());
}

pub(crate) async fn with_a_fleet_go_its_history_and_its_pin(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    writer.publish(&one).await.unwrap();
    let record = store.history(one.clone()).await.unwrap().remove(0);
    store.order(one.clone(), pin(1, &record)).await.unwrap();
    writer.retire(&one).await.unwrap();
    assert!(store.history(one.clone()).await.unwrap().is_empty());
    assert!(store.inspect(vec![one.clone()]).await.unwrap().orders.is_empty());
    let refused = store.order(one.clone(), pin(2, &record)).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    // Coming back is a new beginning.
    let head = writer.publish(&one).await.unwrap();
    assert_eq!(heads(&*store, &one).await, [head]);
    assert_eq!(Follower::synced(&store).await.live, writer.live());
}

pub(crate) fn pin(number: u64, record: &Arc<Record>) -> PinOrder {
    PinOrder {
        at: Some(record.clone()),
        reason: "the newer one is worse".into(),
        ..release(number)
    }
}

pub(crate) fn release(number: u64) -> PinOrder {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000);
    PinOrder { number, at: None, time, by: "ann".into(), reason: "".into() }
}

async fn heads(store: &dyn Store, fleet: &FleetName) -> Vec<Head> {
    let history = store.history(fleet.clone()).await.unwrap();
    history.iter().map(|record| record.head).collect()
}
