//! A store that can be made to fail.

use futures::future::BoxFuture;
use heliograph_snapshot::{Change, FleetName, ResourceType, Snapshot};
use heliograph_store::{
    AckReport, Embedded, FeedbackSender, Loaded, Notice, Reader, Record, Replicas, StoreError,
    StoreFuture, Watch,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// [`Embedded`], with faults.
#[derive(Default)]
pub(crate) struct Faulty {
    inner: Arc<Embedded>,
    faults: watch::Sender<Faults>,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// A reader hears nothing.
    pub(crate) silent: bool,
    /// Questions and reports are not answered.
    pub(crate) away: bool,
    /// Secrets cannot be opened.
    pub(crate) keyless: bool,
    /// What was written is lost, as a failover loses it.
    pub(crate) forgetful: bool,
    /// The replica has started with its snapshot cache, and not heard of the store since.
    pub(crate) unconfirmed: bool,
}

struct Slow {
    inner: Box<dyn Watch>,
    faults: watch::Receiver<Faults>,
    received: Option<Notice>,
}

impl Faulty {
    pub(crate) fn over(inner: Arc<Embedded>) -> Self {
        Self { inner, faults: watch::Sender::default() }
    }

    pub(crate) fn with(faults: Faults) -> Self {
        Self { inner: Arc::default(), faults: watch::Sender::new(faults) }
    }

    pub(crate) fn inner(&self) -> Arc<Embedded> {
        self.inner.clone()
    }

    pub(crate) fn set(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    fn reachable(&self) -> Result<(), StoreError> {
        match self.faults.borrow().away {
            true => Err(StoreError::Unavailable("away".to_owned())),
            false => Ok(()),
        }
    }
}

impl Reader for Faulty {
    fn watch(&self) -> Box<dyn Watch> {
        let faults = self.faults.subscribe();
        Box::new(Slow { inner: self.inner.watch(), faults, received: None })
    }

    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        Box::pin(async move {
            let loaded = self.inner.load(record, known).await?;
            Ok(if self.faults.borrow().keyless {
                without_secrets(&loaded.snapshot)
            } else {
                loaded
            })
        })
    }

    fn is_unconfirmed(&self, _fleet: &FleetName) -> bool {
        self.faults.borrow().unconfirmed
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        Box::pin(async move {
            self.reachable()?;
            if self.faults.borrow().forgetful {
                return Ok(BTreeMap::new());
            }
            self.inner.newest(fleets).await
        })
    }
}

impl FeedbackSender for Faulty {
    fn send_report(&self, report: AckReport) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.reachable()?;
            self.inner.send_report(report).await
        })
    }
}

impl Replicas for Faulty {}

impl Watch for Slow {
    fn next(&mut self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            loop {
                // Kept until it is returned, since this future may be dropped while it waits.
                if self.received.is_none() {
                    self.received = Some(self.inner.next().await);
                }
                let _ = self.faults.wait_for(|faults| !faults.silent).await;
                if let Some(notice) = self.received.take() {
                    return notice;
                }
            }
        })
    }
}

fn without_secrets(snapshot: &Snapshot) -> Loaded {
    let secrets = snapshot.tree(ResourceType::Secret).iter();
    let unopened: Vec<_> = secrets.map(|secret| secret.name.clone()).collect();
    let removals = unopened.iter().map(|name| Change::Remove(ResourceType::Secret, name.clone()));
    Loaded { snapshot: Arc::new(snapshot.with(snapshot.head, removals)), unopened }
}
