use super::facts::Facts;
use super::keys::{HostKey, InFleet, ResourceKey};
use super::table::{Fact, Unit};
use crate::accept::{AttachPoint, AttachPoints, ListenerRequests, LostListeners};
use crate::budget::{Excess, NotCopied};
use crate::limits::Limits;
use crate::objects::{Kind, Object, ObjectKey, ObjectName, Typed};
use crate::policies::AcceptedPolicy;
use crate::views::ListedProxy;
use bytes::Bytes;
use heliograph_engine::Reads;
use heliograph_model::{
    Candidate, Hostname, ListenerId, ListenerOwner, PolicyScope, RouteId, TableKey, UpstreamId,
};
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use heliograph_views::LeftOut;
use std::sync::Arc;

/// How a unit sees the world. Every read is recorded, also one that finds nothing: an object that appears later concerns
/// the units that missed it.
///
/// The products of units have getters with the names of their entries in the table.
pub(crate) struct Reader<'a> {
    pub(super) facts: &'a Facts,
    pub(super) reads: Reads<Fact>,
}

impl<'a> Reader<'a> {
    /// For a unit of this stage.
    pub(super) fn of(facts: &'a Facts, stage: usize) -> Self {
        Self { facts, reads: Reads::of_stage(stage) }
    }

    /// For a query outside of units.
    pub(super) fn unrecorded(facts: &'a Facts) -> Self {
        Self { facts, reads: Reads::unrecorded() }
    }

    pub(super) fn into_facts(self) -> Vec<Fact> {
        self.reads.into_facts()
    }

    /// They stay the same as long as the world exists.
    pub(crate) fn limits(&self) -> &'a Limits {
        &self.facts.limits
    }

    pub(crate) fn object<T: Typed>(&self, name: &ObjectName) -> Option<&'a T> {
        let key = name.clone().of(T::KIND);
        let object = self.facts.objects.get(&key).and_then(T::of);
        self.reads.record(Fact::Object(key));
        object
    }

    pub(crate) fn objects_in<T: Typed + 'a>(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.objects_of(T::KIND, namespace).filter_map(T::of)
    }

    /// The objects of a kind in a namespace.
    pub(crate) fn objects_of(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Object> + use<'a> {
        let namespace: Arc<str> = namespace.into();
        self.reads.record(Fact::Namespace((kind, namespace.clone())));
        let first = ObjectName::new(&namespace, "").of(kind);
        let from = self.facts.objects.range(first..);
        let is_there = move |key: &ObjectKey| key.kind == kind && key.name.namespace == namespace;
        from.take_while(move |(key, _)| is_there(key)).map(|(_, object)| object)
    }

    /// The objects of a kind that belong to another: the EndpointSlices of a Service.
    pub(crate) fn children<T: Typed + 'a>(
        &self,
        at: &ObjectKey,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.reads.record(Fact::Children((T::KIND, at.clone())));
        self.child_objects(T::KIND, at).filter_map(T::of)
    }

    /// The part of an object that is left out of a fleet. The unit that asks has read the object, and is computed again
    /// when it changes.
    pub(crate) fn left_out_of(&self, fleet: &FleetName, object: &ObjectKey) -> Option<&'a LeftOut> {
        self.reads.record(Fact::content_of(object));
        self.facts.left_out.get(object)?.get(fleet)
    }

    /// The listeners that the Gateways of a shared fleet request.
    pub(crate) fn listener_requests_in(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&'a ObjectName, &'a ListenerRequests)> + use<'a> {
        self.reads.record(Fact::ListenerRequestsOf(fleet.clone()));
        let facts = self.facts;
        let names = facts.indexes.requesting_gateways.of(fleet);
        names.filter_map(|name| Some((name, facts.products.listener_requests.get(name)?)))
    }

    /// The requested listeners that a Gateway loses in its shared fleet, if any.
    pub(crate) fn lost_listeners(
        &self,
        fleet: &FleetName,
        gateway: &ObjectName,
    ) -> Option<&'a LostListeners> {
        self.reads.record(Fact::LostListenersOf(gateway.clone()));
        self.facts.products.arbitration.get(fleet)?.of(gateway)
    }

    /// The attach points of a Gateway of ours, for fleets.
    pub(crate) fn attach_points(&self, name: &ObjectName) -> Option<&'a AttachPoints> {
        self.reads.record(Fact::AttachPoints(name.clone()));
        self.facts.products.gateway.get(name).map(|gateway| &gateway.attach_points)
    }

    /// The attach points of a Gateway of ours, for routes: its own listeners, or those of a ListenerSet.
    pub(crate) fn attach_points_of(
        &self,
        gateway: &ObjectName,
        owner: &ListenerOwner,
    ) -> Option<(&'a FleetName, Vec<&'a AttachPoint>)> {
        self.reads.record(Fact::FleetOf(gateway.clone()));
        self.reads.record(Fact::AttachPointsOf(owner.clone()));
        let AttachPoints { fleet, points, .. } =
            &self.facts.products.gateway.get(gateway)?.attach_points;
        Some((fleet, points.iter().filter(|point| point.id.owner == *owner).collect()))
    }

    /// The Gateways of a fleet.
    pub(crate) fn members(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.reads.record(Fact::Members(fleet.clone()));
        self.facts.indexes.members.of(fleet)
    }

    /// The listeners that hosts of a table may belong to.
    pub(crate) fn listeners_of(&self, table: &TableKey) -> &'a [Candidate] {
        self.reads.record(Fact::Listeners(table.clone()));
        self.facts.indexes.listeners.get(table).map_or(&[], Vec::as_slice)
    }

    /// Which budget a route is beyond, if any.
    pub(crate) fn excess(&self, route: &RouteId) -> Option<&'a Excess> {
        self.reads.record(Fact::Excess(route.clone()));
        self.facts.indexes.budgets.excess(route)
    }

    /// The routes that a host of a table is without, although they are for it as well.
    pub(crate) fn not_copied(&self, key: &HostKey) -> Option<NotCopied<'a>> {
        self.reads.record(Fact::NotCopied(key.clone()));
        self.facts.indexes.budgets.not_copied(&key.table, &key.host)
    }

    /// How many routes are attached to a listener.
    pub(crate) fn attached_routes(&self, listener: &ListenerId) -> usize {
        self.reads.record(Fact::Attached(listener.clone()));
        self.facts.indexes.attached.count(listener)
    }

    /// The Gateways whose routes refer to an object, wherever that leads.
    pub(crate) fn referring_gateways(
        &self,
        object: &ObjectKey,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.reads.record(Fact::ReferringGateways(object.clone()));
        let (object, first) = (object.clone(), ObjectName::new("", ""));
        let references = self.facts.indexes.reverse_references.keys_from((object.clone(), first));
        references.take_while(move |(to, _)| *to == object).map(|(_, from)| from)
    }

    /// The routes that a listener has for a host and for those that cover it, the narrowest first; each with the hostname
    /// that its author wrote.
    pub(crate) fn hosted(
        &self,
        key: &HostKey,
        listener: &ListenerId,
    ) -> Vec<(&'a Hostname, Vec<&'a (RouteId, Hostname)>)> {
        let at = |host: &Hostname| (key.table.clone(), listener.clone(), host.clone());
        self.reads.record(Fact::Covering(at(&key.host)));
        let indexes = &self.facts.indexes;
        let covering = indexes.hosts.get(&key.table).map(|hosts| hosts.covering(&key.host));
        let hosted = covering.into_iter().flatten().filter_map(|(host, _)| {
            let at = at(host);
            let routes: Vec<_> = indexes.hosted.of(&at).collect();
            (!routes.is_empty()).then(|| self.reads.record(Fact::Hosted(at)))?;
            Some((host, routes))
        });
        hosted.collect()
    }

    /// The encoded virtual hosts of a table, ordered by host.
    pub(crate) fn virtual_hosts(
        &self,
        table: &TableKey,
    ) -> impl Iterator<Item = &'a Bytes> + use<'a> {
        self.reads.record(Fact::VirtualHosts(table.clone()));
        let table = table.clone();
        let first = HostKey { table: table.clone(), host: Hostname::Any };
        let from = self.facts.products.virtual_host.range(first..);
        from.take_while(move |(key, _)| key.table == table).map(|(_, host)| host)
    }

    /// The ViewPolicies of a fleet, whether or not they are accepted.
    pub(crate) fn view_policies(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.reads.record(Fact::ViewPolicies(fleet.clone()));
        self.facts.indexes.view_policies.of(fleet)
    }

    /// The policies that are attached to this, or to a section of it, the oldest first; each with the section.
    pub(crate) fn policies_at(
        &self,
        scope: &PolicyScope,
    ) -> impl Iterator<Item = (Option<&'a Arc<str>>, &'a AcceptedPolicy)> + use<'a> {
        self.reads.record(Fact::PoliciesAt(scope.clone()));
        let facts = self.facts;
        let attached = facts.indexes.policies_at.of(scope);
        attached.filter_map(|(age, section)| {
            Some((section.as_ref(), facts.products.accepted_policy.get(age.of())?))
        })
    }

    /// The proxies of a fleet that are in the inventory.
    pub(crate) fn proxies(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&'a ObjectName, &'a ListedProxy)> + use<'a> {
        self.reads.record(Fact::Proxies(fleet.clone()));
        let facts = self.facts;
        let names = facts.indexes.proxies.of(fleet);
        names.filter_map(|name| Some((name, facts.products.proxy.get(name)?)))
    }

    /// A resource that is served.
    pub(crate) fn resource(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&'a Arc<Resource>> {
        self.reads.record(Fact::Resource(ResourceKey::new(fleet, kind, name.clone())));
        self.facts.indexes.resources.get(fleet)?.get(&(kind.into(), name.clone()))
    }

    /// The upstreams that the routes of a listener lead to.
    pub(crate) fn upstreams(
        &self,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &'a UpstreamId> + use<'a> {
        self.reads.record(Fact::Upstreams(listener.clone()));
        let upstreams = self.facts.indexes.upstreams.get(listener);
        upstreams.into_iter().flat_map(|upstreams| upstreams.keys())
    }

    /// The routes that are attached to a listener.
    pub(crate) fn routes_at(
        &self,
        listener: &ListenerId,
    ) -> impl Iterator<Item = &'a RouteId> + use<'a> {
        self.reads.record(Fact::Attached(listener.clone()));
        self.facts.indexes.attached.of(listener)
    }

    fn child_objects(
        &self,
        kind: Kind,
        at: &ObjectKey,
    ) -> impl Iterator<Item = &'a Object> + use<'a> {
        let facts = self.facts;
        let keys = facts.children.of(&(kind, at.clone()));
        keys.filter_map(|key| facts.objects.get(key))
    }
}

impl Fact {
    /// That something is left out of an object.
    pub(super) fn left_out(fleet: &FleetName, object: &ObjectKey) -> Self {
        Self::LeftOutOf(InFleet::new(fleet, object.clone()))
    }
}

impl Unit {
    pub(super) fn left_out(fleet: &FleetName, object: &ObjectKey) -> Self {
        Self::LeftOut(InFleet::new(fleet, object.clone()))
    }
}
