//! The task that writes the cache.

use super::directory::FileName;
use super::file::FileError;
use super::queue::Work;
use super::state::{Job, RETRY, Room};
use super::{Cache, file};
use crate::redis::{Shared, records};
use heliograph_snapshot::{FleetName, Section};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};

/// The outcome of writing a fleet.
enum Outcome {
    Written,
    NoRoom,
    Failed(String),
}

/// For so many times as long as a write took, nothing is written: it takes a fiftieth of one core at most.
const WRITE_PAUSE_FACTOR: u32 = 49;
/// The same after the first write of a fleet: of those there are many after a start, and never again.
const FIRST_WRITE_PAUSE_FACTOR: u32 = 4;
/// Between two writes of the file of the directory: when files have changed, and when only times have.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(5);
const TIMES_INTERVAL: Duration = Duration::from_secs(60);
/// How long the end of the program waits for what is still to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

struct Writer {
    shared: Arc<Shared>,
    cache: Cache,
    /// Nothing is written before.
    rest: Instant,
    /// When the file of the directory was written, or tried to be.
    summary: Instant,
    /// It does not say what the files are now.
    is_changed: bool,
    /// How often the keys had changed when it was last looked.
    key_changes: u64,
}

/// Runs until `stop`, and writes then what is left, for a few seconds at most.
pub(in crate::redis) async fn run(
    shared: Arc<Shared>,
    cache: Cache,
    stop: impl Future<Output = ()>,
) {
    let now = Instant::now();
    let key_changes = shared.key_changes.load(Ordering::Relaxed);
    let mut writer =
        Writer { shared, cache, rest: now, summary: now, is_changed: false, key_changes };
    // The key may have been replaced while the program was not running.
    writer.cache.state().keys_changed(&writer.shared.sealing_key());
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = writer.wait() => writer.step().await,
            () = &mut stop => break,
        }
    }
    if timeout(FLUSH_TIMEOUT, writer.finish()).await.is_err() {
        tracing::warn!("part of the snapshot cache was not written in time and is older");
    }
}

impl Writer {
    /// Until there may be something to do.
    async fn wait(&self) {
        sleep_until(self.rest).await;
        let pause = if self.is_changed { SUMMARY_INTERVAL } else { TIMES_INTERVAL };
        let (now, summary) = (Instant::now(), self.summary + pause);
        let due = self.cache.state().next_due(now).map_or(summary, |due| due.min(summary));
        tokio::select! {
            () = self.cache.0.bell.notified() => {}
            () = sleep_until(due) => {}
        }
    }

    async fn step(&mut self) {
        let key_changes = self.shared.key_changes.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.key_changes, key_changes) != key_changes {
            self.cache.state().keys_changed(&self.shared.sealing_key());
        }
        let job = self.cache.state().next_job(Instant::now(), false);
        if let Some(job) = job {
            self.execute(job).await;
        }
        let pause = if self.is_changed { SUMMARY_INTERVAL } else { TIMES_INTERVAL };
        if self.summary.elapsed() >= pause {
            self.write_summary().await;
        }
    }

    /// All that is pending, due or not.
    async fn finish(&mut self) {
        loop {
            let job = self.cache.state().next_job(Instant::now(), true);
            let Some(job) = job else { break };
            self.execute(job).await;
        }
        self.write_summary().await;
    }

    async fn execute(&mut self, job: Job) {
        let started = Instant::now();
        let mut rest = 0;
        match job {
            Job::Delete(fleet) => {
                let cache = self.cache.clone();
                // A file that could not be deleted is found at the next start, and deleted when Redis reports the
                // deletion again.
                let delete = move || cache.0.directory.delete(&FileName::of(&fleet));
                let _ = spawn_blocking(delete).await;
            }
            Job::Write(work) => rest = self.write(work).await,
            Job::Reseal(fleet) => {
                rest = WRITE_PAUSE_FACTOR;
                if let Some(work) = self.read_again(&fleet).await {
                    self.write(work).await;
                }
            }
        }
        self.cache.count();
        self.is_changed |= self.cache.state().take_changed();
        self.rest = Instant::now() + started.elapsed() * rest;
    }

    /// How many times as long to rest.
    async fn write(&mut self, work: Work) -> u32 {
        let fleet = work.snapshot.fleet.clone();
        let is_first = !self.cache.state().has(&fleet);
        let (shared, cache, kept) = (self.shared.clone(), self.cache.clone(), work.clone());
        let written = spawn_blocking(move || write(&shared, &cache, &work)).await;
        let metrics = &self.cache.0.metrics;
        match written {
            Ok(Outcome::Written) => {
                metrics.written();
                self.cache.log_failure(None);
                return if is_first { FIRST_WRITE_PAUSE_FACTOR } else { WRITE_PAUSE_FACTOR };
            }
            Ok(Outcome::NoRoom) => {
                metrics.skipped();
                tracing::debug!(%fleet, "there is no room for it in the snapshot cache");
                self.cache.state().postpone(kept, Instant::now());
            }
            Ok(Outcome::Failed(error)) => {
                metrics.failed();
                self.cache.log_failure(Some(&error));
                self.cache.state().postpone(kept, Instant::now());
            }
            // The program is ending.
            Err(_) => {}
        }
        WRITE_PAUSE_FACTOR
    }

    async fn write_summary(&mut self) {
        let (cache, summary) = (self.cache.clone(), self.cache.state().summary());
        let written = spawn_blocking(move || cache.0.directory.write_summary(&summary)).await;
        self.summary = Instant::now();
        match written {
            Ok(Ok(())) => {
                self.is_changed = false;
                self.cache.log_failure(None);
            }
            Ok(Err(error)) => {
                self.cache.0.metrics.failed();
                self.cache.log_failure(Some(&error));
                self.summary += RETRY;
            }
            // The program is ending.
            Err(_) => {}
        }
    }

    /// Reads a file again, so that it is sealed with the newest key.
    async fn read_again(&self, fleet: &FleetName) -> Option<Work> {
        let cached = self.cache.record_of(fleet).await?;
        let record = cached.verified(&self.shared.signer()).ok()?;
        let loaded = self.shared.load_with_cache(&self.cache, &record).await.ok()?;
        let is_whole = loaded.unopened.is_empty();
        is_whole.then(|| Work { record: cached.value, snapshot: loaded.snapshot })
    }
}

/// Blocks.
fn write(shared: &Shared, cache: &Cache, work: &Work) -> Outcome {
    let Work { record, snapshot } = work;
    let (fleet, name) = (&snapshot.fleet, FileName::of(&snapshot.fleet));
    let mut objects = match shared.objects_of(snapshot, None) {
        Ok(objects) => objects,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let order = match records::read(fleet, record, &shared.signer()) {
        Ok(record) => record.pin.number,
        Err(error) => return Outcome::Failed(format!("the record of {fleet} {error}")),
    };
    // Equal bodies are kept once.
    objects.sort_unstable_by_key(|(address, _)| address.0);
    objects.dedup_by_key(|(address, _)| address.0);
    let always = Section::all().filter(|section| section.is_always_sealed());
    let has_sealed = always
        .chain(snapshot.confidential_sections())
        .any(|section| !snapshot.section(section).is_empty());
    let key = if has_sealed { shared.sealing_key() } else { String::new() };
    let header = match file::fleet_header(fleet, snapshot.head, order, &key, record, &objects) {
        Ok(header) => header,
        Err(FileError::LongHeader(_)) => return Outcome::NoRoom,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let length = objects.iter().map(|(_, object)| object.len()).sum::<usize>() + header.len();
    let length = length as u64;
    let room = cache.state().room(fleet, length);
    let Room::Evict(others) = room else { return Outcome::NoRoom };
    for other in others {
        cache.state().deleted(&other);
        if let Err(error) = cache.0.directory.delete(&FileName::of(&other)) {
            return Outcome::Failed(error.to_string());
        }
    }
    match cache.0.directory.write(&name, &header, &objects) {
        Ok(()) => {
            cache.state().written(fleet, snapshot.head, order, length, key, Instant::now());
            Outcome::Written
        }
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
