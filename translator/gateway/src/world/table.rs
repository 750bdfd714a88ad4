//! The table of contents of translation: every unit in the order of the stages, the function that computes it, the units
//! that it demands, and the index over its products.

use super::facts::Facts;
use super::indexes::Indexes;
use super::keys::{CompiledRouteKey, HostKey, InFleet, ResourceId, ResourceKey, TreatmentOf};
use super::reader::Reader;
use crate::accept::{AcceptedGateway, Arbitration, ListenerRequests};
use crate::attach::Attachment;
use crate::infra::Infra;
use crate::merge::Forwarding;
use crate::objects::{Kind, ObjectKey, ObjectName, policy_id, route_id};
use crate::policies::AcceptedPolicy;
use crate::routes::{CompiledRoute, Rules};
use crate::status::Status;
use crate::views::{AcceptedViewPolicy, ListedProxy, Plan, TreatmentResult};
use crate::{accept, attach, backends, left_out, merge, policies, routes, status, views};
use bytes::Bytes;
use heliograph_envoy_dialect::{self as envoy, names};
use heliograph_model::{
    self as model, FrozenSet, Hostname, ListenerId, ListenerOwner, PolicyId, PolicyScope, RouteId,
    SecretId, TableKey, TransportPort, UpstreamId,
};
use heliograph_snapshot::{Dialect, FleetName, Internal, Resource, ResourceType};
use std::collections::BTreeSet;
use std::sync::Arc;

heliograph_engine::table! {
    Facts, Reader;
    units {
        /// Which listeners does this Gateway request of proxies that it shares with others?
        listener_requests: ListenerRequests(ObjectName) -> ListenerRequests {
            compute: accept::listener_requests,
            demands: |_: &ObjectName, requests: &ListenerRequests| {
                [Unit::Arbitration(requests.fleet.clone())].into()
            },
            changed: Indexes::listener_requests_changed,
        }
        /// Which requested listeners do the Gateways of a fleet lose to older ones?
        arbitration: Arbitration(FleetName) -> Arbitration {
            compute: |reader, fleet| Some(accept::arbitrate(reader, fleet)),
            changed: Indexes::arbitration_changed,
        }
        /// Is this Gateway ours, and which of its listeners are valid?
        gateway: Gateway(ObjectName) -> AcceptedGateway {
            compute: accept::gateway,
            demands: |_: &ObjectName, it: &AcceptedGateway| [Unit::Fleet(it.attach_points.fleet.clone())].into(),
            changed: Indexes::gateway_changed,
        }
        /// What do the proxies of a fleet serve?
        fleet: Fleet(FleetName) -> model::Fleet {
            compute: |reader, name| Some(accept::fleet(reader, name)),
            demands: |_: &FleetName, fleet: &model::Fleet| match fleet.dialect {
                Dialect::Envoy => demanded_by_fleet(fleet),
            },
            changed: Indexes::fleet_changed,
        }
        /// What runs for a fleet?
        infra: Infra(FleetName) -> Arc<Infra> {
            compute: |reader, fleet| accept::infra(reader, fleet).map(Arc::new),
            changed: Indexes::infra_changed,
        }
        /// What does this ViewPolicy say?
        view_policy: ViewPolicy(ObjectName) -> AcceptedViewPolicy {
            compute: views::policy,
            changed: Indexes::view_policy_changed,
        }
        /// Which fleet does this proxy belong to?
        proxy: Proxy(ObjectName) -> ListedProxy {
            compute: views::proxy,
            demands: |name: &ObjectName, proxy: &ListedProxy| {
                [Unit::Entry(InFleet::new(&proxy.fleet, name.clone()))].into()
            },
            changed: Indexes::proxy_changed,
        }
        /// What does this policy target, and can it be enforced?
        accepted_policy: AcceptedPolicy(PolicyId) -> AcceptedPolicy {
            compute: policies::accept,
            changed: Indexes::accepted_policy_changed,
        }
        /// The rules of a route, with references resolved.
        rules: Rules(RouteId) -> Rules {
            compute: |reader, route| Some(routes::rules(reader, route)),
        }
        /// Which listeners would a route belong to, and how much would it take there?
        placement: Placement(RouteId) -> Arc<Attachment> {
            compute: |reader, route| Some(Arc::new(attach::placement(reader, route))),
            changed: Indexes::placement_changed,
        }
        /// Which listeners does a route belong to, within the budgets?
        attachment: Attachment(RouteId) -> Arc<Attachment> {
            compute: attach::route,
            demands: demanded_by_attachment,
            changed: Indexes::attachment_changed,
        }
        /// A route as Envoy reads it, for one listener.
        compiled_route: CompiledRoute(CompiledRouteKey) -> CompiledRoute {
            compute: |reader, key| Some(routes::compiled(reader, key)),
            demands: |key: &CompiledRouteKey, compiled: &CompiledRoute| {
                demanded_by_upstreams(&key.table.fleet, &compiled.upstreams)
            },
            changed: Indexes::compiled_route_changed,
        }
        /// Where do the connections of a listener go, if they are passed on as they are?
        forwarding: Forwarding(InFleet<ListenerId>) -> Forwarding {
            compute: |reader, key| Some(merge::forwarding(reader, key)),
            demands: |key: &InFleet<ListenerId>, forwarding: &Forwarding| {
                demanded_by_upstreams(&key.fleet, &forwarding.upstreams)
            },
            changed: Indexes::forwarding_changed,
        }
        /// What do the ViewPolicies of a fleet come to?
        plan: Plan(FleetName) -> Plan {
            compute: |reader, fleet| Some(views::plan(reader, fleet)),
            demands: demanded_by_plan,
        }
        /// All routes for one host, in order of precedence, encoded.
        virtual_host: VirtualHost(HostKey) -> Bytes {
            compute: |reader, key| merge::virtual_host(reader, key),
            changed: |_, key: &HostKey, _, _| vec![Fact::VirtualHosts(key.table.clone())],
        }
        secret: Secret(InFleet<SecretId>) -> Arc<Resource> {
            compute: |reader, key| {
                accept::key_pair(reader, &key.id).map(|pair| envoy::secret(&key.id, &pair))
            },
            changed: |indexes: &mut Indexes, key: &InFleet<SecretId>, old, new| {
                let named = (names::secret(&key.id), ResourceId::Secret(key.id.clone()));
                indexes.identified_changed(&key.fleet, ResourceType::Secret, named, old, new)
            },
        }
        cluster: Cluster(InFleet<UpstreamId>) -> Arc<Resource> {
            compute: |reader, key| {
                let upstream = backends::upstream(reader, &key.fleet, &key.id)?;
                Some(envoy::cluster(&key.id, &upstream))
            },
            changed: |indexes: &mut Indexes, key: &InFleet<UpstreamId>, _, new| {
                indexes.served_changed(key, ResourceType::Cluster, names::cluster(&key.id), new)
            },
        }
        endpoints: Endpoints(InFleet<UpstreamId>) -> Arc<Resource> {
            compute: |reader, key| {
                let endpoints = backends::endpoints_for(reader, &key.fleet, &key.id);
                Some(envoy::endpoints(&endpoints))
            },
            changed: |indexes: &mut Indexes, key: &InFleet<UpstreamId>, old, new| {
                let named = (names::cluster(&key.id), ResourceId::Upstream(key.id.clone()));
                indexes.identified_changed(&key.fleet, ResourceType::Endpoints, named, old, new)
            },
        }
        listener: Listener(InFleet<TransportPort>) -> Arc<Resource> {
            compute: |reader, key| {
                accept::port(reader, &key.fleet, key.id).map(|port| envoy::listener(&port))
            },
            changed: |indexes: &mut Indexes, key: &InFleet<TransportPort>, old, new| {
                let named = (names::listener(key.id), ResourceId::Port(key.id));
                indexes.identified_changed(&key.fleet, ResourceType::Listener, named, old, new)
            },
        }
        /// A route table, put together from its virtual hosts.
        table: Table(TableKey) -> Arc<Resource> {
            compute: |reader, table| Some(envoy::table(table, reader.virtual_hosts(table))),
            changed: |indexes: &mut Indexes, key: &TableKey, old, new| {
                let named = (names::table(key), ResourceId::Table(key.clone()));
                indexes.identified_changed(&key.fleet, ResourceType::Route, named, old, new)
            },
        }
        /// Which clients does a rule of a view apply to?
        audience: Audience(InFleet<Arc<str>>) -> Arc<Resource> {
            compute: |reader, key| views::audience(reader, &key.fleet, &key.id),
            changed: |indexes: &mut Indexes, key: &InFleet<Arc<str>>, _, new| {
                let name = heliograph_views::audience_name(&key.id);
                indexes.internal_changed(key, Internal::Rules, name, new)
            },
        }
        /// What do views do to a resource?
        treatment: Treatment(InFleet<TreatmentOf>) -> TreatmentResult {
            compute: |reader, key| Some(views::treatment(reader, &key.fleet, &key.id)),
            changed: Indexes::treatment_changed,
        }
        /// A proxy's entry in the inventory of its fleet.
        entry: Entry(InFleet<ObjectName>) -> Arc<Resource> {
            compute: |reader, key| views::entry(reader, &key.id),
            changed: |indexes: &mut Indexes, key: &InFleet<ObjectName>, _, new| {
                indexes.internal_changed(key, Internal::Directory, key.id.name.to_string(), new)
            },
        }
        /// The record that an object is left out of what is published for a fleet.
        left_out: LeftOut(InFleet<ObjectKey>) -> Arc<Resource> {
            compute: |reader, key| left_out::entry(reader, &key.fleet, &key.id),
            changed: |indexes: &mut Indexes, key: &InFleet<ObjectKey>, _, new| {
                let name = heliograph_views::left_out_name(&left_out::object_name(&key.id));
                indexes.internal_changed(key, Internal::Quarantine, name, new)
            },
        }
        status: Status(ObjectKey) -> Status {
            compute: status::of,
            changed: Indexes::status_changed,
        }
    }
    facts {
        /// An object, or that there is none.
        Object(ObjectKey) from input;
        /// All objects of a kind in a namespace.
        Namespace((Kind, Arc<str>)) from input;
        /// The objects of a kind that belong to another: the EndpointSlices of a Service.
        Children((Kind, ObjectKey)) from input;
        /// That something of an object is left out of what is published for a fleet.
        LeftOutOf(InFleet<ObjectKey>) from input;
        /// The listeners that the Gateways of a shared fleet request.
        ListenerRequestsOf(FleetName) from ListenerRequests;
        /// The requested listeners that a Gateway loses.
        LostListenersOf(ObjectName) from Arbitration;
        /// What fleets see of a Gateway.
        AttachPoints(ObjectName) from Gateway;
        /// What routes see of a Gateway or a ListenerSet.
        AttachPointsOf(ListenerOwner) from Gateway;
        /// Whose proxies serve a Gateway, if any do.
        FleetOf(ObjectName) from Gateway;
        /// The Gateways of a fleet.
        Members(FleetName) from Gateway;
        /// The listeners that hosts of a table may belong to.
        Listeners(TableKey) from Fleet;
        /// The ViewPolicies of a fleet.
        ViewPolicies(FleetName) from ViewPolicy;
        /// The proxies of a fleet.
        Proxies(FleetName) from Proxy;
        /// The policies that are attached to something, and what each of them asks for.
        PoliciesAt(PolicyScope) from AcceptedPolicy;
        /// Which budget a route is beyond, if any. It is settled once, between placements and attachments.
        Excess(RouteId) from Placement;
        /// The routes that a host of a table is without, although they are for it as well.
        NotCopied(HostKey) from Placement;
        /// The routes that are attached to a listener.
        Attached(ListenerId) from Attachment;
        /// The Gateways whose routes refer to an object.
        ReferringGateways(ObjectKey) from Attachment;
        /// For which hosts that cover this one a listener of a table has routes. What has none is no fact of its own: as
        /// many names cover a host as it has labels.
        Covering((TableKey, ListenerId, Hostname)) from Attachment;
        /// The routes that a listener of a table has for a host.
        Hosted((TableKey, ListenerId, Hostname)) from Attachment;
        /// The upstreams that the routes of a listener lead to.
        Upstreams(ListenerId) from Forwarding;
        /// All virtual hosts of a table.
        VirtualHosts(TableKey) from VirtualHost;
        /// A resource that is served, or that there is none.
        Resource(ResourceKey) from Table;
    }
}

/// The units that exist because an object does.
pub(super) fn demanded_by_object(key: &ObjectKey) -> BTreeSet<Unit> {
    let status = Unit::Status(key.clone());
    match key.kind {
        Kind::GatewayClass | Kind::ListenerSet => BTreeSet::from([status]),
        Kind::Gateway => {
            let name = &key.name;
            BTreeSet::from([
                Unit::ListenerRequests(name.clone()),
                Unit::Gateway(name.clone()),
                status,
            ])
        }
        Kind::ViewPolicy => BTreeSet::from([Unit::ViewPolicy(key.name.clone()), status]),
        Kind::Proxy => BTreeSet::from([Unit::Proxy(key.name.clone()), status]),
        _ => match (route_id(key), policy_id(key)) {
            (Some(route), _) => BTreeSet::from([
                Unit::Rules(route.clone()),
                Unit::Placement(route.clone()),
                Unit::Attachment(route),
                status,
            ]),
            (None, Some(policy)) => BTreeSet::from([Unit::AcceptedPolicy(policy), status]),
            (None, None) => BTreeSet::new(),
        },
    }
}

fn demanded_by_fleet(fleet: &model::Fleet) -> BTreeSet<Unit> {
    let mut units =
        BTreeSet::from([Unit::Infra(fleet.name.clone()), Unit::Plan(fleet.name.clone())]);
    let secret = |id: &SecretId| Unit::Secret(InFleet::new(&fleet.name, id.clone()));
    let host = |table: &TableKey, host: &Hostname| {
        Unit::VirtualHost(HostKey { table: table.clone(), host: host.clone() })
    };
    units.extend(fleet.client_certificate.iter().map(secret));
    for listener in &fleet.listeners {
        units.insert(Unit::Listener(InFleet::new(&fleet.name, listener.port)));
        units.extend(listener.certificates.iter().map(secret));
        let Some(table) = TableKey::of(&fleet.name, listener) else {
            units.insert(Unit::Forwarding(InFleet::new(&fleet.name, listener.id.clone())));
            continue;
        };
        // Also without a route: a host that belongs to this listener must not fall to a less specific one.
        units.insert(host(&table, &listener.hostname));
        // A client that asks here for a host of another listener gets 421.
        units.extend(fleet.beside(listener).map(|other| host(&table, &other.hostname)));
        units.insert(Unit::Table(table));
    }
    units
}

fn demanded_by_attachment(route: &RouteId, attachment: &Arc<Attachment>) -> BTreeSet<Unit> {
    let hosts = attachment.hosts().flat_map(|host| {
        let table = host.table.clone();
        [
            Unit::CompiledRoute(CompiledRouteKey {
                route: route.clone(),
                table: table.clone(),
                listener: host.listener.clone(),
            }),
            Unit::VirtualHost(HostKey { table, host: host.host.clone() }),
        ]
    });
    hosts.collect()
}

fn demanded_by_upstreams(fleet: &FleetName, upstreams: &FrozenSet<UpstreamId>) -> BTreeSet<Unit> {
    let units = upstreams.iter().flat_map(|upstream| {
        let endpoints = TreatmentOf::Endpoints(upstream.clone());
        [
            Unit::Cluster(InFleet::new(fleet, upstream.clone())),
            Unit::Endpoints(InFleet::new(fleet, upstream.clone())),
            // A Service may itself ask that clients prefer some of its endpoints.
            Unit::Treatment(InFleet::new(fleet, endpoints)),
        ]
    });
    units.collect()
}

fn demanded_by_plan(fleet: &FleetName, plan: &Plan) -> BTreeSet<Unit> {
    let audiences = plan.audiences.keys();
    let audiences = audiences.map(|id| Unit::Audience(InFleet::new(fleet, id.clone())));
    let treatments = plan.resources.iter().filter_map(|((kind, name), planned)| {
        // Endpoints that are there have a treatment because their upstream has them.
        let is_needed = *kind != ResourceType::Endpoints || !planned.overlays.is_empty();
        let named = TreatmentOf::Named(*kind, name.clone());
        is_needed.then(|| Unit::Treatment(InFleet::new(fleet, named)))
    });
    audiences.chain(treatments).collect()
}

impl Fact {
    /// The decoded content of an object that something may be left out of.
    pub(crate) fn content_of(object: &ObjectKey) -> Self {
        match route_id(object) {
            Some(route) => Self::Product(Unit::Rules(route)),
            None => Self::Product(Unit::ViewPolicy(object.name.clone())),
        }
    }
}

impl Unit {
    /// Whether it is of a stage that may read which routes fit into the budgets.
    pub(super) fn is_after_budgets(&self) -> bool {
        heliograph_engine::Unit::stage(self) >= Stage::Attachment as usize
    }
}
