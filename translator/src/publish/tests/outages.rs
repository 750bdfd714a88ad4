//! Failures of the store, of which the publisher logs each once, and its end too.

use super::*;
use crate::metrics::TranslatorMetrics;
use crate::publish::Publisher;
use heliograph_shared::failure_log::OutageLog;
use heliograph_store::Embedded;
use prometheus::Registry;
use std::collections::BTreeSet;

pub(super) fn publisher(state: PublishState) -> Publisher {
    let metrics = TranslatorMetrics::register(&Registry::new()).unwrap();
    let store = Arc::new(Embedded::new());
    let publisher = Publisher::new(store.clone(), store, Some(TERM.fence), metrics);
    Publisher { state, ..publisher }
}

#[tokio::test]
async fn an_outage_ends_when_nothing_is_asked_for_any_more() {
    let held = record(&snapshot("edge", earlier(1), vec![set("a", "1")]));
    let mut state = claimed(&[&held]);
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    state.complete();
    let load = step(&mut state);
    assert!(matches!(load, Step::LoadHeld { .. }), "{load:?}");
    state.take_settled();
    let mut publisher = publisher(state);
    publisher.asking = 1;
    let error = StoreError::Unavailable("no answer".to_owned());
    publisher.handle_step(fleet("edge"), load, Err(error)).unwrap();
    publisher.start_steps();
    assert_eq!(publisher.unanswered.len(), 1);

    // Nothing is to be read any more: what is published is what is wanted.
    publisher.state.want(&fleet("edge"), vec![set("a", "1")], 1);
    publisher.state.rested(&fleet("edge"));
    publisher.start_steps();
    assert!(publisher.unanswered.is_empty() && publisher.outage == OutageLog::default());
}

#[tokio::test]
async fn a_fleet_that_is_cleaned_says_nothing_of_another() {
    let mut publisher = publisher(claimed(&[]));
    let damaged = StoreError::Damaged { fleet: fleet("a"), reason: "torn".to_owned() };
    publisher.record_cleaned(&fleet("a"), Some(&damaged));
    publisher.record_cleaned(&fleet("b"), None);
    assert_eq!(publisher.uncleaned, BTreeSet::from([fleet("a")]), "it is not told of again");
    publisher.record_cleaned(&fleet("a"), None);
    assert!(publisher.uncleaned.is_empty());
}
