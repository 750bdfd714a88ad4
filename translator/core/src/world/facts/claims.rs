use super::views::move_member;
use super::{Facts, set};
use crate::accept::{Claim, Contest, Losses};
use crate::objects::ObjectName;
use crate::world::unit::Fact;
use heliograph_snapshot::FleetName;
use std::collections::BTreeSet;

/// What Gateways want of proxies that they share, and what they get.
impl Facts {
    pub(in crate::world) fn claims(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&ObjectName, &Claim)> + use<'_> {
        let names = self.claimants.of(fleet);
        names.filter_map(|name| Some((name, self.claims.get(name)?)))
    }

    pub(in crate::world) fn lost(
        &self,
        fleet: &FleetName,
        gateway: &ObjectName,
    ) -> Option<&Losses> {
        self.contests.get(fleet)?.of(gateway)
    }

    pub(super) fn set_claim(&mut self, name: &ObjectName, new: Option<Claim>) -> (bool, Vec<Fact>) {
        let fleet = |claim: Option<&Claim>| Some(claim?.fleet.clone());
        let moved = [fleet(self.claims.get(name)), fleet(new.as_ref())];
        move_member(&mut self.claimants, &moved, name);
        let changed = set(&mut self.claims, name, new);
        let touched = moved.into_iter().flatten().filter(|_| changed).map(Fact::Claims).collect();
        (changed, touched)
    }

    pub(super) fn set_contest(
        &mut self,
        fleet: &FleetName,
        new: Option<Contest>,
    ) -> (bool, Vec<Fact>) {
        let (old, nothing) = (self.contests.get(fleet), Contest::default());
        let (old, later) = (old.unwrap_or(&nothing), new.as_ref().unwrap_or(&nothing));
        let losers: BTreeSet<&ObjectName> = old.losers().chain(later.losers()).collect();
        let changed = losers.into_iter().filter(|loser| old.of(loser) != later.of(loser));
        let touched = changed.cloned().map(Fact::Lost).collect();
        (set(&mut self.contests, fleet, new), touched)
    }
}
