//! An operator holds a fleet at an earlier snapshot.

use crate::faulty::Faulty;
use crate::writer::{Writer, at, fleet, set, set_of};
use heliograph_snapshot::ResourceType;
use heliograph_store::{History, PinOrder, Record};
use std::sync::Arc;
use std::time::SystemTime;

/// A writer that has published two steps of `edge`, and is pinned to the first.
async fn pinned(store: &Arc<Faulty>) -> Writer {
    let mut writer = Writer::new(store, 7);
    let pods = set_of(ResourceType::Endpoints, "a", "old pods");
    writer.change(&fleet("edge"), &[set("a", "good"), pods]);
    writer.publisher.complete();
    writer.catch_up().await;
    let pods = set_of(ResourceType::Endpoints, "a", "pods");
    writer.change(&fleet("edge"), &[set("a", "bad"), pods]);
    writer.catch_up().await;
    let first = store.inner().history(fleet("edge")).await.unwrap().pop().unwrap();
    store.inner().order(fleet("edge"), order(1, Some(first))).await.unwrap();
    let pinned = "pinned_fleets 1";
    writer.until("pinned", |it| it.metrics().contains(pinned)).await;
    writer.catch_up().await;
    writer
}

fn order(number: u64, at: Option<Arc<Record>>) -> PinOrder {
    let (by, reason) = ("ann".into(), "bad release".into());
    PinOrder { number, at, time: SystemTime::now(), by, reason }
}

/// Head, cause, cluster and endpoints of the newest snapshot.
async fn newest(store: &Faulty) -> (u64, String, String, String) {
    let record = store.records().await.remove(&fleet("edge")).unwrap();
    let snapshot = store.live().await.remove(&fleet("edge")).unwrap();
    let body = |kind| {
        let resource = snapshot.get(kind, "a").unwrap();
        String::from_utf8(resource.body.to_vec()).unwrap()
    };
    let (cluster, pods) = (body(ResourceType::Cluster), body(ResourceType::Endpoints));
    (record.head.sequence, record.cause.to_string(), cluster, pods)
}

fn expected(
    sequence: u64,
    cause: &str,
    cluster: &str,
    pods: &str,
) -> (u64, String, String, String) {
    (sequence, cause.to_owned(), cluster.to_owned(), pods.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_pin_holds_all_but_endpoints_until_it_is_released() {
    let store = Faulty::new();
    let mut writer = pinned(&store).await;
    let cause = "pinned to 0.7.1 by ann: bad release";
    assert_eq!(newest(&store).await, expected(3, cause, "good", "pods"));
    let pin = store.records().await[&fleet("edge")].pin.clone();
    assert_eq!((pin.number, pin.pinned.unwrap().head), (1, at(7, 1)));

    writer.change(&fleet("edge"), &[set("a", "worse")]);
    writer.catch_up().await;
    assert_eq!(newest(&store).await.0, 3, "translation goes on underneath");
    writer.change(&fleet("edge"), &[set_of(ResourceType::Endpoints, "a", "new pods")]);
    writer.catch_up().await;
    assert_eq!(newest(&store).await, expected(4, "1 object changed", "good", "new pods"));

    store.inner().order(fleet("edge"), order(2, None)).await.unwrap();
    writer.until("released", |it| it.metrics().contains("pinned_fleets 0")).await;
    writer.catch_up().await;
    assert_eq!(newest(&store).await, expected(5, "released by ann", "worse", "new pods"));
}

#[tokio::test(start_paused = true)]
async fn a_pin_outlives_a_term() {
    let store = Faulty::new();
    drop(pinned(&store).await);
    let before = store.noted().publications.len();
    let mut next = Writer::new(&store, 8);
    let pods = set_of(ResourceType::Endpoints, "a", "pods");
    next.change(&fleet("edge"), &[set("a", "bad"), pods]);
    next.publisher.complete();
    next.catch_up().await;
    assert_eq!(store.noted().publications.len(), before, "it is what it should be");
    assert_eq!(newest(&store).await.0, 3);
}

#[tokio::test(start_paused = true)]
async fn a_pin_outlives_a_store_that_lost_everything() {
    let store = Faulty::new();
    let mut writer = pinned(&store).await;
    store.lose_everything();
    writer.until("noticed", |it| it.metrics().contains("repairs_total 1")).await;
    writer.catch_up().await;
    let cause = "repair: the store had lost it";
    assert_eq!(newest(&store).await, expected(4, cause, "good", "pods"));
    store.inner().order(fleet("edge"), order(2, None)).await.unwrap();
    writer.until("released", |it| it.metrics().contains("pinned_fleets 0")).await;
    writer.catch_up().await;
    assert_eq!(newest(&store).await, expected(5, "released by ann", "bad", "pods"));
}
