//! The store in Redis: a single server, Sentinel or Cluster.
//!
//! `docs/store.md` describes the keys. Every decision that must be made and carried out in one step is a script; all
//! other calls are reads, and writes of objects that no head leads to yet.

mod acks;
mod args;
pub mod cache;
mod claim;
mod clean;
mod freshness;
mod garbage;
mod history;
pub mod link;
mod load;
mod metrics;
mod names;
mod presence;
mod records;
mod scripts;
mod sweep;
mod watch;
mod write;

pub use args::{StoreArgs, StoreOpenError};
pub use garbage::RetentionLimits;
pub use names::InvalidPrefix;

use self::cache::{Cache, CacheOptions, ServedFromCache};
use self::freshness::Freshness;
use self::link::{Link, LinkError, LinkErrorKind, Mode, RedisConnection};
use self::metrics::{Operation, StoreMetrics};
use self::names::Names;
use crate::keys::{KeyFile, KeyRing, Signer};
use crate::{
    AckReport, ClaimedTerm, Cleaned, FeedbackReader, FeedbackSender, History, Inspection,
    Inspector, Loaded, PinOrder, Presence, Publication, Published, Reader, Record, Replicas,
    Retirement, StoreError, StoreFuture, Term, Watch, Writer,
};
use bytes::Bytes;
use heliograph_shared::failure_log::FailureLog;
use heliograph_snapshot::{Address, FleetName, Section, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use prometheus::Registry;
use redis::{Cmd, FromRedisValue, RedisResult};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Cheap to clone: clones share the connection.
#[derive(Clone, Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

/// The snapshot cache of a reader. The program around the reader runs it and shows it; it gives no access to the store.
#[derive(Clone, Debug)]
pub struct SnapshotCache {
    shared: Arc<Shared>,
}

/// How the store is kept, besides where.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// What all keys begin with.
    pub prefix: String,
    /// How many snapshots of a fleet are kept to go back to.
    pub history: usize,
    /// How long an object that nothing leads to stays, so that a slow reader can finish.
    pub grace: std::time::Duration,
    /// How much of a fleet is kept beside its newest snapshot, in bytes.
    pub retention: RetentionLimits,
}

#[derive(Debug)]
struct Shared {
    link: Link,
    names: Names,
    keys: KeyFile,
    metrics: StoreMetrics,
    options: RedisOptions,
    /// The term that this process began last, if it is a writer.
    claimed: Mutex<Option<Term>>,
    /// What the garbage collection remembers of each fleet.
    cleaning: Mutex<BTreeMap<FleetName, sweep::CleaningState>>,
    /// When Redis last refused a write because it is out of memory.
    full: Mutex<Option<tokio::time::Instant>>,
    /// Forged heads, as they are in Redis. The writer may replace them.
    forged: Mutex<BTreeMap<FleetName, Bytes>>,
    /// Orders that were refused, as they are, so that each is counted once.
    refused_orders: Mutex<BTreeMap<FleetName, Bytes>>,
    /// Which reports of replicas were read.
    freshness: Mutex<Freshness>,
    /// The replicas whose reports were refused, so that each is counted once.
    refused_reports: Mutex<BTreeSet<String>>,
    /// Operations that Redis denied to this user, each reported once.
    denied: Mutex<BTreeSet<Operation>>,
    /// Of messages to readers that are not let through.
    bell_log: Mutex<FailureLog>,
    /// How often the key ring has changed.
    key_changes: AtomicU64,
    /// A reader may have one.
    cache: Option<Cache>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            prefix: "heliograph".to_owned(),
            history: 10,
            grace: std::time::Duration::from_secs(60),
            retention: RetentionLimits::default(),
        }
    }
}

impl RedisStore {
    /// Connects to nothing yet, so it works without a Redis.
    pub fn new(
        link: Link,
        keys: KeyFile,
        options: RedisOptions,
        registry: &Registry,
    ) -> Result<Self, StoreOpenError> {
        Self::open(link, keys, options, None, registry)
    }

    /// For a reader, which has its last good snapshots on its disk and begins with them while Redis is unreachable.
    /// [`SnapshotCache::write`] puts them there.
    pub fn with_cache(
        link: Link,
        keys: KeyFile,
        options: RedisOptions,
        cache: &CacheOptions,
        registry: &Registry,
    ) -> Result<Self, StoreOpenError> {
        let cache = Cache::open(cache, registry)?;
        Self::open(link, keys, options, Some(cache), registry)
    }

    /// For the program around a reader. Without a cache it does nothing.
    pub fn snapshot_cache(&self) -> SnapshotCache {
        SnapshotCache { shared: self.shared.clone() }
    }

    fn open(
        link: Link,
        keys: KeyFile,
        options: RedisOptions,
        cache: Option<Cache>,
        registry: &Registry,
    ) -> Result<Self, StoreOpenError> {
        let names = Names::new(&options.prefix)?;
        let metrics = StoreMetrics::register(registry)?;
        metrics.sealing_keys(keys.current().ids().count());
        let shared = Shared {
            link,
            names,
            keys,
            metrics,
            options,
            claimed: Mutex::default(),
            cleaning: Mutex::default(),
            full: Mutex::default(),
            forged: Mutex::default(),
            refused_orders: Mutex::default(),
            freshness: Mutex::default(),
            refused_reports: Mutex::default(),
            denied: Mutex::default(),
            bell_log: Mutex::default(),
            key_changes: AtomicU64::default(),
            cache,
        };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl Writer for RedisStore {
    fn claim(&self, fence: Option<u128>) -> StoreFuture<'_, ClaimedTerm> {
        Box::pin(self.shared.claim(fence))
    }

    fn address_of_sealed(&self, section: Section, name: &str, body: &[u8]) -> Address {
        Address(self.shared.keys().sealed_hash(section.as_str(), name, body))
    }

    fn publish(&self, publication: Publication) -> StoreFuture<'_, Published> {
        Box::pin(self.shared.publish(publication))
    }

    fn retire(&self, retirement: Retirement) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.retire(retirement))
    }

    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.restore_order(fleet, order))
    }

    fn clean(&self, newest: Arc<Snapshot>) -> StoreFuture<'_, Cleaned> {
        Box::pin(self.shared.clean(newest))
    }
}

impl Reader for RedisStore {
    fn watch(&self) -> Box<dyn Watch> {
        Box::new(watch::RedisWatch::new(self.shared.clone()))
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        Box::pin(async move { self.shared.records(Operation::Compare, &fleets).await })
    }

    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        Box::pin(self.shared.load(record, known))
    }

    fn key_changes(&self) -> u64 {
        self.shared.key_changes.load(Ordering::Relaxed)
    }

    fn is_unconfirmed(&self, fleet: &FleetName) -> bool {
        self.shared.cache.as_ref().is_some_and(|cache| cache.is_unconfirmed(fleet))
    }

    fn mark_used(&self, fleets: &[FleetName]) {
        if let Some(cache) = &self.shared.cache {
            cache.used(fleets);
        }
    }

    fn mark_dropped(&self, fleet: &FleetName) {
        if let Some(cache) = &self.shared.cache {
            cache.dropped(fleet);
        }
    }

    fn last_use(&self, fleet: &FleetName) -> Option<u64> {
        self.shared.cache.as_ref()?.last_use(fleet)
    }
}

impl Inspector for RedisStore {
    fn inspect(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, Inspection> {
        Box::pin(self.shared.inspect(fleets))
    }
}

impl History for RedisStore {
    fn history(&self, fleet: FleetName) -> StoreFuture<'_, Vec<Arc<Record>>> {
        Box::pin(self.shared.history(fleet))
    }

    fn order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.order(fleet, order))
    }

    fn term(&self) -> StoreFuture<'_, Term> {
        Box::pin(self.shared.term())
    }

    fn adopt(&self, from: Term) -> StoreFuture<'_, Term> {
        Box::pin(self.shared.adopt(from))
    }
}

impl FeedbackSender for RedisStore {
    fn send_report(&self, report: AckReport) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.send_report(report))
    }
}

impl FeedbackReader for RedisStore {
    fn read_reports(&self) -> StoreFuture<'_, Vec<AckReport>> {
        Box::pin(self.shared.read_reports())
    }
}

impl Replicas for RedisStore {
    fn send_presence(&self, presence: Presence) -> StoreFuture<'_, ()> {
        Box::pin(self.shared.send_presence(presence))
    }

    fn read_presences(&self) -> StoreFuture<'_, Vec<Presence>> {
        Box::pin(self.shared.read_presences())
    }
}

impl SnapshotCache {
    /// Writes the snapshots that are loaded to the cache, until `stop`, and then what is left, for a few seconds at most.
    pub async fn write(&self, stop: impl Future<Output = ()>) {
        match self.shared.cache.clone() {
            Some(cache) => cache::write(self.shared.clone(), cache, stop).await,
            None => stop.await,
        }
    }

    /// The fleets that are served from the cache without confirmation by Redis; `None` if there are none.
    pub fn served(&self) -> Option<ServedFromCache> {
        self.shared.cache.as_ref()?.served()
    }
}

impl Shared {
    /// Asks Redis for something, and counts it.
    async fn ask<T, W, F>(&self, operation: Operation, work: W) -> Result<T, StoreError>
    where
        W: FnOnce(RedisConnection) -> F,
        F: Future<Output = RedisResult<T>>,
    {
        let started = Instant::now();
        let outcome = self.link.run(work).await;
        let failed = outcome.as_ref().err().map(|error| error.kind);
        self.metrics.operation(operation, started.elapsed(), failed);
        self.report_denial(operation, outcome.as_ref().err());
        outcome.map_err(|error: LinkError| match error.kind {
            LinkErrorKind::OutOfMemory => {
                *self.full.lock() = Some(tokio::time::Instant::now());
                StoreError::Full(error.to_string())
            }
            // All the same to the caller: a script that was refused something half-way has done the rest.
            _ => StoreError::Unavailable(error.to_string()),
        })
    }

    /// Logs once that the user lacks a right: that does not end by itself.
    fn report_denial(&self, operation: Operation, error: Option<&LinkError>) {
        // The watch reports that it cannot compare, and an operator need not be able to announce.
        if matches!(operation, Operation::Compare | Operation::Announce) {
            return;
        }
        let mut denied = self.denied.lock();
        match error {
            Some(error) if error.kind == LinkErrorKind::NoPermission => {
                if denied.insert(operation) {
                    tracing::warn!("{error}");
                }
            }
            Some(_) => {}
            None => {
                denied.remove(&operation);
            }
        }
    }

    /// One command.
    async fn query<T: FromRedisValue>(
        &self,
        operation: Operation,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        let query = |mut connection| async move { command.query_async(&mut connection).await };
        self.ask(operation, query).await
    }

    fn keys(&self) -> KeyRing {
        self.keys.current()
    }

    fn signer(&self) -> Signer {
        Signer::new(self.keys(), self.names.prefix())
    }

    /// The id of the key that seals; empty if there is none.
    fn sealing_key(&self) -> String {
        self.keys().ids().next().map(ToString::to_string).unwrap_or_default()
    }

    /// Reads the file of the key ring again when it has changed. Its errors are logged there.
    fn refresh_keys(&self) {
        if self.keys.refresh().is_ok_and(|changed| changed) {
            self.metrics.sealing_keys(self.keys().ids().count());
            self.key_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_cluster(&self) -> bool {
        self.link.mode() == Mode::Cluster
    }

    /// Where the term is that decides about writes of a fleet.
    fn term_key(&self, fleet: &FleetName) -> String {
        if self.is_cluster() { self.names.term_of(fleet) } else { self.names.term() }
    }

    fn cleaning(&self) -> MutexGuard<'_, BTreeMap<FleetName, sweep::CleaningState>> {
        self.cleaning.lock()
    }

    fn full(&self) -> Option<tokio::time::Instant> {
        *self.full.lock()
    }

    fn forged(&self) -> MutexGuard<'_, BTreeMap<FleetName, Bytes>> {
        self.forged.lock()
    }
}
