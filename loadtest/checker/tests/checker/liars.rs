//! The same short history over stores that lie: each lie is found, and the truth passes.

use crate::liar::{Liar, Lie};
use bytes::Bytes;
use futures::FutureExt;
use heliograph_checker::{Content, Event, Outcome, Violation, check};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::{Notice, PinState, Publication, Reader, Watch, Writer};
use std::sync::Arc;
use std::time::SystemTime;

struct Run {
    store: Liar,
    watch: Box<dyn Watch>,
    events: Vec<Event>,
    newest: Option<Arc<Snapshot>>,
}

impl Run {
    fn new(lie: Lie) -> Self {
        let store = Liar::new(lie);
        let watch = store.watch();
        let events = vec![Event::Reads { reader: "reader".into() }];
        Self { store, watch, events, newest: None }
    }

    /// Begins a term, and publishes so many snapshots in it.
    async fn write(&mut self, word: &str, count: u64) {
        let claim = self.store.claim(None).await.unwrap();
        let fleet = FleetName::new("default", "gateway");
        let last = claim.records.get(&fleet).map_or(0, |record| record.head.sequence);
        if last == 0 {
            self.newest = None;
        }
        for (number, sequence) in (0..count).zip(last + 1..) {
            let head = Head { epoch: 0, fence: claim.term.fence, sequence };
            let endpoints = |name: &str| {
                let body = Bytes::from(format!("{word} {name} {number}"));
                Change::Set(ResourceType::Endpoints, Arc::new(Resource::new(name, body)))
            };
            let changes = [endpoints("a"), endpoints("b")];
            let snapshot = Arc::new(Snapshot::empty(fleet.clone()).with(head, changes));
            self.publish(snapshot).await;
            // A reader that keeps up, and so sees each.
            self.read().await;
        }
    }

    async fn publish(&mut self, snapshot: Arc<Snapshot>) {
        let (fleet, head) = (snapshot.fleet.clone(), snapshot.head);
        let content = Some(Arc::new(Content::from(&*snapshot)));
        self.events.push(Event::Asked { fleet: fleet.clone(), head, content });
        let held = self.newest.replace(snapshot.clone());
        let published = self.store.publish(Publication {
            snapshot,
            expected: held.as_ref().map(|held| held.head),
            held,
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        });
        let outcome =
            if published.await.is_ok() { Outcome::Acknowledged } else { Outcome::Refused };
        self.events.push(Event::Answered { fleet, head, outcome });
    }

    /// Takes what there is to read. An embedded store has told all that it tells when it is asked.
    async fn read(&mut self) {
        while let Some(notice) = self.watch.next().now_or_never() {
            let Notice::Fleet(record) = notice else { continue };
            let loaded = self.store.load(record.clone(), None).await.unwrap();
            let content = Some(Arc::new(Content::from(&*loaded.snapshot)));
            let (reader, fleet, head) = ("reader".into(), record.fleet.clone(), record.head);
            self.events.push(Event::Read { reader, fleet, head, content });
        }
    }
}

async fn found(lie: Lie) -> Vec<Violation> {
    let mut run = Run::new(lie);
    run.write("first", 3).await;
    check(&run.events)
}

#[tokio::test]
async fn the_truth_passes() {
    let mut run = Run::new(Lie::None);
    run.write("first", 3).await;
    run.write("second", 2).await;
    let reads = run.events.iter().filter(|event| matches!(event, Event::Read { .. })).count();
    assert_eq!(reads, 5, "the reader saw all of it");
    assert_eq!(check(&run.events), []);
}

#[tokio::test]
async fn a_store_that_goes_back_is_found() {
    let found = found(Lie::GoesBack).await;
    assert!(matches!(found[0], Violation::WentBack { .. }), "{found:?}");
}

#[tokio::test]
async fn a_store_that_serves_half_a_snapshot_is_found() {
    let found = found(Lie::ServesHalf).await;
    assert!(found.iter().all(|it| matches!(it, Violation::Half { .. })), "{found:?}");
    assert_eq!(found.len(), 3);
}

#[tokio::test]
async fn a_store_that_mixes_two_snapshots_is_found() {
    let found = found(Lie::MixesTwo).await;
    assert!(found.iter().all(|it| matches!(it, Violation::Foreign { .. })), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[tokio::test]
async fn a_store_that_drops_the_last_publish_is_found() {
    let found = found(Lie::DropsTheThird).await;
    assert!(matches!(found[..], [Violation::Behind { .. }]), "{found:?}");
}

#[tokio::test]
async fn a_store_that_lets_a_head_be_used_twice_is_found() {
    let mut run = Run::new(Lie::Forgets);
    run.write("first", 3).await;
    run.write("second", 2).await;
    let found = check(&run.events);
    assert!(
        matches!(found[..], [Violation::TwoContents { .. }, Violation::TwoContents { .. }]),
        "{found:?}"
    );
}
