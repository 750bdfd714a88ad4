use crate::ir::{Backend, Hostname, ListenerId, TableKey};
use crate::objects::{Kind, ObjectKey, ObjectName};
use heliograph_snapshot::{FleetName, ResourceType};
use std::sync::Arc;

/// One piece of translation, the smallest that is done again when something it read has changed.
///
/// The order of the variants is the order of the stages: a unit reads and demands only what its stage allows, which is
/// products of earlier stages and units of later ones. So each unit is computed at most once per change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unit {
    /// What does this Gateway want of proxies that it shares with others?
    Claim(ObjectName),
    /// Who does not get it?
    Contest(FleetName),
    /// Is this Gateway ours, and which of its listeners are valid?
    Gateway(ObjectName),
    /// What do the proxies of a fleet serve?
    Fleet(FleetName),
    /// What is to run for a fleet?
    Infra(FleetName),
    /// What does this ViewPolicy say?
    Policy(ObjectName),
    /// Which fleet is this proxy of?
    Proxy(ObjectName),
    /// The rules of a route, with references resolved.
    Rules(ObjectKey),
    /// The listeners that a route would belong to, and how much it would take there.
    Placement(ObjectKey),
    /// The listeners that a route belongs to, within the budgets.
    Attachment(ObjectKey),
    /// A route as Envoy reads it, for one table.
    Piece(ObjectKey, TableKey),
    /// What the policies of a fleet come to.
    Plan(FleetName),
    /// The pieces of all routes for one host, in order of precedence.
    VirtualHost(TableKey, Hostname),
    Secret(FleetName, ObjectName),
    Cluster(FleetName, Backend),
    Endpoints(FleetName, Backend),
    Listener(FleetName, u16),
    /// A route table, put together from its virtual hosts.
    Table(TableKey),
    /// Whom a rule of a view is for.
    Audience(FleetName, Arc<str>),
    /// What views do to a resource.
    Treatment(FleetName, ResourceType, Arc<str>),
    /// A proxy's entry in the directory of its fleet.
    Entry(FleetName, ObjectName),
    /// That an object is left out of what is published for a fleet.
    LeftOut(FleetName, ObjectKey),
    Status(ObjectKey),
}

/// Something that a unit can read, and that can change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// An object, or that there is none.
    Object(ObjectKey),
    /// All objects of a kind in a namespace.
    Namespace(Kind, Arc<str>),
    /// The objects of a kind that are about another: the EndpointSlices of a Service.
    Pointing(Kind, ObjectKey),
    /// What a unit came to. With the rules of a route, or what a policy says, goes what of it is left out.
    Product(Unit),
    /// That something of an object is left out of what is published for a fleet.
    LeftOut(FleetName, ObjectKey),
    /// What the Gateways of a fleet want of it that share it.
    Claims(FleetName),
    /// What a Gateway that shares its proxies does not get.
    Lost(ObjectName),
    /// What fleets see of a Gateway.
    Doors(ObjectName),
    /// What routes see of a Gateway or a ListenerSet.
    DoorsOf(ObjectKey),
    /// Whose proxies serve a Gateway, if any do.
    FleetOf(ObjectName),
    /// The Gateways of a fleet.
    Members(FleetName),
    /// The listeners that hosts of a table may belong to.
    Listeners(TableKey),
    /// Which budget a route is beyond, if any.
    Excess(ObjectKey),
    /// The routes that a host of a table is without, although they are for it as well.
    NotCopied(TableKey, Hostname),
    /// The routes that are attached to a listener.
    Attached(ListenerId),
    /// The Gateways whose routes refer to an object.
    LeadingTo(ObjectKey),
    /// For which hosts that cover this one a listener of a table has routes. What has none is no fact of its own: as many names
    /// cover a host as it has labels.
    Covering(TableKey, ListenerId, Hostname),
    /// The routes that a listener of a table has for a host.
    Hosted(TableKey, ListenerId, Hostname),
    /// All virtual hosts of a table.
    VirtualHosts(TableKey),
    /// The ViewPolicies of a fleet.
    Policies(FleetName),
    /// The proxies of a fleet.
    Proxies(FleetName),
    /// The backends that the routes of a table lead to.
    Backends(TableKey),
    /// A resource, or that there is none.
    Resource(FleetName, ResourceType, Arc<str>),
}

impl Fact {
    /// What an object says that something may be left out of.
    pub(crate) fn said_by(object: &ObjectKey) -> Self {
        Self::Product(match object.kind {
            Kind::ViewPolicy => Unit::Policy(object.name.clone()),
            _ => Unit::Rules(object.clone()),
        })
    }
}

impl Unit {
    /// Whether it is of an earlier stage.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        self < other && std::mem::discriminant(self) != std::mem::discriminant(other)
    }

    /// Whether it is of a stage that may read which routes fit.
    pub(crate) fn is_after_budgets(&self) -> bool {
        match self {
            Self::Claim(_)
            | Self::Contest(_)
            | Self::Gateway(_)
            | Self::Fleet(_)
            | Self::Infra(_)
            | Self::Policy(_)
            | Self::Proxy(_)
            | Self::Rules(_)
            | Self::Placement(_) => false,
            Self::Attachment(_)
            | Self::Piece(..)
            | Self::Plan(_)
            | Self::VirtualHost(..)
            | Self::Secret(..)
            | Self::Cluster(..)
            | Self::Endpoints(..)
            | Self::Listener(..)
            | Self::Table(_)
            | Self::Audience(..)
            | Self::Treatment(..)
            | Self::Entry(..)
            | Self::LeftOut(..)
            | Self::Status(_) => true,
        }
    }

    /// For counters.
    pub(crate) fn stage(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Contest(_) => "contest",
            Self::Gateway(_) => "gateway",
            Self::Fleet(_) => "fleet",
            Self::Infra(_) => "infra",
            Self::Policy(_) => "policy",
            Self::Proxy(_) => "proxy",
            Self::Rules(_) => "rules",
            Self::Placement(_) => "placement",
            Self::Attachment(_) => "attachment",
            Self::Piece(..) => "piece",
            Self::Plan(_) => "plan",
            Self::VirtualHost(..) => "virtual_host",
            Self::Secret(..) => "secret",
            Self::Cluster(..) => "cluster",
            Self::Endpoints(..) => "endpoints",
            Self::Listener(..) => "listener",
            Self::Table(_) => "table",
            Self::Audience(..) => "audience",
            Self::Treatment(..) => "treatment",
            Self::Entry(..) => "entry",
            Self::LeftOut(..) => "left_out",
            Self::Status(_) => "status",
        }
    }
}
