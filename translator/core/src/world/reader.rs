use super::facts::Facts;
use super::unit::{Fact, Unit};
use crate::accept::{AcceptedGateway, Claim, Door, Doors, Losses};
use crate::attach::Attachment;
use crate::budget::{Excess, NotCopied};
use crate::ir::{self, Backend, Candidate, Hostname, ListenerId, TableKey};
use crate::limits::Limits;
use crate::objects::{ObjectKey, ObjectName, Typed};
use crate::routes::{Piece, Rules};
use crate::views::{AcceptedPolicy, ListedProxy, Plan, Treated};
use bytes::Bytes;
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use heliograph_views::LeftOut;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How a unit sees the world. Every look is recorded, also one that finds nothing: an object that appears later
/// concerns the units that missed it.
pub(crate) struct Reader<'a> {
    facts: &'a Facts,
    seen: RefCell<BTreeSet<Fact>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(facts: &'a Facts) -> Self {
        Self { facts, seen: RefCell::default() }
    }

    pub(super) fn into_facts(self) -> BTreeSet<Fact> {
        self.seen.into_inner()
    }

    /// They are the same for as long as there is a world.
    pub(crate) fn limits(&self) -> &'a Limits {
        &self.facts.limits
    }

    pub(crate) fn object<T: Typed>(&self, name: &ObjectName) -> Option<&'a T> {
        let key = name.clone().of(T::KIND);
        let object = self.facts.object(&key).and_then(T::of);
        self.saw(Fact::Object(key));
        object
    }

    pub(crate) fn objects_in<T: Typed + 'a>(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.saw(Fact::Namespace(T::KIND, namespace.into()));
        self.facts.objects_in(T::KIND, namespace).filter_map(T::of)
    }

    /// The objects that are about another.
    pub(crate) fn pointing<T: Typed + 'a>(
        &self,
        at: &ObjectKey,
    ) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.saw(Fact::Pointing(T::KIND, at.clone()));
        self.facts.pointing(T::KIND, at).filter_map(T::of)
    }

    /// What the Gateways of a fleet want of it that share it.
    pub(crate) fn claims(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&'a ObjectName, &'a Claim)> + use<'a> {
        self.saw(Fact::Claims(fleet.clone()));
        self.facts.claims(fleet)
    }

    /// What a Gateway does not get of the fleet that it shares, if anything.
    pub(crate) fn lost(&self, fleet: &FleetName, gateway: &ObjectName) -> Option<&'a Losses> {
        self.saw(Fact::Lost(gateway.clone()));
        self.facts.lost(fleet, gateway)
    }

    /// All there is to say of a Gateway that is ours, whether or not it is valid.
    pub(crate) fn gateway(&self, name: &ObjectName) -> Option<&'a AcceptedGateway> {
        self.saw(Fact::Product(Unit::Gateway(name.clone())));
        self.facts.gateway(name)
    }

    /// What fleets see of a Gateway that is ours.
    pub(crate) fn doors(&self, name: &ObjectName) -> Option<&'a Doors> {
        self.saw(Fact::Doors(name.clone()));
        self.facts.gateway(name).map(|gateway| &gateway.doors)
    }

    /// What routes see of a Gateway that is ours: its own listeners, or those that a ListenerSet adds to it.
    pub(crate) fn doors_of(
        &self,
        gateway: &ObjectName,
        owner: &ObjectKey,
    ) -> Option<(&'a FleetName, Vec<&'a Door>)> {
        self.saw(Fact::FleetOf(gateway.clone()));
        self.saw(Fact::DoorsOf(owner.clone()));
        let Doors { fleet, doors, .. } = &self.facts.gateway(gateway)?.doors;
        Some((fleet, doors.iter().filter(|door| door.id.owner == *owner).collect()))
    }

    /// The Gateways of a fleet.
    pub(crate) fn members(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.saw(Fact::Members(fleet.clone()));
        self.facts.members(fleet)
    }

    /// What the proxies of a fleet are to serve.
    pub(crate) fn fleet(&self, fleet: &FleetName) -> Option<&'a ir::Fleet> {
        self.saw(Fact::Product(Unit::Fleet(fleet.clone())));
        self.facts.fleet(fleet)
    }

    /// The listeners that hosts of a table may belong to.
    pub(crate) fn listeners_of(&self, table: &TableKey) -> &'a [Candidate] {
        self.saw(Fact::Listeners(table.clone()));
        self.facts.listeners_of(table)
    }

    pub(crate) fn rules(&self, route: &ObjectKey) -> Option<&'a Rules> {
        self.saw(Fact::Product(Unit::Rules(route.clone())));
        self.facts.rules(route)
    }

    /// What of an object is left out of what is published for a fleet. Whoever asks has read what the object says, and is
    /// computed again with it.
    pub(crate) fn left_out(&self, fleet: &FleetName, object: &ObjectKey) -> Option<&'a LeftOut> {
        self.saw(Fact::said_by(object));
        self.facts.left_out(fleet, object)
    }

    pub(crate) fn placement(&self, route: &ObjectKey) -> Option<&'a Arc<Attachment>> {
        self.saw(Fact::Product(Unit::Placement(route.clone())));
        self.facts.placement(route)
    }

    /// Which budget a route is beyond, if any.
    pub(crate) fn excess(&self, route: &ObjectKey) -> Option<&'a Excess> {
        self.saw(Fact::Excess(route.clone()));
        self.facts.excess(route)
    }

    /// The routes that a host of a table is without, although they are for it as well.
    pub(crate) fn not_copied(&self, table: &TableKey, host: &Hostname) -> Option<NotCopied<'a>> {
        self.saw(Fact::NotCopied(table.clone(), host.clone()));
        self.facts.not_copied(table, host)
    }

    pub(crate) fn attachment(&self, route: &ObjectKey) -> Option<&'a Attachment> {
        self.saw(Fact::Product(Unit::Attachment(route.clone())));
        self.facts.attachment(route).map(|attachment| &**attachment)
    }

    pub(crate) fn piece(&self, route: &ObjectKey, table: &TableKey) -> Option<&'a Piece> {
        self.saw(Fact::Product(Unit::Piece(route.clone(), table.clone())));
        self.facts.piece(route, table)
    }

    pub(crate) fn attached_routes(&self, listener: &ListenerId) -> usize {
        self.saw(Fact::Attached(listener.clone()));
        self.facts.attached_routes(listener)
    }

    /// The Gateways whose routes refer to an object, wherever that leads.
    pub(crate) fn leading_to(
        &self,
        object: &ObjectKey,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.saw(Fact::LeadingTo(object.clone()));
        self.facts.leading_to(object)
    }

    /// The routes that a listener has for a host and for those that cover it, the narrowest first; each with the hostname that
    /// its author wrote.
    pub(crate) fn hosted(
        &self,
        table: &TableKey,
        listener: &ListenerId,
        host: &Hostname,
    ) -> Vec<(&'a Hostname, &'a BTreeMap<ObjectKey, Hostname>)> {
        self.saw(Fact::Covering(table.clone(), listener.clone(), host.clone()));
        let hosted = self.facts.hosted(table, listener, host);
        let saw = |(host, _): &(&Hostname, _)| {
            self.saw(Fact::Hosted(table.clone(), listener.clone(), (*host).clone()));
        };
        hosted.inspect(saw).collect()
    }

    /// The encoded virtual hosts of a table, ordered by host.
    pub(crate) fn virtual_hosts(
        &self,
        table: &TableKey,
    ) -> impl Iterator<Item = &'a Bytes> + use<'a> {
        self.saw(Fact::VirtualHosts(table.clone()));
        self.facts.virtual_hosts(table)
    }

    /// The ViewPolicies of a fleet, whether or not they are accepted.
    pub(crate) fn policies(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = &'a ObjectName> + use<'a> {
        self.saw(Fact::Policies(fleet.clone()));
        self.facts.policies(fleet)
    }

    pub(crate) fn policy(&self, name: &ObjectName) -> Option<&'a AcceptedPolicy> {
        self.saw(Fact::Product(Unit::Policy(name.clone())));
        self.facts.policy(name)
    }

    /// The proxies of a fleet that the directory knows.
    pub(crate) fn proxies(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (&'a ObjectName, &'a ListedProxy)> + use<'a> {
        self.saw(Fact::Proxies(fleet.clone()));
        self.facts.proxies(fleet)
    }

    pub(crate) fn proxy(&self, name: &ObjectName) -> Option<&'a ListedProxy> {
        self.saw(Fact::Product(Unit::Proxy(name.clone())));
        self.facts.proxy(name)
    }

    pub(crate) fn plan(&self, fleet: &FleetName) -> Option<&'a Plan> {
        self.saw(Fact::Product(Unit::Plan(fleet.clone())));
        self.facts.plan(fleet)
    }

    pub(crate) fn treatment(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&'a Treated> {
        self.saw(Fact::Product(Unit::Treatment(fleet.clone(), kind, name.clone())));
        self.facts.treatment(fleet, kind, name)
    }

    pub(crate) fn resource(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&'a Arc<Resource>> {
        self.saw(Fact::Resource(fleet.clone(), kind, name.clone()));
        self.facts.resource(fleet, kind, name)
    }

    /// The backends that the routes of a table lead to.
    pub(crate) fn backends(&self, table: &TableKey) -> BTreeSet<&'a Backend> {
        self.saw(Fact::Backends(table.clone()));
        self.facts.backends_of(table)
    }

    fn saw(&self, fact: Fact) {
        self.seen.borrow_mut().insert(fact);
    }
}
