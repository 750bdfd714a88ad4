use heliograph_snapshot::{FleetName, Head, ResourceType, Snapshot, Version};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// One thing that was seen in a run. The order of events of one reader or proxy is the order in which it saw them;
/// between others it does not matter.
#[derive(Clone, Debug)]
pub enum Event {
    /// A writer asks a store to move a fleet to a head. Without content the fleet is retired.
    Asked { fleet: FleetName, head: Head, content: Option<Arc<Content>> },
    /// The store's answer to the writer. The outcome of an ask without an answer is not known.
    Answered { fleet: FleetName, head: Head, outcome: Outcome },
    /// A fleet ceases to be wanted, or is wanted again. Before the first of these events it is wanted.
    Wanted { fleet: FleetName, is_wanted: bool },
    /// A reader of all fleets begins.
    Reads { reader: Arc<str> },
    /// A reader was given a snapshot, or without content, that the fleet is retired.
    Read { reader: Arc<str>, fleet: FleetName, head: Head, content: Option<Arc<Content>> },
    /// A proxy that holds nothing yet begins.
    Connects { client: Arc<str>, fleet: FleetName },
    /// A proxy opens another stream, with all that it holds.
    Reconnects { client: Arc<str> },
    /// A proxy was sent a response, and has answered it.
    Responded(Response),
    /// A reader or a proxy is no more, so that at the end nothing is expected of it.
    Leaves { who: Arc<str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged,
    /// It was not done, and it never will be.
    Refused,
    Unknown,
}

/// The content of a snapshot: the version of each resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content(pub BTreeMap<ResourceId, Version>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    pub kind: ResourceType,
    pub name: Arc<str>,
}

/// One xDS response of one type.
#[derive(Clone, Debug)]
pub struct Response {
    pub client: Arc<str>,
    pub kind: ResourceType,
    pub order: Order,
    pub resources: Vec<Sent>,
    /// Delta: the names that are no more.
    pub removed: Vec<Arc<str>>,
    /// State of the world, a type that is always listed whole: what is not listed is gone.
    pub whole: bool,
    pub accepted: bool,
}

/// Where a response belongs in the history of its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Its nonce says from which snapshot it is.
    Nonce(Head),
    /// The server does not say. It is from the first snapshot, not older than what the proxy was sent last, that has
    /// all this.
    PublishLog,
    /// What was published is not known, so that it is compared with nothing. Where its nonce has a head all the same,
    /// that only moves forward.
    Observed(Option<Head>),
}

/// A resource as it was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub name: Arc<str>,
    /// The version of what was sent, computed from its body: what the server says of it may be wrong.
    pub version: Version,
    pub references: Vec<ResourceId>,
}

impl ResourceId {
    pub fn new(kind: ResourceType, name: impl Into<Arc<str>>) -> Self {
        Self { kind, name: name.into() }
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl From<&Snapshot> for Content {
    fn from(snapshot: &Snapshot) -> Self {
        let of_kind = |kind| {
            let resources = snapshot.tree(kind).iter();
            resources.map(move |found| (ResourceId::new(kind, found.name.clone()), found.version))
        };
        Self(ResourceType::ALL.into_iter().flat_map(of_kind).collect())
    }
}

impl Content {
    pub fn of_kind(&self, kind: ResourceType) -> impl Iterator<Item = (&ResourceId, &Version)> {
        self.0.iter().filter(move |(id, _)| id.kind == kind)
    }

    /// Something that one has and the other has not, or has otherwise.
    pub(crate) fn difference<'a>(&'a self, other: &'a Self) -> Option<&'a ResourceId> {
        let ids = self.0.keys().chain(other.0.keys());
        ids.into_iter().find(|id| self.0.get(id) != other.0.get(id))
    }
}
