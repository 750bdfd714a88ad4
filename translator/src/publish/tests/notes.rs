//! What the publisher remembers of failures, so that each is told once and its end too.

use super::pins::pinnable;
use super::*;
use crate::metrics::TranslatorMetrics;
use crate::publish::Publisher;
use heliograph_store::Embedded;
use prometheus::Registry;
use std::collections::BTreeSet;

fn publisher(ledger: Ledger) -> Publisher {
    let metrics = TranslatorMetrics::register(&Registry::new()).unwrap();
    let publisher = Publisher::new(Arc::new(Embedded::new()), Some(TERM.fence), metrics);
    Publisher { ledger, ..publisher }
}

#[tokio::test]
async fn an_outage_ends_when_nothing_is_asked_for_any_more() {
    let damaged = StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() };
    for error in [StoreError::Unavailable("no answer".to_owned()), damaged] {
        let (mut ledger, _, pin) = pinnable();
        inspect(&mut ledger, &[("edge", at(1))], &[("edge", pin)]).unwrap();
        let load = step(&mut ledger);
        ledger.take_settled();
        let mut publisher = publisher(ledger);
        publisher.asking = 1;
        publisher.take_step(fleet("edge"), load, Err(error)).unwrap();
        publisher.ask();
        assert_eq!(publisher.unanswered.len() + publisher.broken.len(), 1);

        // Released: nothing is to be read any more, and what is published is what is wanted.
        inspect(&mut publisher.ledger, &[("edge", at(1))], &[]).unwrap();
        publisher.ledger.rested(&fleet("edge"));
        publisher.ask();
        assert_eq!(publisher.unanswered.len() + publisher.broken.len(), 0);
        assert!(publisher.outage.is_none());
    }
}

#[tokio::test]
async fn a_fleet_that_is_tended_says_nothing_of_another() {
    let mut publisher = publisher(claimed(&[]));
    let damaged = StoreError::Damaged { fleet: fleet("a"), reason: "torn".to_owned() };
    publisher.note_tended(&fleet("a"), Some(&damaged));
    publisher.note_tended(&fleet("b"), None);
    assert_eq!(publisher.untended, BTreeSet::from([fleet("a")]), "it is not told of again");
    publisher.note_tended(&fleet("a"), None);
    assert!(publisher.untended.is_empty());
}
