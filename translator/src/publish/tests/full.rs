//! A store that is out of memory.

use super::notes::publisher;
use super::*;

/// Any fleet may have what fills the store, so all are cleaned before they change again.
#[tokio::test]
async fn where_the_store_is_full_all_fleets_are_cleaned_first() {
    let mut ledger = claimed(&[]);
    for name in ["a", "b"] {
        ledger.want(&fleet(name), vec![set("cluster", "1")], 1);
        publish(&mut ledger, name);
        assert!(ledger.next(NOW).is_none());
        let (_, clean) = ledger.next_to_clean().unwrap();
        succeed(&mut ledger, name, clean);
    }
    ledger.want(&fleet("b"), vec![set("cluster", "2")], 1);
    let refused = publication(&mut ledger);
    let mut publisher = publisher(ledger);
    publisher.asking = 1;
    let full = StoreError::Full("out of memory".to_owned());
    publisher.take_step(fleet("b"), Step::Publish(refused.clone()), Err(full)).unwrap();

    publisher.ledger.want(&fleet("a"), vec![set("cluster", "2")], 1);
    let (name, clean) = publisher.ledger.next(NOW).unwrap();
    assert!(name == fleet("a") && matches!(clean, Step::Clean(_)), "{name}: {clean:?}");
    succeed(&mut publisher.ledger, "a", clean);
    assert!(
        matches!(publisher.ledger.next(NOW), Some((name, Step::Publish(_))) if name == fleet("a"))
    );
    // What was refused is tried again as it was.
    publisher.ledger.rested(&fleet("b"));
    let (name, again) = publisher.ledger.next(NOW).unwrap();
    let Step::Publish(again) = again else { panic!("{again:?}") };
    assert_eq!((name, again.snapshot.head), (fleet("b"), refused.snapshot.head));
}
