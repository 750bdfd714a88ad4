//! Which Gateways belong to which fleet, and what fleets and routes see of them.

use super::{Fact, Indexes, move_member};
use crate::accept::{AcceptedGateway, Claim, Contest, Door, Doors};
use crate::infra::Infra;
use crate::objects::ObjectName;
use heliograph_model::{self as model, Candidate, ListenerOwner, TableKey};
use heliograph_snapshot::FleetName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Indexes {
    pub(in crate::world) fn claim_changed(
        &mut self,
        name: &ObjectName,
        old: Option<&Claim>,
        new: Option<&Claim>,
    ) -> Vec<Fact> {
        let fleet = |claim: Option<&Claim>| claim.map(|claim| claim.fleet.clone());
        move_member(&mut self.claimants, name, fleet(old), fleet(new));
        // Another claim of the same Gateway concerns its fleet as well.
        fleet(old).into_iter().chain(fleet(new)).map(Fact::Claims).collect()
    }

    pub(in crate::world) fn contest_changed(
        &mut self,
        _fleet: &FleetName,
        old: Option<&Contest>,
        new: Option<&Contest>,
    ) -> Vec<Fact> {
        let losers = old.into_iter().chain(new).flat_map(Contest::losers);
        let losers: BTreeSet<&ObjectName> = losers.collect();
        let losses =
            |contest: Option<&Contest>, loser| contest.and_then(|it| it.of(loser)).cloned();
        let changed = losers.into_iter().filter(|loser| losses(old, loser) != losses(new, loser));
        changed.cloned().map(Fact::Lost).collect()
    }

    pub(in crate::world) fn gateway_changed(
        &mut self,
        name: &ObjectName,
        old: Option<&AcceptedGateway>,
        new: Option<&AcceptedGateway>,
    ) -> Vec<Fact> {
        let old = old.map(|gateway| &gateway.doors);
        let new = new.map(|gateway| &gateway.doors);
        let mut changed = Vec::new();
        if old != new {
            changed.push(Fact::Doors(name.clone()));
            // A change of one owner's listeners is no concern of the others' routes.
            let (old, new) = (by_owner(old), by_owner(new));
            let owners: BTreeSet<&ListenerOwner> = old.keys().chain(new.keys()).copied().collect();
            let of_owner = owners.into_iter().filter(|owner| old.get(owner) != new.get(owner));
            changed.extend(of_owner.cloned().map(Fact::DoorsOf));
        }
        let fleet = |doors: Option<&Doors>| doors.map(|doors| doors.fleet.clone());
        let moved = move_member(&mut self.members, name, fleet(old), fleet(new));
        if !moved.is_empty() {
            changed.push(Fact::FleetOf(name.clone()));
        }
        changed.extend(moved.into_iter().map(Fact::Members));
        changed
    }

    pub(in crate::world) fn fleet_changed(
        &mut self,
        name: &FleetName,
        old: Option<&model::Fleet>,
        new: Option<&model::Fleet>,
    ) -> Vec<Fact> {
        match (old, new) {
            (Some(_), None) => self.outcome.retired.push(name.clone()),
            // A fleet without a listener has no resource, and yet its proxies get that it has none.
            (None, Some(_)) => {
                self.outcome.retired.retain(|retired| retired != name);
                self.outcome.changes.entry(name.clone()).or_default();
            }
            _ => {}
        }
        let (before, after) = (tables(old), tables(new));
        let mut changed = Vec::new();
        for table in before.keys().filter(|table| !after.contains_key(table)) {
            self.listeners.remove(table);
            changed.push(Fact::Listeners(table.clone()));
        }
        for (table, listeners) in after {
            if before.get(&table) != Some(&listeners) {
                self.listeners.insert(table.clone(), listeners);
                changed.push(Fact::Listeners(table));
            }
        }
        changed
    }

    pub(in crate::world) fn infra_changed(
        &mut self,
        fleet: &FleetName,
        _old: Option<&Arc<Infra>>,
        new: Option<&Arc<Infra>>,
    ) -> Vec<Fact> {
        self.outcome.infra.insert(fleet.clone(), new.cloned());
        Vec::new()
    }
}

fn by_owner(doors: Option<&Doors>) -> BTreeMap<&ListenerOwner, Vec<&Door>> {
    let mut owners: BTreeMap<&ListenerOwner, Vec<&Door>> = BTreeMap::new();
    for door in doors.into_iter().flat_map(|doors| &doors.doors) {
        owners.entry(&door.id.owner).or_default().push(door);
    }
    owners
}

/// The listeners that hosts of each table of a fleet may belong to.
fn tables(fleet: Option<&model::Fleet>) -> BTreeMap<TableKey, Vec<Candidate>> {
    let mut tables: BTreeMap<TableKey, Vec<Candidate>> = BTreeMap::new();
    if let Some(fleet) = fleet {
        for listener in &fleet.listeners {
            let Some(key) = TableKey::of(&fleet.name, listener) else { continue };
            let table = tables.entry(key).or_default();
            let candidate = |listener: &model::Listener, is_here: bool| Candidate {
                listener: listener.id.clone(),
                hostname: listener.hostname.clone(),
                is_here,
            };
            table.push(candidate(listener, true));
            table.extend(fleet.beside(listener).map(|other| candidate(other, false)));
        }
    }
    tables
}
