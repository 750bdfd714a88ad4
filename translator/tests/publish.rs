//! The publisher and a whole term on the embedded store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_shared::store::{Embedded, Store, StoreError, Subscription, Update};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_translator::Publisher;
use std::collections::BTreeMap;
use std::sync::Arc;

fn set(name: &str, body: &'static str) -> Change {
    let resource = Resource::new(name, body.as_bytes().to_vec().into());
    Change::Set(ResourceType::Cluster, Arc::new(resource))
}

/// The fleets that a store holds.
async fn live(store: &Embedded) -> BTreeMap<FleetName, Arc<Snapshot>> {
    let mut subscription: Box<dyn Subscription> = store.subscribe();
    let mut live = BTreeMap::new();
    loop {
        match subscription.next().await.unwrap() {
            Update::Published(snapshot) => live.insert(snapshot.fleet.clone(), snapshot),
            Update::Retired(..) => panic!("a new reader hears of what is there"),
            Update::Synced => return live,
        };
    }
}

#[tokio::test]
async fn each_change_is_one_step_and_no_change_is_none() {
    let store = Arc::new(Embedded::new());
    let fleet = FleetName::new("default", "edge");
    let mut publisher = Publisher::claim(store.clone(), Some(7)).await.unwrap();
    let at = |sequence| Head { epoch: 0, fence: 7, sequence };
    assert_eq!(publisher.publish(&fleet, vec![]).await.unwrap(), (at(1), true), "empty is a state");
    assert_eq!(publisher.publish(&fleet, vec![set("a", "1")]).await.unwrap(), (at(2), true));
    assert_eq!(publisher.publish(&fleet, vec![set("a", "1")]).await.unwrap(), (at(2), false));
    assert_eq!(publisher.publish(&fleet, vec![set("b", "1")]).await.unwrap(), (at(3), true));
    let snapshot = live(&store).await.remove(&fleet).unwrap();
    assert_eq!(snapshot.tree(ResourceType::Cluster).len(), 2);
    publisher.retire(&fleet).await.unwrap();
    publisher.retire(&fleet).await.unwrap();
    assert!(live(&store).await.is_empty());
    assert_eq!(publisher.publish(&fleet, vec![]).await.unwrap(), (at(5), true), "it goes on");
}

#[tokio::test]
async fn a_new_term_goes_on_where_the_last_one_ended() {
    let store = Arc::new(Embedded::new());
    let [same, changed, gone] =
        ["same", "changed", "gone"].map(|name| FleetName::new("default", name));
    let mut first = Publisher::claim(store.clone(), Some(1)).await.unwrap();
    for fleet in [&same, &changed, &gone] {
        first.publish(fleet, vec![set("a", "1"), set("b", "1")]).await.unwrap();
    }
    let mut second = Publisher::claim(store.clone(), Some(2)).await.unwrap();
    let again = vec![set("b", "1"), set("a", "1")];
    let before = Head { epoch: 0, fence: 1, sequence: 1 };
    assert_eq!(second.publish(&same, again).await.unwrap(), (before, false), "nothing differs");
    let after = Head { epoch: 0, fence: 2, sequence: 2 };
    assert_eq!(second.publish(&changed, vec![set("a", "2")]).await.unwrap(), (after, true));
    assert_eq!(second.retire_forgotten().await.unwrap(), vec![gone]);
    let live = live(&store).await;
    assert_eq!(live.keys().collect::<Vec<_>>(), [&changed, &same]);
    assert_eq!(live[&changed].tree(ResourceType::Cluster).len(), 1, "b is gone with the old term");

    let error = first.publish(&same, vec![set("c", "1")]).await.unwrap_err();
    assert_eq!(error, StoreError::Fenced { ours: 1, theirs: 2 });
}
