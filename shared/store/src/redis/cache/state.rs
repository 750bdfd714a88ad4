//! The content of the cache; decides what is written and deleted, without IO and without a clock.

use super::file::FleetSummary;
use super::queue::{Work, WriteQueue};
use bytes::Bytes;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// All that is known of the cache. Its memory is bounded by the number of fleets.
#[derive(Debug)]
pub(super) struct CacheState {
    /// How many bytes the files may take.
    limit: u64,
    /// The fleets that have a file.
    files: BTreeMap<FleetName, File>,
    /// What their files take.
    used: u64,
    /// The records as they are in Redis, of the fleets that were passed on to a reader.
    records: BTreeMap<FleetName, Records>,
    /// When a fleet last had clients, in seconds since 1970.
    uses: BTreeMap<FleetName, u64>,
    queue: WriteQueue,
    /// The fleets whose files are to be written again because of a newer key.
    reseal: BTreeSet<FleetName>,
    /// The fleets whose files are to be deleted.
    discarded: BTreeSet<FleetName>,
    /// The fleets that are served from here and that Redis has not confirmed since the start.
    unconfirmed: BTreeMap<FleetName, Unconfirmed>,
    /// When Redis was last compared, in milliseconds since 1970; 0 for not yet.
    compared: u64,
    /// The files have changed since the file of the directory was written.
    is_changed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Unconfirmed {
    /// When it was last what Redis had, in milliseconds since 1970; 0 if that is not known.
    confirmed: u64,
    /// What is here is in memory, or will be in a moment.
    is_loaded: bool,
    /// What Redis has is newer, and is to be loaded first.
    newer: Option<Head>,
}

#[derive(Clone, Debug)]
struct File {
    head: Head,
    /// The number of the last order of an operator that its record obeys.
    order: u64,
    bytes: u64,
    sealed_with: String,
    /// When this process wrote it.
    written: Option<Instant>,
    /// When it was last what Redis had, as in [`Unconfirmed`]. `None`: it was so at the last comparison.
    confirmed: Option<u64>,
}

/// The newest records that were passed on: the one before is perhaps being loaded.
#[derive(Debug)]
struct Records {
    newest: (Head, Bytes),
    before: Option<(Head, Bytes)>,
    /// When Redis was last compared before it had the newest.
    compared_before: u64,
}

/// The next job of the writer.
#[derive(Debug)]
pub(super) enum Job {
    Write(Work),
    /// The file is to be read and written again.
    Reseal(FleetName),
    Delete(FleetName),
}

/// How to make room for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Once these are deleted.
    Evict(Vec<FleetName>),
    /// What is there was used more recently, or the file is too large.
    None,
}

/// Between two writes of one fleet.
pub(super) const INTERVAL: Duration = Duration::from_secs(5);
/// Until something is tried again that failed.
pub(super) const RETRY: Duration = Duration::from_secs(30);
/// Disks count in these.
const BLOCK: u64 = 4096;
/// No file has a longer name in it.
const LONGEST_NAME: usize = 4096;

impl CacheState {
    /// `files` is what there is.
    pub(super) fn new(limit: u64, files: impl IntoIterator<Item = FleetSummary>) -> Self {
        let mut uses = BTreeMap::new();
        let mut found = BTreeMap::new();
        for FleetSummary { fleet, head, order, bytes, last_use, confirmed, sealed_with } in files {
            if last_use > 0 {
                uses.insert(fleet.clone(), last_use);
            }
            let confirmed = Some(confirmed);
            let file = File { head, order, bytes, sealed_with, written: None, confirmed };
            found.insert(fleet, file);
        }
        let mut state = Self {
            limit,
            used: found.values().map(|file| on_disk(file.bytes)).sum(),
            files: found,
            records: BTreeMap::new(),
            uses,
            queue: WriteQueue::default(),
            reseal: BTreeSet::new(),
            discarded: BTreeSet::new(),
            unconfirmed: BTreeMap::new(),
            compared: 0,
            is_changed: false,
        };
        // The limit may have been higher.
        for fleet in state.recent_first().into_iter().rev() {
            if state.used > limit {
                state.discard(&fleet);
            }
        }
        state
    }

    pub(super) fn fleets(&self) -> usize {
        self.files.len()
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn unconfirmed(&self) -> usize {
        self.unconfirmed.len()
    }

    pub(super) fn is_unconfirmed(&self, fleet: &FleetName) -> bool {
        self.unconfirmed.contains_key(fleet)
    }

    /// When the oldest of what is unconfirmed was last what Redis had. `None`: nothing is unconfirmed.
    pub(super) fn oldest_unconfirmed(&self) -> Option<u64> {
        self.unconfirmed.values().map(|unconfirmed| unconfirmed.confirmed).min()
    }

    pub(super) fn has(&self, fleet: &FleetName) -> bool {
        self.files.contains_key(fleet)
    }

    pub(super) fn last_use(&self, fleet: &FleetName) -> Option<u64> {
        self.uses.get(fleet).copied()
    }

    /// All that have a file, those first that were used last.
    pub(super) fn recent_first(&self) -> Vec<FleetName> {
        let mut fleets: Vec<_> = self.files.keys().cloned().collect();
        fleets.sort_by_key(|fleet| Reverse(self.last_use(fleet)));
        fleets
    }

    /// The head of a fleet that was last written.
    pub(super) fn head(&self, fleet: &FleetName) -> Option<Head> {
        self.files.get(fleet).map(|file| file.head)
    }

    /// The order that it obeys, as in [`File`].
    pub(super) fn order(&self, fleet: &FleetName) -> Option<u64> {
        self.files.get(fleet).map(|file| file.order)
    }

    /// Secrets are sealed with this key from now on. Files with others are written again while those can be opened.
    pub(super) fn keys_changed(&mut self, key: &str) {
        let otherwise = |file: &File| !file.sealed_with.is_empty() && file.sealed_with != key;
        let fleets = self.files.iter().filter(|(_, file)| otherwise(file));
        self.reseal = fleets.map(|(fleet, _)| fleet.clone()).collect();
    }

    /// A reader received this record of a fleet.
    pub(super) fn set_newest_record(&mut self, fleet: &FleetName, head: Head, record: Bytes) {
        let compared = self.compared;
        if let Some(file) = self.files.get_mut(fleet).filter(|file| file.head < head) {
            file.confirmed.get_or_insert(compared);
        } else if !self.is_unconfirmed(fleet) {
            self.mark_current(fleet, head);
        }
        match self.records.get_mut(fleet) {
            Some(records) if records.newest.0 < head => {
                let before = std::mem::replace(&mut records.newest, (head, record));
                records.before = Some(before);
                records.compared_before = compared;
            }
            Some(_) => {}
            None => {
                let newest = (head, record);
                let records = Records { newest, before: None, compared_before: compared };
                self.records.insert(fleet.clone(), records);
            }
        }
    }

    /// The record of a fleet at a head, as it is in Redis.
    pub(super) fn record(&self, fleet: &FleetName, head: Head) -> Option<Bytes> {
        let Records { newest, before, .. } = self.records.get(fleet)?;
        let mut both = [Some(newest), before.as_ref()].into_iter().flatten();
        both.find(|(at, _)| *at == head).map(|(_, record)| record.clone())
    }

    /// A fleet is no more.
    pub(super) fn retire(&mut self, fleet: &FleetName) {
        self.reseal.remove(fleet);
        self.records.remove(fleet);
        self.queue.remove(fleet);
        self.uses.remove(fleet);
        self.unconfirmed.remove(fleet);
        if self.has(fleet) {
            self.discard(fleet);
        }
    }

    /// A file is of no use, and is to be deleted.
    pub(super) fn discard(&mut self, fleet: &FleetName) {
        self.deleted(fleet);
        self.discarded.insert(fleet.clone());
    }

    /// A snapshot was loaded whole. Whether it is to be written.
    pub(super) fn offer(&mut self, record: Bytes, snapshot: Arc<Snapshot>, now: Instant) -> bool {
        let fleet = snapshot.fleet.clone();
        // Not one that was retired meanwhile.
        if !self.records.contains_key(&fleet) || fleet.as_str().len() > LONGEST_NAME {
            return false;
        }
        let file = self.files.get(&fleet);
        if file.is_some_and(|file| file.head >= snapshot.head) {
            return false;
        }
        let written = file.and_then(|file| file.written);
        let due = written.map_or(now, |written| written + INTERVAL).max(now);
        let last_use = self.last_use(&fleet);
        self.queue.offer(Work { record, snapshot }, due, last_use)
    }

    /// Tries a failed write again later, unless a newer snapshot is pending.
    pub(super) fn postpone(&mut self, work: Work, now: Instant) {
        if self.records.contains_key(&work.snapshot.fleet) {
            let last_use = self.last_use(&work.snapshot.fleet);
            self.queue.postpone(work, now + RETRY, last_use);
        }
    }

    /// The next job: first deletions that make room, then the fleets with the most recent use. `all`: also those that
    /// are not due.
    pub(super) fn next_job(&mut self, now: Instant, all: bool) -> Option<Job> {
        if let Some(fleet) = self.discarded.pop_first() {
            return Some(Job::Delete(fleet));
        }
        if let Some(work) = self.queue.next(now, all) {
            return Some(Job::Write(work));
        }
        if all { None } else { self.reseal.pop_first().map(Job::Reseal) }
    }

    /// When something is due. `None`: nothing is to be done.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        if !self.discarded.is_empty() || !self.reseal.is_empty() {
            return Some(now);
        }
        self.queue.next_due()
    }

    /// Makes room for a file of that length, beside the one that it replaces: both are there for a moment.
    pub(super) fn room(&self, fleet: &FleetName, bytes: u64) -> Room {
        let (need, own) = (on_disk(bytes), self.files.get(fleet).map_or(0, |it| on_disk(it.bytes)));
        if need + own > self.limit {
            return Room::None;
        }
        let mut over = (self.used + need).saturating_sub(self.limit);
        if over == 0 {
            return Room::Evict(Vec::new());
        }
        let last_use = self.last_use(fleet);
        let mut others: Vec<_> = self
            .files
            .iter()
            .map(|(other, file)| (self.last_use(other), other, on_disk(file.bytes)))
            .filter(|(other_use, other, _)| *other_use < last_use && *other != fleet)
            .collect();
        others.sort_unstable();
        let mut deleted = Vec::new();
        for (_, other, bytes) in others {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(bytes);
            deleted.push(other.clone());
        }
        if over == 0 { Room::Evict(deleted) } else { Room::None }
    }

    /// There is a file of that length now.
    pub(super) fn written(
        &mut self,
        fleet: &FleetName,
        head: Head,
        order: u64,
        bytes: u64,
        sealed_with: String,
        now: Instant,
    ) {
        let confirmed = self.confirmed_of(fleet, head);
        self.deleted(fleet);
        self.reseal.remove(fleet);
        self.used += on_disk(bytes);
        let file = File { head, order, bytes, sealed_with, written: Some(now), confirmed };
        self.files.insert(fleet.clone(), file);
        if self.records.contains_key(fleet) {
            self.discarded.remove(fleet);
        } else {
            // Retired while it was written.
            self.discard(fleet);
        }
    }

    /// There is no file any more.
    pub(super) fn deleted(&mut self, fleet: &FleetName) {
        if let Some(file) = self.files.remove(fleet) {
            self.used -= on_disk(file.bytes);
        }
        self.is_changed = true;
    }

    /// These fleets have clients, at so many seconds since 1970.
    pub(super) fn used_now<'a>(
        &mut self,
        fleets: impl IntoIterator<Item = &'a FleetName>,
        now: u64,
    ) {
        for fleet in fleets {
            self.queue.used(fleet, now);
            match self.uses.get_mut(fleet) {
                Some(last) => *last = now,
                None => drop(self.uses.insert(fleet.clone(), now)),
            }
        }
    }

    /// The fleet is served from here, before Redis was asked.
    pub(super) fn mark_unconfirmed(&mut self, fleet: &FleetName) {
        let confirmed = self.files.get(fleet).and_then(|file| file.confirmed);
        let confirmed = confirmed.unwrap_or(self.compared);
        let unconfirmed = Unconfirmed { confirmed, is_loaded: false, newer: None };
        self.unconfirmed.insert(fleet.clone(), unconfirmed);
    }

    /// Redis has this head, the same as the last that was passed on or a newer one. Until that is loaded, clients are
    /// served an older one.
    pub(super) fn confirm(&mut self, fleet: &FleetName, head: Head, is_newer: bool) {
        match self.unconfirmed.get_mut(fleet) {
            // Redis repeats a newer head until that is loaded.
            Some(unconfirmed)
                if unconfirmed.is_loaded && (is_newer || unconfirmed.newer.is_some()) =>
            {
                unconfirmed.newer = Some(head);
            }
            _ => {
                self.unconfirmed.remove(fleet);
                self.mark_current(fleet, head);
            }
        }
    }

    /// A fleet is no longer in memory: no client is served a snapshot older than that of Redis.
    pub(super) fn dropped(&mut self, fleet: &FleetName) {
        let Some(unconfirmed) = self.unconfirmed.get_mut(fleet) else { return };
        unconfirmed.is_loaded = false;
        if unconfirmed.newer.is_some() {
            self.unconfirmed.remove(fleet);
        }
    }

    /// The cached snapshot of a fleet is about to be loaded.
    pub(super) fn loading(&mut self, fleet: &FleetName) {
        if let Some(unconfirmed) = self.unconfirmed.get_mut(fleet) {
            unconfirmed.is_loaded = true;
        }
    }

    pub(super) fn loaded(&mut self, fleet: &FleetName, head: Head) {
        let newer = self.unconfirmed.get(fleet).and_then(|unconfirmed| unconfirmed.newer);
        if newer.is_some_and(|newer| newer <= head) {
            self.unconfirmed.remove(fleet);
        }
    }

    /// All records of Redis have been compared, at so many milliseconds since 1970.
    pub(super) fn compared(&mut self, milliseconds: u64) {
        self.compared = milliseconds;
    }

    /// The entries for the file of the directory.
    pub(super) fn summary(&self) -> Vec<FleetSummary> {
        let fleet = |(fleet, file): (&FleetName, &File)| FleetSummary {
            fleet: fleet.clone(),
            head: file.head,
            order: file.order,
            bytes: file.bytes,
            last_use: self.last_use(fleet).unwrap_or_default(),
            confirmed: file.confirmed.unwrap_or(self.compared),
            sealed_with: file.sealed_with.clone(),
        };
        self.files.iter().map(fleet).collect()
    }

    /// Whether the files have changed since this was last asked.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Redis has this head of a fleet.
    fn mark_current(&mut self, fleet: &FleetName, head: Head) {
        if let Some(file) = self.files.get_mut(fleet).filter(|file| file.head == head) {
            file.confirmed = None;
        }
    }

    /// When this head of a fleet was last what Redis had, as in [`File`].
    fn confirmed_of(&self, fleet: &FleetName, head: Head) -> Option<u64> {
        if let Some(file) = self.files.get(fleet).filter(|file| file.head == head) {
            return file.confirmed;
        }
        match (self.unconfirmed.get(fleet), self.records.get(fleet)) {
            (Some(unconfirmed), _) if unconfirmed.newer.is_none() => Some(unconfirmed.confirmed),
            (_, Some(records)) if records.newest.0 > head => Some(records.compared_before),
            _ => None,
        }
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests;
