//! The Gateways of each fleet, and the parts of a Gateway that fleets and routes read.

use super::{Fact, Indexes, move_member};
use crate::accept::{AcceptedGateway, Arbitration, AttachPoint, AttachPoints, ListenerRequests};
use crate::infra::Infra;
use crate::objects::ObjectName;
use heliograph_model::{self as model, Candidate, ListenerOwner, TableKey};
use heliograph_snapshot::FleetName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Indexes {
    pub(in crate::world) fn listener_requests_changed(
        &mut self,
        name: &ObjectName,
        old: Option<&ListenerRequests>,
        new: Option<&ListenerRequests>,
    ) -> Vec<Fact> {
        let fleet =
            |requests: Option<&ListenerRequests>| requests.map(|requests| requests.fleet.clone());
        move_member(&mut self.requesting_gateways, name, fleet(old), fleet(new));
        // Other requests of the same Gateway concern its fleet as well.
        fleet(old).into_iter().chain(fleet(new)).map(Fact::ListenerRequestsOf).collect()
    }

    pub(in crate::world) fn arbitration_changed(
        &mut self,
        _fleet: &FleetName,
        old: Option<&Arbitration>,
        new: Option<&Arbitration>,
    ) -> Vec<Fact> {
        let losing_gateways = old.into_iter().chain(new).flat_map(Arbitration::losing_gateways);
        let losing_gateways: BTreeSet<&ObjectName> = losing_gateways.collect();
        let losses = |arbitration: Option<&Arbitration>, loser| {
            arbitration.and_then(|it| it.of(loser)).cloned()
        };
        let changed =
            losing_gateways.into_iter().filter(|loser| losses(old, loser) != losses(new, loser));
        changed.cloned().map(Fact::LostListenersOf).collect()
    }

    pub(in crate::world) fn gateway_changed(
        &mut self,
        name: &ObjectName,
        old: Option<&AcceptedGateway>,
        new: Option<&AcceptedGateway>,
    ) -> Vec<Fact> {
        let old = old.map(|gateway| &gateway.attach_points);
        let new = new.map(|gateway| &gateway.attach_points);
        let mut changed = Vec::new();
        if old != new {
            changed.push(Fact::AttachPoints(name.clone()));
            // A change of one owner's listeners is no concern of the others' routes.
            let (old, new) = (by_owner(old), by_owner(new));
            let owners: BTreeSet<&ListenerOwner> = old.keys().chain(new.keys()).copied().collect();
            let of_owner = owners.into_iter().filter(|owner| old.get(owner) != new.get(owner));
            changed.extend(of_owner.cloned().map(Fact::AttachPointsOf));
        }
        let fleet = |gateway: Option<&AttachPoints>| gateway.map(|gateway| gateway.fleet.clone());
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

fn by_owner(gateway: Option<&AttachPoints>) -> BTreeMap<&ListenerOwner, Vec<&AttachPoint>> {
    let mut owners: BTreeMap<&ListenerOwner, Vec<&AttachPoint>> = BTreeMap::new();
    for point in gateway.into_iter().flat_map(|gateway| &gateway.points) {
        owners.entry(&point.id.owner).or_default().push(point);
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
