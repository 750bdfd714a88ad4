mod attachments;
mod claims;
mod left_out;
mod views;

use crate::accept::{AcceptedGateway, Claim, Contest, Door, Doors};
use crate::attach::Attachment;
use crate::budget::{Budgets, Excess, NotCopied, OverBudget};
use crate::ir::{self, Backend, Candidate, HostMap, Hostname, ListenerId, TableKey};
use crate::left_out::object_name;
use crate::limits::Limits;
use crate::objects::{Kind, Object, ObjectKey, ObjectName};
use crate::routes::{Piece, Rules};
use crate::status::Status;
use crate::views::{AcceptedPolicy, ListedProxy, Plan, Treated};
use crate::world::outcome::{Outcome, Work};
use crate::world::relation::Relation;
use crate::world::stages::Product;
use crate::world::unit::{Fact, Unit};
use attachments::HostOf;
use bytes::Bytes;
use heliograph_snapshot::{Change, FleetName, Internal, Resource, ResourceType, Section};
use heliograph_views::LeftOut;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects and products, with the indexes that units ask for. Every write returns the facts that it changed.
#[derive(Debug, Default)]
pub(in crate::world) struct Facts {
    pub(in crate::world) limits: Limits,
    objects: BTreeMap<ObjectKey, Object>,
    /// What proxies reject of objects, and of which fleets.
    left_out: BTreeMap<ObjectKey, BTreeMap<FleetName, LeftOut>>,
    /// By what they are about.
    pointing: Relation<(Kind, ObjectKey), ObjectKey>,
    claims: BTreeMap<ObjectName, Claim>,
    claimants: Relation<FleetName, ObjectName>,
    contests: BTreeMap<FleetName, Contest>,
    gateways: BTreeMap<ObjectName, AcceptedGateway>,
    members: Relation<FleetName, ObjectName>,
    fleets: BTreeMap<FleetName, ir::Fleet>,
    infra: BTreeMap<FleetName, Arc<ir::Infra>>,
    listeners: BTreeMap<TableKey, Vec<Candidate>>,
    rules: BTreeMap<ObjectKey, Rules>,
    placements: BTreeMap<ObjectKey, Arc<Attachment>>,
    budgets: Budgets,
    attachments: BTreeMap<ObjectKey, Arc<Attachment>>,
    attached: Relation<ListenerId, ObjectKey>,
    /// The routes by which a Gateway leads to an object.
    leads: Relation<(ObjectKey, ObjectName), ObjectKey>,
    hosted: BTreeMap<HostOf, BTreeMap<ObjectKey, Hostname>>,
    /// The hosts of those, with the number of listeners.
    hosts: BTreeMap<TableKey, HostMap<usize>>,
    pieces: BTreeMap<(ObjectKey, TableKey), Piece>,
    virtual_hosts: BTreeMap<TableKey, BTreeMap<Hostname, Bytes>>,
    resources: BTreeMap<FleetName, BTreeMap<ResourceOf, Arc<Resource>>>,
    policies: BTreeMap<ObjectName, AcceptedPolicy>,
    policies_of: Relation<FleetName, ObjectName>,
    proxies: BTreeMap<ObjectName, ListedProxy>,
    proxies_of: Relation<FleetName, ObjectName>,
    plans: BTreeMap<FleetName, Plan>,
    treatments: BTreeMap<(FleetName, ResourceType, Arc<str>), Treated>,
    statuses: BTreeMap<ObjectKey, Status>,
    /// What changed since it was last taken.
    outcome: Outcome,
}

type ResourceOf = (Section, Arc<str>);

impl Facts {
    pub(in crate::world) fn set_object(
        &mut self,
        key: &ObjectKey,
        object: Option<Object>,
    ) -> Vec<Fact> {
        let before = self.objects.get(key);
        if before == object.as_ref() {
            return Vec::new();
        }
        let mut touched =
            vec![Fact::Object(key.clone()), Fact::Namespace(key.kind, key.name.namespace.clone())];
        for old in before.map(Object::points_at).unwrap_or_default() {
            self.pointing.remove(&(key.kind, old.clone()), key);
            touched.push(Fact::Pointing(key.kind, old));
        }
        for new in object.as_ref().map(Object::points_at).unwrap_or_default() {
            self.pointing.insert((key.kind, new.clone()), key.clone());
            touched.push(Fact::Pointing(key.kind, new));
        }
        match object {
            Some(object) => self.objects.insert(key.clone(), object),
            None => self.objects.remove(key),
        };
        touched
    }

    pub(in crate::world) fn objects(&self) -> impl Iterator<Item = &ObjectKey> {
        self.objects.keys()
    }

    pub(in crate::world) fn into_objects(self) -> impl Iterator<Item = Object> {
        self.objects.into_values()
    }

    /// Keeps the product of a unit; an empty one is forgotten.
    pub(in crate::world) fn set_product(&mut self, unit: &Unit, product: Product) -> Vec<Fact> {
        let mut touched = Vec::new();
        let changed = match (unit, product) {
            (Unit::Claim(name), Product::Claim(new)) => {
                let (changed, moved) = self.set_claim(name, new);
                touched = moved;
                changed
            }
            (Unit::Contest(fleet), Product::Contest(new)) => {
                let (changed, moved) = self.set_contest(fleet, new);
                touched = moved;
                changed
            }
            (Unit::Gateway(name), Product::Gateway(new)) => {
                touched = self.index_gateway(name, new.as_deref());
                set(&mut self.gateways, name, new.map(|new| *new))
            }
            (Unit::Fleet(name), Product::Fleet(new)) => {
                touched = self.index_fleet(name, new.as_ref());
                set(&mut self.fleets, name, new)
            }
            (Unit::Infra(fleet), Product::Infra(new)) => {
                let changed = set(&mut self.infra, fleet, new.clone());
                if changed {
                    self.outcome.infra.insert(fleet.clone(), new);
                }
                changed
            }
            (Unit::Policy(name), Product::Policy(new)) => {
                let (changed, moved) = self.set_policy(name, new);
                touched = moved;
                changed
            }
            (Unit::Proxy(name), Product::Proxy(new)) => {
                let (changed, moved) = self.set_proxy(name, new);
                touched = moved;
                changed
            }
            (Unit::Plan(fleet), Product::Plan(new)) => set(&mut self.plans, fleet, new),
            (Unit::Treatment(fleet, kind, name), Product::Treatment(new)) => {
                self.set_treatment(fleet, *kind, name, new)
            }
            (Unit::Rules(route), Product::Rules(new)) => set(&mut self.rules, route, new),
            (Unit::Placement(route), Product::Placement(new)) => {
                let cost = new.as_ref().and_then(|new| new.cost());
                self.budgets.set(&self.limits, route, cost);
                let is_refused = new.as_ref().is_some_and(|new| new.is_expression_too_large);
                self.budgets.set_expression(route, is_refused);
                set(&mut self.placements, route, new)
            }
            (Unit::Attachment(route), Product::Attachment(new)) => {
                touched = self.index_attachment(route, new.as_deref());
                set(&mut self.attachments, route, new)
            }
            (Unit::Piece(route, table), Product::Piece(new)) => {
                touched.push(Fact::Backends(table.clone()));
                set(&mut self.pieces, &(route.clone(), table.clone()), new)
            }
            (Unit::VirtualHost(table, host), Product::VirtualHost(new)) => {
                let changed = self.set_virtual_host(table, host, new);
                if changed {
                    touched.push(Fact::VirtualHosts(table.clone()));
                }
                changed
            }
            (Unit::Status(object), Product::Status(new)) => self.set_status(object, new),
            (unit, Product::Resource(new)) => {
                let Some((fleet, section, name)) = place(unit) else { return touched };
                let changed = self.set_resource(&fleet, section, &name, new);
                if let (true, Section::Served(kind)) = (changed, section) {
                    touched.push(Fact::Resource(fleet, kind, name));
                }
                changed
            }
            _ => false,
        };
        if changed {
            touched.push(Fact::Product(unit.clone()));
        }
        touched
    }

    /// Works out which routes fit.
    pub(in crate::world) fn settle_budgets(&mut self) -> Vec<Fact> {
        let changed = self.budgets.settle(&self.limits);
        let hosts = changed.hosts.into_iter().map(|(table, host)| Fact::NotCopied(table, host));
        changed.routes.into_iter().map(Fact::Excess).chain(hosts).collect()
    }

    pub(in crate::world) fn take_outcome(&mut self, work: Work) -> Outcome {
        let mut outcome = std::mem::take(&mut self.outcome);
        // A fleet that is no more is not told about its last resources one by one.
        outcome.changes.retain(|fleet, _| !outcome.retired.contains(fleet));
        outcome.work = work;
        outcome
    }

    pub(in crate::world) fn object(&self, key: &ObjectKey) -> Option<&Object> {
        self.objects.get(key)
    }

    pub(in crate::world) fn objects_in(
        &self,
        kind: Kind,
        namespace: &str,
    ) -> impl Iterator<Item = &Object> + use<'_> {
        let namespace: Arc<str> = namespace.into();
        let first = ObjectName::new(&namespace, "").of(kind);
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.kind == kind && key.name.namespace == namespace)
            .map(|(_, object)| object)
    }

    pub(in crate::world) fn pointing(
        &self,
        kind: Kind,
        at: &ObjectKey,
    ) -> impl Iterator<Item = &Object> + use<'_> {
        let keys = self.pointing.of(&(kind, at.clone()));
        keys.filter_map(|key| self.objects.get(key))
    }

    pub(in crate::world) fn gateway(&self, name: &ObjectName) -> Option<&AcceptedGateway> {
        self.gateways.get(name)
    }

    pub(in crate::world) fn members(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = &ObjectName> + use<'_> {
        self.members.of(fleet)
    }

    pub(in crate::world) fn fleet(&self, name: &FleetName) -> Option<&ir::Fleet> {
        self.fleets.get(name)
    }

    pub(in crate::world) fn listeners_of(&self, table: &TableKey) -> &[Candidate] {
        self.listeners.get(table).map_or(&[], Vec::as_slice)
    }

    pub(in crate::world) fn rules(&self, route: &ObjectKey) -> Option<&Rules> {
        self.rules.get(route)
    }

    pub(in crate::world) fn placement(&self, route: &ObjectKey) -> Option<&Arc<Attachment>> {
        self.placements.get(route)
    }

    pub(in crate::world) fn excess(&self, route: &ObjectKey) -> Option<&Excess> {
        self.budgets.excess(route)
    }

    pub(in crate::world) fn not_copied(
        &self,
        table: &TableKey,
        host: &Hostname,
    ) -> Option<NotCopied<'_>> {
        self.budgets.not_copied(table, host)
    }

    pub(in crate::world) fn over_budget(&self) -> OverBudget {
        self.budgets.over()
    }

    pub(in crate::world) fn attachment(&self, route: &ObjectKey) -> Option<&Arc<Attachment>> {
        self.attachments.get(route)
    }

    pub(in crate::world) fn piece(&self, route: &ObjectKey, table: &TableKey) -> Option<&Piece> {
        self.pieces.get(&(route.clone(), table.clone()))
    }

    pub(in crate::world) fn virtual_hosts(
        &self,
        table: &TableKey,
    ) -> impl Iterator<Item = &Bytes> + use<'_> {
        self.virtual_hosts.get(table).into_iter().flat_map(BTreeMap::values)
    }

    pub(in crate::world) fn virtual_host(
        &self,
        table: &TableKey,
        host: &Hostname,
    ) -> Option<&Bytes> {
        self.virtual_hosts.get(table)?.get(host)
    }

    pub(in crate::world) fn statuses(&self) -> impl Iterator<Item = (&ObjectKey, &Status)> {
        self.statuses.iter()
    }

    pub(in crate::world) fn resources(
        &self,
        fleet: &FleetName,
    ) -> impl Iterator<Item = (Section, &Arc<Resource>)> + use<'_> {
        let resources = self.resources.get(fleet).into_iter().flatten();
        resources.map(|((section, _), resource)| (*section, resource))
    }

    pub(in crate::world) fn resource(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<&Arc<Resource>> {
        self.resources.get(fleet)?.get(&(kind.into(), name.clone()))
    }

    pub(in crate::world) fn backends_of(&self, table: &TableKey) -> BTreeSet<&Backend> {
        let pieces = self.pieces.iter().filter(|((_, of), _)| of == table);
        pieces.flat_map(|(_, piece)| &piece.backends).collect()
    }

    pub(in crate::world) fn fleets(&self) -> impl Iterator<Item = &ir::Fleet> {
        self.fleets.values()
    }

    pub(in crate::world) fn infra(&self) -> impl Iterator<Item = &ir::Infra> {
        self.infra.values().map(Arc::as_ref)
    }

    pub(in crate::world) fn routes(
        &self,
    ) -> impl Iterator<Item = (&ObjectKey, &[Hostname], &ir::Route)> {
        self.rules
            .iter()
            .filter_map(|(key, rules)| Some((key, &*rules.hostnames, rules.route.as_ref()?)))
    }

    pub(in crate::world) fn backends(&self) -> BTreeSet<&Backend> {
        self.pieces.values().flat_map(|piece| &piece.backends).collect()
    }

    fn index_gateway(&mut self, name: &ObjectName, new: Option<&AcceptedGateway>) -> Vec<Fact> {
        let old = self.gateways.get(name).map(|gateway| &gateway.doors);
        let new = new.map(|gateway| &gateway.doors);
        let mut touched = Vec::new();
        if old != new {
            touched.push(Fact::Doors(name.clone()));
            // A change of one owner's is no concern of the others' routes.
            let (old, new) = (by_owner(old), by_owner(new));
            let owners: BTreeSet<&ObjectKey> = old.keys().chain(new.keys()).copied().collect();
            let changed = owners.into_iter().filter(|owner| old.get(owner) != new.get(owner));
            touched.extend(changed.cloned().map(Fact::DoorsOf));
        }
        let (old, new) =
            (old.map(|doors| doors.fleet.clone()), new.map(|doors| doors.fleet.clone()));
        if old != new {
            touched.push(Fact::FleetOf(name.clone()));
            if let Some(old) = old {
                self.members.remove(&old, name);
                touched.push(Fact::Members(old));
            }
            if let Some(new) = new {
                self.members.insert(new.clone(), name.clone());
                touched.push(Fact::Members(new));
            }
        }
        touched
    }

    fn index_fleet(&mut self, name: &FleetName, new: Option<&ir::Fleet>) -> Vec<Fact> {
        let old = self.fleets.get(name);
        match (old, new) {
            (Some(_), None) => self.outcome.retired.push(name.clone()),
            // A fleet without a listener has no resource, and yet its proxies are to be told so.
            (None, Some(_)) => {
                self.outcome.retired.retain(|retired| retired != name);
                self.outcome.changes.entry(name.clone()).or_default();
            }
            _ => {}
        }
        let (before, after) = (tables(old), tables(new));
        let mut touched = Vec::new();
        for table in before.keys().filter(|table| !after.contains_key(table)) {
            self.listeners.remove(table);
            touched.push(Fact::Listeners(table.clone()));
        }
        for (table, listeners) in after {
            if set(&mut self.listeners, &table, Some(listeners)) {
                touched.push(Fact::Listeners(table));
            }
        }
        touched
    }

    fn set_virtual_host(&mut self, table: &TableKey, host: &Hostname, new: Option<Bytes>) -> bool {
        let hosts = self.virtual_hosts.entry(table.clone()).or_default();
        let changed = set(hosts, host, new);
        if hosts.is_empty() {
            self.virtual_hosts.remove(table);
        }
        changed
    }

    fn set_status(&mut self, object: &ObjectKey, new: Option<Status>) -> bool {
        let changed = set(&mut self.statuses, object, new.clone());
        if changed {
            self.outcome.statuses.insert(object.clone(), new);
        }
        changed
    }

    fn set_resource(
        &mut self,
        fleet: &FleetName,
        section: Section,
        name: &Arc<str>,
        new: Option<Arc<Resource>>,
    ) -> bool {
        let resources = self.resources.entry(fleet.clone()).or_default();
        let changed = set(resources, &(section, name.clone()), new.clone());
        if resources.is_empty() {
            self.resources.remove(fleet);
        }
        if changed {
            let change = match (section, new) {
                (Section::Served(kind), Some(resource)) => Change::Set(kind, resource),
                (Section::Served(kind), None) => Change::Remove(kind, name.clone()),
                (Section::Internal(part), Some(resource)) => Change::SetInternal(part, resource),
                (Section::Internal(part), None) => Change::RemoveInternal(part, name.clone()),
            };
            self.outcome.changes.entry(fleet.clone()).or_default().push(change);
        }
        changed
    }
}

/// Where a unit's resource belongs.
fn place(unit: &Unit) -> Option<(FleetName, Section, Arc<str>)> {
    let (fleet, section, name): (_, Section, _) = match unit {
        Unit::Secret(fleet, secret) => {
            (fleet, ResourceType::Secret.into(), ir::secret_name(secret))
        }
        Unit::Cluster(fleet, backend) => (fleet, ResourceType::Cluster.into(), backend.to_string()),
        Unit::Endpoints(fleet, backend) => {
            (fleet, ResourceType::Endpoints.into(), backend.to_string())
        }
        Unit::Listener(fleet, port) => {
            (fleet, ResourceType::Listener.into(), ir::listener_name(*port))
        }
        Unit::Table(table) => (&table.fleet, ResourceType::Route.into(), table.to_string()),
        Unit::Audience(fleet, id) => {
            (fleet, Internal::Rules.into(), heliograph_views::audience_name(id))
        }
        Unit::Entry(fleet, proxy) => (fleet, Internal::Directory.into(), proxy.name.to_string()),
        Unit::LeftOut(fleet, object) => {
            let name = heliograph_views::left_out_name(&object_name(object));
            (fleet, Internal::Quarantine.into(), name)
        }
        _ => return None,
    };
    Some((fleet.clone(), section, name.into()))
}

/// Whether the value is another one now.
fn set<K: Ord + Clone, V: PartialEq>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) -> bool {
    if map.get(key) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(key.clone(), value),
        None => map.remove(key),
    };
    true
}

fn by_owner(doors: Option<&Doors>) -> BTreeMap<&ObjectKey, Vec<&Door>> {
    let mut owners: BTreeMap<&ObjectKey, Vec<&Door>> = BTreeMap::new();
    for door in doors.into_iter().flat_map(|doors| &doors.doors) {
        owners.entry(&door.id.owner).or_default().push(door);
    }
    owners
}

/// The listeners that hosts of each table of a fleet may belong to.
fn tables(fleet: Option<&ir::Fleet>) -> BTreeMap<TableKey, Vec<Candidate>> {
    let mut tables: BTreeMap<TableKey, Vec<Candidate>> = BTreeMap::new();
    if let Some(fleet) = fleet {
        for listener in &fleet.listeners {
            let table = tables.entry(TableKey::of(&fleet.name, listener)).or_default();
            let candidate = |listener: &ir::Listener, is_here: bool| Candidate {
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
