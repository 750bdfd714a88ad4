use super::indexes::Indexes;
use super::keys::HostKey;
use super::outcome::Outcome;
use super::table::{Fact, Products, Unit};
use crate::left_out::revision;
use crate::limits::Limits;
use crate::objects::{Object, ObjectKey};
use heliograph_engine::{Computed, Relation, Table, Work};
use heliograph_snapshot::FleetName;
use heliograph_views::LeftOut;
use std::collections::BTreeMap;

/// Objects and products, with the indexes over them. Every write returns the facts that it changed.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(super) limits: Limits,
    pub(super) objects: BTreeMap<ObjectKey, Object>,
    /// What proxies reject of objects, and of which fleets.
    pub(super) left_out: BTreeMap<ObjectKey, BTreeMap<FleetName, LeftOut>>,
    /// The objects that belong to another, by that one.
    pub(super) children: Relation<(crate::objects::Kind, ObjectKey), ObjectKey>,
    pub(super) products: Products,
    pub(super) indexes: Indexes,
}

impl Facts {
    pub(super) fn with_limits(limits: Limits) -> Self {
        let indexes = Indexes { limits: limits.clone(), ..Indexes::default() };
        Self { limits, indexes, ..Self::default() }
    }

    pub(super) fn set_object(&mut self, key: &ObjectKey, object: Option<Object>) -> Vec<Fact> {
        let before = self.objects.get(key);
        if before == object.as_ref() {
            return Vec::new();
        }
        let namespace = key.name.namespace.clone();
        let mut changed = vec![Fact::Object(key.clone()), Fact::Namespace((key.kind, namespace))];
        for old in before.map(Object::indexed_under).unwrap_or_default() {
            self.children.remove(&(key.kind, old.clone()), key);
            changed.push(Fact::Children((key.kind, old)));
        }
        for new in object.as_ref().map(Object::indexed_under).unwrap_or_default() {
            self.children.insert((key.kind, new.clone()), key.clone());
            changed.push(Fact::Children((key.kind, new)));
        }
        match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(key),
        };
        changed
    }

    /// The parts of objects that are left out of a fleet. They are few: objects that proxies reject although the
    /// translator accepted them.
    pub(super) fn all_left_out(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&ObjectKey, &LeftOut)> {
        self.left_out.iter().filter_map(move |(object, fleets)| Some((object, fleets.get(fleet)?)))
    }

    /// Whether something else is left out than before.
    pub(super) fn set_left_out(
        &mut self,
        fleet: &FleetName,
        object: &ObjectKey,
        left_out: Option<LeftOut>,
    ) -> bool {
        let fleets = self.left_out.entry(object.clone()).or_default();
        let is_other = fleets.get(fleet) != left_out.as_ref();
        match left_out {
            Some(left_out) => drop(fleets.insert(fleet.clone(), left_out)),
            None => drop(fleets.remove(fleet)),
        }
        if fleets.is_empty() {
            self.left_out.remove(object);
        }
        is_other
    }

    /// The fleets that leave something of another content of the object out than it has now.
    pub(super) fn outdated(&self, object: &ObjectKey) -> Vec<FleetName> {
        let Some(fleets) = self.left_out.get(object) else { return Vec::new() };
        let now = self.objects.get(object).map(revision);
        let is_outdated = |left_out: &LeftOut| now.as_ref() != Some(&left_out.revision);
        let outdated = fleets.iter().filter(|(_, left_out)| is_outdated(left_out));
        outdated.map(|(fleet, _)| fleet.clone()).collect()
    }

    /// The changes since the last call.
    pub(super) fn take_outcome(&mut self, work: Work) -> Outcome {
        let mut outcome = std::mem::take(&mut self.indexes.outcome);
        // Of a fleet that is gone, the last resources are not removed one by one.
        outcome.changes.retain(|fleet, _| !outcome.retired.contains(fleet));
        outcome.work = work;
        outcome
    }
}

impl Table for Facts {
    type Unit = Unit;
    type Fact = Fact;

    fn compute(&mut self, unit: &Unit) -> Computed<Unit, Fact> {
        self.compute_unit(unit)
    }

    fn forget(&mut self, unit: &Unit) -> Vec<Fact> {
        self.forget_unit(unit)
    }

    /// Works out which routes fit into the budgets: once, when it is known what all routes would take, and before anything
    /// reads what fits.
    fn settle_before(&mut self, next: Option<&Unit>) -> Vec<Fact> {
        if next.is_some_and(|unit| !unit.is_after_budgets()) {
            return Vec::new();
        }
        let changed = self.indexes.budgets.settle(&self.limits);
        let hosts = changed.hosts.into_iter();
        let hosts = hosts.map(|(table, host)| Fact::NotCopied(HostKey { table, host }));
        changed.routes.into_iter().map(Fact::Excess).chain(hosts).collect()
    }
}
