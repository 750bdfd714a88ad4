//! [`World`] holds every object and everything derived from them. An event makes dirty only the units that read what it
//! changed, and [`World::settle`] computes just those. `table` lists the units; the engine computes them incrementally.

mod culprits;
mod facts;
mod indexes;
mod keys;
mod outcome;
mod reader;
mod rejected;
mod sources;
mod table;

pub use culprits::{Culprit, RejectedResource};
pub use heliograph_engine::Work;
pub(crate) use keys::{CompiledRouteKey, HostKey, InFleet, TreatmentOf};
pub use outcome::Outcome;
pub(crate) use reader::Reader;
pub use rejected::MeantMatch;
pub use sources::Source;

use crate::budget::OverBudget;
use crate::infra::Infra;
use crate::infra::names;
use crate::left_out;
use crate::limits::Limits;
use crate::objects::{Kind, Object, ObjectKey, ObjectName, Typed, gateway};
use crate::status::{Problem, Status};
use facts::Facts;
use heliograph_engine::Engine;
use heliograph_model::{self as model, PolicyId, PolicySections, PolicyTarget, RouteId};
use heliograph_snapshot::{FleetName, Internal, Resource, ResourceType, Section};
use heliograph_views::LeftOut;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::{Fact, Unit};

/// Everything that is known, and everything that follows from it.
#[derive(Debug)]
pub struct World {
    engine: Engine<Facts>,
}

/// A change of an object, from a provider.
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
        Self::with_limits(Limits::default())
    }

    pub fn with_limits(limits: Limits) -> Self {
        Self { engine: Engine::new(Facts::with_limits(limits)) }
    }

    /// Records an event. [`World::settle`] computes what follows from it.
    pub fn apply(&mut self, event: Event) {
        let (key, object) = match event {
            Event::Applied(mut object) => {
                object.forget_bookkeeping();
                (object.key(), Some(object))
            }
            Event::Deleted(key) => (key, None),
        };
        let units = match object {
            Some(_) => table::demanded_by_object(&key),
            None => BTreeSet::new(),
        };
        let changed = self.engine.table.set_object(&key, object);
        self.engine.demand(&Fact::Object(key.clone()), units);
        self.engine.touch(changed);
        // What has changed is tried again.
        for fleet in self.engine.table.outdated(&key) {
            self.leave_out(&fleet, &key, None);
        }
    }

    /// Leaves something of an object out of what is published for a fleet, or nothing any more. It is ignored where the
    /// object is another one by now.
    pub fn leave_out(&mut self, fleet: &FleetName, object: &ObjectKey, left_out: Option<LeftOut>) {
        let left_out =
            left_out.filter(|it| self.revision(object).is_some_and(|is| is == it.revision));
        let entry = Unit::left_out(fleet, object);
        let units = left_out.iter().map(|_| entry.clone()).collect();
        if self.engine.table.set_left_out(fleet, object, left_out) {
            self.engine.demand(&Fact::left_out(fleet, object), units);
            self.engine.touch_unit(entry);
            self.engine.touch(vec![Fact::content_of(object)]);
        }
    }

    /// The parts of objects that are left out of a fleet.
    pub fn left_out(&self, fleet: &FleetName) -> impl Iterator<Item = (&ObjectKey, &LeftOut)> {
        self.engine.table.all_left_out(fleet)
    }

    /// How many routes are refused because they do not fit.
    pub fn over_budget(&self) -> OverBudget {
        self.engine.table.indexes.budgets.over()
    }

    /// How many objects are left out, counted for each fleet.
    pub fn objects_left_out(&self) -> usize {
        self.engine.table.left_out.values().map(BTreeMap::len).sum()
    }

    /// Which content of an object there is.
    pub fn revision(&self, object: &ObjectKey) -> Option<String> {
        self.engine.table.objects.get(object).map(left_out::revision)
    }

    /// Forgets all that follows from the objects, and keeps them: the next call of [`World::settle`] returns everything.
    pub fn forget_derived(&mut self) {
        let empty = Self::with_limits(self.engine.table.limits.clone());
        let World { engine } = std::mem::replace(self, empty);
        let objects = engine.table.objects.into_values();
        objects.for_each(|object| self.apply(Event::Applied(object)));
    }

    /// Works out what follows from the events since the last call, and returns what changed.
    pub fn settle(&mut self) -> Outcome {
        let work = self.engine.settle();
        let outcome = self.engine.table.take_outcome(work);
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
        self.engine.table.objects.keys()
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
            let annotations =
                self.engine.table.objects.get(key)?.metadata().annotations.as_ref()?;
            let owner = names::annotated_owner(&key.name.namespace, annotations)?;
            let is_it = owner.is_class() && names::service(&owner) == key.name;
            is_it.then(|| owner.fleet())
        })
    }

    pub fn statuses(&self) -> impl Iterator<Item = (&ObjectKey, &Status)> {
        self.engine.table.products.status.iter()
    }

    /// The problems, each with the object that caused it.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        self.statuses().flat_map(|(key, status)| status.problems(key))
    }

    /// All resources of a fleet that are served.
    pub fn resources(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (ResourceType, &Arc<Resource>)> {
        self.all_resources(fleet).filter_map(|(section, resource)| match section {
            Section::Served(kind) => Some((kind, resource)),
            Section::Internal(_) => None,
        })
    }

    /// The resources of the trees that are not served.
    pub fn internals(&self, fleet: &FleetName) -> impl Iterator<Item = (Internal, &Arc<Resource>)> {
        self.all_resources(fleet).filter_map(|(section, resource)| match section {
            Section::Internal(internal) => Some((internal, resource)),
            Section::Served(_) => None,
        })
    }

    /// How many units of translation there are.
    pub fn units(&self) -> usize {
        self.engine.graph().units()
    }

    pub fn fleets(&self) -> impl Iterator<Item = &model::Fleet> {
        self.engine.table.products.fleet.values()
    }

    pub fn infra(&self) -> impl Iterator<Item = &Infra> {
        self.engine.table.products.infra.values().map(Arc::as_ref)
    }

    /// The routes that were understood, whether or not they are attached, with their hostnames.
    pub fn routes(&self) -> impl Iterator<Item = (&RouteId, &[model::Hostname], &model::Route)> {
        let rules = self.engine.table.products.rules.iter();
        rules.filter_map(|(key, rules)| Some((key, &*rules.hostnames, rules.route.as_ref()?)))
    }

    /// The policies that are attached to something, with their targets. `None`: one cannot be enforced.
    pub fn policies(
        &self,
    ) -> impl Iterator<Item = (&PolicyId, &[PolicyTarget], Option<&PolicySections>)> {
        let policies = self.engine.table.products.accepted_policy.iter();
        policies.map(|(id, policy)| (id, &*policy.targets, policy.sections.as_ref().ok()))
    }

    /// The endpoints of the upstreams that the fleets' routes lead to.
    pub fn upstreams(&self) -> BTreeMap<model::UpstreamId, model::Endpoints> {
        let reader = self.reader();
        let endpoints = |upstream: &model::UpstreamId| {
            crate::backends::endpoints(&reader, upstream, &BTreeSet::new())
        };
        let upstreams = self.engine.table.indexes.all_upstreams().into_iter();
        upstreams.map(|upstream| (upstream.clone(), endpoints(upstream))).collect()
    }

    fn names_class(&self, gateway: &ObjectKey, class: &ObjectName) -> bool {
        let gateway = self.engine.table.objects.get(gateway).and_then(gateway::Gateway::of);
        gateway.is_some_and(|gateway| *gateway.spec.gateway_class_name == *class.name)
    }

    fn reader(&self) -> Reader<'_> {
        Reader::unrecorded(&self.engine.table)
    }

    fn all_resources(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (Section, &Arc<Resource>)> + use<'_> {
        let resources = self.engine.table.indexes.resources.get(fleet);
        let resources = resources.into_iter().flatten();
        resources.map(|((section, _), resource)| (*section, resource))
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
