use super::DriveError;
use crate::workload::{Update, Workload};
use futures::{StreamExt, TryStreamExt, stream};
use heliograph_snapshot::{
    FleetName, Head, Resource, ResourceType, Section, Snapshot, Tree, Version,
};
use heliograph_store::redis::{RedisStore, StoreArgs};
use heliograph_store::{PinState, Publication, Reader, Term, Watch, Writer};
use prometheus::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Publishes to a store in Redis, as the leading translator would.
#[derive(Debug)]
pub struct StoreDriver {
    store: RedisStore,
    /// What is there of each fleet.
    published: BTreeMap<FleetName, PublishedSnapshot>,
    /// The secrets as this store knows them. They never change.
    secrets: Tree,
}

#[derive(Clone, Debug)]
struct PublishedSnapshot {
    head: Head,
    snapshot: Option<Arc<Snapshot>>,
}

/// How many fleets are published at a time.
const CONCURRENCY: usize = 16;

impl StoreDriver {
    /// Waits for nothing: a Redis that is away is found by [`StoreDriver::set_up`].
    pub fn open(args: &StoreArgs) -> Result<Self, DriveError> {
        let store = args.open(&Registry::new())?;
        Ok(Self { store, published: BTreeMap::new(), secrets: Tree::new() })
    }

    /// All publications from now on, of any writer.
    pub(crate) fn watch(&self) -> Box<dyn Watch> {
        self.store.watch()
    }

    /// The version of a secret, which a store keeps to those who have its key.
    pub fn version_of_secret(&self, name: &str, body: &[u8]) -> Version {
        self.store.address_of_sealed(ResourceType::Secret.into(), name, body).into()
    }

    pub(super) async fn set_up(&mut self, workload: &mut Workload) -> Result<(), DriveError> {
        let claim = self.store.claim(None).await?;
        let Term { epoch, fence } = claim.term;
        let last = claim.records.values().map(|record| record.head.sequence).max();
        let sequence = last.unwrap_or_default().saturating_add(1);
        workload.start_at(Head { epoch, fence, sequence });
        let published = claim.records.into_iter().map(|(fleet, record)| {
            let published = PublishedSnapshot { head: record.head, snapshot: None };
            (fleet, published)
        });
        self.published = published.collect();
        if let Some(first) = workload.snapshots().first() {
            let secrets = first.tree(ResourceType::Secret).iter();
            self.secrets = secrets.map(|secret| self.addressed(secret)).collect();
        }
        self.publish(workload.snapshots()).await
    }

    pub(super) async fn change(
        &mut self,
        workload: &mut Workload,
        update: Update,
    ) -> Result<(), DriveError> {
        self.publish(workload.change(update)).await
    }

    async fn publish(&mut self, snapshots: &[Arc<Snapshot>]) -> Result<(), DriveError> {
        let publications: Vec<_> = snapshots.iter().map(|it| self.publication(it)).collect();
        let published = stream::iter(publications)
            .map(|publication| publish(&self.store, publication))
            .buffer_unordered(CONCURRENCY);
        let published: Vec<_> = published.try_collect().await?;
        for snapshot in published {
            let published =
                PublishedSnapshot { head: snapshot.head, snapshot: Some(snapshot.clone()) };
            self.published.insert(snapshot.fleet.clone(), published);
        }
        Ok(())
    }

    fn publication(&self, snapshot: &Arc<Snapshot>) -> Publication {
        let published = self.published.get(&snapshot.fleet);
        Publication {
            snapshot: self.with_own_secrets(snapshot),
            expected: published.map(|published| published.head),
            held: published.and_then(|published| published.snapshot.clone()),
            time: SystemTime::now(),
            cause: "load test".into(),
            pin: PinState::default(),
        }
    }

    fn with_own_secrets(&self, snapshot: &Arc<Snapshot>) -> Arc<Snapshot> {
        if self.secrets.is_empty() {
            return snapshot.clone();
        }
        let trees = Section::all().map(|section| match section {
            Section::Served(ResourceType::Secret) => (section, self.secrets.clone()),
            _ => (section, snapshot.section(section).clone()),
        });
        let (fleet, head) = (snapshot.fleet.clone(), snapshot.head);
        Arc::new(Snapshot::assembled(fleet, head, trees))
    }

    fn addressed(&self, secret: &Resource) -> Arc<Resource> {
        let Resource { name, body, .. } = secret;
        let address = self.store.address_of_sealed(ResourceType::Secret.into(), name, body);
        Arc::new(Resource::at(address, name.clone(), body.clone()).confidential(true))
    }
}

/// With the housekeeping that a translator does, so that Redis does not grow for as long as a test runs.
async fn publish(
    store: &RedisStore,
    publication: Publication,
) -> Result<Arc<Snapshot>, DriveError> {
    let snapshot = publication.snapshot.clone();
    store.publish(publication).await?;
    store.clean(snapshot.clone()).await?;
    Ok(snapshot)
}
