use crate::codec::stored_time;
use crate::{AckReport, PinOrder, PinState, Presence, StoreError};
use futures::future::BoxFuture;
use heliograph_snapshot::{Address, FleetName, Head, Section, Snapshot};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// Everything a translator says and a distributor hears. A store is a cache that can be rebuilt: what it loses, the
/// translator publishes again.
///
/// One writer at a time: a term begins with [`Store::claim`], and every write of an earlier term is refused from
/// then on. Writes may be asked for again when their answer was lost; the second time changes nothing.
pub trait Store: Send + Sync + 'static {
    /// Begins a term. `fence` is the token of whatever elected the writer, refused if a newer term has begun;
    /// without an election the store finds one above all it has seen.
    fn claim(&self, fence: Option<u128>) -> Answer<'_, Claim>;

    /// Where a secret's body is kept, and so what its version is: a store that others can read has a key for that, so
    /// that the address says nothing of the content. The body holds the secret's name, so no two share an address.
    fn address_of_secret(&self, body: &[u8]) -> Address;

    /// Makes a snapshot the newest of its fleet, or changes nothing.
    fn publish(&self, publication: Publication) -> Answer<'_, Published>;

    /// Takes a fleet away. No older write brings it back.
    fn retire(&self, retirement: Retirement) -> Answer<'_, ()>;

    /// What the store holds at this moment, for the writer to compare with what it wrote. `fleets` are those that the
    /// writer knows.
    fn inspect(&self, fleets: Vec<FleetName>) -> Answer<'_, Inspection>;

    /// Garbage collection of a fleet, never beside another write of the same fleet: deletes what nothing leads to any more,
    /// and seals again what is sealed with an older key. `newest` is what the writer published last. What is not due is not
    /// done, so this may be called often.
    fn clean(&self, newest: Arc<Snapshot>) -> Answer<'_, Cleaned>;

    /// Every fleet as it is now, then every change.
    fn watch(&self) -> Box<dyn Watch>;

    /// The newest records of these fleets, as they are at this moment.
    fn newest(&self, fleets: Vec<FleetName>) -> Answer<'_, BTreeMap<FleetName, Arc<Record>>>;

    /// The snapshot of a record, taking from `known` what did not change.
    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> Answer<'_, Loaded>;

    /// How often the keys have changed that secrets are opened with: after that, one that was left out may be opened.
    fn key_changes(&self) -> u64 {
        0
    }

    /// Whether a reader was told of this fleet from a cache of its own, and the store has not answered since how far it is.
    /// Others may have been served something newer.
    fn is_unconfirmed(&self, _fleet: &FleetName) -> bool {
        false
    }

    /// A reader has clients of these fleets now. What it keeps for its next start, it keeps of them first.
    fn used(&self, _fleets: &[FleetName]) {}

    /// A reader has dropped the snapshot of this fleet from its memory, and serves it to nobody.
    fn dropped(&self, _fleet: &FleetName) {}

    /// When a reader last had clients of this fleet, in seconds since 1970, as far as it remembers over a restart.
    fn last_use(&self, _fleet: &FleetName) -> Option<u64> {
        None
    }

    /// The snapshots that a fleet can go back to, newest first.
    fn history(&self, fleet: FleetName) -> Answer<'_, Vec<Arc<Record>>>;

    /// Asks the translator to hold a fleet at a snapshot of its history, or to release it. Refused unless the number is above
    /// that of the order before, and unless the snapshot is in the history.
    fn order(&self, fleet: FleetName, order: PinOrder) -> Answer<'_, ()>;

    /// Writes an order again that the store lost, for the writer that obeys it.
    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> Answer<'_, ()>;

    /// What one replica's proxies say. It is forgotten unless it is said again before [`crate::ACKS_EXPIRY`].
    fn report(&self, report: AckReport) -> Answer<'_, ()>;

    /// What every replica said last.
    fn reports(&self) -> Answer<'_, Vec<AckReport>>;

    /// Says that a replica is there. It is forgotten unless it says so again before [`crate::PRESENCE_EXPIRY`]. Where
    /// replicas are not told of each other, nobody hears it.
    fn appear(&self, _presence: Presence) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// The replicas that are there; where they are not told of each other, none.
    fn present(&self) -> Answer<'_, Vec<Presence>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The newest term that has begun.
    fn term(&self) -> Answer<'_, Term>;

    /// Raises the epoch, so that a translator whose fences start low again can go on. Refused if the term is no longer
    /// `from`. All writers must claim again.
    fn adopt(&self, from: Term) -> Answer<'_, Term>;
}

pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A reader's place in the store.
pub trait Watch: Send {
    /// The next change. A fleet's records come in order, never one older than the last; a slow reader skips some and
    /// still gets the newest. While the store is away this waits. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Notice>;

    /// The newest records that were told of fleets which the store has lost since, and of those whose newest record in the
    /// store was refused because it knows less of what operators ordered.
    fn remembered(&self) -> Vec<Arc<Record>> {
        Vec::new()
    }
}

#[derive(Clone, Debug)]
pub enum Notice {
    Fleet(Arc<Record>),
    /// All fleets that the store held when the watch began have been told.
    Synced,
}

/// What the store says of a fleet at one head.
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

/// What a writer holds for one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
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

/// What a publication took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published {
    pub objects: usize,
    pub bytes: usize,
}

/// A fleet to take away.
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

/// What is in the store, newer or older than what the writer wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    pub term: Term,
    pub heads: BTreeMap<FleetName, Head>,
    pub orders: BTreeMap<FleetName, PinOrder>,
}

/// What the garbage collection did.
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

    /// Whether this says all there is of the fleet at its head.
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
            has_unknown_types: false,
        }
    }

    /// Whether this is a step in the history: endpoints and proxies alone are not, because nobody goes back to those. What a
    /// fleet is held at is one.
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
