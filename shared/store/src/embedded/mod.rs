//! The store inside one process: for standalone use and for tests.
//!
//! [`Table`] decides, without IO and without a clock; this module locks it, passes the time, and rings the doorbell for
//! its changes.

mod changes;
mod table;

use self::changes::EmbeddedWatch;
use self::table::Table;
use crate::{
    AckReport, ClaimedTerm, Cleaned, FeedbackReader, FeedbackSender, History, Inspection,
    Inspector, Loaded, PinOrder, Presence, Publication, Published, Reader, Record, Replicas,
    Retirement, StoreError, StoreFuture, Term, Watch, Writer,
};
use heliograph_snapshot::{Address, FleetName, Section, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::Instant;

/// Keeps the snapshots in this process. They end with it.
#[derive(Debug)]
pub struct Embedded {
    table: Arc<Mutex<Table>>,
    /// Rings after every change. It carries no content: receivers read the table.
    doorbell: watch::Sender<()>,
}

impl Embedded {
    /// How many steps of a fleet's history are kept by default.
    pub const HISTORY: usize = 10;

    pub fn new() -> Self {
        Self::with_history(Self::HISTORY)
    }

    /// Keeps `steps` of each fleet's history, the newest among them.
    pub fn with_history(steps: usize) -> Self {
        Self { table: Arc::new(Mutex::new(Table::new(steps))), doorbell: watch::Sender::default() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Rings unless the change was refused or had been made before.
    fn change(
        &self,
        change: impl FnOnce(&mut Table) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let changed = change(&mut self.table())?;
        if changed {
            self.doorbell.send_replace(());
        }
        Ok(())
    }
}

impl Default for Embedded {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer for Embedded {
    fn claim(&self, fence: Option<u128>) -> StoreFuture<'_, ClaimedTerm> {
        Box::pin(async move { self.table().claim(fence, unix_milliseconds()) })
    }

    /// Not keyed: nothing leaves this process.
    fn address_of_sealed(&self, _section: Section, _name: &str, body: &[u8]) -> Address {
        Address::of(body)
    }

    fn publish(&self, publication: Publication) -> StoreFuture<'_, Published> {
        Box::pin(async move {
            self.change(|table| table.publish(publication))?;
            Ok(Published::default())
        })
    }

    fn retire(&self, retirement: Retirement) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.change(|table| table.retire(retirement)) })
    }

    /// Nothing is lost here, so what is to be restored is in the history.
    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        self.order(fleet, order)
    }

    /// Nothing to do: memory is freed with its last reference, and nothing is sealed.
    fn clean(&self, _newest: Arc<Snapshot>) -> StoreFuture<'_, Cleaned> {
        Box::pin(async { Ok(Cleaned::default()) })
    }
}

impl Reader for Embedded {
    fn watch(&self) -> Box<dyn Watch> {
        Box::new(EmbeddedWatch::new(self.table.clone(), self.doorbell.subscribe()))
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        Box::pin(async move { Ok(self.table().newest(&fleets)) })
    }

    fn load(&self, record: Arc<Record>, _known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        Box::pin(async move {
            let snapshot = self.table().load(&record)?;
            Ok(Loaded { snapshot, unopened: Vec::new() })
        })
    }
}

impl Inspector for Embedded {
    fn inspect(&self, _fleets: Vec<FleetName>) -> StoreFuture<'_, Inspection> {
        Box::pin(async move { Ok(self.table().inspect()) })
    }
}

impl History for Embedded {
    fn history(&self, fleet: FleetName) -> StoreFuture<'_, Vec<Arc<Record>>> {
        Box::pin(async move { Ok(self.table().history(&fleet)) })
    }

    fn order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.table().order(fleet, order) })
    }

    fn term(&self) -> StoreFuture<'_, Term> {
        Box::pin(async move { Ok(self.table().term()) })
    }

    fn adopt(&self, from: Term) -> StoreFuture<'_, Term> {
        Box::pin(async move { self.table().adopt(from) })
    }
}

impl FeedbackSender for Embedded {
    fn send_report(&self, report: AckReport) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.table().set_report(report, Instant::now());
            Ok(())
        })
    }
}

impl FeedbackReader for Embedded {
    fn read_reports(&self) -> StoreFuture<'_, Vec<AckReport>> {
        Box::pin(async move { Ok(self.table().reports(Instant::now())) })
    }
}

impl Replicas for Embedded {
    fn send_presence(&self, presence: Presence) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.table().set_presence(presence, Instant::now());
            Ok(())
        })
    }

    fn read_presences(&self) -> StoreFuture<'_, Vec<Presence>> {
        Box::pin(async move { Ok(self.table().presences(Instant::now())) })
    }
}

fn unix_milliseconds() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ACKS_EXPIRY, Notice, PRESENCE_EXPIRY, PinState};
    use futures::FutureExt;
    use heliograph_snapshot::Head;
    use std::time::Duration;

    async fn publish(store: &Embedded, name: &str, sequence: u64) {
        let head = |sequence| Head { epoch: 0, fence: 1, sequence };
        let snapshot = Snapshot::empty(FleetName::new("default", name)).at(head(sequence));
        let publication = Publication {
            snapshot: Arc::new(snapshot),
            expected: (sequence > 1).then(|| head(sequence - 1)),
            held: None,
            time: UNIX_EPOCH,
            cause: "test".into(),
            pin: PinState::default(),
        };
        store.publish(publication).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_falls_silent_is_forgotten() {
        let store = Embedded::new();
        let report = |replica: &str| AckReport { replica: replica.into(), ..AckReport::default() };
        store.send_report(report("silent")).await.unwrap();
        store.send_report(report("speaking")).await.unwrap();
        tokio::time::advance(ACKS_EXPIRY - Duration::from_millis(1)).await;
        store.send_report(report("speaking")).await.unwrap();
        assert_eq!(store.read_reports().await.unwrap().len(), 2);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(store.read_reports().await.unwrap(), [report("speaking")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_is_gone_is_not_present() {
        let store = Embedded::new();
        let presence = |replica: &str| Presence { replica: replica.into(), ..Presence::default() };
        store.send_presence(presence("gone")).await.unwrap();
        tokio::time::advance(PRESENCE_EXPIRY - Duration::from_millis(1)).await;
        store.send_presence(presence("here")).await.unwrap();
        assert_eq!(store.read_presences().await.unwrap().len(), 2);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(store.read_presences().await.unwrap(), [presence("here")]);
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_the_newest_and_nothing_else() {
        let store = Embedded::new();
        let mut watch = store.watch();
        assert!(matches!(watch.next().await, Notice::Synced));
        for sequence in 1..=100 {
            publish(&store, "one", sequence).await;
            publish(&store, "two", sequence).await;
        }
        for name in ["default/one", "default/two"] {
            let Notice::Fleet(record) = watch.next().await else { panic!("synced twice") };
            assert_eq!((record.fleet.as_str(), record.head.sequence), (name, 100));
        }
        assert!(watch.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn the_history_is_as_long_as_asked() {
        let store = Embedded::with_history(2);
        for sequence in 1..=5 {
            publish(&store, "one", sequence).await;
        }
        let history = store.history(FleetName::new("default", "one")).await.unwrap();
        let sequences: Vec<_> = history.iter().map(|record| record.head.sequence).collect();
        assert_eq!(sequences, [5, 4]);
    }
}
