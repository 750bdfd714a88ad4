//! Whether this replica is behind the store.
//!
//! A client that connects again may have been served something newer by another replica. Versions are hashes and have no
//! order, so only heads can be compared; the store's are at least as new as those that any replica served.

use crate::feed::{Fleet, Fleets};
use heliograph_snapshot::Head;
use heliograph_store::Reader;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// The task that compares, with one question to the store at a time, however many clients wait for the answer.
pub(crate) struct Comparer {
    reader: Arc<dyn Reader>,
    fleets: Fleets,
    requested: Arc<Notify>,
}

/// Where streams ask for a comparison.
#[derive(Clone)]
pub(crate) struct Comparisons {
    reader: Arc<dyn Reader>,
    requested: Arc<Notify>,
}

/// The comparisons of one fleet.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Counts the streams that asked.
    requested: AtomicU64,
    result: watch::Sender<ComparisonResult>,
}

/// The answer of the store.
#[derive(Clone, Copy, Debug, Default)]
struct ComparisonResult {
    /// All who had asked up to this one when the store was.
    to: u64,
    head: Head,
}

/// Between two questions to a store that does not answer.
const RETRY: Duration = Duration::from_millis(200);

impl Comparer {
    pub(crate) fn new(reader: Arc<dyn Reader>, fleets: Fleets) -> (Self, Comparisons) {
        let requested = Arc::new(Notify::new());
        let comparisons = Comparisons { reader: reader.clone(), requested: requested.clone() };
        (Self { reader, fleets, requested }, comparisons)
    }

    pub(crate) async fn run(self) -> Infallible {
        loop {
            self.requested.notified().await;
            while !self.compare().await {
                sleep(RETRY).await;
            }
        }
    }

    /// Asks the store about all fleets whose streams wait for a comparison. Returns whether it answered, or no stream
    /// waits.
    async fn compare(&self) -> bool {
        let fleets = self.fleets.all();
        let awaited: Vec<(&Arc<Fleet>, u64)> = fleets
            .values()
            .filter_map(|fleet| Some((fleet, fleet.comparison.awaited()?)))
            .collect();
        if awaited.is_empty() {
            return true;
        }
        let names = awaited.iter().map(|(fleet, _)| fleet.name.clone()).collect();
        let Ok(newest) = self.reader.newest(names).await else { return false };
        let mut answered = true;
        for (fleet, to) in awaited {
            let head = newest.get(&fleet.name).map(|record| record.head).unwrap_or_default();
            // A store that is behind this replica has lost something, and cannot tell what others served. The
            // translator repairs it within seconds.
            if fleet.head().is_some_and(|ours| head < ours) {
                answered = false;
                continue;
            }
            fleet.comparison.result.send_replace(ComparisonResult { to, head });
        }
        answered
    }
}

impl fmt::Debug for Comparisons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Comparisons").finish_non_exhaustive()
    }
}

impl Comparisons {
    /// Whether this replica has started without the store, and not been compared with it since: then it may be behind by any
    /// time, and not by that of a comparison.
    pub(crate) fn is_unconfirmed(&self, fleet: &Fleet) -> bool {
        self.reader.is_unconfirmed(&fleet.name)
    }

    /// The head that the store has of a fleet, as of some moment after this call. Waits while the store is unreachable.
    pub(crate) async fn head_of(&self, fleet: &Fleet) -> Head {
        let Comparison { requested, result } = &fleet.comparison;
        let mut results = result.subscribe();
        let number = requested.fetch_add(1, Ordering::SeqCst) + 1;
        self.requested.notify_one();
        match results.wait_for(|result| result.to >= number).await {
            Ok(result) => result.head,
            // The sender is the fleet's, which is borrowed here.
            Err(_) => Head::default(),
        }
    }
}

impl Comparison {
    /// The last request without an answer, if a stream still waits.
    fn awaited(&self) -> Option<u64> {
        let requested = self.requested.load(Ordering::SeqCst);
        let answered = self.result.borrow().to;
        (requested > answered && self.result.receiver_count() > 0).then_some(requested)
    }
}
