//! The resources of each fleet, and the units that made them.

use super::{Fact, Indexes};
use crate::merge::Forwarding;
use crate::objects::ObjectKey;
use crate::routes::CompiledRoute;
use crate::status::Status;
use crate::world::keys::{CompiledRouteKey, InFleet, ResourceId, ResourceKey};
use heliograph_model::{FrozenSet, ListenerId, UpstreamId};
use heliograph_snapshot::{Change, FleetName, Internal, Resource, ResourceType, Section};
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

impl Indexes {
    pub(in crate::world) fn compiled_route_changed(
        &mut self,
        key: &CompiledRouteKey,
        old: Option<&CompiledRoute>,
        new: Option<&CompiledRoute>,
    ) -> Vec<Fact> {
        let (old, new) = (old.map(|it| &it.upstreams), new.map(|it| &it.upstreams));
        self.upstreams_changed(&key.listener, old, new)
    }

    pub(in crate::world) fn forwarding_changed(
        &mut self,
        key: &InFleet<ListenerId>,
        old: Option<&Forwarding>,
        new: Option<&Forwarding>,
    ) -> Vec<Fact> {
        let (old, new) = (old.map(|it| &it.upstreams), new.map(|it| &it.upstreams));
        self.upstreams_changed(&key.id, old, new)
    }

    /// An upstream that the first route of a listener leads to, or the last one did, is a change; how many routes do is none.
    fn upstreams_changed(
        &mut self,
        listener: &ListenerId,
        old: Option<&FrozenSet<UpstreamId>>,
        new: Option<&FrozenSet<UpstreamId>>,
    ) -> Vec<Fact> {
        let none = FrozenSet::default();
        let (old, new) = (old.unwrap_or(&none), new.unwrap_or(&none));
        if old == new {
            return Vec::new();
        }
        let mut is_other = false;
        let counts = self.upstreams.entry(listener.clone()).or_default();
        for added in new.difference(old) {
            let count = counts.entry(added.clone()).or_default();
            is_other |= *count == 0;
            *count += 1;
        }
        for removed in old.difference(new) {
            if let Entry::Occupied(mut count) = counts.entry(removed.clone()) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                    is_other = true;
                }
            }
        }
        if counts.is_empty() {
            self.upstreams.remove(listener);
        }
        is_other.then(|| Fact::Upstreams(listener.clone())).into_iter().collect()
    }

    pub(in crate::world) fn status_changed(
        &mut self,
        object: &ObjectKey,
        _old: Option<&Status>,
        new: Option<&Status>,
    ) -> Vec<Fact> {
        self.outcome.statuses.insert(object.clone(), new.cloned());
        Vec::new()
    }

    pub(in crate::world) fn served_changed<T>(
        &mut self,
        key: &InFleet<T>,
        kind: ResourceType,
        name: String,
        new: Option<&Arc<Resource>>,
    ) -> Vec<Fact> {
        self.resource_changed(&key.fleet, kind.into(), name.into(), new.cloned())
    }

    /// The same for the one resource by whose name its id is found.
    pub(in crate::world) fn identified_changed(
        &mut self,
        fleet: &FleetName,
        kind: ResourceType,
        (name, id): (String, ResourceId),
        old: Option<&Arc<Resource>>,
        new: Option<&Arc<Resource>>,
    ) -> Vec<Fact> {
        let name: Arc<str> = name.into();
        if old.is_some() != new.is_some() {
            let ids = self.ids.entry(fleet.clone()).or_default();
            match new {
                Some(_) => drop(ids.insert((kind, name.clone()), id)),
                None => drop(ids.remove(&(kind, name.clone()))),
            }
            if ids.is_empty() {
                self.ids.remove(fleet);
            }
        }
        self.resource_changed(fleet, kind.into(), name, new.cloned())
    }

    /// What a resource with this name is made from.
    pub(in crate::world) fn id_of(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&ResourceId> {
        let kind = match kind {
            // What cannot be spoken to as its policy asks has endpoints and no cluster.
            ResourceType::Cluster => ResourceType::Endpoints,
            kind => kind,
        };
        self.ids.get(fleet)?.get(&(kind, name.clone()))
    }

    pub(in crate::world) fn internal_changed<T>(
        &mut self,
        key: &InFleet<T>,
        part: Internal,
        name: String,
        new: Option<&Arc<Resource>>,
    ) -> Vec<Fact> {
        self.resource_changed(&key.fleet, part.into(), name.into(), new.cloned())
    }

    pub(in crate::world) fn resource_changed(
        &mut self,
        fleet: &FleetName,
        section: Section,
        name: Arc<str>,
        new: Option<Arc<Resource>>,
    ) -> Vec<Fact> {
        let resources = self.resources.entry(fleet.clone()).or_default();
        match new.clone() {
            Some(resource) => drop(resources.insert((section, name.clone()), resource)),
            None => drop(resources.remove(&(section, name.clone()))),
        }
        if resources.is_empty() {
            self.resources.remove(fleet);
        }
        let change = match (section, new) {
            (Section::Served(kind), Some(resource)) => Change::Set(kind, resource),
            (Section::Served(kind), None) => Change::Remove(kind, name.clone()),
            (Section::Internal(part), Some(resource)) => Change::SetInternal(part, resource),
            (Section::Internal(part), None) => Change::RemoveInternal(part, name.clone()),
        };
        self.outcome.changes.entry(fleet.clone()).or_default().push(change);
        match section {
            Section::Served(kind) => vec![Fact::Resource(ResourceKey::new(fleet, kind, name))],
            Section::Internal(_) => Vec::new(),
        }
    }

    /// The upstreams that the routes of all listeners lead to.
    pub(in crate::world) fn all_upstreams(&self) -> BTreeSet<&UpstreamId> {
        self.upstreams.values().flat_map(|upstreams| upstreams.keys()).collect()
    }
}
