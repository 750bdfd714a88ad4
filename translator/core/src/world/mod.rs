//! The incremental engine. [`World`] holds every object and everything derived from them; an event makes dirty only
//! the units that read what it changed, and [`World::settle`] computes just those.
//!
//! Why it is right: a unit sees the world only through its [`Reader`], which records what it looked at. Why it is
//! cheap: a unit whose product is the same as before makes nobody else dirty.

mod culprits;
mod facts;
mod graph;
mod outcome;
mod reader;
mod relation;
mod sources;
mod stages;
mod unit;

pub use culprits::{Culprit, Place, RejectedResource};
pub use outcome::{Outcome, Work};
pub(crate) use reader::Reader;
pub use sources::Source;

use crate::budget::OverBudget;
use crate::infra::names;
use crate::ir;
use crate::left_out;
use crate::limits::Limits;
use crate::objects::{Kind, Object, ObjectKey, ObjectName, Typed, gateway};
use crate::status::{Problem, Status};
use facts::Facts;
use graph::Graph;
use heliograph_snapshot::{FleetName, Internal, Resource, ResourceType, Section};
use heliograph_views::LeftOut;
use stages::Product;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use unit::{Fact, Unit};

/// Everything that is known, and everything that follows from it.
#[derive(Debug, Default)]
pub struct World {
    facts: Facts,
    graph: Graph,
    dirty: BTreeSet<Unit>,
}

/// What a provider says.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Applied(Object),
    Deleted(ObjectKey),
}

impl Event {
    /// The object that it is about.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Applied(object) => object.key(),
            Self::Deleted(key) => key.clone(),
        }
    }
}

impl World {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with_limits(limits: Limits) -> Self {
        let mut world = Self::new();
        world.facts.limits = limits;
        world
    }

    /// Takes note of an event. What follows from it is worked out by [`World::settle`].
    pub fn apply(&mut self, event: Event) {
        let (key, object) = match event {
            Event::Applied(mut object) => {
                object.forget_bookkeeping();
                (object.key(), Some(object))
            }
            Event::Deleted(key) => (key, None),
        };
        let units = match object {
            Some(_) => stages::demanded_by_object(&key),
            None => BTreeSet::new(),
        };
        let touched = self.facts.set_object(&key, object);
        self.demand(&Fact::Object(key.clone()), units);
        self.touch(touched);
        // What has changed is tried again.
        for fleet in self.facts.outdated(&key) {
            self.leave_out(&fleet, &key, None);
        }
    }

    /// Leaves something of an object out of what is published for a fleet, or nothing any more. It is ignored where the
    /// object is another one by now.
    pub fn leave_out(&mut self, fleet: &FleetName, object: &ObjectKey, left_out: Option<LeftOut>) {
        let left_out =
            left_out.filter(|it| self.revision(object).is_some_and(|is| is == it.revision));
        let units = left_out.iter().map(|_| Unit::LeftOut(fleet.clone(), object.clone())).collect();
        if self.facts.set_left_out(fleet, object, left_out) {
            self.demand(&Fact::LeftOut(fleet.clone(), object.clone()), units);
            let entry = Unit::LeftOut(fleet.clone(), object.clone());
            if self.graph.is_demanded(&entry) {
                self.dirty.insert(entry);
            }
            self.touch(vec![Fact::said_by(object)]);
        }
    }

    /// What is left out of what is published for a fleet.
    pub fn left_out(&self, fleet: &FleetName) -> impl Iterator<Item = (&ObjectKey, &LeftOut)> {
        self.facts.all_left_out(fleet)
    }

    /// How many routes are refused because they do not fit.
    pub fn over_budget(&self) -> OverBudget {
        self.facts.over_budget()
    }

    /// How many objects are left out, counted for each fleet.
    pub fn objects_left_out(&self) -> usize {
        self.facts.objects_left_out()
    }

    /// Which content of an object there is.
    pub fn revision(&self, object: &ObjectKey) -> Option<String> {
        self.facts.object(object).map(left_out::revision)
    }

    /// Forgets all that follows from the objects, and keeps them: the next call of [`World::settle`] returns everything.
    pub fn forget_derived(&mut self) {
        let empty = Self::with_limits(self.facts.limits.clone());
        let World { facts, graph: _, dirty: _ } = std::mem::replace(self, empty);
        facts.into_objects().for_each(|object| self.apply(Event::Applied(object)));
    }

    /// Works out what follows from the events since the last call, and returns what changed.
    pub fn settle(&mut self) -> Outcome {
        let mut work = Work::default();
        loop {
            // Once, when it is known what all routes would take, and before anything reads what fits.
            if self.dirty.first().is_none_or(Unit::is_after_budgets) {
                let touched = self.facts.settle_budgets();
                self.touch(touched);
            }
            let Some(unit) = self.dirty.pop_first() else { break };
            if self.graph.is_demanded(&unit) {
                work.count(unit.stage());
                self.compute(unit);
            }
        }
        let outcome = self.facts.take_outcome(work);
        for fleet in &outcome.retired {
            let objects: Vec<_> = self.left_out(fleet).map(|(object, _)| object.clone()).collect();
            for object in objects {
                self.leave_out(fleet, &object, None);
            }
        }
        outcome
    }

    /// All objects that are known.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.facts.objects()
    }

    /// The Gateways that name a class, whether there is one or not.
    pub fn gateways_of(&self, class: &ObjectName) -> impl Iterator<Item = &ObjectName> {
        let gateways = self.objects().filter(|key| key.kind == Kind::Gateway);
        gateways.filter(|key| self.names_class(key, class)).map(|key| &key.name)
    }

    /// The fleets that proxies were run for which Gateways share, whether or not they are known to do now.
    pub fn merged_fleets(&self) -> impl Iterator<Item = FleetName> {
        let services = self.objects().filter(|key| key.kind == Kind::Service);
        services.filter_map(|key| {
            let annotations = self.facts.object(key)?.metadata().annotations.as_ref()?;
            let owner = names::claimed_by(&key.name.namespace, annotations)?;
            let is_it = owner.is_class() && names::service(&owner) == key.name;
            is_it.then(|| owner.fleet())
        })
    }

    pub fn statuses(&self) -> impl Iterator<Item = (&ObjectKey, &Status)> {
        self.facts.statuses()
    }

    /// What is wrong, each with the object that caused it.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        self.statuses().flat_map(|(key, status)| status.problems(key))
    }

    /// All resources of a fleet that are served.
    pub fn resources(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (ResourceType, &Arc<Resource>)> {
        self.facts.resources(fleet).filter_map(|(section, resource)| match section {
            Section::Served(kind) => Some((kind, resource)),
            Section::Internal(_) => None,
        })
    }

    /// What goes with them and is not served.
    pub fn internals(&self, fleet: &FleetName) -> impl Iterator<Item = (Internal, &Arc<Resource>)> {
        self.facts.resources(fleet).filter_map(|(section, resource)| match section {
            Section::Internal(internal) => Some((internal, resource)),
            Section::Served(_) => None,
        })
    }

    /// How many units of translation there are.
    pub fn units(&self) -> usize {
        self.graph.units()
    }

    pub fn fleets(&self) -> impl Iterator<Item = &ir::Fleet> {
        self.facts.fleets()
    }

    pub fn infra(&self) -> impl Iterator<Item = &ir::Infra> {
        self.facts.infra()
    }

    /// The routes that were understood, whether or not they are attached, with their hostnames.
    pub fn routes(&self) -> impl Iterator<Item = (&ObjectKey, &[ir::Hostname], &ir::Route)> {
        self.facts.routes()
    }

    /// The endpoints of the backends that the fleets' routes lead to.
    pub fn backends(&self) -> BTreeMap<ir::Backend, ir::Endpoints> {
        let reader = Reader::new(&self.facts);
        let endpoints =
            |backend: &ir::Backend| crate::backends::endpoints(&reader, backend, &BTreeSet::new());
        self.facts
            .backends()
            .into_iter()
            .map(|backend| (backend.clone(), endpoints(backend)))
            .collect()
    }

    fn names_class(&self, gateway: &ObjectKey, class: &ObjectName) -> bool {
        let gateway = self.facts.object(gateway).and_then(gateway::Gateway::of);
        gateway.is_some_and(|gateway| *gateway.spec.gateway_class_name == *class.name)
    }

    fn compute(&mut self, unit: Unit) {
        let reader = Reader::new(&self.facts);
        let product = stages::compute(&unit, &reader);
        let read = reader.into_facts();
        debug_assert!(
            read.iter().all(|fact| !matches!(fact, Fact::Product(read) if !read.is_before(&unit))),
            "{unit:?} read a product of its own or a later stage"
        );
        self.graph.record(&unit, read);
        self.demand(&Fact::Product(unit.clone()), product.demands(&unit));
        let touched = self.facts.set_product(&unit, product);
        self.touch(touched);
    }

    /// Changes which units exist because of `cause`, and lets the ones that nobody wants go, with all they demanded.
    fn demand(&mut self, cause: &Fact, units: BTreeSet<Unit>) {
        let turnover = self.graph.demand(cause, units);
        self.dirty.extend(turnover.born);
        for unit in turnover.dead {
            self.dirty.remove(&unit);
            self.graph.record(&unit, BTreeSet::new());
            self.demand(&Fact::Product(unit.clone()), BTreeSet::new());
            let touched = self.facts.set_product(&unit, Product::nothing(&unit));
            self.touch(touched);
        }
    }

    fn touch(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            self.dirty.extend(self.graph.readers(&fact).cloned());
        }
    }
}
