//! Earlier versions of published resources are kept until proxies have answered. All fleets share one budget for them,
//! since a tenant can have many Gateways and so many fleets.

use super::PublishState;
use crate::publish::fleet::Fleet;
use heliograph_snapshot::FleetName;
use std::collections::BTreeMap;

/// The earlier versions of all fleets.
#[derive(Debug)]
pub(super) struct Retention {
    /// How many bytes they have, of each fleet that has any.
    fleets: BTreeMap<FleetName, usize>,
    bytes: usize,
    most: usize,
}

/// How many bytes they may have.
const MOST: usize = 128 << 20;

impl Default for Retention {
    fn default() -> Self {
        Self { fleets: BTreeMap::new(), bytes: 0, most: MOST }
    }
}

impl Retention {
    /// So many of a fleet's are kept now.
    pub(super) fn set(&mut self, name: &FleetName, bytes: usize) {
        let before = match (self.fleets.get_mut(name), bytes) {
            (None, 0) => 0,
            (None, bytes) => self.fleets.insert(name.clone(), bytes).unwrap_or_default(),
            (Some(_), 0) => self.fleets.remove(name).unwrap_or_default(),
            (Some(known), bytes) => std::mem::replace(known, bytes),
        };
        self.bytes = self.bytes - before + bytes;
    }
}

impl PublishState {
    /// The retained versions of a fleet have changed in size. While all are over the budget, the fleet with the most
    /// drops its oldest version: the others keep the versions that they need.
    pub(super) fn bound_versions(&mut self, name: &FleetName) {
        let retained = self.fleets.get(name).map_or(0, Fleet::retained);
        self.retention.set(name, retained);
        while self.retention.bytes > self.retention.most {
            let can_forget =
                |name: &&FleetName| self.fleets.get(*name).is_some_and(Fleet::has_spare_versions);
            let sizes = self.retention.fleets.iter().filter(|(name, _)| can_forget(name));
            let Some(name) = sizes.max_by_key(|(_, bytes)| **bytes).map(|it| it.0.clone()) else {
                return;
            };
            let Some(fleet) = self.fleets.get_mut(&name) else { return };
            fleet.forget_version();
            self.retention.set(&name, fleet.retained());
        }
    }

    #[cfg(test)]
    pub(in crate::publish) fn with_most_retained(self, most: usize) -> Self {
        Self { retention: Retention { most, ..self.retention }, ..self }
    }
}
