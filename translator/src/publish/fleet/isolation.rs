//! Resources of a fleet that are not published as they were translated: proxies reject them, or they are too large for
//! the store.

use super::{Fleet, Wanted};
use crate::publish::inheritance::Inheritance;
use crate::publish::oversized::{Oversized, TooLarge};
use crate::publish::quarantine::Decision;
use heliograph_snapshot::{Head, Resource, ResourceType, Version};
use heliograph_views::LeftOut;
use std::sync::Arc;

impl Fleet {
    /// What was last accepted of a resource, where something else is published.
    pub(in crate::publish) fn last_good(
        &self,
        kind: ResourceType,
        name: &str,
    ) -> Option<Arc<Resource>> {
        let Wanted::Content(live) = &self.wanted else { return None };
        self.quarantine.last_good(kind, live.get(kind, name)?)
    }

    /// A version of a resource that was published lately, and the last head that has it.
    pub(in crate::publish) fn published_as(
        &self,
        kind: ResourceType,
        name: &str,
        version: Version,
    ) -> Option<(Head, Arc<Resource>)> {
        self.quarantine.published_as(kind, name, version)
    }

    /// What an earlier term left out of it, once that is known and not yet translated. The fleet is not published before
    /// it is.
    pub(in crate::publish) fn take_inherited(&mut self) -> Vec<LeftOut> {
        self.inheritance.take()
    }

    /// What was inherited is part of what is wanted now.
    pub(in crate::publish) fn inherited(&mut self) {
        self.inheritance = Inheritance::settled();
    }

    /// What was decided because of what proxies say.
    pub(in crate::publish) fn take_decisions(&mut self) -> Vec<Decision> {
        self.quarantine.take_decisions()
    }

    /// How many bytes of earlier versions are kept, since one of them may be what to go back to.
    pub(in crate::publish) fn retained(&self) -> usize {
        self.quarantine.retained()
    }

    pub(in crate::publish) fn has_spare_versions(&self) -> bool {
        self.quarantine.has_spare()
    }

    /// Forgets the oldest of these versions.
    pub(in crate::publish) fn forget_version(&mut self) {
        self.quarantine.forget();
    }

    /// How many of its resources are too large for the store.
    pub(in crate::publish) fn oversized(&self) -> usize {
        self.oversized.len()
    }

    /// Those of them that are not reported yet.
    pub(in crate::publish) fn take_oversized(&mut self) -> Vec<TooLarge> {
        self.oversized.take_unreported()
    }

    /// Its Gateway is no more.
    pub(in crate::publish) fn retire(&mut self) {
        self.wanted = Wanted::Gone("its Gateway is gone");
        self.oversized = Oversized::default();
    }
}
