//! The table of contents of translation: what each unit computes, and which units follow from it.

use super::reader::Reader;
use super::unit::Unit;
use crate::accept::{AcceptedGateway, Claim, Contest};
use crate::attach::Attachment;
use crate::ir::{self, TableKey};
use crate::objects::{Kind, ObjectKey, ObjectName};
use crate::routes::{Piece, Rules};
use crate::status::Status;
use crate::views::{AcceptedPolicy, ListedProxy, Plan, Treated};
use crate::{accept, attach, build, left_out, merge, routes, status, views};
use bytes::Bytes;
use heliograph_snapshot::{FleetName, Resource, ResourceType};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a unit comes to. `None`: nothing, as where a Gateway is not ours, or the unit is gone.
#[derive(Debug)]
pub(super) enum Product {
    Claim(Option<Claim>),
    Contest(Option<Contest>),
    Gateway(Option<Box<AcceptedGateway>>),
    Fleet(Option<ir::Fleet>),
    Infra(Option<Arc<ir::Infra>>),
    Policy(Option<AcceptedPolicy>),
    Proxy(Option<ListedProxy>),
    Rules(Option<Rules>),
    Placement(Option<Arc<Attachment>>),
    Attachment(Option<Arc<Attachment>>),
    Piece(Option<Piece>),
    Plan(Option<Plan>),
    VirtualHost(Option<Bytes>),
    Treatment(Option<Treated>),
    Resource(Option<Arc<Resource>>),
    Status(Option<Status>),
}

/// Every step of translation, in the order of the stages.
pub(super) fn compute(unit: &Unit, reader: &Reader<'_>) -> Product {
    match unit {
        Unit::Claim(name) => Product::Claim(accept::claim(reader, name)),
        Unit::Contest(fleet) => Product::Contest(Some(accept::contest(reader, fleet))),
        Unit::Gateway(name) => Product::Gateway(accept::gateway(reader, name).map(Box::new)),
        Unit::Fleet(name) => Product::Fleet(Some(accept::fleet(reader, name))),
        Unit::Infra(fleet) => Product::Infra(accept::infra(reader, fleet).map(Arc::new)),
        Unit::Policy(name) => Product::Policy(views::policy(reader, name)),
        Unit::Proxy(name) => Product::Proxy(views::proxy(reader, name)),
        Unit::Rules(route) => Product::Rules(Some(routes::rules(reader, route))),
        Unit::Placement(route) => {
            Product::Placement(Some(Arc::new(attach::placement(reader, route))))
        }
        Unit::Attachment(route) => Product::Attachment(attach::route(reader, route)),
        Unit::Piece(route, table) => Product::Piece(Some(routes::piece(reader, route, table))),
        Unit::Plan(fleet) => Product::Plan(Some(views::plan(reader, fleet))),
        Unit::VirtualHost(table, host) => {
            Product::VirtualHost(merge::virtual_host(reader, table, host))
        }
        Unit::Secret(_, secret) => Product::Resource(build::secret(reader, secret)),
        Unit::Cluster(fleet, backend) => Product::Resource(build::cluster(reader, fleet, backend)),
        Unit::Endpoints(fleet, backend) => {
            Product::Resource(Some(build::endpoints(reader, fleet, backend)))
        }
        Unit::Listener(fleet, port) => Product::Resource(build::listener(reader, fleet, *port)),
        Unit::Table(table) => Product::Resource(Some(build::table(reader, table))),
        Unit::Audience(fleet, id) => Product::Resource(views::audience(reader, fleet, id)),
        Unit::Treatment(fleet, kind, name) => {
            Product::Treatment(Some(views::treatment(reader, fleet, *kind, name)))
        }
        Unit::Entry(_, name) => Product::Resource(views::entry(reader, name)),
        Unit::LeftOut(fleet, object) => Product::Resource(left_out::entry(reader, fleet, object)),
        Unit::Status(object) => Product::Status(status::of(reader, object)),
    }
}

/// The units that exist because an object does.
pub(super) fn demanded_by_object(key: &ObjectKey) -> BTreeSet<Unit> {
    let status = Unit::Status(key.clone());
    match key.kind {
        Kind::GatewayClass | Kind::ListenerSet | Kind::BackendTLSPolicy => BTreeSet::from([status]),
        Kind::Gateway => {
            let name = &key.name;
            BTreeSet::from([Unit::Claim(name.clone()), Unit::Gateway(name.clone()), status])
        }
        Kind::ViewPolicy => BTreeSet::from([Unit::Policy(key.name.clone()), status]),
        Kind::Proxy => BTreeSet::from([Unit::Proxy(key.name.clone()), status]),
        kind if kind.is_route() => {
            let (rules, placement) = (Unit::Rules(key.clone()), Unit::Placement(key.clone()));
            BTreeSet::from([rules, placement, Unit::Attachment(key.clone()), status])
        }
        _ => BTreeSet::new(),
    }
}

impl Product {
    /// What is left of a unit that is gone.
    pub(super) fn nothing(unit: &Unit) -> Self {
        match unit {
            Unit::Claim(_) => Self::Claim(None),
            Unit::Contest(_) => Self::Contest(None),
            Unit::Gateway(_) => Self::Gateway(None),
            Unit::Fleet(_) => Self::Fleet(None),
            Unit::Infra(_) => Self::Infra(None),
            Unit::Policy(_) => Self::Policy(None),
            Unit::Proxy(_) => Self::Proxy(None),
            Unit::Rules(_) => Self::Rules(None),
            Unit::Placement(_) => Self::Placement(None),
            Unit::Attachment(_) => Self::Attachment(None),
            Unit::Piece(..) => Self::Piece(None),
            Unit::Plan(_) => Self::Plan(None),
            Unit::VirtualHost(..) => Self::VirtualHost(None),
            Unit::Treatment(..) => Self::Treatment(None),
            Unit::Secret(..)
            | Unit::Cluster(..)
            | Unit::Endpoints(..)
            | Unit::Listener(..)
            | Unit::Table(_)
            | Unit::Audience(..)
            | Unit::Entry(..)
            | Unit::LeftOut(..) => Self::Resource(None),
            Unit::Status(_) => Self::Status(None),
        }
    }

    /// The units that exist because of this product.
    pub(super) fn demands(&self, unit: &Unit) -> BTreeSet<Unit> {
        match (self, unit) {
            (Self::Claim(Some(claim)), _) => [Unit::Contest(claim.fleet.clone())].into(),
            (Self::Gateway(Some(gateway)), _) => [Unit::Fleet(gateway.doors.fleet.clone())].into(),
            (Self::Fleet(Some(fleet)), _) => demanded_by_fleet(fleet),
            (Self::Attachment(Some(attachment)), Unit::Attachment(route)) => attachment
                .hosts()
                .flat_map(|host| {
                    [
                        Unit::Piece(route.clone(), host.table.clone()),
                        Unit::VirtualHost(host.table.clone(), host.host.clone()),
                    ]
                })
                .collect(),
            (Self::Piece(Some(piece)), Unit::Piece(_, table)) => piece
                .backends
                .iter()
                .flat_map(|backend| {
                    let (fleet, name) = (table.fleet.clone(), backend.to_string().into());
                    [
                        Unit::Cluster(fleet.clone(), backend.clone()),
                        Unit::Endpoints(fleet.clone(), backend.clone()),
                        // A Service may itself ask that clients prefer some of its endpoints.
                        Unit::Treatment(fleet, ResourceType::Endpoints, name),
                    ]
                })
                .collect(),
            (Self::Proxy(Some(listed)), Unit::Proxy(name)) => {
                [Unit::Entry(listed.fleet.clone(), name.clone())].into()
            }
            (Self::Plan(Some(plan)), Unit::Plan(fleet)) => demanded_by_plan(fleet, plan),
            _ => BTreeSet::new(),
        }
    }
}

fn demanded_by_plan(fleet: &FleetName, plan: &Plan) -> BTreeSet<Unit> {
    let audiences = plan.audiences.keys().map(|id| Unit::Audience(fleet.clone(), id.clone()));
    let treatments = plan.resources.keys();
    let treatments =
        treatments.map(|(kind, name)| Unit::Treatment(fleet.clone(), *kind, name.clone()));
    audiences.chain(treatments).collect()
}

fn demanded_by_fleet(fleet: &ir::Fleet) -> BTreeSet<Unit> {
    let mut units =
        BTreeSet::from([Unit::Infra(fleet.name.clone()), Unit::Plan(fleet.name.clone())]);
    let secret = |name: &ObjectName| Unit::Secret(fleet.name.clone(), name.clone());
    units.extend(fleet.client_certificate.iter().map(secret));
    for listener in &fleet.listeners {
        let table = TableKey::of(&fleet.name, listener);
        units.insert(Unit::Listener(fleet.name.clone(), listener.port));
        // Also without a route: a host that belongs to this listener must not fall to a less specific one.
        units.insert(Unit::VirtualHost(table.clone(), listener.hostname.clone()));
        // A client that asks here for a host of another listener is to be told so.
        let elsewhere = fleet.beside(listener).map(|other| other.hostname.clone());
        units.extend(elsewhere.map(|host| Unit::VirtualHost(table.clone(), host)));
        units.insert(Unit::Table(table));
        units.extend(listener.certificates.iter().map(secret));
    }
    units
}
