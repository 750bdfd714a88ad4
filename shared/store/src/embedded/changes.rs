use super::table::Table;
use crate::{Notice, Record, Watch};
use futures::future::BoxFuture;
use heliograph_snapshot::{FleetName, Head};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::watch;

/// How far one reader is. Its memory is bounded by the number of fleets and holds no record: a record is looked up when it is
/// returned, so a slow reader gets the newest.
pub(super) struct EmbeddedWatch {
    table: Arc<Mutex<Table>>,
    doorbell: watch::Receiver<()>,
    /// Fleets that changed and have not been returned since, in the order in which they changed.
    pending: VecDeque<FleetName>,
    /// The change up to which `pending` was filled.
    read_to: u64,
    /// The head last returned of every fleet that the reader believes live.
    returned: BTreeMap<FleetName, Head>,
    synced: bool,
}

impl EmbeddedWatch {
    pub(super) fn new(table: Arc<Mutex<Table>>, doorbell: watch::Receiver<()>) -> Self {
        let (pending, read_to) = {
            let table = table.lock();
            (table.live().cloned().collect(), table.last_change())
        };
        Self { table, doorbell, pending, read_to, returned: BTreeMap::new(), synced: false }
    }

    /// The next notice, if there is one now.
    fn pop(&mut self) -> Option<Notice> {
        let table = self.table.clone();
        let table = table.lock();
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
            // Only once all of the last round is returned: a fleet that changes all the time waits for its turn.
            self.pending.extend(table.changed_after(self.read_to).cloned());
            self.read_to = table.last_change();
            if self.pending.is_empty() {
                return None;
            }
        }
    }

    /// Whether the reader lacks this. It does not where a newer record was returned before its own turn came, and it does not
    /// need the end of a fleet of which it has received nothing.
    fn is_news(&mut self, record: &Record) -> bool {
        if record.is_live() {
            self.returned.insert(record.fleet.clone(), record.head) != Some(record.head)
        } else {
            self.returned.remove(&record.fleet).is_some()
        }
    }
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                if let Some(notice) = self.pop() {
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
