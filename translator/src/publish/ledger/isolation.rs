//! What is left out of fleets because proxies reject it: what the ledger knows of that.

use super::Ledger;
use crate::publish::fleet::Fleet;
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use std::sync::Arc;

impl Ledger {
    /// What was inherited is part of what these fleets are to be.
    pub(in crate::publish) fn inherited(&mut self, fleets: impl IntoIterator<Item = FleetName>) {
        for name in fleets {
            self.entry(&name).inherited();
            self.look_at(&name);
        }
    }

    /// What was last accepted of a resource, where something else is published.
    pub(in crate::publish) fn last_good(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &str,
    ) -> Option<Arc<Resource>> {
        self.fleets.get(fleet)?.last_good(kind, name)
    }

    pub(in crate::publish) fn is_pinned(&self, fleet: &FleetName) -> bool {
        self.fleets.get(fleet).is_some_and(Fleet::is_pinned)
    }
}
