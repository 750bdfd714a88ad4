use super::*;
use std::collections::BTreeSet;

/// Its Gateway is there, and cannot be read.
#[test]
fn a_fleet_that_is_spared_stays_until_it_is_known_to_be_gone() {
    let old = snapshot("old", earlier(4), vec![set("a", "1")]);
    let mut ledger = claimed(&[&record(&old)]);
    assert!(ledger.spare(BTreeSet::from([fleet("old")])));
    ledger.complete();
    assert!(ledger.next(NOW).is_none());
    assert!(!ledger.spare(BTreeSet::from([fleet("old")])), "that was said");
    assert!(ledger.spare(BTreeSet::new()));
    ledger.complete();
    assert!(matches!(step(&mut ledger), Step::Retire(_)));
}
