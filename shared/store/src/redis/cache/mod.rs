//! The snapshot cache: the last good snapshots on the local disk, for a distributor that starts while Redis is
//! unreachable.
//!
//! `docs/store.md` describes the files. [`file`] encodes them, [`Directory`] reads and replaces files, [`CacheState`]
//! decides which are written and deleted, [`queue`] in which order, and [`writer`] does it in the background. The same
//! code verifies files and what comes from Redis.

mod args;
mod directory;
mod file;
mod metrics;
mod queue;
mod state;
mod writer;

pub use args::SnapshotCacheArgs;
pub use directory::CacheError;
pub(super) use file::{CachedRecord, Objects};
pub(super) use writer::run as write;

use self::directory::{Directory, FileName, ReadError, is_mistake};
use self::file::{FileError, FleetSummary, Header};
use self::metrics::Metrics;
use self::state::CacheState;
use super::StoreOpenError;
use crate::Record;
use bytes::Bytes;
use heliograph_shared::failure_log::FailureLog;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use parking_lot::{Mutex, MutexGuard};
use prometheus::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Where the cache is, and how much it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    pub path: PathBuf,
    /// In bytes.
    pub limit: u64,
}

/// The fleets that a process serves from its cache because Redis has not confirmed them since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedFromCache {
    pub fleets: usize,
    /// How long ago Redis confirmed the oldest of it; `None` if that is not known.
    pub age: Option<Duration>,
}

impl std::fmt::Display for ServedFromCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (fleets, noun) = (self.fleets, if self.fleets == 1 { "fleet" } else { "fleets" });
        write!(
            f,
            "serving {fleets} {noun} from the snapshot cache, not confirmed by Redis since the start"
        )?;
        match self.age {
            Some(age) => write!(f, ": the data is {} s old", age.as_secs()),
            None => write!(f, ": the age of the data is unknown"),
        }
    }
}

/// Cheap to clone: clones share everything.
#[derive(Clone, Debug)]
pub(super) struct Cache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: Directory,
    /// Nobody holds it while a file is read or written.
    state: Mutex<CacheState>,
    /// Something is to be written or deleted.
    bell: Notify,
    metrics: Metrics,
    /// Of a disk that cannot be written.
    write_log: Mutex<FailureLog>,
    /// Of files that cannot be read.
    read_log: Mutex<FailureLog>,
}

impl Cache {
    /// Blocks, for as long as a directory is listed.
    pub(super) fn open(
        options: &CacheOptions,
        registry: &Registry,
    ) -> Result<Self, StoreOpenError> {
        let metrics = Metrics::register(registry)?;
        let (directory, fault) = Directory::open(&options.path, options.limit)?;
        let mut unread = None;
        let mut files = match directory.list() {
            Ok(files) => files,
            Err(error) if fault.is_none() && is_mistake(&error) => {
                return Err(CacheError::Unusable { path: options.path.clone(), error }.into());
            }
            Err(error) => {
                unread = Some(error);
                BTreeMap::new()
            }
        };
        let summary = summary(&directory, &metrics);
        // The files that it lacks were written after it was; or it is lost.
        let confirmed = summary.iter().map(|it| it.confirmed).max().unwrap_or_default();
        let mut found = Vec::new();
        for it in summary {
            if let Some(bytes) = files.remove(&FileName::of(&it.fleet)) {
                found.push(FleetSummary { bytes, ..it });
            }
        }
        for (name, bytes) in files {
            match directory.header(&name) {
                Ok(Some(Header { fleet, head, order, sealed_with, .. }))
                    if FileName::of(&fleet) == name =>
                {
                    let last_use = 0;
                    found.push(FleetSummary {
                        fleet,
                        head,
                        order,
                        bytes,
                        last_use,
                        confirmed,
                        sealed_with,
                    });
                }
                Ok(None) => {}
                Ok(Some(header)) => {
                    ignore(&directory, &metrics, &name, &FileError::OtherFleet(header.fleet));
                }
                Err(ReadError::Refused(error)) => ignore(&directory, &metrics, &name, &error),
                Err(ReadError::Io(error)) => unread = Some(error),
            }
        }
        let state = Mutex::new(CacheState::new(options.limit, found));
        let inner = Inner {
            directory,
            state,
            bell: Notify::new(),
            metrics,
            write_log: Mutex::default(),
            read_log: Mutex::default(),
        };
        let cache = Self(Arc::new(inner));
        cache.count();
        match (fault, unread) {
            (Some(error), _) => cache.log_failure(Some(&error)),
            (None, Some(error)) => cache.log_unreadable(Some(&error)),
            (None, None) => {}
        }
        Ok(cache)
    }

    /// The records of the fleets that are here and not among `others`, those first that were used last. A file that
    /// cannot be used is told of and left out.
    pub(super) async fn records(&self, others: BTreeSet<FleetName>) -> Vec<CachedRecord> {
        let cache = self.clone();
        let read = spawn_blocking(move || {
            let mut fleets = cache.state().recent_first();
            fleets.retain(|fleet| !others.contains(fleet));
            fleets.iter().filter_map(|fleet| cache.read_record(fleet)).collect()
        });
        // The program is ending.
        read.await.unwrap_or_default()
    }

    /// The record that is here of a fleet.
    async fn record_of(&self, fleet: &FleetName) -> Option<CachedRecord> {
        let (cache, fleet) = (self.clone(), fleet.clone());
        spawn_blocking(move || cache.read_record(&fleet)).await.ok().flatten()
    }

    /// The cached objects of a fleet, at whatever head.
    pub(super) async fn objects(&self, fleet: &FleetName) -> Option<Objects> {
        if !self.state().has(fleet) {
            return None;
        }
        let (cache, fleet) = (self.clone(), fleet.clone());
        let read = spawn_blocking(move || {
            let found = cache.read(&fleet, Directory::objects, |(header, _)| header);
            found.map(|(_, objects)| objects)
        });
        read.await.ok().flatten()
    }

    /// A file is of no use, although it is what was written.
    pub(super) fn reject(&self, fleet: &FleetName, reason: &dyn std::fmt::Display) {
        log_ignored(&self.0.directory, &self.0.metrics, &FileName::of(fleet), reason);
        self.discard(fleet);
    }

    /// A reader received this record. `value` is what is in Redis.
    pub(super) fn set_newest_record(&self, fleet: &FleetName, head: Head, value: &Bytes) {
        // With memory of its own: what came with it may be large.
        self.state().set_newest_record(fleet, head, Bytes::copy_from_slice(value));
    }

    pub(super) fn retire(&self, fleet: &FleetName) {
        self.state().retire(fleet);
        self.0.bell.notify_one();
    }

    /// The record of a fleet at a head, as it is in Redis.
    pub(super) fn record(&self, fleet: &FleetName, head: Head) -> Option<Bytes> {
        self.state().record(fleet, head)
    }

    /// A snapshot was loaded, and all of it is there.
    pub(super) fn offer(&self, record: Bytes, snapshot: Arc<Snapshot>) {
        if self.state().offer(record, snapshot, Instant::now()) {
            self.0.bell.notify_one();
        }
    }

    /// A reader received this fleet from the cache, and not from Redis.
    pub(super) fn mark_unconfirmed(&self, fleet: &FleetName) {
        self.state().mark_unconfirmed(fleet);
    }

    /// Redis has this head of a fleet, the same as the last that was passed on or a newer one.
    pub(super) fn confirm(&self, fleet: &FleetName, head: Head, is_newer: bool) {
        self.state().confirm(fleet, head, is_newer);
    }

    /// A snapshot is no longer in memory.
    pub(super) fn dropped(&self, fleet: &FleetName) {
        self.state().dropped(fleet);
    }

    /// A snapshot is about to be loaded.
    pub(super) fn loading(&self, fleet: &FleetName) {
        self.state().loading(fleet);
    }

    pub(super) fn loaded(&self, fleet: &FleetName, head: Head) {
        self.state().loaded(fleet, head);
    }

    /// All that Redis has is known.
    pub(super) fn compared(&self) {
        self.state().compared(milliseconds());
    }

    /// Whether what was last written of a fleet is newer, or obeys a later order of an operator. A fleet that is deleted
    /// is so whatever was ordered.
    pub(super) fn is_ahead_of(&self, record: &Record) -> bool {
        let state = self.state();
        let (head, order) = (state.head(&record.fleet), state.order(&record.fleet));
        head > Some(record.head) || (record.is_live() && order > Some(record.pin.number))
    }

    pub(super) fn is_unconfirmed(&self, fleet: &FleetName) -> bool {
        self.state().is_unconfirmed(fleet)
    }

    pub(super) fn has_unconfirmed(&self) -> bool {
        self.state().unconfirmed() > 0
    }

    pub(super) fn used(&self, fleets: &[FleetName]) {
        self.state().used_now(fleets, milliseconds() / 1000);
    }

    pub(super) fn last_use(&self, fleet: &FleetName) -> Option<u64> {
        self.state().last_use(fleet)
    }

    /// `None`: nothing.
    pub(super) fn served(&self) -> Option<ServedFromCache> {
        let state = self.state();
        let (fleets, confirmed) = (state.unconfirmed(), state.oldest_unconfirmed()?);
        drop(state);
        let age = Duration::from_millis(milliseconds().saturating_sub(confirmed));
        Some(ServedFromCache { fleets, age: (confirmed > 0).then_some(age) })
    }

    /// Has the metrics say how old is what is served.
    pub(super) fn update_serving(&self) {
        let served = self.served();
        let age = served.and_then(|served| served.age).unwrap_or_default();
        self.0.metrics.serving(served.map_or(0, |served| served.fleets), age.as_secs_f64());
    }

    /// Blocks.
    fn read_record(&self, fleet: &FleetName) -> Option<CachedRecord> {
        self.read(fleet, Directory::header, |header| header).map(Header::into_record)
    }

    /// The result of `read` for a fleet's file, if it may be used. `header` finds its header. Blocks.
    fn read<T>(
        &self,
        fleet: &FleetName,
        read: impl FnOnce(&Directory, &FileName) -> Result<Option<T>, ReadError>,
        header: impl Fn(&T) -> &Header,
    ) -> Option<T> {
        // Before the file is opened: the writer may replace it while it is read.
        let state = self.state();
        let known = state.head(fleet).zip(state.order(fleet));
        drop(state);
        let read = read(&self.0.directory, &FileName::of(fleet));
        if let Err(ReadError::Io(error)) = &read {
            // The file may be whole.
            self.log_unreadable(Some(error));
            return None;
        }
        self.log_unreadable(None);
        let checked = match read {
            Ok(Some(found)) => match check(fleet, known, header(&found)) {
                Ok(()) => return Some(found),
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = checked {
            log_ignored(&self.0.directory, &self.0.metrics, &FileName::of(fleet), &error);
        }
        self.discard(fleet);
        None
    }

    /// The writer deletes it, who alone touches files: perhaps it has just written another.
    fn discard(&self, fleet: &FleetName) {
        self.state().discard(fleet);
        self.count();
        self.0.bell.notify_one();
    }

    fn count(&self) {
        let state = self.state();
        let (fleets, used) = (state.fleets(), state.used());
        drop(state);
        self.0.metrics.content(fleets, used);
    }

    /// Says once that the disk fails, and that it does no more.
    fn log_failure(&self, failure: Option<&dyn std::fmt::Display>) {
        let mut log = self.0.write_log.lock();
        let path = self.0.directory.path().display();
        match failure {
            Some(error) if log.failed(&()) => tracing::warn!(
                "the snapshot cache in {path} cannot be written: {error}; proxies are served nevertheless, and the write is retried"
            ),
            None if log.worked().is_some() => {
                tracing::info!("the snapshot cache in {path} can be written again");
            }
            _ => {}
        }
    }

    /// Says once that files cannot be read, and that they can again.
    fn log_unreadable(&self, failure: Option<&io::Error>) {
        let mut log = self.0.read_log.lock();
        let path = self.0.directory.path().display();
        match failure {
            Some(error) if log.failed(&()) => tracing::warn!(
                "the snapshot cache in {path} cannot be read: {error}; its files stay, and their content is read from Redis"
            ),
            None if log.worked().is_some() => {
                tracing::info!("the snapshot cache in {path} can be read again");
            }
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.state.lock()
    }
}

/// `known` is what was last written, and the order that it obeys.
fn check(fleet: &FleetName, known: Option<(Head, u64)>, header: &Header) -> Result<(), FileError> {
    if header.fleet != *fleet {
        return Err(FileError::OtherFleet(header.fleet.clone()));
    }
    match known {
        Some((known, _)) if header.head < known => {
            Err(FileError::Older { found: header.head, known })
        }
        Some((_, known)) if header.order < known => {
            Err(FileError::OlderOrder { found: header.order, known })
        }
        _ => Ok(()),
    }
}

fn summary(directory: &Directory, metrics: &Metrics) -> Vec<FleetSummary> {
    match directory.summary() {
        Ok(summary) => summary.unwrap_or_default(),
        Err(error) => {
            log_ignored(directory, metrics, &"directory", &error);
            Vec::new()
        }
    }
}

/// Logs the error once, because the file is deleted then.
fn ignore(directory: &Directory, metrics: &Metrics, name: &FileName, error: &FileError) {
    log_ignored(directory, metrics, name, error);
    let _ = directory.delete(name);
}

fn log_ignored(
    directory: &Directory,
    metrics: &Metrics,
    name: &dyn std::fmt::Display,
    reason: &dyn std::fmt::Display,
) {
    metrics.ignored();
    let path = directory.path().display();
    tracing::warn!("the snapshot cache ignores the file {path}/{name}: it {reason}");
}

/// Since 1970, by this machine's clock.
fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
