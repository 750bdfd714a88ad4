//! A store that is too simple to be wrong.

use crate::contract::HISTORY;
use crate::writer::Write;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use heliograph_store::{PinOrder, Record, StoreError, Term};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Model {
    pub(crate) term: Term,
    pub(crate) records: BTreeMap<FleetName, Arc<Record>>,
    /// Newest first.
    pub(crate) histories: BTreeMap<FleetName, Vec<Arc<Record>>>,
    pub(crate) orders: BTreeMap<FleetName, PinOrder>,
    /// Every snapshot that ever was the newest.
    snapshots: BTreeMap<(FleetName, Head), Arc<Snapshot>>,
}

impl Model {
    pub(crate) fn heads(&self) -> BTreeMap<FleetName, Head> {
        self.records.iter().map(|(fleet, record)| (fleet.clone(), record.head)).collect()
    }

    pub(crate) fn live(&self) -> BTreeMap<FleetName, Head> {
        let live = self.records.iter().filter(|(_, record)| record.is_live());
        live.map(|(fleet, record)| (fleet.clone(), record.head)).collect()
    }

    pub(crate) fn history(&self, fleet: &FleetName) -> &[Arc<Record>] {
        self.histories.get(fleet).map_or(&[], Vec::as_slice)
    }

    /// What was published at this head, if anything was.
    pub(crate) fn snapshot(&self, fleet: &FleetName, head: Head) -> Option<&Arc<Snapshot>> {
        self.snapshots.get(&(fleet.clone(), head))
    }

    pub(crate) fn write(&mut self, write: &Write) -> Result<(), StoreError> {
        let (record, expected) = (Arc::new(write.record()), write.expected());
        let (fleet, head) = (record.fleet.clone(), record.head);
        if self.records.get(&fleet) == Some(&record) {
            return Ok(());
        }
        if Term::from(head) < self.term {
            return Err(StoreError::Fenced { ours: head.into(), theirs: self.term });
        }
        let found = self.records.get(&fleet).map(|found| found.head);
        if found != expected {
            return Err(StoreError::Conflict { fleet, expected, found });
        }
        if let Some(found) = found
            && head <= found
        {
            return Err(StoreError::NotNewer { fleet, offered: head, found });
        }
        match write {
            Write::Publish(publication) => {
                let history = self.histories.entry(fleet.clone()).or_default();
                if publication.is_step() {
                    history.insert(0, record.clone());
                    history.truncate(HISTORY);
                }
                self.snapshots.insert((fleet.clone(), head), publication.snapshot.clone());
            }
            Write::Retire(_) => {
                self.histories.remove(&fleet);
                self.orders.remove(&fleet);
            }
        }
        self.records.insert(fleet, record);
        Ok(())
    }
}
