use crate::Record;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The time after which a replica without reports is forgotten. A replica reports several times as often.
pub const ACKS_EXPIRY: Duration = Duration::from_secs(30);

/// The answers of one replica's proxies, in sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckReport {
    /// The replica, by a name that no other has.
    pub replica: String,
    /// When it started, in milliseconds since 1970, and the number of this report since then, from 1 on: these
    /// distinguish an old report that was written again from a new one.
    pub start: u64,
    pub sequence: u64,
    pub fleets: BTreeMap<FleetName, FleetReport>,
    /// Fleets whose newest snapshot this replica cannot load, because what the store holds of it is missing or damaged, and
    /// the head of that snapshot; at most [`AckReport::DAMAGED`]. Only the translator can repair it, by writing all of it
    /// again.
    pub damaged: BTreeMap<FleetName, Head>,
    /// The last records that this replica read of fleets that the store has lost since; at most
    /// [`AckReport::REMEMBERED`]. A translator that does not know such a fleet, or the order that pins it, learns of it
    /// here.
    pub remembered: Vec<Arc<Record>>,
}

/// The answers of one fleet's proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    pub connected: u64,
    /// How many have acknowledged all that they ask for, of which head; the newest [`FleetReport::HEADS`].
    pub acknowledged: BTreeMap<Head, u64>,
    pub rejections: Vec<RejectionReport>,
    /// What some reject at the version that it has now; at most [`FleetReport::DISPUTES`].
    pub disputes: Vec<Dispute>,
    /// How many proxies the connected streams belong to. None although some are connected: a replica reports that does not
    /// tell proxies from streams.
    pub voters: Voters,
    /// How many proxies have acknowledged all that they ask for, of which head; the newest [`FleetReport::HEADS`].
    pub votes: BTreeMap<Head, Voters>,
}

/// A proxy of a fleet, which has one vote there, however many streams it has and to however many replicas. A digest of
/// its identity, the same on all replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Voter(pub u64);

/// How many proxies, and which one if it is only one: another replica may have counted the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Voters {
    pub count: u64,
    pub only: Option<Voter>,
}

/// A rejection: the resources, the number of proxies, and the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectionReport {
    pub kind: ResourceType,
    /// The proxy's own words, cut to [`RejectionReport::DETAIL`] bytes.
    pub detail: String,
    /// What was rejected; without a version, a removal.
    pub resources: Vec<(Arc<str>, Option<Version>)>,
    pub count: u64,
}

/// A resource that some proxies reject. Counted are the proxies that are connected now, by what each answered last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispute {
    pub kind: ResourceType,
    pub name: Arc<str>,
    pub version: Version,
    /// How many reject it.
    pub rejected: u64,
    /// How many have it.
    pub accepted: u64,
    /// The voters that reject it and those that have it, sorted: all of them, or none if there are more than
    /// [`Dispute::VOTERS`].
    pub rejecting: Vec<Voter>,
    pub accepting: Vec<Voter>,
}

impl AckReport {
    pub const DAMAGED: usize = 1_000;
    pub const REMEMBERED: usize = 1_000;
}

impl FleetReport {
    pub const HEADS: usize = 16;
    pub const REJECTIONS: usize = 16;
    pub const DISPUTES: usize = 24;
    /// How many of these may be on record in the snapshot already, so that there is room for others.
    pub const ON_RECORD: usize = 16;
}

impl Dispute {
    /// Where more than so many reject something, it matters little that a few of them may be counted at several replicas.
    pub const VOTERS: usize = 64;

    /// Without saying who they are.
    pub fn new(
        kind: ResourceType,
        name: Arc<str>,
        version: Version,
        rejected: u64,
        accepted: u64,
    ) -> Self {
        let (rejecting, accepting) = (Vec::new(), Vec::new());
        Self { kind, name, version, rejected, accepted, rejecting, accepting }
    }
}

impl RejectionReport {
    pub const DETAIL: usize = 1024;
    pub const RESOURCES: usize = 64;
}
