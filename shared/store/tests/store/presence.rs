use crate::Store;
use heliograph_store::Presence;
use std::sync::Arc;

pub(crate) async fn replicas_know_of_each_other(store: Arc<dyn Store>) {
    assert!(present(&*store).await.is_empty());
    let one = Presence { replica: "one".into(), beat: 1, streams: 15_000, leaving: false };
    let two = Presence { replica: "two".into(), beat: 7, streams: 0, leaving: true };
    for presence in [&two, &one] {
        store.send_presence(presence.clone()).await.unwrap();
    }
    assert_eq!(present(&*store).await, [one.clone(), two.clone()]);
    // The last word counts.
    let later = Presence { beat: 2, streams: 14_000, ..one };
    store.send_presence(later.clone()).await.unwrap();
    assert_eq!(present(&*store).await, [later, two]);
}

/// By replica.
async fn present(store: &dyn Store) -> Vec<Presence> {
    let mut present = store.read_presences().await.unwrap();
    present.sort_by(|one, other| one.replica.cmp(&other.replica));
    present
}
