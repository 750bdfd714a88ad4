//! The writer's housekeeping.

use super::claim::term_in;
use super::metrics::Operation;
use super::records;
use super::scripts::{self, detail, word};
use super::write::place;
use super::{Shared, lock};
use crate::codec::{self, Body, CodecError};
use crate::{Record, StoreError, Tended, Term};
use bytes::Bytes;
use heliograph_snapshot::{Address, Part, Resource, ResourceType, Section, Snapshot, Tree};
use redis::cmd;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio::time::Instant;

/// What is remembered of a fleet between two rounds.
#[derive(Debug, Default)]
pub(super) struct Care {
    /// Objects written since the last sweep.
    written: usize,
    /// What leads on from the parts of earlier snapshots, each of which is read once. An address means the same forever.
    parts: HashMap<Address, Arc<Onward>>,
    /// When the last sweep was, and what nothing led to then.
    swept: Option<(Instant, HashSet<Address>)>,
    /// The key that all secrets of the fleet are sealed with.
    sealed_with: Option<String>,
}

/// Where a part of a tree leads.
#[derive(Debug, Default)]
struct Onward {
    parts: Vec<Address>,
    bodies: Vec<Address>,
}

/// So many objects are always worth a sweep. Fewer wait for [`PATIENCE`] times the grace.
const WORTH_IT: usize = 1_000;
const PATIENCE: u32 = 10;
/// How many objects one script deletes or writes.
const TOGETHER: usize = 500;

impl Care {
    /// What is written now was not led to by nothing since the last sweep, even if it is not led to by the next: its
    /// readers get all of the grace.
    pub(super) fn write<'a>(&mut self, addresses: impl Iterator<Item = &'a Address>) {
        for address in addresses {
            self.written += 1;
            if let Some((_, waiting)) = &mut self.swept {
                waiting.remove(address);
            }
        }
    }

    fn is_sweep_due(&self, grace: std::time::Duration) -> bool {
        match &self.swept {
            // What a crashed translator left behind is found by looking once.
            None => true,
            Some((when, waiting)) => {
                let since = when.elapsed();
                since >= grace
                    && (self.written >= WORTH_IT
                        || (since >= grace * PATIENCE && self.written > 0)
                        || !waiting.is_empty())
            }
        }
    }
}

impl From<Part> for Onward {
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

impl Shared {
    pub(super) async fn tend(&self, newest: Arc<Snapshot>) -> Result<Tended, StoreError> {
        let mut tended = Tended::default();
        let fleet = &newest.fleet;
        let active = self.keys().active_id().map(str::to_owned);
        let (sweep, seal) = {
            let mut care = self.care();
            let care = care.entry(fleet.clone()).or_default();
            (care.is_sweep_due(self.options.grace), care.sealed_with != active)
        };
        if !sweep && !seal {
            return Ok(tended);
        }
        let Some(retained) = self.retained(&newest).await? else { return Ok(tended) };
        if seal {
            tended.sealed_again = self.seal_again(&newest, &retained).await?;
            self.care().entry(fleet.clone()).or_default().sealed_with = active;
        }
        if sweep {
            tended.deleted = self.sweep(&newest, &retained).await?;
        }
        Ok(tended)
    }

    /// The term of the writer. What it found unchanged is of an earlier term, and still its own to tend; and where Redis was
    /// emptied, the term that it began again is below the heads that it goes on from.
    fn term_for(&self, newest: &Snapshot) -> Term {
        let claimed = *lock(&self.claimed);
        claimed.unwrap_or_default().max(newest.head.into())
    }

    /// The records that must stay whole. `None`: the head is not what the writer believes, or a newer program has written
    /// what this one cannot read, so this is no time for deleting.
    async fn retained(&self, newest: &Snapshot) -> Result<Option<Vec<Record>>, StoreError> {
        let fleet = &newest.fleet;
        let head = self.values(Operation::Tend, std::slice::from_ref(fleet)).await?;
        let head = head.into_iter().flatten().next();
        let head = head.map(|value| records::read(fleet, &value, &self.signer()));
        let Some(Ok(head)) = head else { return Ok(None) };
        if head.head != newest.head || !head.is_understood() {
            return Ok(None);
        }
        let mut retained = vec![head];
        let pinned = self.pinned(Operation::Tend, fleet).await?.into_iter();
        for record in self.steps(Operation::Tend, fleet).await?.into_iter().chain(pinned) {
            match record {
                Ok(record) if !record.is_understood() => return Ok(None),
                Ok(record) => retained.push(record),
                Err(CodecError::Newer(_)) => return Ok(None),
                // What somebody else put there keeps nothing alive.
                Err(_) => {}
            }
        }
        Ok(Some(retained))
    }

    /// Deletes what nothing leads to now and nothing led to at the sweep before, which was at least the grace ago. If this
    /// fails, it begins anew.
    async fn sweep(&self, newest: &Snapshot, retained: &[Record]) -> Result<usize, StoreError> {
        let (fleet, ours) = (&newest.fleet, self.term_for(newest));
        let reachable = self.reachable(newest, retained).await?;
        let command = cmd("HKEYS").arg(self.names.objects(fleet)).take();
        let fields: Vec<Bytes> = self.query(Operation::Tend, &command).await?;
        // What is no address is none of ours and is left alone.
        let stored: HashSet<_> =
            fields.iter().filter_map(|field| field.as_ref().try_into().ok().map(Address)).collect();
        self.mend(newest, &stored).await?;
        let unreachable = stored.into_iter().filter(|found| !reachable.contains(found));
        let before = self.care().entry(fleet.clone()).or_default().swept.take();
        let is_ripe = |address: &Address| before.iter().any(|(_, found)| found.contains(address));
        let (ripe, waiting): (Vec<_>, Vec<_>) = unreachable.partition(is_ripe);
        let mut deleted = 0;
        for addresses in ripe.chunks(TOGETHER) {
            let call = scripts::SWEEP
                .call()
                .key(self.term_key(fleet))
                .key(self.names.head(fleet))
                .key(self.names.objects(fleet))
                .arg(ours.to_string())
                .arg(newest.head.to_string());
            let call = addresses.iter().fold(call, |call, address| call.arg(address.0));
            let reply = self.invoke(Operation::Tend, call).await?;
            match word(&reply) {
                "ok" => deleted += detail(&reply).parse().unwrap_or(0),
                "fenced" => {
                    return Err(self.fenced(ours, term_in(detail(&reply))?));
                }
                _ => break,
            }
        }
        self.metrics.deleted(deleted);
        let mut care = self.care();
        let care = care.entry(fleet.clone()).or_default();
        care.swept = Some((Instant::now(), waiting.into_iter().collect()));
        care.written = 0;
        Ok(deleted)
    }

    /// Writes what the newest snapshot has and Redis lost: no later publication would, because the writer believes it there.
    async fn mend(&self, newest: &Snapshot, stored: &HashSet<Address>) -> Result<(), StoreError> {
        let is_whole = Section::all().all(|section| {
            let all = newest.section(section).beyond(&Tree::new());
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
        tracing::warn!(%fleet, %head, "Redis had lost {count} objects of the newest snapshot; they are written again");
        Ok(())
    }

    /// Everything that the newest snapshot and the retained records lead to. What the newest has, its record has too, unless
    /// a part of it could not be read; it is at hand, so that little has to be read.
    async fn reachable(
        &self,
        newest: &Snapshot,
        retained: &[Record],
    ) -> Result<HashSet<Address>, StoreError> {
        let mut reachable = HashSet::new();
        for section in Section::all() {
            let all = newest.section(section).beyond(&Tree::new());
            reachable.extend(all.leaves.iter().map(|(address, _)| *address));
            reachable.extend(all.branches.iter().map(|(address, _)| *address));
            reachable.extend(all.resources.iter().map(|resource| resource.address));
        }
        // The records share most of their parts with the newest, and only what they do not share is read.
        let roots = retained.iter().flat_map(|record| record.roots().into_values());
        let mut wanted: BTreeSet<Address> = roots.collect();
        let fleet = &newest.fleet;
        let known = std::mem::take(&mut self.care().entry(fleet.clone()).or_default().parts);
        let mut parts = HashMap::new();
        while !wanted.is_empty() {
            wanted.retain(|address| reachable.insert(*address));
            let level = std::mem::take(&mut wanted);
            let (here, unread): (Vec<_>, Vec<_>) =
                level.into_iter().partition(|address| known.contains_key(address));
            let mut found: Vec<_> =
                here.into_iter().filter_map(|at| Some((at, known.get(&at)?.clone()))).collect();
            let objects = self.objects(Operation::Tend, fleet, &unread).await?;
            for (address, object) in unread.into_iter().zip(objects) {
                // What is missing or damaged leads nowhere; whoever wants to go back there is told.
                match object.as_ref().map(codec::read_part) {
                    Some(Ok(part)) if part.address() == address => {
                        found.push((address, Arc::new(Onward::from(part))));
                    }
                    _ => {}
                }
            }
            for (address, onward) in found {
                wanted.extend(&onward.parts);
                reachable.extend(&onward.bodies);
                parts.insert(address, onward);
            }
        }
        self.care().entry(fleet.clone()).or_default().parts = parts;
        Ok(reachable)
    }

    /// Seals with the active key what is sealed with another. Nothing else changes: no address, version or head.
    async fn seal_again(
        &self,
        newest: &Snapshot,
        retained: &[Record],
    ) -> Result<usize, StoreError> {
        let (fleet, ours) = (&newest.fleet, self.term_for(newest));
        let secrets = self.secrets(newest, retained).await?;
        let addresses: Vec<Address> = secrets.keys().map(|(address, _)| *address).collect();
        let objects = self.objects(Operation::Tend, fleet, &addresses).await?;
        let keys = self.keys();
        let mut sealed = Vec::new();
        for (((address, name), known), object) in secrets.into_iter().zip(objects) {
            let Some(Ok(Body::Sealed(before))) = object.as_ref().map(codec::read_body) else {
                continue;
            };
            if Some(&*before.key_id) == keys.active_id() {
                continue;
            }
            let body = match known {
                Some(resource) => resource.body.clone(),
                None => match keys.open(&place(fleet, &name, &address), &before) {
                    Ok(body) => body,
                    Err(error) => {
                        tracing::warn!(%fleet, secret = %name, %error, "an earlier secret cannot be sealed again");
                        continue;
                    }
                },
            };
            let resource = Resource::at(address, name, body);
            sealed.push((address, self.body(fleet, ResourceType::Secret.into(), &resource)?));
        }
        let mut count = 0;
        for sealed in sealed.chunks(TOGETHER) {
            let call = scripts::RESEAL
                .call()
                .key(self.term_key(fleet))
                .key(self.names.objects(fleet))
                .arg(ours.to_string());
            let call =
                sealed.iter().fold(call, |call, (address, object)| call.arg(address.0).arg(object));
            let reply = self.invoke(Operation::Tend, call).await?;
            if word(&reply) != "ok" {
                return Err(self.fenced(ours, term_in(detail(&reply))?));
            }
            count += detail(&reply).parse::<usize>().unwrap_or(0);
        }
        self.metrics.resealed(count);
        if count > 0 {
            let key = keys.active_id().unwrap_or_default();
            tracing::info!(%fleet, key, "{count} secrets are sealed again with the newest key");
        }
        Ok(count)
    }

    /// The secrets that are stored, by address and name, and those of the newest snapshot with their content.
    async fn secrets(
        &self,
        newest: &Snapshot,
        retained: &[Record],
    ) -> Result<BTreeMap<(Address, Arc<str>), Option<Arc<Resource>>>, StoreError> {
        let mut secrets: BTreeMap<_, _> = newest
            .tree(ResourceType::Secret)
            .iter()
            .map(|found| ((found.address, found.name.clone()), Some(found.clone())))
            .collect();
        let known = newest.tree(ResourceType::Secret).address();
        let roots = retained
            .iter()
            .filter_map(|record| record.roots().remove(&ResourceType::Secret.into()));
        let mut wanted: BTreeSet<Address> = roots.filter(|root| Some(*root) != known).collect();
        while !wanted.is_empty() {
            let addresses: Vec<_> = std::mem::take(&mut wanted).into_iter().collect();
            for object in self.objects(Operation::Tend, &newest.fleet, &addresses).await? {
                let Some(Ok(part)) = object.as_ref().map(codec::read_part) else { continue };
                match part {
                    Part::Branch(children) => wanted.extend(children.into_iter().flatten()),
                    Part::Leaf(entries) => entries.into_iter().for_each(|entry| {
                        secrets.entry((entry.address, entry.name)).or_insert(None);
                    }),
                }
            }
        }
        Ok(secrets)
    }
}
