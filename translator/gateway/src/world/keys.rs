//! The keys of units that have more than one part.

use heliograph_model::{
    Hostname, ListenerId, RouteId, SecretId, TableKey, TransportPort, UpstreamId,
};
use heliograph_snapshot::{FleetName, ResourceType};
use std::sync::Arc;

/// Something of one fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InFleet<T> {
    pub(crate) fleet: FleetName,
    pub(crate) id: T,
}

/// A route at one listener, in the table that the listener uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CompiledRouteKey {
    pub(crate) route: RouteId,
    pub(crate) table: TableKey,
    pub(crate) listener: ListenerId,
}

/// A host of one table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostKey {
    pub(crate) table: TableKey,
    pub(crate) host: Hostname,
}

/// A resource that is served to the proxies of one fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ResourceKey {
    pub(crate) fleet: FleetName,
    pub(crate) kind: ResourceType,
    pub(crate) name: Arc<str>,
}

/// What a resource is made from, as the model has it. The name of the resource is the dialect's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResourceId {
    Secret(SecretId),
    /// A cluster, and its endpoints.
    Upstream(UpstreamId),
    Port(TransportPort),
    Table(TableKey),
}

/// What a treatment is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TreatmentOf {
    /// The endpoints of an upstream.
    Endpoints(UpstreamId),
    /// What a policy calls so, whether or not it is there. Of endpoints that is only whether the policy can do what it says.
    Named(ResourceType, Arc<str>),
}

impl<T> InFleet<T> {
    pub(crate) fn new(fleet: &FleetName, id: T) -> Self {
        Self { fleet: fleet.clone(), id }
    }
}

impl ResourceKey {
    pub(crate) fn new(fleet: &FleetName, kind: ResourceType, name: Arc<str>) -> Self {
        Self { fleet: fleet.clone(), kind, name }
    }
}
