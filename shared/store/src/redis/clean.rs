//! The garbage collection of the writer, and sealing again with the newest key.

use super::Shared;
use super::claim::term_in;
use super::metrics::Operation;
use super::scripts::{self, detail, word};
use super::sweep::{Retained, TOGETHER};
use super::write::place;
use crate::codec::{self, Body};
use crate::{Cleaned, StoreError};
use heliograph_snapshot::{Address, Part, Resource, ResourceType, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Shared {
    pub(super) async fn clean(&self, newest: Arc<Snapshot>) -> Result<Cleaned, StoreError> {
        let mut cleaned = Cleaned::default();
        let fleet = &newest.fleet;
        let active = self.keys().active_id().map(str::to_owned);
        let between = self.options.spare.between_sweeps(newest.bytes() as u64);
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
        let secrets = self.secrets(newest, retained).await?;
        let addresses: Vec<Address> = secrets.keys().map(|(address, _)| *address).collect();
        let objects = self.objects(Operation::Clean, fleet, &addresses).await?;
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
            let reply = self.invoke(Operation::Clean, call).await?;
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
        retained: &Retained,
    ) -> Result<BTreeMap<(Address, Arc<str>), Option<Arc<Resource>>>, StoreError> {
        let mut secrets: BTreeMap<_, _> = newest
            .tree(ResourceType::Secret)
            .iter()
            .map(|found| ((found.address, found.name.clone()), Some(found.clone())))
            .collect();
        let known = newest.tree(ResourceType::Secret).address();
        let roots = retained
            .records()
            .filter_map(|record| record.roots().remove(&ResourceType::Secret.into()));
        let mut wanted: BTreeSet<Address> = roots.filter(|root| Some(*root) != known).collect();
        while !wanted.is_empty() {
            let addresses: Vec<_> = std::mem::take(&mut wanted).into_iter().collect();
            for object in self.objects(Operation::Clean, &newest.fleet, &addresses).await? {
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
