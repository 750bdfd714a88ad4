use crate::{Embedded, Loaded, Reader, Record, StoreError, StoreFuture, Watch};
use heliograph_snapshot::{Change, FleetName, Head, ResourceType, Snapshot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// A reader of an embedded store. Its loads fail as a test sets them.
#[derive(Default)]
pub(super) struct Faulty {
    pub(super) inner: Embedded,
    faults: Mutex<BTreeMap<FleetName, Fault>>,
    /// Where loads wait.
    hold_at: watch::Sender<HoldPoint>,
    pub(super) loading: watch::Sender<Loading>,
}

#[derive(Clone)]
pub(super) enum Fault {
    Fails(StoreError),
    /// Leaves out the secrets.
    Unopened,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HoldPoint {
    #[default]
    Nowhere,
    BeforeRead,
    AfterRead,
}

/// How many loads there were and are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loading {
    pub(super) begun: usize,
    pub(super) now: usize,
    pub(super) most: usize,
    /// What the last had already.
    pub(super) known: Option<Head>,
}

impl Faulty {
    pub(super) fn break_fleet(&self, fleet: FleetName, fault: Fault) {
        self.faults.lock().unwrap().insert(fleet, fault);
    }

    pub(super) fn repair(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(super) fn hold(&self, at: HoldPoint) {
        self.hold_at.send_replace(at);
    }

    pub(super) fn resume(&self) {
        self.hold_at.send_replace(HoldPoint::Nowhere);
    }

    async fn pass(&self, at: HoldPoint) {
        self.hold_at.subscribe().wait_for(|current| *current != at).await.unwrap();
    }

    /// What it reads of a snapshot, with the faults it has.
    async fn read(
        &self,
        record: Arc<Record>,
        known: Option<Arc<Snapshot>>,
    ) -> Result<Loaded, StoreError> {
        let fault = self.faults.lock().unwrap().get(&record.fleet).cloned();
        if let Some(Fault::Fails(error)) = fault {
            return Err(error);
        }
        let mut loaded = self.inner.load(record, known).await?;
        if fault.is_some() {
            let whole = loaded.snapshot;
            let secrets = whole.tree(ResourceType::Secret).iter();
            loaded.unopened = secrets.map(|secret| secret.name.clone()).collect();
            let left_out = loaded.unopened.iter();
            let left_out = left_out.map(|name| Change::Remove(ResourceType::Secret, name.clone()));
            loaded.snapshot = Arc::new(whole.with(whole.head, left_out));
        }
        Ok(loaded)
    }
}

impl Reader for Faulty {
    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        Box::pin(async move {
            self.loading.send_modify(|loading| {
                loading.begun += 1;
                loading.now += 1;
                loading.most = loading.most.max(loading.now);
                loading.known = known.as_ref().map(|known| known.head);
            });
            self.pass(HoldPoint::BeforeRead).await;
            let loaded = self.read(record, known).await;
            self.pass(HoldPoint::AfterRead).await;
            self.loading.send_modify(|loading| loading.now -= 1);
            loaded
        })
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        self.inner.newest(fleets)
    }

    fn watch(&self) -> Box<dyn Watch> {
        self.inner.watch()
    }
}
