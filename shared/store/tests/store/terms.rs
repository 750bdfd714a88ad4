use crate::Store;
use crate::follower::Follower;
use crate::writer::{Kind, Writer, fleet};
use heliograph_store::{StoreError, Term};
use std::sync::Arc;

pub(crate) async fn a_claim_tells_what_there_is(store: Arc<dyn Store>) {
    let claim = store.claim(None).await.unwrap();
    assert!(claim.records.is_empty() && claim.orders.is_empty());
    let mut writer = Writer::of(&store, claim);
    let mut last = Vec::new();
    for (name, kinds) in [
        ("one", vec![Kind::Everything]),
        ("two", vec![Kind::Everything, Kind::Endpoints]),
        ("three", vec![Kind::Everything, Kind::Retirement]),
    ] {
        for kind in &kinds {
            let write = writer.draft(&fleet(name), 1, *kind);
            writer.write(write.clone()).await.unwrap();
            last.retain(|(known, _)| *known != fleet(name));
            last.push((fleet(name), Arc::new(write.record())));
        }
    }
    let claim = store.claim(None).await.unwrap();
    assert_eq!(claim.records, last.into_iter().collect());
    assert_eq!(store.term().await.unwrap(), claim.term);
}

pub(crate) async fn a_fence_is_above_all_fences_before(store: Arc<dyn Store>) {
    let first = store.claim(None).await.unwrap().term;
    let second = store.claim(None).await.unwrap().term;
    assert!(second.fence > first.fence);
    let given = second.fence + 1_000_000;
    assert_eq!(store.claim(Some(given)).await.unwrap().term.fence, given);
    assert!(store.claim(None).await.unwrap().term.fence > given);
    // Beyond what a double can tell apart.
    let large = 1 << 100;
    store.claim(Some(large + 1)).await.unwrap();
    let (ours, theirs) = (Term { epoch: 0, fence: large }, Term { epoch: 0, fence: large + 1 });
    let refused = store.claim(Some(large)).await;
    assert_eq!(refused, Err(StoreError::Fenced { ours, theirs }));
}

pub(crate) async fn an_older_claim_is_refused(store: Arc<dyn Store>) {
    store.claim(Some(10)).await.unwrap();
    // A number, not a text: nine comes before ten.
    let (ours, theirs) = (Term { epoch: 0, fence: 9 }, Term { epoch: 0, fence: 10 });
    let refused = store.claim(Some(9)).await;
    assert_eq!(refused, Err(StoreError::Fenced { ours, theirs }));
    // Who asks again because it did not hear the answer is the same writer.
    store.claim(Some(10)).await.unwrap();
    assert_eq!(store.term().await.unwrap(), theirs);
}

pub(crate) async fn an_adopted_store_takes_low_fences(store: Arc<dyn Store>) {
    let one = fleet("one");
    let mut older = Writer::of(&store, store.claim(Some(1 << 90)).await.unwrap());
    older.publish(&one).await.unwrap();
    let mut follower = Follower::synced(&store).await;

    let adopted = store.adopt(older.term).await.unwrap();
    assert!(adopted.epoch > older.term.epoch);
    assert_eq!(store.term().await.unwrap(), adopted);
    let fenced = StoreError::Fenced { ours: older.term, theirs: adopted };
    assert_eq!(older.publish(&one).await, Err(fenced.clone()));
    assert_eq!(older.publish(&fleet("two")).await, Err(fenced));

    let mut newer = Writer::of(&store, store.claim(Some(3)).await.unwrap());
    assert_eq!(newer.term, Term { epoch: adopted.epoch, fence: 3 });
    assert_eq!(newer.believed, older.believed);
    let head = newer.publish(&one).await.unwrap();
    follower.expect_published(&one, head).await;
    let without_election = store.claim(None).await.unwrap().term;
    assert!(without_election > newer.term && without_election.epoch == adopted.epoch);
}

pub(crate) async fn an_adoption_of_another_term_is_refused(store: Arc<dyn Store>) {
    let first = store.claim(Some(5)).await.unwrap().term;
    let second = store.claim(Some(6)).await.unwrap().term;
    for from in [first, Term { epoch: 1, fence: 0 }, Term::default()] {
        let refused = store.adopt(from).await;
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    assert_eq!(store.term().await.unwrap(), second);
}
