//! Deletes objects that no head leads to, within bounds of bytes and of time.

use super::Shared;
use super::claim::term_in;
use super::garbage::{Garbage, StepBudget, Urgency};
use super::metrics::Operation;
use super::records;
use super::scripts::{self, detail, word};
use crate::codec::{self, CodecError};
use crate::{Record, StoreError, Term};
use bytes::Bytes;
use heliograph_snapshot::{Address, FleetName, Part, Section, Snapshot, Tree};
use redis::cmd;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The state of a fleet between two rounds.
#[derive(Debug, Default)]
pub(super) struct CleaningState {
    /// Objects written since the last sweep, and their bytes.
    written: usize,
    written_bytes: u64,
    /// The links of the parts of earlier snapshots, each of which is read once. An address means the same forever.
    parts: HashMap<Address, Arc<Links>>,
    /// How large the objects are that the newest snapshot does not have. Each is asked for once.
    sizes: HashMap<Address, u64>,
    /// When the last sweep was.
    swept: Option<Instant>,
    garbage: Garbage,
    /// The key that all secrets of the fleet are sealed with.
    pub(super) sealed_with: Option<String>,
}

/// The links of a part of a tree.
#[derive(Debug, Default)]
struct Links {
    parts: Vec<Address>,
    bodies: Vec<Address>,
}

/// The records that lead to what must stay.
#[derive(Debug)]
pub(super) struct Retained {
    head: Record,
    pinned: Option<Record>,
    /// Those of the history, newest first. A foreign entry leads to no objects, but counts as a step.
    steps: Vec<Option<Record>>,
}

/// The objects that a sweep has found reachable, and the known parts.
struct Reachable {
    addresses: HashSet<Address>,
    /// From the sweep before.
    known: HashMap<Address, Arc<Links>>,
    parts: HashMap<Address, Arc<Links>>,
}

/// So many objects are always worth a sweep. Fewer wait for [`MAX_GRACES`] times the grace.
const MIN_SWEEP_OBJECTS: usize = 1_000;
const MAX_GRACES: u32 = 10;
/// How many objects one script deletes, measures or writes.
pub(super) const BATCH: usize = 500;

impl CleaningState {
    /// Objects that are written now were reachable since the last sweep, even if the next one does not reach them: their
    /// readers get all of the grace.
    pub(super) fn write<'a>(&mut self, objects: impl Iterator<Item = &'a (Address, Bytes)>) {
        for (address, bytes) in objects {
            self.written += 1;
            self.written_bytes += bytes.len() as u64;
            self.garbage.forget(address);
        }
    }

    /// `between` is how many bytes are written between two sweeps, `full` when Redis was last out of memory.
    pub(super) fn is_sweep_due(
        &self,
        grace: Duration,
        between: u64,
        full: Option<Instant>,
    ) -> bool {
        // What a crashed translator left behind is found by looking once.
        let Some(when) = self.swept else { return true };
        if self.written == 0 && self.garbage.is_empty() {
            return false;
        }
        let since = when.elapsed();
        self.written_bytes > between
            || full > self.swept
            || (since >= grace
                && (self.written >= MIN_SWEEP_OBJECTS
                    || since >= grace * MAX_GRACES
                    || !self.garbage.is_empty()))
    }
}

impl From<Part> for Links {
    fn from(part: Part) -> Self {
        match part {
            Part::Branch(children) => {
                Self { parts: children.into_iter().flatten().collect(), bodies: Vec::new() }
            }
            Part::Leaf(entries) => Self {
                parts: Vec::new(),
                bodies: entries.iter().map(|entry| entry.address).collect(),
            },
        }
    }
}

impl Retained {
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        [&self.head].into_iter().chain(&self.pinned).chain(self.steps.iter().flatten())
    }
}

impl Shared {
    /// Sweeps before so much is written that the fleet could have more in Redis than it may. Where too much of the garbage is
    /// too young to be deleted, this waits until it is not: less than [`super::RetentionLimits::grace`].
    pub(super) async fn make_room(&self, held: &Snapshot, bytes: u64) -> Result<(), StoreError> {
        let (retention, size) = (self.options.retention, held.bytes() as u64);
        let written = self.cleaning().entry(held.fleet.clone()).or_default().written_bytes;
        if written.saturating_add(bytes) <= retention.between_sweeps(size) {
            return Ok(());
        }
        loop {
            let Some(retained) = self.retained(held).await? else { return Ok(()) };
            self.sweep(held, &retained).await?;
            let ripe_at = {
                let mut cleaning = self.cleaning();
                let garbage = &cleaning.entry(held.fleet.clone()).or_default().garbage;
                let is_room = retention.is_room(garbage.bytes(), size, bytes);
                let oldest = garbage.oldest().filter(|_| !is_room);
                oldest.map(|oldest| oldest + self.least_grace())
            };
            let Some(ripe_at) = ripe_at.filter(|at| *at > Instant::now()) else { return Ok(()) };
            sleep_until(ripe_at).await;
        }
    }

    /// Redis is out of memory: deletes all garbage of a fleet. Returns whether there was any.
    pub(super) async fn free_memory(&self, held: &Snapshot) -> Result<bool, StoreError> {
        match self.retained(held).await? {
            Some(retained) => Ok(self.sweep(held, &retained).await? > 0),
            None => Ok(false),
        }
    }

    fn least_grace(&self) -> Duration {
        self.options.retention.grace.min(self.options.grace)
    }

    /// The term of the writer. A record that it found unchanged is of an earlier term, and still this writer's to clean;
    /// and where Redis was emptied, the term that it began again is below the heads that it goes on from.
    pub(super) fn term_for(&self, newest: &Snapshot) -> Term {
        let claimed = *self.claimed.lock();
        claimed.unwrap_or_default().max(newest.head.into())
    }

    /// The records that must stay whole. `None`: the head is not what the writer believes, or a newer program has written
    /// what this one cannot read, so this is no time for deleting.
    pub(super) async fn retained(&self, newest: &Snapshot) -> Result<Option<Retained>, StoreError> {
        let fleet = &newest.fleet;
        let head = self.values(Operation::Clean, std::slice::from_ref(fleet)).await?;
        let head = head.into_iter().flatten().next();
        let head = head.map(|value| records::read(fleet, &value, &self.signer()));
        let Some(Ok(head)) = head else { return Ok(None) };
        if head.head != newest.head || !head.is_understood() {
            return Ok(None);
        }
        let pinned = self.pinned(Operation::Clean, fleet).await?;
        let steps = self.steps(Operation::Clean, fleet).await?;
        let is_newer = |record: &Result<Record, CodecError>| match record {
            Ok(record) => !record.is_understood(),
            Err(error) => matches!(error, CodecError::Newer(_)),
        };
        if pinned.iter().chain(&steps).any(is_newer) {
            return Ok(None);
        }
        // A foreign entry keeps no object alive.
        let (pinned, steps) = (pinned.and_then(Result::ok), steps.into_iter().map(Result::ok));
        Ok(Some(Retained { head, pinned, steps: steps.collect() }))
    }

    /// Deletes what nothing leads to, and was found so at an earlier sweep, at least the grace ago. The grace is shorter for
    /// the oldest of it where that is more than a fleet may have, and there is none while Redis is out of memory. The oldest
    /// steps of the history go, too, where all together take more than they may. If this fails, it begins anew.
    pub(super) async fn sweep(
        &self,
        newest: &Snapshot,
        retained: &Retained,
    ) -> Result<usize, StoreError> {
        let fleet = &newest.fleet;
        let command = cmd("HKEYS").arg(self.names.objects(fleet)).take();
        let fields: Vec<Bytes> = self.query(Operation::Clean, &command).await?;
        // A field that is not an address is not ours, and is not deleted.
        let stored: HashSet<_> =
            fields.iter().filter_map(|field| field.as_ref().try_into().ok().map(Address)).collect();
        let bound = self.options.retention.of(newest.bytes() as u64);
        let (reachable, kept) = self.reachable(newest, retained, &stored, bound).await?;
        let unreachable = stored.iter().filter(|found| !reachable.contains(found)).copied();
        let unreachable: Vec<_> = unreachable.collect();
        let sizes = self.sizes(fleet, &unreachable).await;
        let now = Instant::now();
        let ripe = {
            let full = self.full();
            let mut cleaning = self.cleaning();
            let state = cleaning.entry(fleet.clone()).or_default();
            let urgency = match full > state.swept {
                true => Urgency::OutOfMemory,
                false => Urgency::Bounded(bound),
            };
            let graces = (self.options.grace, self.least_grace());
            state.garbage.swept(std::iter::zip(unreachable, sizes), now, urgency, graces)
        };
        let trimmed = (kept < retained.steps.len()).then_some(kept);
        let deleted = self.delete(newest, trimmed, &ripe).await?;
        self.repair(newest, &stored).await?;
        let mut cleaning = self.cleaning();
        let state = cleaning.entry(fleet.clone()).or_default();
        state.sizes.retain(|address, _| stored.contains(address));
        ripe.iter().for_each(|address| {
            state.sizes.remove(address);
        });
        state.swept = Some(now);
        (state.written, state.written_bytes) = (0, 0);
        Ok(deleted)
    }

    /// Deletes objects, and the steps of the history behind the first so many.
    async fn delete(
        &self,
        newest: &Snapshot,
        trimmed: Option<usize>,
        addresses: &[Address],
    ) -> Result<usize, StoreError> {
        let (fleet, ours) = (&newest.fleet, self.term_for(newest));
        let mut steps = trimmed.map(|steps| steps.to_string()).unwrap_or_default();
        let mut chunks = addresses.chunks(BATCH);
        let mut deleted = 0;
        loop {
            let chunk = chunks.next().unwrap_or_default();
            if chunk.is_empty() && steps.is_empty() {
                break;
            }
            let call = scripts::SWEEP
                .call()
                .key(self.term_key(fleet))
                .key(self.names.head(fleet))
                .key(self.names.objects(fleet))
                .key(self.names.history(fleet))
                .arg(ours.to_string())
                .arg(newest.head.to_string())
                .arg(std::mem::take(&mut steps));
            let call = chunk.iter().fold(call, |call, address| call.arg(address.0));
            let reply = self.invoke(Operation::Clean, call).await?;
            match word(&reply) {
                "ok" => deleted += detail(&reply).parse().unwrap_or(0),
                "fenced" => {
                    return Err(self.fenced(ours, term_in(detail(&reply))?));
                }
                _ => break,
            }
        }
        self.metrics.deleted(deleted);
        Ok(deleted)
    }

    /// Writes what the newest snapshot has and Redis lost: no later publication would, because the writer believes it there.
    async fn repair(&self, newest: &Snapshot, stored: &HashSet<Address>) -> Result<(), StoreError> {
        let is_whole = Section::all().all(|section| {
            let all = newest.section(section).additions_to(&Tree::new());
            let mut apart =
                all.resources.iter().filter(|resource| !codec::is_in_leaf(section, resource));
            all.leaves.iter().all(|(address, _)| stored.contains(address))
                && all.branches.iter().all(|(address, _)| stored.contains(address))
                && apart.all(|resource| stored.contains(&resource.address))
        });
        if is_whole {
            return Ok(());
        }
        let mut lost = self.objects_of(newest, None)?;
        lost.retain(|(address, _)| !stored.contains(address));
        let (fleet, head, count) = (&newest.fleet, newest.head, lost.len());
        self.upload(fleet, lost).await?;
        tracing::warn!(%fleet, %head, "Redis had lost {count} objects of the newest snapshot; wrote them again");
        Ok(())
    }

    /// Everything that the newest snapshot and the retained records lead to, and how many steps of the history are among
    /// these. The objects of the newest snapshot are those of its record, unless a part of it could not be read; it is
    /// in memory, so that little has to be read.
    async fn reachable(
        &self,
        newest: &Snapshot,
        retained: &Retained,
        stored: &HashSet<Address>,
        bound: u64,
    ) -> Result<(HashSet<Address>, usize), StoreError> {
        let mut addresses = HashSet::new();
        for section in Section::all() {
            let all = newest.section(section).additions_to(&Tree::new());
            addresses.extend(all.leaves.iter().map(|(address, _)| *address));
            addresses.extend(all.branches.iter().map(|(address, _)| *address));
            addresses.extend(all.resources.iter().map(|resource| resource.address));
        }
        let fleet = &newest.fleet;
        let known = std::mem::take(&mut self.cleaning().entry(fleet.clone()).or_default().parts);
        let mut reachable = Reachable { addresses, known, parts: HashMap::new() };
        for record in [&retained.head].into_iter().chain(&retained.pinned) {
            self.reach(fleet, record, &mut reachable).await?;
        }
        let mut budget = StepBudget::new(bound);
        for step in &retained.steps {
            let mut fresh = match step {
                Some(step) => self.reach(fleet, step, &mut reachable).await?,
                None => Vec::new(),
            };
            // Small bodies are in their leaves.
            fresh.retain(|address| stored.contains(address));
            if !budget.admit(self.sizes(fleet, &fresh).await.into_iter().sum()) {
                fresh.iter().for_each(|address| {
                    reachable.addresses.remove(address);
                });
                break;
            }
        }
        self.cleaning().entry(fleet.clone()).or_default().parts = reachable.parts;
        Ok((reachable.addresses, budget.kept()))
    }

    /// Follows a record. Returns what only this leads to. Records share most of their parts with the newest snapshot, and only
    /// what they do not share is read.
    async fn reach(
        &self,
        fleet: &FleetName,
        record: &Record,
        reachable: &mut Reachable,
    ) -> Result<Vec<Address>, StoreError> {
        let mut fresh = Vec::new();
        let mut wanted: BTreeSet<Address> = record.roots().into_values().collect();
        while !wanted.is_empty() {
            wanted.retain(|address| reachable.addresses.insert(*address));
            fresh.extend(&wanted);
            let level = std::mem::take(&mut wanted);
            let (here, unread): (Vec<_>, Vec<_>) =
                level.into_iter().partition(|address| reachable.known.contains_key(address));
            let known = |at| Some((at, reachable.known.get(&at)?.clone()));
            let mut found: Vec<_> = here.into_iter().filter_map(known).collect();
            let objects = self.objects(Operation::Clean, fleet, &unread).await?;
            for (address, object) in unread.into_iter().zip(objects) {
                // A missing or damaged part leads to no others; a rollback to it reports the damage.
                match object.as_ref().map(codec::read_part) {
                    Some(Ok(part)) if part.address() == address => {
                        found.push((address, Arc::new(Links::from(part))));
                    }
                    _ => {}
                }
            }
            for (address, links) in found {
                wanted.extend(&links.parts);
                let bodies = links.bodies.iter().filter(|body| reachable.addresses.insert(**body));
                fresh.extend(bodies);
                reachable.parts.insert(address, links);
            }
        }
        Ok(fresh)
    }

    /// How large objects are, in their order. Where Redis does not tell, they count nothing: that they are too many is then
    /// found out by time and by number alone.
    async fn sizes(&self, fleet: &FleetName, addresses: &[Address]) -> Vec<u64> {
        let mut sizes =
            std::mem::take(&mut self.cleaning().entry(fleet.clone()).or_default().sizes);
        let unknown = addresses.iter().filter(|address| !sizes.contains_key(address));
        let unknown: Vec<_> = unknown.copied().collect();
        for addresses in unknown.chunks(BATCH) {
            let call = scripts::SIZES.call().key(self.names.objects(fleet));
            let call = addresses.iter().fold(call, |call, address| call.arg(address.0));
            let Ok(reply) = self.invoke(Operation::Measure, call).await else { break };
            let measured = reply.iter().map(|size| size.parse().unwrap_or(0));
            sizes.extend(std::iter::zip(addresses.iter().copied(), measured));
        }
        let of = |address| sizes.get(address).copied().unwrap_or(0);
        let found = addresses.iter().map(of).collect();
        self.cleaning().entry(fleet.clone()).or_default().sizes = sizes;
        found
    }
}
