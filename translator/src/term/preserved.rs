//! The fleets that are preserved, because not all of their objects are known.

use super::Translator;
use super::source::Source;
use heliograph_gateway::Outcome;
use heliograph_gateway::objects::Kind;
use heliograph_model::FleetOwner;
use heliograph_snapshot::FleetName;
use std::collections::BTreeSet;

impl Translator {
    /// The fleets of which nothing is known though they may have to be: their Gateways, or the classes of these, are there
    /// and could not be read. They stay as they are.
    pub(super) fn preserved(&self, source: &Source) -> BTreeSet<FleetName> {
        let classes =
            source.unread(Kind::GatewayClass).flat_map(|class| self.world.gateways_of(class));
        let gateways = source.unread(Kind::Gateway).chain(classes);
        let mut preserved: BTreeSet<FleetName> =
            gateways.map(|it| FleetOwner::Gateway(it.clone()).fleet()).collect();
        // Those that are unread may be all that share a fleet.
        let mut unread = source.unread(Kind::Gateway).chain(source.unread(Kind::GatewayClass));
        if unread.next().is_some() {
            let known = |fleet: &FleetName| !self.unshared.contains(fleet);
            preserved.extend(self.world.merged_fleets().filter(known));
        }
        preserved
    }

    /// Records the fleets that Gateways no longer share.
    pub(super) fn record_unshared(&mut self, outcome: &Outcome) {
        for fleet in outcome.changes.keys() {
            self.unshared.remove(fleet);
        }
        let is_shared = |fleet: &&FleetName| FleetOwner::is_shared(fleet);
        self.unshared.extend(outcome.retired.iter().filter(is_shared).cloned());
    }
}
