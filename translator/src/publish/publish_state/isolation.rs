//! The resources of all fleets that are not published as they were translated, because proxies reject them or because
//! they are too large for the store.

use super::PublishState;
use crate::feedback::Feedback;
use crate::leave_out::Versions;
use crate::publish::fleet::Fleet;
use heliograph_snapshot::{FleetName, Head, Resource, ResourceType, Version};
use std::sync::Arc;

impl PublishState {
    /// What the proxies of all fleets answered.
    pub(in crate::publish) fn receive(&mut self, feedback: &Feedback) {
        for (name, fleet) in &mut self.fleets {
            if fleet.receive(feedback.fleets.get(name).cloned().unwrap_or_default()) {
                self.due.insert(name.clone());
            }
            self.retention.set(name, fleet.retained());
        }
    }

    /// How many resources are too large for the store, in all fleets.
    pub(in crate::publish) fn oversized(&self) -> usize {
        self.oversized
    }

    /// Something else is wanted of a fleet.
    pub(super) fn change(&mut self, name: &FleetName, change: impl FnOnce(&mut Fleet)) {
        let fleet = self.entry(name);
        let before = fleet.oversized();
        change(fleet);
        let after = fleet.oversized();
        self.oversized = self.oversized - before + after;
        self.mark_due(name);
    }

    /// What was inherited is part of what these fleets are to be.
    pub(in crate::publish) fn inherited(&mut self, fleets: impl IntoIterator<Item = FleetName>) {
        for name in fleets {
            self.entry(&name).inherited();
            self.mark_due(&name);
        }
    }

    /// What was published of a fleet, and what of it was accepted.
    pub(in crate::publish) fn versions<'a>(
        &'a self,
        fleet: &FleetName,
    ) -> Option<impl Versions + use<'a>> {
        self.fleets.get(fleet)
    }

    pub(in crate::publish) fn is_pinned(&self, fleet: &FleetName) -> bool {
        self.fleets.get(fleet).is_some_and(Fleet::is_pinned)
    }
}

impl Versions for &Fleet {
    fn last_good(&self, kind: ResourceType, name: &str) -> Option<Arc<Resource>> {
        Fleet::last_good(self, kind, name)
    }

    fn published_as(
        &self,
        kind: ResourceType,
        name: &str,
        version: Version,
    ) -> Option<(Head, Arc<Resource>)> {
        Fleet::published_as(self, kind, name, version)
    }
}
