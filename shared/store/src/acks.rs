use crate::Record;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// After how long a replica that says nothing is forgotten. A replica reports several times as often.
pub const ACKS_EXPIRY: Duration = Duration::from_secs(30);

/// What one replica's proxies say, in sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckReport {
    /// The replica, by a name that no other has.
    pub replica: String,
    /// When it started, in milliseconds since 1970, and the number of this report since then, from 1 on: a report that was put
    /// back by somebody else is told from a new one by these.
    pub start: u64,
    pub sequence: u64,
    pub fleets: BTreeMap<FleetName, FleetReport>,
    /// Fleets whose newest snapshot this replica cannot load, because what the store holds of it is missing or damaged, and
    /// the head of that snapshot; at most [`AckReport::DAMAGED`]. Only the translator can repair it, by writing all of it
    /// again.
    pub damaged: BTreeMap<FleetName, Head>,
    /// What this replica last read of fleets that the store has lost since; at most [`AckReport::REMEMBERED`]. A translator
    /// that has never heard of such a fleet, or of the order that holds it, learns of it here.
    pub remembered: Vec<Arc<Record>>,
}

/// What the proxies of one fleet say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    pub connected: u64,
    /// How many have acknowledged all that they ask for, of which head; the newest [`FleetReport::HEADS`].
    pub acknowledged: BTreeMap<Head, u64>,
    pub rejections: Vec<RejectionReport>,
    /// What some reject at the version that it has now; at most [`FleetReport::DISPUTES`].
    pub disputes: Vec<Dispute>,
}

/// What was rejected, by how many, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectionReport {
    pub kind: ResourceType,
    /// The proxy's own words, cut to [`RejectionReport::DETAIL`] bytes.
    pub detail: String,
    /// What was rejected; without a version, a removal.
    pub resources: Vec<(Arc<str>, Option<Version>)>,
    pub count: u64,
}

/// A resource that some proxies reject. Counted are those that are connected now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispute {
    pub kind: ResourceType,
    pub name: Arc<str>,
    pub version: Version,
    /// How many reject it.
    pub rejected: u64,
    /// How many have it.
    pub accepted: u64,
}

impl AckReport {
    pub const DAMAGED: usize = 1_000;
    pub const REMEMBERED: usize = 1_000;
}

impl FleetReport {
    pub const HEADS: usize = 16;
    pub const REJECTIONS: usize = 16;
    pub const DISPUTES: usize = 16;
}

impl RejectionReport {
    pub const DETAIL: usize = 1024;
    pub const RESOURCES: usize = 64;
}
