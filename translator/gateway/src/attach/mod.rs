//! Which listeners a route belongs to, and for which hosts.

use crate::accept::{self, AttachPoint, allows};
use crate::budget::{Cost, Excess, Loss};
use crate::limits::{Limits, mebibytes};
use crate::objects::{Kind, ObjectKey, ObjectName, gateway};
use crate::routes::{self, Rules};
use crate::status::Condition;
use crate::status::reasons::route::{accepted, programmed};
use crate::world::Reader;
use heliograph_model::{
    FrozenSet, Hostname, ListenerId, ListenerOwner, ListenerOwnerKind, RouteId, TableKey,
};
use heliograph_snapshot::FleetName;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The result for each parentRef that names a Gateway of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attachment {
    pub(crate) parents: Vec<Parent>,
    /// The objects that the route's rules refer to.
    backend_references: FrozenSet<ObjectKey>,
    created: i64,
    /// How many bytes it takes at each host.
    size: u64,
    /// Of the regular expressions that are tried at each host.
    instructions: u64,
    /// Whether it is in no table because a regular expression of it is too large.
    pub(crate) is_expression_too_large: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parent {
    /// Whose proxies serve it.
    pub(crate) fleet: FleetName,
    /// As the route has it: status repeats it to the letter.
    pub(crate) reference: gateway::ParentRef,
    pub(crate) accepted: Condition,
    /// What is not served of a route that is accepted.
    pub(crate) programmed: Option<Condition>,
    /// The Gateway that it is, or that it adds to.
    gateway: ObjectName,
    /// Those that count the route as attached, also where they cannot be served.
    pub(crate) listeners: Vec<ListenerId>,
    hosts: Vec<Host>,
}

/// A host of a table that the route has a say in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) table: TableKey,
    pub(crate) listener: ListenerId,
    /// What the hostnames of route and listener have in common.
    pub(crate) host: Hostname,
    /// The route's own hostname, which decides precedence.
    pub(crate) written: Hostname,
}

impl Parent {
    /// The object that the `parentRef` of a route names: a Gateway, or a ListenerSet.
    pub(crate) fn owner(&self, route: &RouteId) -> ListenerOwner {
        let is_set = self.reference.kind.as_deref() == Some(Kind::ListenerSet.as_str());
        let kind = match is_set {
            true => ListenerOwnerKind::ListenerSet,
            false => ListenerOwnerKind::Gateway,
        };
        let namespace = self.reference.namespace.as_deref().unwrap_or(&route.name.namespace);
        ObjectName::new(namespace, &self.reference.name).of(kind)
    }

    /// Those that count the route as attached.
    pub(crate) fn listeners(&self) -> &[ListenerId] {
        &self.listeners
    }
}

impl Attachment {
    pub(crate) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.parents.iter().flat_map(|parent| &parent.hosts)
    }

    /// Its size in route tables; `None` if it is in none.
    pub(crate) fn cost(&self) -> Option<Cost> {
        let hosts = self.hosts().map(|host| (host.table.clone(), host.host.clone()));
        let hosts: FrozenSet<_> = hosts.collect();
        let Self { created, size, instructions, .. } = *self;
        (!hosts.is_empty()).then_some(Cost { created, size, instructions, hosts })
    }

    /// Each object that the route refers to, with each Gateway that it is attached to.
    pub(crate) fn reverse_references(&self) -> BTreeSet<(ObjectKey, ObjectName)> {
        let gateways: BTreeSet<&ObjectName> = self
            .parents
            .iter()
            .filter(|it| !it.listeners.is_empty())
            .map(|it| &it.gateway)
            .collect();
        let to = |gateway: &ObjectName| {
            let backend_references = self.backend_references.iter();
            backend_references.map(|it| (it.clone(), gateway.clone())).collect::<Vec<_>>()
        };
        gateways.into_iter().flat_map(to).collect()
    }

    /// The listeners that count the route as attached, also those that cannot be served.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = &ListenerId> {
        self.parents.iter().flat_map(|parent| &parent.listeners)
    }
}

/// The part of a route that fits into the budgets.
pub(crate) fn route(reader: &Reader<'_>, key: &RouteId) -> Option<Arc<Attachment>> {
    let placement = reader.placement(key)?;
    let Some(excess) = reader.excess(key) else { return Some(placement.clone()) };
    let limits = reader.limits();
    let mut attachment = Attachment::clone(placement);
    for parent in &mut attachment.parents {
        let losses = match excess {
            Excess::Route(_) | Excess::Namespace | Excess::Hostname(_) => Vec::new(),
            Excess::Tables(tables) => {
                parent.hosts.iter().filter_map(|host| tables.get(&host.table)).collect()
            }
        };
        let is_refused = match excess {
            Excess::Route(_) | Excess::Namespace | Excess::Hostname(_) => !parent.hosts.is_empty(),
            Excess::Tables(_) => losses.contains(&&Loss::All),
        };
        if is_refused {
            let namespace = &key.name.namespace;
            parent.accepted = Condition::new(accepted::TOO_LARGE, words(excess, namespace, limits));
            parent.listeners.clear();
            parent.hosts.clear();
        } else if !losses.is_empty() {
            let message = words_for_copies(&losses, limits);
            parent.programmed = Some(Condition::new(programmed::TOO_LARGE, message));
        }
    }
    Some(Arc::new(attachment))
}

/// Where copies of a route are not served. Not more than a few namespaces are named: a message has a bound.
fn words_for_copies(losses: &[&Loss], limits: &Limits) -> String {
    const NAMED: usize = 5;
    let namespaces: BTreeSet<&str> = losses
        .iter()
        .flat_map(|loss| match loss {
            Loss::All => None,
            Loss::Copies(namespaces) => Some(namespaces),
        })
        .flatten()
        .map(|namespace| &**namespace)
        .collect();
    let more = match namespaces.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<&str> = namespaces.into_iter().take(NAMED).collect();
    format!(
        "The route is not served at hostnames of namespaces {}{more}: with the copies there, a route table of this parent would be larger than {}, and this \
         namespace uses more than its share",
        named.join(", "),
        mebibytes(limits.table_bytes),
    )
}

/// Why a route is not served, and what would help.
fn words(excess: &Excess, namespace: &str, limits: &Limits) -> String {
    match excess {
        Excess::Route(size) => format!(
            "The route needs {} in route tables for all its matches and hostnames, and the limit is {}",
            mebibytes(*size),
            mebibytes(limits.route_bytes),
        ),
        Excess::Namespace => format!(
            "The routes of namespace {namespace} need more than {} in route tables, and this is one of the youngest",
            mebibytes(limits.namespace_bytes),
        ),
        Excess::Hostname(hostname) => format!(
            "The regular expressions that routes of namespace {namespace} have for hostname {hostname} have more than {} instructions together, and this is one of the youngest \
             of these routes",
            limits.host_regex_size,
        ),
        Excess::Tables(_) => format!(
            "A route table of this parent would be larger than {}. Namespace {namespace} uses more than its share, and this is one of its youngest routes",
            mebibytes(limits.table_bytes),
        ),
    }
}

/// Where a route would be served, if there is room for it.
pub(crate) fn placement(reader: &Reader<'_>, key: &RouteId) -> Attachment {
    let Some(rules) = reader.rules(key) else { return Attachment::default() };
    let parents = rules.parents.iter().filter_map(|reference| {
        let group = reference.group.as_deref().unwrap_or(gateway::GROUP);
        let kind = reference.kind.as_deref().unwrap_or(Kind::Gateway.as_str());
        let namespace = reference.namespace.as_deref().unwrap_or(&key.name.namespace);
        let name = ObjectName::new(namespace, &reference.name);
        let (kind, gateway) = match Kind::find(group, kind)? {
            Kind::Gateway => (ListenerOwnerKind::Gateway, name.clone()),
            Kind::ListenerSet => {
                (ListenerOwnerKind::ListenerSet, accept::gateway_of(reader, &name)?)
            }
            _ => return None,
        };
        let owner = name.of(kind);
        let (fleet, points) = reader.attach_points_of(&gateway, &owner)?;
        Some(attach(reader, key, rules, reference, &ParentTarget { owner, gateway, fleet, points }))
    });
    let parents: Vec<Parent> = parents.collect();
    let table = parents.iter().flat_map(|parent| &parent.hosts).map(|host| &host.table).next();
    let size = table.map_or(0, |table| routes::size(rules, key, table));
    Attachment {
        is_expression_too_large: rules.expressions.is_too_large && !parents.is_empty(),
        parents,
        backend_references: rules.backend_references.clone(),
        created: rules.created,
        size,
        instructions: rules.expressions.tried,
    }
}

/// The target of a parentRef: the attach points of a Gateway or a ListenerSet.
struct ParentTarget<'a> {
    /// The Gateway, or a ListenerSet of it.
    owner: ListenerOwner,
    gateway: ObjectName,
    fleet: &'a FleetName,
    /// The owner's.
    points: Vec<&'a AttachPoint>,
}

fn attach(
    reader: &Reader<'_>,
    key: &RouteId,
    rules: &Rules,
    reference: &gateway::ParentRef,
    target: &ParentTarget<'_>,
) -> Parent {
    let mut parent = Parent {
        fleet: target.fleet.clone(),
        reference: reference.clone(),
        accepted: Condition::new(accepted::ACCEPTED, "The route is attached"),
        programmed: None,
        gateway: target.gateway.clone(),
        listeners: Vec::new(),
        hosts: Vec::new(),
    };
    if let Some(refusal) = &rules.refusal {
        parent.accepted = refusal.clone();
        return parent;
    }
    match allowed(reader, key, reference, target) {
        Err(refused) => parent.accepted = refused,
        Ok(open) => {
            for point in open {
                add_hosts(target.fleet, rules, point, &mut parent);
            }
            if parent.listeners.is_empty() {
                parent.accepted = Condition::new(
                    accepted::NO_MATCHING_LISTENER_HOSTNAME,
                    "No hostname of the route matches the hostname of the listener",
                );
            }
        }
    }
    parent
}

/// The listeners that the reference names and that allow the route. Gateway API distinguishes three failures.
fn allowed<'a>(
    reader: &Reader<'_>,
    key: &RouteId,
    reference: &gateway::ParentRef,
    target: &ParentTarget<'a>,
) -> Result<Vec<&'a AttachPoint>, Condition> {
    let ParentTarget { owner, points, .. } = target;
    let named = |point: &&AttachPoint| {
        reference.section_name.as_deref().is_none_or(|section| *section == *point.id.name)
    };
    let at_port = |point: &&AttachPoint| reference.port.is_none_or(|port| port == point.port);
    let meant: Vec<_> = points.iter().copied().filter(named).filter(at_port).collect();
    if meant.is_empty() {
        let message = format!("{owner} has no listener that matches the parentRef");
        return Err(Condition::new(accepted::NO_MATCHING_PARENT, message));
    }
    if meant.iter().all(|point| point.listener.is_none()) {
        let message =
            format!("No listener of {owner} that matches the parentRef is valid: see its status");
        return Err(Condition::new(accepted::NOT_ALLOWED_BY_LISTENERS, message));
    }
    let allows_route = |point: &&AttachPoint| {
        let home = &point.id.owner.name.namespace;
        point.listener.is_some()
            && point.kinds.contains(&Kind::from(key.kind))
            && allows(reader, &point.namespaces, home, &key.name.namespace)
    };
    let open: Vec<_> = meant.into_iter().filter(allows_route).collect();
    match open.is_empty() {
        false => Ok(open),
        true => Err(Condition::new(
            accepted::NOT_ALLOWED_BY_LISTENERS,
            format!(
                "No listener of {owner} allows a route of this kind from namespace {}",
                key.name.namespace
            ),
        )),
    }
}

/// Adds the listener, and the hosts of its table that it and the route have in common.
fn add_hosts(fleet: &FleetName, rules: &Rules, point: &AttachPoint, parent: &mut Parent) {
    let Some(listener) = &point.listener else { return };
    let mut common: BTreeMap<&Hostname, &Hostname> = BTreeMap::new();
    for written in &rules.hostnames {
        if let Some(host) = listener.hostname.intersection(written) {
            let best = common.entry(host).or_insert(written);
            if Hostname::by_specificity(written, best).is_gt() {
                *best = written;
            }
        }
    }
    if common.is_empty() {
        return;
    }
    parent.listeners.push(point.id.clone());
    if let Some(table) = TableKey::of(fleet, listener).filter(|_| point.served) {
        parent.hosts.extend(common.into_iter().map(|(host, written)| Host {
            table: table.clone(),
            listener: point.id.clone(),
            host: host.clone(),
            written: written.clone(),
        }));
    }
}
