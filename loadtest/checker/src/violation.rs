use crate::event::ResourceId;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use std::sync::Arc;

/// A violation of an invariant, in one line. `who` is a reader or a proxy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("{fleet}: two writers' contents for one head, {head}: they differ in {difference}")]
    TwoContents { fleet: FleetName, head: Head, difference: String },
    #[error("{fleet}: {who} went back from {from} to {to} ({what})")]
    WentBack { who: Arc<str>, fleet: FleetName, what: String, from: Head, to: Head },
    #[error("{fleet}: {who} was given {head}, which no writer published")]
    NeverPublished { who: Arc<str>, fleet: FleetName, head: Head },
    #[error("{fleet}: {who} was given {head}, which the store had refused")]
    Refused { who: Arc<str>, fleet: FleetName, head: Head },
    #[error(
        "{fleet}: {who} was given a snapshot at {head}, where the fleet is retired, or the other way round"
    )]
    NotLive { who: Arc<str>, fleet: FleetName, head: Head },
    #[error(
        "{fleet}: {who} was given {resource} at version {version}, and the snapshot at {head} has {}",
        or_none(published)
    )]
    Foreign {
        who: Arc<str>,
        fleet: FleetName,
        head: Head,
        resource: ResourceId,
        version: Version,
        published: Option<Version>,
    },
    #[error("{fleet}: {who} was not given {resource}, which the snapshot at {head} has")]
    Half { who: Arc<str>, fleet: FleetName, head: Head, resource: ResourceId },
    #[error(
        "{fleet}: {who} was sent a response about {kind} resources that no snapshot has all of; it was at {}",
        or_none(at)
    )]
    Mixed { who: Arc<str>, fleet: FleetName, kind: ResourceType, at: Option<Head> },
    #[error(
        "{fleet}: {who} was sent {resource}{}, which refers to {missing}, and it does not have that",
        of_head(head)
    )]
    Dangling {
        who: Arc<str>,
        fleet: FleetName,
        head: Option<Head>,
        resource: ResourceId,
        missing: ResourceId,
    },
    #[error(
        "{fleet}: {} took {removed} from {who}, whose {referrer} still refers to it",
        or_server(head)
    )]
    Broken {
        who: Arc<str>,
        fleet: FleetName,
        head: Option<Head>,
        removed: ResourceId,
        referrer: ResourceId,
    },
    #[error(
        "{fleet}: {who} was resent {resource} at version {version}, which it had rejected on this stream"
    )]
    Resent { who: Arc<str>, fleet: FleetName, resource: ResourceId, version: Version },
    #[error(
        "{fleet}: at the end {who} is at {}, not at {newest}{}",
        or_none(at),
        in_detail(difference)
    )]
    Behind {
        who: Arc<str>,
        fleet: FleetName,
        at: Option<Head>,
        newest: Head,
        difference: Option<ResourceId>,
    },
    #[error("{fleet}: at the end {who} still has {head}, and the fleet is no more")]
    Kept { who: Arc<str>, fleet: FleetName, head: Head },
}

impl Violation {
    /// Whether it may go away by waiting, because the run is not over.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Behind { .. } | Self::Kept { .. })
    }
}

fn or_none(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
}

fn of_head(head: &Option<Head>) -> String {
    head.map(|head| format!(" of {head}")).unwrap_or_default()
}

fn or_server(head: &Option<Head>) -> String {
    head.map_or_else(|| "the server".to_owned(), |head| head.to_string())
}

fn in_detail(difference: &Option<ResourceId>) -> String {
    difference.as_ref().map(|id| format!(": {id} differs")).unwrap_or_default()
}
