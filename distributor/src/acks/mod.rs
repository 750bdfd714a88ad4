//! The answers of a fleet's clients, in sum: for a page, and for reports to the translator.

mod rejections;
mod report;
mod reporter;
mod votes;

pub(crate) use reporter::Reporter;

use crate::feed::{Fleet, FleetState, Fleets};
use crate::log_limit::LineLimit;
use heliograph_distributor_protocol::{ClientState, Rejection};
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use heliograph_store::Voter;
use heliograph_views::Quarantined;
use parking_lot::{Mutex, MutexGuard};
use rejections::Rejections;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::Instant;
use votes::Votes;

/// How the fleets take their snapshots, as far as this replica's clients tell.
#[derive(Clone, Debug)]
pub struct Acks {
    fleets: Fleets,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcksSummary {
    /// The newest snapshot; `None` while the fleet is retired.
    #[serde(serialize_with = "as_text")]
    pub head: Option<Head>,
    /// Whether that snapshot is in memory. If not, the fleet has no clients here.
    pub loaded: bool,
    /// About how much memory it takes, or would.
    pub bytes: u64,
    pub connected: usize,
    /// How many have acknowledged all that they ask for of that snapshot.
    pub acknowledged: usize,
    /// The newest snapshot of which some connected client has acknowledged all that it asks for: while snapshots come
    /// faster than acknowledgements, it shows that clients follow.
    #[serde(serialize_with = "as_text")]
    pub newest_acknowledged: Option<Head>,
    /// The last few different ones of what the snapshot still has, oldest first.
    pub rejections: Vec<RejectionSummary>,
    /// What is served at an older version to who does not have it already.
    pub quarantine: Vec<QuarantineSummary>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectionSummary {
    pub kind: ResourceType,
    /// The client's own words.
    pub detail: String,
    /// What was rejected; without a version, a removal.
    pub resources: Vec<(Arc<str>, Option<Version>)>,
    /// Whether each of them is to blame, rather than some of them.
    pub attributed: bool,
    /// How many times clients said so.
    pub count: u64,
}

/// A resource that too many clients rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuarantineSummary {
    pub kind: ResourceType,
    pub name: Arc<str>,
    /// What was rejected.
    pub version: Version,
    /// What is served in its place: the last that a client of the fleet accepted.
    pub served: Version,
}

/// The sums of one fleet.
#[derive(Debug)]
pub(crate) struct FleetAcks {
    sums: Mutex<Sums>,
    /// Notified of every change. All fleets share it.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Sums {
    connected: usize,
    /// How many streams have acknowledged all of which head.
    acknowledged: BTreeMap<Head, usize>,
    rejections: Rejections,
    votes: Votes,
    /// Lines of the log about rejections of each type.
    lines: BTreeMap<ResourceType, LineLimit>,
}

/// Counts one stream in the sums, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamCounter {
    fleet: Arc<Fleet>,
    voter: Voter,
    acknowledged: Option<Head>,
    position: Option<u64>,
}

impl Acks {
    pub(crate) fn new(fleets: Fleets) -> Self {
        Self { fleets }
    }

    /// `None`: the fleet has never been published.
    pub fn of(&self, fleet: &FleetName) -> Option<AcksSummary> {
        self.fleets.state(fleet).map(AcksSummary::of)
    }

    /// Every fleet that has been published.
    pub fn all(&self) -> BTreeMap<FleetName, AcksSummary> {
        let states = self.fleets.states().into_iter();
        states.map(|(name, state)| (name, AcksSummary::of(state))).collect()
    }
}

impl AcksSummary {
    fn of(state: FleetState) -> Self {
        match state {
            FleetState::Loaded(fleet) => Self::of_loaded(&fleet),
            FleetState::Known { head, bytes } | FleetState::Failed { head, bytes, .. } => Self {
                head: Some(head),
                loaded: false,
                bytes,
                connected: 0,
                acknowledged: 0,
                newest_acknowledged: None,
                rejections: Vec::new(),
                quarantine: Vec::new(),
            },
        }
    }

    fn of_loaded(fleet: &Fleet) -> Self {
        let views = fleet.current();
        let head = views.as_ref().map(|views| views.head());
        let bytes = views.as_ref().map_or(0, |views| views.bytes());
        let quarantine = views.iter().flat_map(|views| views.quarantined());
        let quarantine = quarantine.filter(|it| !it.lifted).map(QuarantineSummary::of).collect();
        let views = views.map(|views| views.all()).unwrap_or_default();
        let sums = fleet.acks.sums();
        let acknowledged = head.and_then(|head| sums.acknowledged.get(&head)).copied();
        Self {
            head,
            loaded: head.is_some(),
            bytes,
            connected: sums.connected,
            acknowledged: acknowledged.unwrap_or_default(),
            newest_acknowledged: sums.acknowledged.keys().next_back().copied(),
            rejections: sums.rejections.current(&views).cloned().collect(),
            quarantine,
        }
    }
}

impl QuarantineSummary {
    fn of(quarantined: &Quarantined) -> Self {
        let Quarantined { kind, rejected, good, lifted: _ } = quarantined;
        let (name, version) = (rejected.name.clone(), rejected.version);
        Self { kind: *kind, name, version, served: good.version }
    }
}

impl FleetAcks {
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self { sums: Mutex::default(), changed }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Sums) -> T) -> T {
        let outcome = change(&mut self.sums());
        self.changed.notify_one();
        outcome
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        // Sums are whole after every statement, so a panic elsewhere leaves them usable.
        self.sums.lock()
    }
}

impl StreamCounter {
    /// A stream of the proxy that has this vote.
    pub(crate) fn join(fleet: Arc<Fleet>, voter: Voter) -> Self {
        fleet.acks.change(|sums| {
            sums.connected += 1;
            sums.votes.join(voter);
        });
        Self { fleet, voter, acknowledged: None, position: None }
    }

    /// Updates the sums with the state of the stream's client.
    pub(crate) fn at(&mut self, acknowledged: Option<Head>, client_state: ClientState) {
        let position = Some(client_state.id());
        if self.position == position {
            return;
        }
        let mut sums = self.fleet.acks.sums();
        let (left, is_news) = sums.votes.at(self.voter, client_state);
        if self.acknowledged != acknowledged {
            sums.leave(self.acknowledged);
            if let Some(head) = acknowledged {
                *sums.acknowledged.entry(head).or_default() += 1;
            }
        }
        // Large ones take a while to drop, and others wait for the lock.
        drop(sums);
        drop(left);
        if is_news || self.acknowledged != acknowledged {
            self.fleet.acks.changed.notify_one();
        }
        (self.position, self.acknowledged) = (position, acknowledged);
    }

    /// If this is the first of its like, and the log may have a line about it: how many such lines were suppressed.
    pub(crate) fn rejected(&self, rejection: &Rejection) -> Option<u64> {
        self.fleet.acks.change(|sums| {
            let is_first = sums.rejections.add(self.voter, rejection);
            let line = sums.lines.entry(rejection.kind).or_default();
            is_first.then(|| line.allow(Instant::now())).flatten()
        })
    }
}

impl Drop for StreamCounter {
    fn drop(&mut self) {
        self.fleet.acks.change(|sums| {
            sums.connected -= 1;
            sums.leave(self.acknowledged);
            sums.votes.leave(self.voter)
        });
    }
}

impl Sums {
    fn leave(&mut self, acknowledged: Option<Head>) {
        let Some(head) = acknowledged else { return };
        if let Some(count) = self.acknowledged.get_mut(&head) {
            *count -= 1;
            if *count == 0 {
                self.acknowledged.remove(&head);
            }
        }
    }
}

fn as_text<S: Serializer>(head: &Option<Head>, serializer: S) -> Result<S::Ok, S::Error> {
    match head {
        Some(head) => serializer.collect_str(head),
        None => serializer.serialize_none(),
    }
}
