//! Whole snapshots in order, over any store.
//!
//! [`LoadScheduler`] decides what to load next and what to yield, without IO and without a clock; this module passes
//! events to it and makes the calls.

mod scheduler;
#[cfg(test)]
mod tests;

use self::scheduler::{LoadScheduler, Outcome, Request};
use crate::{Reader, Record, StoreError, Watch};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep, sleep_until};

/// Every fleet as it is now, then every change, as whole snapshots.
///
/// A fleet only moves forward. A snapshot that cannot be loaded is not yielded, so that readers keep the one that they
/// have; the load is tried again, and delays no other fleet.
///
/// Where memory does not suffice for all, the reader chooses: see [`Subscription::choosing`].
pub struct Subscription {
    reader: Arc<dyn Reader>,
    watch: Box<dyn Watch>,
    loads: FuturesUnordered<BoxFuture<'static, Outcome>>,
    scheduler: LoadScheduler,
    /// How often the keys had changed when it was last looked.
    key_changes: u64,
}

#[derive(Clone, Debug)]
pub enum Update {
    /// The newest snapshot of a fleet, and when it was written, by the writer's clock. It comes again at the same head,
    /// with more, when secrets that had to be left out could be opened.
    Published(Arc<Snapshot>, SystemTime),
    /// A fleet that was published is no more.
    Retired(FleetName, Head),
    /// All fleets that the store held at the start have been published, but for those that cannot be loaded and those that
    /// are not kept.
    Synced,
    /// To who chooses: there is a fleet that is not kept, and this is its newest record.
    Known(Arc<Record>),
    /// To who chooses: all fleets that the store held at the start are known. What is kept of them now is waited for before
    /// [`Update::Synced`].
    Listed,
    /// To who chooses: a fleet that is kept cannot be loaded, and there is nothing of it from before. It is tried again.
    Failed(FleetName, StoreError),
}

/// How often to check whether the key of a secret has come.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Subscription {
    pub fn new(reader: Arc<dyn Reader>) -> Self {
        Self::with(reader, LoadScheduler::default())
    }

    /// For a reader that chooses the fleets whose snapshots it has. Of the others it learns only that they exist, which
    /// costs no load however often they change.
    pub fn choosing(reader: Arc<dyn Reader>) -> Self {
        Self::with(reader, LoadScheduler::choosing())
    }

    fn with(reader: Arc<dyn Reader>, scheduler: LoadScheduler) -> Self {
        let watch = reader.watch();
        let key_changes = reader.key_changes();
        Self { reader, watch, loads: FuturesUnordered::new(), scheduler, key_changes }
    }

    /// The next update. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Update {
        loop {
            if let Some(update) = self.scheduler.next_update() {
                return update;
            }
            let key_changes = self.reader.key_changes();
            if key_changes != std::mem::replace(&mut self.key_changes, key_changes) {
                self.scheduler.keys_changed();
            }
            while let Some(request) = self.scheduler.begin_load(Instant::now()) {
                self.loads.push(load(self.reader.clone(), request));
            }
            let due = self.scheduler.next_retry();
            tokio::select! {
                notice = self.watch.next() => self.scheduler.receive(notice),
                Some(outcome) = self.loads.next() => {
                    self.scheduler.settle(outcome, Instant::now(), fastrand::f64());
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                () = sleep(KEY_CHECK_INTERVAL), if self.scheduler.unopened() > 0 => {}
            }
        }
    }

    /// Loads a known fleet, now and whenever it changes.
    pub fn keep(&mut self, fleet: &FleetName) {
        self.scheduler.keep(fleet);
    }

    /// The same for a fleet that a stream waits for: it is loaded before those that wait for their turn.
    pub fn keep_first(&mut self, fleet: &FleetName) {
        self.scheduler.keep(fleet);
        self.scheduler.prioritise(fleet);
    }

    /// Drops the snapshot of a fleet, and only follows its records from now on. If it is kept again it is loaded anew, at no older
    /// head.
    pub fn release(&mut self, fleet: &FleetName) {
        self.scheduler.release(fleet);
        self.reader.mark_dropped(fleet);
    }

    /// See [`Reader::mark_used`].
    pub fn mark_used(&self, fleets: &[FleetName]) {
        self.reader.mark_used(fleets);
    }

    /// See [`Reader::last_use`].
    pub fn last_use(&self, fleet: &FleetName) -> Option<u64> {
        self.reader.last_use(fleet)
    }

    /// How many fleets stay at an older snapshot because what the store holds of their newest cannot be used.
    pub fn damaged(&self) -> usize {
        self.scheduler.damaged()
    }

    /// Which of them could be loaded if the translator wrote all of them again, and at which heads.
    pub fn damaged_fleets(&self) -> BTreeMap<FleetName, Head> {
        self.scheduler.damaged_fleets()
    }

    /// The records that the store has lost, as this reader last received them.
    pub fn remembered(&self) -> Vec<Arc<Record>> {
        self.watch.remembered()
    }

    /// How many fleets lack secrets that this process has no key for.
    pub fn unopened(&self) -> usize {
        self.scheduler.unopened()
    }
}

fn load(reader: Arc<dyn Reader>, request: Request) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        let loaded = reader.load(request.record.clone(), request.known).await;
        Outcome { record: request.record, loaded }
    })
}
