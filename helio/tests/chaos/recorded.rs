//! A store whose writes are written down, and which order's content was loaded.

use crate::log::Log;
use heliograph_checker::{Content, Event, Outcome};
use heliograph_snapshot::{Address, FleetName, Head, Snapshot};
use heliograph_store::redis::RedisStore;
use heliograph_store::{
    AckReport, Answer, Claim, Cleaned, Inspection, Loaded, PinOrder, Publication, Published,
    Record, Retirement, Store, StoreError, Term, Watch,
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
        write: Answer<'_, T>,
    ) -> Result<T, StoreError> {
        let content = content.map(Arc::new);
        self.log.note(Event::Asked { fleet: fleet.clone(), head, content });
        let answer = write.await;
        let outcome = match &answer {
            Ok(_) => Outcome::Acknowledged,
            Err(error) if error.is_temporary() => Outcome::Unknown,
            Err(_) => Outcome::Refused,
        };
        self.log.note(Event::Answered { fleet, head, outcome });
        answer
    }
}

impl Store for Recorded {
    fn claim(&self, fence: Option<u128>) -> Answer<'_, Claim> {
        self.inner.claim(fence)
    }

    fn address_of_secret(&self, body: &[u8]) -> Address {
        self.inner.address_of_secret(body)
    }

    fn publish(&self, publication: Publication) -> Answer<'_, Published> {
        let Snapshot { fleet, head, .. } = &*publication.snapshot;
        let (fleet, head, content) = (fleet.clone(), *head, (&*publication.snapshot).into());
        Box::pin(self.write(fleet, head, Some(content), self.inner.publish(publication)))
    }

    fn retire(&self, retirement: Retirement) -> Answer<'_, ()> {
        let (fleet, head) = (retirement.fleet.clone(), retirement.tombstone);
        Box::pin(self.write(fleet, head, None, self.inner.retire(retirement)))
    }

    fn inspect(&self, fleets: Vec<FleetName>) -> Answer<'_, Inspection> {
        self.inner.inspect(fleets)
    }

    fn newest(&self, fleets: Vec<FleetName>) -> Answer<'_, BTreeMap<FleetName, Arc<Record>>> {
        self.inner.newest(fleets)
    }

    fn clean(&self, newest: Arc<Snapshot>) -> Answer<'_, Cleaned> {
        self.inner.clean(newest)
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.inner.watch()
    }

    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> Answer<'_, Loaded> {
        Box::pin(async move {
            let order = record.pin.pinned.is_some().then_some(record.pin.number);
            let loaded = self.inner.load(record, known).await?;
            if let Some(number) = order.filter(|_| loaded.unopened.is_empty()) {
                self.loaded.send_replace(number);
            }
            Ok(loaded)
        })
    }

    fn history(&self, fleet: FleetName) -> Answer<'_, Vec<Arc<Record>>> {
        self.inner.history(fleet)
    }

    fn order(&self, fleet: FleetName, order: PinOrder) -> Answer<'_, ()> {
        self.inner.order(fleet, order)
    }

    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> Answer<'_, ()> {
        self.inner.restore_order(fleet, order)
    }

    fn report(&self, report: AckReport) -> Answer<'_, ()> {
        self.inner.report(report)
    }

    fn reports(&self) -> Answer<'_, Vec<AckReport>> {
        self.inner.reports()
    }

    fn term(&self) -> Answer<'_, Term> {
        self.inner.term()
    }

    fn adopt(&self, from: Term) -> Answer<'_, Term> {
        self.inner.adopt(from)
    }
}
