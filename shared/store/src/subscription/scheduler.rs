use super::Update;
use crate::{Loaded, Notice, Record, StoreError};
use heliograph_shared::backoff::Backoff;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Schedules loads: what is known, wanted and owed. Its memory is bounded by the number of live fleets.
#[derive(Debug, Default)]
pub(super) struct LoadScheduler {
    /// The reader chooses which fleets are kept. Otherwise all are.
    is_choosing: bool,
    fleets: BTreeMap<FleetName, Fleet>,
    /// Fleets to load, each once, in the order in which they were asked for.
    queue: VecDeque<FleetName>,
    /// The same for those that go before them. A fleet is in one of the two.
    front: VecDeque<FleetName>,
    /// Fleets to load again at a later time.
    retries: BTreeSet<(Instant, FleetName)>,
    loading: usize,
    /// What the reader gets next. It is emptied before another notice is received.
    ready: VecDeque<Update>,
    start: Start,
    /// The fleets of the start that were neither yielded nor given up.
    owed: BTreeSet<FleetName>,
    /// The fleets whose newest record cannot be loaded, as was logged.
    damaged: BTreeMap<FleetName, Damage>,
    /// The fleets with secrets that cannot be opened, and which that are, as was logged.
    unopened: BTreeMap<FleetName, Vec<Arc<str>>>,
}

/// A record to load, and the snapshot that the reader has already.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) record: Arc<Record>,
    pub(super) known: Option<Arc<Snapshot>>,
}

/// The outcome of a request.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) record: Arc<Record>,
    pub(super) loaded: Result<Loaded, StoreError>,
}

#[derive(Debug, Default)]
struct Fleet {
    /// The newest head that the watch reported, loaded or not.
    newest: Option<Head>,
    /// The record of that head, unless it says that the fleet is retired.
    live: Option<Arc<Record>>,
    /// Whether the fleet is to be loaded, now and whenever it changes.
    kept: bool,
    /// The newest record, unless it is loaded whole or being loaded.
    wanted: Option<Arc<Record>>,
    /// What was yielded last.
    known: Option<Arc<Snapshot>>,
    /// Where the fleet was retired: what is still being loaded from before is of no use.
    retired: Option<Head>,
    task: Task,
    /// How often in a row a record could not be loaded.
    failures: u32,
    /// How often in a row secrets had to be left out, since the keys changed.
    incomplete: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Damage {
    head: Head,
    /// It helps to write it again. It does not where this program is too old.
    is_repairable: bool,
}

/// The task that is under way for a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Task {
    #[default]
    None,
    Queued,
    Loading,
    RetryAt(Instant),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    /// The watch has not listed all fleets yet.
    #[default]
    Listing,
    /// It has, and some of them are owed.
    Listed,
    Synced,
}

/// How many fleets are loaded at once.
pub(super) const LOADS: usize = 16;
/// Between two tries of a load that failed. The more often it failed, the further they may be apart.
pub(super) const BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(500), Duration::from_secs(5));
/// The same for a load that left secrets out. When this process gets their key it is tried at once; this is for secrets
/// that the translator seals again with a key that is here.
pub(super) const RESEALED: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// After how many failed loads a record counts as damaged: once may be a record that was replaced meanwhile.
const DAMAGE_ATTEMPTS: u32 = 2;
/// After how many attempts a fleet of the start no longer delays the others while the store is unreachable.
pub(super) const START_ATTEMPTS: u32 = 5;
/// How many secrets a line of the log names.
const MAX_NAMED_SECRETS: usize = 10;

impl LoadScheduler {
    pub(super) fn choosing() -> Self {
        Self { is_choosing: true, ..Self::default() }
    }

    /// The next update for the reader. `Synced` comes after everything of the start, and the reader may have asked for
    /// more meanwhile.
    pub(super) fn next_update(&mut self) -> Option<Update> {
        self.ready.pop_front().or_else(|| self.sync())
    }

    pub(super) fn damaged(&self) -> usize {
        self.damaged.len()
    }

    pub(super) fn damaged_fleets(&self) -> BTreeMap<FleetName, Head> {
        let repairable = self.damaged.iter().filter(|(_, damage)| damage.is_repairable);
        repairable.map(|(name, damage)| (name.clone(), damage.head)).collect()
    }

    pub(super) fn unopened(&self) -> usize {
        self.unopened.len()
    }

    #[cfg(test)]
    pub(super) fn fleets(&self) -> usize {
        self.fleets.len()
    }

    /// When there is something to load again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(due, _)| *due)
    }

    /// The next thing to load now.
    pub(super) fn begin_load(&mut self, now: Instant) -> Option<Request> {
        while let Some((due, _)) = self.retries.first()
            && *due <= now
            && let Some((_, name)) = self.retries.pop_first()
        {
            self.enqueue(&name);
        }
        if self.loading == LOADS {
            return None;
        }
        loop {
            let name = self.front.pop_front().or_else(|| self.queue.pop_front())?;
            let Some(fleet) = self.fleets.get_mut(&name) else { continue };
            fleet.task = Task::None;
            if let Some(record) = fleet.wanted.take() {
                fleet.task = Task::Loading;
                self.loading += 1;
                return Some(Request { record, known: fleet.known.clone() });
            }
            // It was retired or released while it waited.
            self.forget_if_gone(&name);
        }
    }

    pub(super) fn receive(&mut self, notice: Notice) {
        match notice {
            Notice::Fleet(record) if record.is_live() => self.want(record),
            Notice::Fleet(record) => self.retire(&record),
            Notice::Synced if self.start == Start::Listing => {
                self.start = Start::Listed;
                if self.is_choosing {
                    self.ready.push_back(Update::Listed);
                }
            }
            Notice::Synced => {}
        }
    }

    /// From now on the fleet is loaded, if one of this name lives.
    pub(super) fn keep(&mut self, name: &FleetName) {
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        if fleet.kept || fleet.live.is_none() {
            return;
        }
        fleet.kept = true;
        fleet.wanted = fleet.live.clone();
        if self.start != Start::Synced {
            self.owed.insert(name.clone());
        }
        self.enqueue_wanted(name);
    }

    /// Moves a waiting fleet before those that no stream waits for.
    pub(super) fn prioritise(&mut self, name: &FleetName) {
        let is_queued = self.fleets.get(name).is_some_and(|fleet| fleet.task == Task::Queued);
        if is_queued && !self.front.contains(name) {
            self.queue.retain(|queued| queued != name);
            self.front.push_back(name.clone());
        }
    }

    /// From now on the fleet is only known. Nothing of its snapshot stays here, nor of one that is being loaded.
    pub(super) fn release(&mut self, name: &FleetName) {
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        fleet.release();
        self.owed.remove(name);
        self.damaged.remove(name);
        self.unopened.remove(name);
        self.cancel_retry(name);
    }

    /// `jitter`, from 0 to 1, spreads what is tried again over time.
    pub(super) fn settle(&mut self, outcome: Outcome, now: Instant, jitter: f64) {
        let Outcome { record, loaded } = outcome;
        self.loading = self.loading.saturating_sub(1);
        let Some(fleet) = self.fleets.get_mut(&record.fleet) else { return };
        fleet.task = Task::None;
        if fleet.kept && fleet.retired < Some(record.head) {
            match loaded {
                Ok(loaded) => self.arrived(&record, loaded, now, jitter),
                Err(error) => self.failed(&record, &error, now, jitter),
            }
        }
        self.enqueue_wanted(&record.fleet);
        self.forget_if_gone(&record.fleet);
    }

    /// Loads snapshots again that lack secrets.
    pub(super) fn keys_changed(&mut self) {
        let names: Vec<_> = self.unopened.keys().cloned().collect();
        for name in names {
            if let Some(fleet) = self.fleets.get_mut(&name) {
                // One that is being loaded with the keys from before is tried again soon.
                fleet.incomplete = 0;
            }
            self.cancel_retry(&name);
            self.enqueue_wanted(&name);
        }
    }

    fn want(&mut self, record: Arc<Record>) {
        let name = record.fleet.clone();
        let fleet = self.fleets.entry(name.clone()).or_default();
        if fleet.newest >= Some(record.head) {
            return;
        }
        fleet.newest = Some(record.head);
        fleet.live = Some(record.clone());
        fleet.kept |= !self.is_choosing;
        if !fleet.kept {
            self.ready.push_back(Update::Known(record));
            return;
        }
        fleet.wanted = Some(record);
        self.cancel_retry(&name);
        self.enqueue_wanted(&name);
        if self.start == Start::Listing {
            self.owed.insert(name);
        }
    }

    fn retire(&mut self, record: &Record) {
        let name = &record.fleet;
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        if fleet.newest >= Some(record.head) {
            return;
        }
        fleet.newest = Some(record.head);
        fleet.retired = Some(record.head);
        // Who chooses has received every fleet that lived.
        let was_reported = fleet.known.is_some() || (self.is_choosing && fleet.live.is_some());
        fleet.live = None;
        if was_reported {
            self.ready.push_back(Update::Retired(name.clone(), record.head));
        }
        self.release(name);
        self.forget_if_gone(name);
    }

    fn arrived(&mut self, record: &Arc<Record>, loaded: Loaded, now: Instant, jitter: f64) {
        let name = &record.fleet;
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        let Loaded { snapshot, unopened } = loaded;
        let is_news = fleet.known.as_ref().is_none_or(|known| {
            // At the same head only a secret that could be opened makes a difference.
            known.head < snapshot.head
                || (known.head == snapshot.head && !known.same_content(&snapshot))
        });
        if is_news {
            fleet.known = Some(snapshot.clone());
            self.ready.push_back(Update::Published(snapshot, record.time));
        }
        fleet.failures = 0;
        self.owed.remove(name);
        if self.damaged.remove(name).is_some() {
            tracing::info!(fleet = %name, head = %record.head, "the newest snapshot can be loaded again");
        }
        fleet.incomplete = if unopened.is_empty() { 0 } else { fleet.incomplete.saturating_add(1) };
        let due = now + RESEALED.spread(fleet.incomplete, jitter);
        if unopened.is_empty() {
            if self.unopened.remove(name).is_some() {
                tracing::info!(fleet = %name, head = %record.head, "all secrets can be opened");
            }
            return;
        }
        // Once, and not for each head: endpoints may change every second.
        if self.unopened.get(name) != Some(&unopened) {
            tracing::warn!(
                fleet = %name,
                head = %record.head,
                "these secrets are not served, because the key that seals them is not in this process's key ring: {}",
                in_words(&unopened)
            );
            self.unopened.insert(name.clone(), unopened);
        }
        self.retry(record, due);
    }

    fn failed(&mut self, record: &Arc<Record>, error: &StoreError, now: Instant, jitter: f64) {
        let name = &record.fleet;
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        if fleet.wanted.is_some() {
            // Replaced by a newer one, which is tried at once.
            return;
        }
        fleet.failures = fleet.failures.saturating_add(1);
        let failures = fleet.failures;
        tracing::debug!(fleet = %name, head = %record.head, failures, %error, "cannot be loaded");
        let is_repairable = matches!(error, StoreError::Damaged { .. });
        let damage = Damage { head: record.head, is_repairable };
        if failures >= if error.is_temporary() { START_ATTEMPTS } else { DAMAGE_ATTEMPTS } {
            self.owed.remove(name);
        }
        let is_certain = error.is_temporary() || failures >= DAMAGE_ATTEMPTS;
        if self.is_choosing && fleet.known.is_none() && is_certain {
            self.ready.push_back(Update::Failed(name.clone(), error.clone()));
        }
        // An unreachable store is reported once, and not for each fleet.
        if !error.is_temporary()
            && failures >= DAMAGE_ATTEMPTS
            && self.damaged.insert(name.clone(), damage) != Some(damage)
        {
            tracing::warn!(
                fleet = %name,
                head = %record.head,
                %error,
                "the newest snapshot cannot be loaded; the previous one, if there is one, stays in use, and loading is retried"
            );
        }
        self.retry(record, now + BACKOFF.spread(failures, jitter));
    }

    /// Loads a record again later, unless there is a newer one.
    fn retry(&mut self, record: &Arc<Record>, due: Instant) {
        let Some(fleet) = self.fleets.get_mut(&record.fleet) else { return };
        if fleet.wanted.is_none() {
            fleet.wanted = Some(record.clone());
            fleet.task = Task::RetryAt(due);
            self.retries.insert((due, record.fleet.clone()));
        }
    }

    fn cancel_retry(&mut self, name: &FleetName) {
        if let Some(fleet) = self.fleets.get_mut(name)
            && let Task::RetryAt(due) = fleet.task
        {
            fleet.task = Task::None;
            self.retries.remove(&(due, name.clone()));
        }
    }

    /// Queues a fleet for which nothing is under way and something is wanted.
    fn enqueue_wanted(&mut self, name: &FleetName) {
        let fleet = self.fleets.get(name);
        if fleet.is_some_and(|fleet| fleet.task == Task::None && fleet.wanted.is_some()) {
            self.enqueue(name);
        }
    }

    fn enqueue(&mut self, name: &FleetName) {
        if let Some(fleet) = self.fleets.get_mut(name) {
            fleet.task = Task::Queued;
            self.queue.push_back(name.clone());
        }
    }

    fn forget_if_gone(&mut self, name: &FleetName) {
        let fleet = self.fleets.get(name);
        if fleet.is_some_and(|fleet| fleet.live.is_none() && fleet.task == Task::None) {
            self.fleets.remove(name);
        }
    }

    /// Returns `Synced` once, when everything of the start was returned.
    fn sync(&mut self) -> Option<Update> {
        let is_due = self.start == Start::Listed && self.owed.is_empty();
        is_due.then(|| {
            self.start = Start::Synced;
            Update::Synced
        })
    }
}

impl Fleet {
    fn release(&mut self) {
        self.kept = false;
        self.wanted = None;
        self.known = None;
        self.failures = 0;
        self.incomplete = 0;
    }
}

fn in_words(names: &[Arc<str>]) -> String {
    let mut words =
        names.iter().take(MAX_NAMED_SECRETS).map(|name| &**name).collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(MAX_NAMED_SECRETS + 1) {
        words += &format!(" and {} more", more + 1);
    }
    words
}
