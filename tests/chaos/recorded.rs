//! A store whose writes are written down, and which order's content was loaded.

use crate::log::Log;
use heliograph_checker::{Content, Event, Outcome};
use heliograph_snapshot::{Address, FleetName, Head, Section, Snapshot};
use heliograph_store::redis::RedisStore;
use heliograph_store::{
    AckReport, ClaimedTerm, Cleaned, FeedbackReader, Inspection, Inspector, Loaded, PinOrder,
    Publication, Published, Reader, Record, Retirement, StoreError, StoreFuture, Watch, Writer,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

pub(crate) struct Recorded {
    pub(crate) inner: RedisStore,
    pub(crate) log: Log,
    /// Number of the last order for which all content was loaded.
    pub(crate) loaded: watch::Sender<u64>,
}

impl Recorded {
    pub(crate) fn new(inner: RedisStore, log: Log) -> Self {
        Self { inner, log, loaded: watch::Sender::new(0) }
    }

    async fn write<T>(
        &self,
        fleet: FleetName,
        head: Head,
        content: Option<Content>,
        write: StoreFuture<'_, T>,
    ) -> Result<T, StoreError> {
        let content = content.map(Arc::new);
        self.log.record(Event::Asked { fleet: fleet.clone(), head, content });
        let answer = write.await;
        let outcome = match &answer {
            Ok(_) => Outcome::Acknowledged,
            Err(error) if error.is_temporary() => Outcome::Unknown,
            Err(_) => Outcome::Refused,
        };
        self.log.record(Event::Answered { fleet, head, outcome });
        answer
    }
}

impl Writer for Recorded {
    fn claim(&self, fence: Option<u128>) -> StoreFuture<'_, ClaimedTerm> {
        self.inner.claim(fence)
    }

    fn address_of_sealed(&self, section: Section, name: &str, body: &[u8]) -> Address {
        self.inner.address_of_sealed(section, name, body)
    }

    fn publish(&self, publication: Publication) -> StoreFuture<'_, Published> {
        let Snapshot { fleet, head, .. } = &*publication.snapshot;
        let (fleet, head, content) = (fleet.clone(), *head, (&*publication.snapshot).into());
        Box::pin(self.write(fleet, head, Some(content), self.inner.publish(publication)))
    }

    fn retire(&self, retirement: Retirement) -> StoreFuture<'_, ()> {
        let (fleet, head) = (retirement.fleet.clone(), retirement.tombstone);
        Box::pin(self.write(fleet, head, None, self.inner.retire(retirement)))
    }

    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        self.inner.restore_order(fleet, order)
    }

    fn clean(&self, newest: Arc<Snapshot>) -> StoreFuture<'_, Cleaned> {
        self.inner.clean(newest)
    }
}

impl Inspector for Recorded {
    fn inspect(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, Inspection> {
        self.inner.inspect(fleets)
    }
}

impl Reader for Recorded {
    fn watch(&self) -> Box<dyn Watch> {
        self.inner.watch()
    }

    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        Box::pin(async move {
            let order = record.pin.pinned.is_some().then_some(record.pin.number);
            let loaded = self.inner.load(record, known).await?;
            if let Some(number) = order.filter(|_| loaded.unopened.is_empty()) {
                self.loaded.send_replace(number);
            }
            Ok(loaded)
        })
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        self.inner.newest(fleets)
    }
}

impl FeedbackReader for Recorded {
    fn read_reports(&self) -> StoreFuture<'_, Vec<AckReport>> {
        self.inner.read_reports()
    }
}
