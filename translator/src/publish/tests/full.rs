//! A store that is out of memory.

use super::outages::publisher;
use super::*;

/// Any fleet may have what fills the store, so all are cleaned before they change again.
#[tokio::test]
async fn where_the_store_is_full_all_fleets_are_cleaned_first() {
    let mut state = claimed(&[]);
    for name in ["a", "b"] {
        state.want(&fleet(name), vec![set("cluster", "1")], 1);
        publish(&mut state, name);
        assert!(state.next(NOW).is_none());
        let (_, clean) = state.next_to_clean().unwrap();
        succeed(&mut state, name, clean);
    }
    state.want(&fleet("b"), vec![set("cluster", "2")], 1);
    let refused = publication(&mut state);
    let mut publisher = publisher(state);
    publisher.asking = 1;
    let full = StoreError::Full("out of memory".to_owned());
    publisher.handle_step(fleet("b"), Step::Publish(refused.clone()), Err(full)).unwrap();

    publisher.state.want(&fleet("a"), vec![set("cluster", "2")], 1);
    let (name, clean) = publisher.state.next(NOW).unwrap();
    assert!(name == fleet("a") && matches!(clean, Step::Clean(_)), "{name}: {clean:?}");
    succeed(&mut publisher.state, "a", clean);
    assert!(
        matches!(publisher.state.next(NOW), Some((name, Step::Publish(_))) if name == fleet("a"))
    );
    // What was refused is tried again as it was.
    publisher.state.rested(&fleet("b"));
    let (name, again) = publisher.state.next(NOW).unwrap();
    let Step::Publish(again) = again else { panic!("{again:?}") };
    assert_eq!((name, again.snapshot.head), (fleet("b"), refused.snapshot.head));
}
