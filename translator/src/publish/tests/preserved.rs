use super::*;
use std::collections::BTreeSet;

/// Its Gateway is there, and cannot be read.
#[test]
fn a_fleet_that_is_spared_stays_until_it_is_known_to_be_gone() {
    let old = snapshot("old", earlier(4), vec![set("a", "1")]);
    let mut state = claimed(&[&record(&old)]);
    assert!(state.preserve(BTreeSet::from([fleet("old")])));
    state.complete();
    assert!(state.next(NOW).is_none());
    assert!(!state.preserve(BTreeSet::from([fleet("old")])), "that was said");
    assert!(state.preserve(BTreeSet::new()));
    state.complete();
    assert!(matches!(step(&mut state), Step::Retire(_)));
}
