//! Stores, a leader that writes to them, and what to write.

use crate::servers::until;
use bytes::Bytes;
use heliograph_snapshot::{
    Change, FleetName, Head, Resource, ResourceType, Section, Snapshot, Tree,
};
use heliograph_store::keys::{KeyFile, KeyRing};
use heliograph_store::redis::link::{Link, RedisSettings};
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_store::{
    ClaimedTerm, Inspector, Notice, PinOrder, PinState, Publication, Published, Reader, Record,
    Retirement, StoreError, Subscription, Term, Update, Watch, Writer,
};
use prometheus::{Registry, TextEncoder};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// For what takes moments; a busy machine gets time.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A key ring in its file.
pub(crate) struct Keys {
    directory: TempDir,
}

/// A program that uses the store.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) store: RedisStore,
    pub(crate) registry: Registry,
}

/// The one writer, as the translator is one: it remembers what it published.
pub(crate) struct Leader {
    pub(crate) store: RedisStore,
    pub(crate) term: Term,
    /// What it believes to be there.
    pub(crate) expected: BTreeMap<FleetName, Head>,
    pub(crate) held: BTreeMap<FleetName, Arc<Snapshot>>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let keys = Self { directory: tempfile::tempdir().unwrap() };
        keys.write(&KeyRing::generate("first").unwrap());
        keys
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("keys.yaml")
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    /// The same ring in a file of its own.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self { directory: tempfile::tempdir().unwrap() };
        copy.write(&self.text());
        copy
    }
}

impl Program {
    pub(crate) fn open(url: &str, keys: &Keys) -> Self {
        // Deletes as soon as it may.
        let options = RedisOptions { grace: Duration::ZERO, ..RedisOptions::default() };
        Self::open_with(settings(url), keys, options)
    }

    pub(crate) fn open_with(settings: RedisSettings, keys: &Keys, options: RedisOptions) -> Self {
        let registry = Registry::new();
        let keys = KeyFile::open(keys.path()).unwrap();
        let store = RedisStore::new(Link::new(settings), keys, options, &registry).unwrap();
        Self { store, registry }
    }

    /// What a metric shows, for example `refused_records_total{reason="forged"}`; 0 where it is not there.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let name = format!("heliograph_store_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        Subscription::new(Arc::new(self.store.clone()))
    }

    pub(crate) async fn lead(&self, fence: u128) -> Leader {
        Leader::of(&self.store, self.store.claim(Some(fence)).await.unwrap())
    }

    /// The record of a fleet that somebody finds who begins to read now.
    pub(crate) async fn record(&self, fleet: &FleetName) -> Option<Arc<Record>> {
        let mut watch = self.store.watch();
        until_synced(&mut *watch).await.remove(fleet)
    }

    /// The snapshot that somebody finds who begins to read now.
    pub(crate) async fn read(&self, fleet: &FleetName) -> Result<Arc<Snapshot>, StoreError> {
        let record = self.record(fleet).await.expect("the fleet is there");
        Ok(self.store.load(record, None).await?.snapshot)
    }
}

impl Leader {
    pub(crate) fn of(store: &RedisStore, claim: ClaimedTerm) -> Self {
        let expected = claim.records.iter().map(|(fleet, record)| (fleet.clone(), record.head));
        Self {
            store: store.clone(),
            term: claim.term,
            expected: expected.collect(),
            held: BTreeMap::new(),
        }
    }

    pub(crate) fn head(&self, sequence: u64) -> Head {
        Head { epoch: self.term.epoch, fence: self.term.fence, sequence }
    }

    /// What it would publish next.
    pub(crate) fn draft(
        &self,
        fleet: &FleetName,
        changes: impl IntoIterator<Item = Change>,
    ) -> Publication {
        let expected = self.expected.get(fleet).copied();
        let held = self.held.get(fleet).cloned();
        let base = held.clone().unwrap_or_else(|| Arc::new(Snapshot::empty(fleet.clone())));
        // After a loss what is held may be ahead of what is there.
        let newest = expected.into_iter().chain(held.as_ref().map(|held| held.head)).max();
        let head = self.head(newest.map_or(0, |head| head.sequence) + 1);
        Publication {
            snapshot: Arc::new(base.with(head, changes)),
            expected,
            held: held.filter(|held| Some(held.head) == expected),
            time: SystemTime::now(),
            cause: format!("change {}", head.sequence).into(),
            pin: PinState::default(),
        }
    }

    pub(crate) async fn publish(
        &mut self,
        fleet: &FleetName,
        changes: impl IntoIterator<Item = Change>,
    ) -> Result<Published, StoreError> {
        self.send(self.draft(fleet, changes)).await
    }

    pub(crate) async fn send(&mut self, draft: Publication) -> Result<Published, StoreError> {
        let published = self.store.publish(draft.clone()).await?;
        let fleet = draft.snapshot.fleet.clone();
        self.expected.insert(fleet.clone(), draft.snapshot.head);
        self.held.insert(fleet, draft.snapshot);
        Ok(published)
    }

    pub(crate) async fn retire(
        &mut self,
        fleet: &FleetName,
        time: SystemTime,
    ) -> Result<(), StoreError> {
        let expected = self.expected.get(fleet).copied();
        let tombstone = self.head(expected.map_or(0, |head| head.sequence) + 1);
        let cause = "gone".into();
        let retirement =
            Retirement { fleet: fleet.clone(), tombstone, expected, time, cause, order: 0 };
        self.store.retire(retirement).await?;
        self.expected.insert(fleet.clone(), tombstone);
        self.held.remove(fleet);
        Ok(())
    }

    /// Looks at what is there, as a leader does every few seconds, and publishes again what is not what it wrote.
    pub(crate) async fn repair(&mut self) -> Result<(), StoreError> {
        let fleets: Vec<_> = self.held.keys().cloned().collect();
        let inspection = self.store.inspect(fleets.clone()).await?;
        for fleet in fleets {
            let found = inspection.heads.get(&fleet).copied();
            if found == Some(self.held[&fleet].head) {
                continue;
            }
            match found {
                Some(found) => self.expected.insert(fleet.clone(), found),
                None => self.expected.remove(&fleet),
            };
            self.publish(&fleet, []).await?;
        }
        Ok(())
    }

    pub(crate) async fn clean(&self, fleet: &FleetName) -> Result<usize, StoreError> {
        Ok(self.store.clean(self.held[fleet].clone()).await?.deleted)
    }

    /// A change whose reply did not come is asked for again until it does.
    pub(crate) async fn insist(&mut self, draft: Publication) {
        let store = self.store.clone();
        until("a write succeeds", async || match store.publish(draft.clone()).await {
            Err(error) if error.is_temporary() => false,
            outcome => outcome.map(|_| true).unwrap(),
        })
        .await;
        self.send(draft).await.unwrap();
    }
}

/// A server that is paused for up to two seconds is waited for; see `scripts/stress`.
pub(crate) fn settings(url: &str) -> RedisSettings {
    url.parse::<RedisSettings>()
        .unwrap()
        .with_timeouts(Duration::from_secs(5), Duration::from_secs(5))
}

pub(crate) fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

pub(crate) fn set(kind: ResourceType, name: &str, body: impl Into<Bytes>) -> Change {
    Change::Set(kind, Arc::new(Resource::new(name, body.into())))
}

pub(crate) fn cluster(body: &str) -> Change {
    set(ResourceType::Cluster, "cluster", body.to_owned())
}

pub(crate) fn endpoints(body: &str) -> Change {
    set(ResourceType::Endpoints, "endpoints", body.to_owned())
}

/// A secret at the address that the store gives it.
pub(crate) fn secret(store: &RedisStore, name: &str, body: &[u8]) -> Change {
    Change::Set(ResourceType::Secret, confidential(store, ResourceType::Secret.into(), name, body))
}

/// Something confidential, at the address that the store gives it.
pub(crate) fn confidential(
    store: &RedisStore,
    section: Section,
    name: &str,
    body: &[u8],
) -> Arc<Resource> {
    let address = store.address_of_sealed(section, name, body);
    Arc::new(Resource::at(address, name, Bytes::copy_from_slice(body)).confidential(true))
}

/// Everything that must be in the store for this snapshot to be whole.
pub(crate) fn addresses(snapshot: &Snapshot) -> BTreeSet<[u8; 32]> {
    let mut addresses = BTreeSet::new();
    for kind in ResourceType::ALL {
        let all = snapshot.tree(kind).additions_to(&Tree::new());
        addresses.extend(all.leaves.iter().map(|(address, _)| address.0));
        addresses.extend(all.branches.iter().map(|(address, _)| address.0));
        // Small bodies are in their leaves.
        let section = Section::from(kind);
        let apart = |resource: &Resource| section.seals(resource) || resource.body.len() > 512;
        let apart = all.resources.iter().filter(|resource| apart(resource));
        addresses.extend(apart.map(|resource| resource.address.0));
    }
    addresses
}

pub(crate) async fn next_notice(watch: &mut dyn Watch) -> Notice {
    tokio::time::timeout(TEST_TIMEOUT, watch.next()).await.expect("a notice comes")
}

/// What there is when the watch begins.
pub(crate) async fn until_synced(watch: &mut dyn Watch) -> BTreeMap<FleetName, Arc<Record>> {
    let mut records = BTreeMap::new();
    while let Notice::Fleet(record) = next_notice(watch).await {
        records.insert(record.fleet.clone(), record);
    }
    records
}

pub(crate) async fn next_record(watch: &mut dyn Watch) -> Arc<Record> {
    match next_notice(watch).await {
        Notice::Fleet(record) => record,
        Notice::Synced => panic!("synced, and no record"),
    }
}

pub(crate) async fn next_update(subscription: &mut Subscription) -> Update {
    tokio::time::timeout(TEST_TIMEOUT, subscription.next()).await.expect("an update comes")
}

/// Reads until a fleet is at this head, and never goes back.
pub(crate) async fn until_at(subscription: &mut Subscription, head: Head) -> Arc<Snapshot> {
    loop {
        if let Update::Published(snapshot, _) = next_update(subscription).await {
            assert!(snapshot.head <= head, "{} is beyond {head}", snapshot.head);
            if snapshot.head == head {
                return snapshot;
            }
        }
    }
}

pub(crate) fn damaged(outcome: Result<impl Sized, StoreError>) -> String {
    match outcome {
        Err(StoreError::Damaged { reason, .. }) => reason,
        Err(other) => panic!("damage was expected, not {other}"),
        Ok(_) => panic!("damage was expected"),
    }
}

pub(crate) fn unavailable(outcome: Result<impl Sized, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable(line) | StoreError::Full(line)) => line,
        Err(other) => panic!("a store that is away was expected, not {other}"),
        Ok(_) => panic!("a store that is away was expected"),
    }
}

/// An order to hold a fleet.
pub(crate) fn pin(number: u64, record: &Arc<Record>) -> PinOrder {
    PinOrder { at: Some(record.clone()), reason: "worse".into(), ..release(number) }
}

pub(crate) fn release(number: u64) -> PinOrder {
    PinOrder { number, at: None, time: SystemTime::UNIX_EPOCH, by: "ann".into(), reason: "".into() }
}
