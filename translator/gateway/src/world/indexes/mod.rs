//! Lookups other than by the key of a unit. The units whose products an index contains update it, and an update returns
//! the facts that it changed.

mod attachments;
mod gateways;
mod policies;
mod resources;
mod views;

use super::keys::ResourceId;
use super::outcome::Outcome;
use super::table::Fact;
use crate::budget::Budgets;
use crate::limits::Limits;
use crate::objects::{ObjectKey, ObjectName};
use attachments::HostOf;
use heliograph_engine::Relation;
use heliograph_model::{
    Candidate, HostMap, Hostname, ListenerId, PolicyAge, PolicyScope, RouteId, TableKey, UpstreamId,
};
use heliograph_snapshot::{FleetName, Resource, ResourceType, Section};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All indexes over products, and what changed since it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Indexes {
    pub(super) limits: Limits,
    /// The Gateways that share the proxies of a fleet, valid or not.
    pub(super) requesting_gateways: Relation<FleetName, ObjectName>,
    /// The Gateways of a fleet.
    pub(super) members: Relation<FleetName, ObjectName>,
    /// The listeners that hosts of a table may belong to.
    pub(super) listeners: BTreeMap<TableKey, Vec<Candidate>>,
    pub(super) budgets: Budgets,
    pub(super) attached: Relation<ListenerId, RouteId>,
    /// The routes of each Gateway that refer to an object.
    pub(super) reverse_references: Relation<(ObjectKey, ObjectName), RouteId>,
    /// The routes that a listener has for a host, each with the hostname that its author wrote.
    pub(super) hosted: Relation<HostOf, (RouteId, Hostname)>,
    /// The hosts of those, with the number of listeners.
    pub(super) hosts: BTreeMap<TableKey, HostMap<usize>>,
    /// The upstreams that the routes of a listener lead to, with the number of routes.
    pub(super) upstreams: BTreeMap<ListenerId, BTreeMap<UpstreamId, usize>>,
    pub(super) resources: BTreeMap<FleetName, BTreeMap<ResourceOf, Arc<Resource>>>,
    /// What resources are made from: the way back from their names. A cluster is found where its endpoints are.
    pub(super) ids: BTreeMap<FleetName, BTreeMap<(ResourceType, Arc<str>), ResourceId>>,
    pub(super) view_policies: Relation<FleetName, ObjectName>,
    /// The policies that are attached to something, each with the section of it that is meant.
    pub(super) policies_at: Relation<PolicyScope, (PolicyAge, Option<Arc<str>>)>,
    pub(super) proxies: Relation<FleetName, ObjectName>,
    pub(super) outcome: Outcome,
}

type ResourceOf = (Section, Arc<str>);

/// Moves a member from one fleet to another. Returns both fleets if they differ.
fn move_member(
    index: &mut Relation<FleetName, ObjectName>,
    member: &ObjectName,
    old: Option<FleetName>,
    new: Option<FleetName>,
) -> Vec<FleetName> {
    if old == new {
        return Vec::new();
    }
    if let Some(old) = &old {
        index.remove(old, member);
    }
    if let Some(new) = &new {
        index.insert(new.clone(), member.clone());
    }
    old.into_iter().chain(new).collect()
}
