//! The garbage collection of the writer, and sealing again with the newest key.

use super::Shared;
use super::claim::term_in;
use super::metrics::Operation;
use super::scripts::{self, detail, word};
use super::sweep::{BATCH, Retained};
use super::write::seal_context;
use crate::codec::{self, Body};
use crate::{Cleaned, StoreError};
use heliograph_snapshot::{Address, Entry, Part, Resource, Section, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A body that is kept apart.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stored {
    section: Section,
    address: Address,
    name: Arc<str>,
}

impl Shared {
    pub(super) async fn clean(&self, newest: Arc<Snapshot>) -> Result<Cleaned, StoreError> {
        let mut cleaned = Cleaned::default();
        let fleet = &newest.fleet;
        let active = self.keys().active_id().map(str::to_owned);
        let between = self.options.retention.between_sweeps(newest.bytes() as u64);
        let full = self.full();
        let (sweep, seal) = {
            let mut cleaning = self.cleaning();
            let state = cleaning.entry(fleet.clone()).or_default();
            (state.is_sweep_due(self.options.grace, between, full), state.sealed_with != active)
        };
        if !sweep && !seal {
            return Ok(cleaned);
        }
        let Some(retained) = self.retained(&newest).await? else { return Ok(cleaned) };
        if seal {
            cleaned.sealed_again = self.seal_again(&newest, &retained).await?;
            self.cleaning().entry(fleet.clone()).or_default().sealed_with = active;
        }
        if sweep {
            cleaned.deleted = self.sweep(&newest, &retained).await?;
        }
        Ok(cleaned)
    }

    /// Seals with the active key what is sealed with another. Nothing else changes: no address, version or head.
    async fn seal_again(
        &self,
        newest: &Snapshot,
        retained: &Retained,
    ) -> Result<usize, StoreError> {
        let (fleet, ours) = (&newest.fleet, self.term_for(newest));
        let stored = self.perhaps_sealed(newest, retained).await?;
        let addresses: Vec<Address> = stored.keys().map(|stored| stored.address).collect();
        let objects = self.objects(Operation::Clean, fleet, &addresses).await?;
        let keys = self.keys();
        let mut sealed = Vec::new();
        for ((at, known), object) in stored.into_iter().zip(objects) {
            let Some(Ok(Body::Sealed(before))) = object.as_ref().map(codec::read_body) else {
                continue;
            };
            if Some(&*before.key_id) == keys.active_id() {
                continue;
            }
            let Stored { section, address, name } = at;
            let body = match known {
                Some(resource) => resource.body.clone(),
                None => match keys.open(&seal_context(fleet, section, &name, &address), &before) {
                    Ok(body) => body,
                    Err(error) => {
                        tracing::warn!(%fleet, %section, %name, %error, "an earlier version of a secret cannot be sealed with the newest key");
                        continue;
                    }
                },
            };
            let resource = Resource::at(address, name, body).confidential(true);
            sealed.push((address, self.body(fleet, section, &resource)?));
        }
        let mut count = 0;
        for sealed in sealed.chunks(BATCH) {
            let call = scripts::RESEAL
                .call()
                .key(self.term_key(fleet))
                .key(self.names.objects(fleet))
                .arg(ours.to_string());
            let call =
                sealed.iter().fold(call, |call, (address, object)| call.arg(address.0).arg(object));
            let reply = self.invoke(Operation::Clean, call).await?;
            if word(&reply) != "ok" {
                return Err(self.fenced(ours, term_in(detail(&reply))?));
            }
            count += detail(&reply).parse::<usize>().unwrap_or(0);
        }
        self.metrics.resealed(count);
        if count > 0 {
            let key = keys.active_id().unwrap_or_default();
            tracing::info!(%fleet, key, "sealed {count} secrets with the newest key");
        }
        Ok(count)
    }

    /// The stored objects that may be sealed, and those of the newest snapshot with their content. Of a section that is
    /// sealed in part, the parts of trees do not say which resources are.
    async fn perhaps_sealed(
        &self,
        newest: &Snapshot,
        retained: &Retained,
    ) -> Result<BTreeMap<Stored, Option<Arc<Resource>>>, StoreError> {
        let mut stored = BTreeMap::new();
        for section in sealed_sections(newest.confidential_sections()) {
            let resources = newest.section(section).iter();
            let sealed = resources.filter(|resource| section.seals(resource));
            stored.extend(sealed.map(|found| (Stored::of(section, found), Some(found.clone()))));
        }
        let mut wanted: BTreeSet<(Section, Address)> = BTreeSet::new();
        for record in retained.records() {
            let roots = record.roots();
            let sections = sealed_sections(record.partly_sealed.iter().copied());
            let roots = sections.filter_map(|section| Some((section, *roots.get(&section)?)));
            let is_other = |(section, root): &(Section, Address)| {
                newest.section(*section).address() != Some(*root)
            };
            wanted.extend(roots.filter(is_other));
        }
        while !wanted.is_empty() {
            let level: Vec<_> = std::mem::take(&mut wanted).into_iter().collect();
            let addresses: Vec<_> = level.iter().map(|(_, address)| *address).collect();
            let objects = self.objects(Operation::Clean, &newest.fleet, &addresses).await?;
            for ((section, _), object) in level.into_iter().zip(objects) {
                match object.as_ref().map(codec::read_part) {
                    Some(Ok(Part::Branch(children))) => {
                        let children = children.into_iter().flatten();
                        wanted.extend(children.map(|child| (section, child)));
                    }
                    Some(Ok(Part::Leaf(entries))) => {
                        // What is sealed is not in its leaf.
                        for entry in entries.into_iter().filter(|entry| entry.body.is_none()) {
                            let Entry { name, address, body: _ } = entry;
                            stored.entry(Stored { section, address, name }).or_insert(None);
                        }
                    }
                    // It is missing or damaged, which is reported where it is read for a proxy.
                    _ => {}
                }
            }
        }
        Ok(stored)
    }
}

impl Stored {
    fn of(section: Section, resource: &Resource) -> Self {
        Self { section, address: resource.address, name: resource.name.clone() }
    }
}

/// Those that are always sealed, and these.
fn sealed_sections(partly: impl Iterator<Item = Section>) -> impl Iterator<Item = Section> {
    Section::all().filter(|section| section.is_always_sealed()).chain(partly)
}
