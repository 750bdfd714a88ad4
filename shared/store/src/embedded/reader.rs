use super::lock;
use super::table::Table;
use crate::{Notice, Record, Watch};
use futures::future::BoxFuture;
use heliograph_snapshot::{FleetName, Head};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// A reader's memory is bounded by the number of fleets and holds no record: a record is looked up when it is told,
/// so a slow reader gets the newest.
pub(super) struct Reader {
    table: Arc<Mutex<Table>>,
    doorbell: watch::Receiver<()>,
    /// Fleets that changed and have not been told since, in the order in which they changed.
    pending: VecDeque<FleetName>,
    /// The change up to which `pending` was filled.
    read_to: u64,
    /// The head last told of every fleet that the reader believes live.
    told: BTreeMap<FleetName, Head>,
    synced: bool,
}

impl Reader {
    pub(super) fn new(table: Arc<Mutex<Table>>, doorbell: watch::Receiver<()>) -> Self {
        let (pending, read_to) = {
            let table = lock(&table);
            (table.live().cloned().collect(), table.last_change())
        };
        Self { table, doorbell, pending, read_to, told: BTreeMap::new(), synced: false }
    }

    /// The next notice, if there is one now.
    fn take(&mut self) -> Option<Notice> {
        let table = self.table.clone();
        let table = lock(&table);
        loop {
            while let Some(fleet) = self.pending.pop_front() {
                if let Some(record) = table.record(&fleet)
                    && self.is_news(record)
                {
                    return Some(Notice::Fleet(record.clone()));
                }
            }
            if !self.synced {
                self.synced = true;
                return Some(Notice::Synced);
            }
            // Only once all of the last round is told: a fleet that changes all the time takes its turn.
            self.pending.extend(table.changed_after(self.read_to).cloned());
            self.read_to = table.last_change();
            if self.pending.is_empty() {
                return None;
            }
        }
    }

    /// Whether the reader has yet to hear this. It has where a newer record was told before its own turn came, and has
    /// no use for the end of a fleet that it never heard of.
    fn is_news(&mut self, record: &Record) -> bool {
        if record.is_live() {
            self.told.insert(record.fleet.clone(), record.head) != Some(record.head)
        } else {
            self.told.remove(&record.fleet).is_some()
        }
    }
}

impl Watch for Reader {
    fn next(&mut self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(notice) = self.take() {
                    return notice;
                }
                // At once if it rang since it was last waited for, so no change slips between.
                if self.doorbell.changed().await.is_err() {
                    // The store is dropped, and nothing will change any more.
                    return std::future::pending().await;
                }
            }
        })
    }
}
