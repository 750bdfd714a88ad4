//! The values that pass through a store.

use crate::codec::stored_time;
use crate::{PinOrder, PinState};
use heliograph_snapshot::{Address, FleetName, Head, Section, Snapshot};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A change that a [`crate::Watch`] returns.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The newest record of a fleet.
    Fleet(Arc<Record>),
    /// The watch has returned all fleets that the store held when it began.
    Synced,
}

/// The store's record of a fleet at one head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub fleet: FleetName,
    pub head: Head,
    pub state: State,
    /// When it was written, by the writer's clock: for people, not for order.
    pub time: SystemTime,
    /// Why it was written, in a few words.
    pub cause: Arc<str>,
    /// Whether an operator held the fleet then.
    pub pin: PinState,
    /// About how much memory the snapshot takes when it is loaded; 0 where the writer did not say.
    pub bytes: u64,
    /// The sections that have sealed resources beside others. The store seals all of some sections, which are not in here.
    pub partly_sealed: BTreeSet<Section>,
    /// A newer program wrote it, with types of resources that this one does not know and leaves out.
    pub has_unknown_types: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Where the resources of each section are.
    Live(BTreeMap<Section, Address>),
    Retired,
}

/// One term of one writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Term {
    pub epoch: u64,
    pub fence: u128,
}

/// The state of the store when a writer claims a term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedTerm {
    pub term: Term,
    /// What the store holds: live fleets and retired ones.
    pub records: BTreeMap<FleetName, Arc<Record>>,
    /// The last order of each fleet that operators gave one for.
    pub orders: BTreeMap<FleetName, PinOrder>,
}

/// A snapshot to publish.
#[derive(Clone, Debug)]
pub struct Publication {
    pub snapshot: Arc<Snapshot>,
    /// The head that the writer believes to be there.
    pub expected: Option<Head>,
    /// The snapshot at `expected`: what it has need not be written again. Without it everything is.
    pub held: Option<Arc<Snapshot>>,
    pub time: SystemTime,
    pub cause: Arc<str>,
    pub pin: PinState,
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    pub objects: usize,
    pub bytes: usize,
}

/// A fleet to remove.
#[derive(Clone, Debug)]
pub struct Retirement {
    pub fleet: FleetName,
    /// The fleet's last head.
    pub tombstone: Head,
    /// The head that the writer believes to be there.
    pub expected: Option<Head>,
    pub time: SystemTime,
    pub cause: Arc<str>,
    /// The number of the last order: one that was given for this fleet means nothing to a later one of its name.
    pub order: u64,
}

/// The differences between the store and the writer's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    pub term: Term,
    pub heads: BTreeMap<FleetName, Head>,
    pub orders: BTreeMap<FleetName, PinOrder>,
}

/// The result of a garbage collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub deleted: usize,
    pub sealed_again: usize,
}

#[derive(Clone, Debug)]
pub struct Loaded {
    pub snapshot: Arc<Snapshot>,
    /// The secrets that are left out because this process lacks the key they are sealed with.
    pub unopened: Vec<Arc<str>>,
}

impl Record {
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::Live(_))
    }

    /// Whether this program understands everything of the fleet at its head.
    pub fn is_understood(&self) -> bool {
        !self.has_unknown_types
    }

    /// Where the resources are; nowhere if the fleet is retired.
    pub fn roots(&self) -> BTreeMap<Section, Address> {
        match &self.state {
            State::Live(roots) => roots.clone(),
            State::Retired => BTreeMap::new(),
        }
    }
}

impl Publication {
    pub fn record(&self) -> Record {
        Record {
            fleet: self.snapshot.fleet.clone(),
            head: self.snapshot.head,
            state: State::Live(self.snapshot.roots()),
            time: stored_time(self.time),
            cause: self.cause.clone(),
            pin: self.pin.clone(),
            bytes: self.snapshot.bytes() as u64,
            partly_sealed: self.snapshot.confidential_sections().collect(),
            has_unknown_types: false,
        }
    }

    /// Whether this is a step in the history: a change of endpoints and proxies alone is not, because a rollback does
    /// not restore those. A change of the pin is one.
    pub fn is_step(&self) -> bool {
        let held_at = self.pin.pinned.as_ref().map(|pinned| pinned.head);
        if held_at == Some(self.snapshot.head) {
            return true;
        }
        let lasting = |snapshot: &Snapshot| {
            let mut roots = snapshot.roots();
            roots.retain(|section, _| section.lasts());
            roots
        };
        self.held.as_ref().is_none_or(|held| lasting(held) != lasting(&self.snapshot))
    }
}

impl Retirement {
    pub fn record(&self) -> Record {
        Record {
            fleet: self.fleet.clone(),
            head: self.tombstone,
            state: State::Retired,
            time: stored_time(self.time),
            cause: self.cause.clone(),
            pin: PinState { number: self.order, pinned: None },
            bytes: 0,
            partly_sealed: BTreeSet::new(),
            has_unknown_types: false,
        }
    }
}

impl From<Head> for Term {
    fn from(head: Head) -> Self {
        Self { epoch: head.epoch, fence: head.fence }
    }
}

/// `epoch.fence`.
impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.fence)
    }
}
