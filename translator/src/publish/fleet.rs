//! One fleet of the writer: its wanted content, its content in the store as far as the writer knows, and the next step.

mod isolation;

use super::inheritance::Inheritance;
use super::oversized::Oversized;
use super::pin::{Hold, Pin, with_endpoints_of};
use super::quarantine::Quarantine;
use super::step::Step;
use crate::feedback::FleetFeedback;
use heliograph_snapshot::{Change, FleetName, Head, Snapshot};
use heliograph_store::{Loaded, PinOrder, PinState, Publication, Record, Retirement, Term};
use std::sync::Arc;
use std::time::SystemTime;

/// The wanted content of the fleet.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// Not known yet in this term.
    Unknown,
    /// It is no more, and why.
    Gone(&'static str),
    /// What was translated. Its head says nothing.
    Content(Arc<Snapshot>),
}

/// The head of a fleet in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredHead {
    pub(crate) head: Head,
    /// The last revision that this head has.
    pub(crate) revision: u64,
}

/// A fleet is worked on by one step at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Idle,
    Working,
    /// A step failed, and is to be tried again in a while.
    Resting,
}

#[derive(Debug)]
pub(super) struct Fleet {
    name: FleetName,
    pub(super) wanted: Wanted,
    pub(super) activity: Activity,
    /// How often the step at hand has failed.
    pub(super) attempts: u32,
    stored_state: StoredState,
    /// A write whose outcome is not known. Nothing newer goes before it is.
    in_flight: Option<Step>,
    /// A write was refused: the store must be inspected first.
    unsure: bool,
    /// The store did not hold what was written, in words.
    repair: Option<&'static str>,
    pin: Pin,
    quarantine: Quarantine,
    oversized: Oversized,
    inheritance: Inheritance,
    /// The greatest sequence that was ever seen or used. The same number never comes with other content.
    highest: u64,
    /// The newest head that a reader has received. Readers reject older ones, so the store must get a newer one.
    remembered: Option<Head>,
    /// How many objects changed since the last publication was made.
    objects: usize,
    /// The number of changes so far.
    revision: u64,
    /// The last revision that the write under way holds.
    writing: u64,
    /// The head of the fleet in the store, once this term has found or made it what it is to be.
    stored_head: Option<StoredHead>,
    /// For how many rounds it has waited to be cleaned, if it is to be.
    uncleaned: Option<u32>,
}

/// The store's state of the fleet, as far as the writer knows.
#[derive(Debug)]
enum StoredState {
    Nothing,
    /// Something of which no part is relied on.
    Unread(Head),
    /// `held` are its resources, once they are read or written.
    Known {
        record: Arc<Record>,
        held: Option<Arc<Snapshot>>,
    },
}

/// The cause of a publication without a change of objects.
const LOST: &str = "repair: the store had lost it";

/// How many rounds of cleaning a fleet may miss because something else is done for it.
const ROUNDS: u32 = 2;

impl Fleet {
    pub(super) fn new(name: FleetName, wanted: Wanted) -> Self {
        Self {
            name,
            wanted,
            activity: Activity::Idle,
            attempts: 0,
            stored_state: StoredState::Nothing,
            in_flight: None,
            unsure: false,
            repair: None,
            pin: Pin::default(),
            quarantine: Quarantine::default(),
            oversized: Oversized::default(),
            inheritance: Inheritance::default(),
            highest: 0,
            remembered: None,
            objects: 0,
            revision: 0,
            writing: 0,
            stored_head: None,
            uncleaned: None,
        }
    }

    /// A fleet of which only the head is known.
    pub(super) fn unknown(name: FleetName, wanted: Wanted, head: Head) -> Self {
        let stored_state = StoredState::Unread(head);
        Self { stored_state, highest: head.sequence, ..Self::new(name, wanted) }
    }

    /// Takes over what changed. A fleet that was not there begins empty.
    pub(super) fn change(&mut self, changes: Vec<Change>, objects: usize) {
        let before = match &self.wanted {
            Wanted::Content(before) => before.clone(),
            Wanted::Unknown | Wanted::Gone(_) => Arc::new(Snapshot::empty(self.name.clone())),
        };
        let changes = self.oversized.admit(changes);
        self.wanted = Wanted::Content(Arc::new(before.with(Head::default(), changes)));
        self.objects = self.objects.saturating_add(objects);
        self.revision += 1;
    }

    /// The next call to the store, if any.
    pub(super) fn step(&mut self, term: Term, now: SystemTime) -> Option<Step> {
        if let Some(write) = &self.in_flight {
            return Some(write.clone());
        }
        if self.unsure {
            return None;
        }
        match self.wanted.clone() {
            Wanted::Unknown => self.load_held(),
            Wanted::Gone(cause) => self.retirement(cause, term, now),
            Wanted::Content(live) => self.publication(live, term, now),
        }
    }

    /// Reads what an operator holds the fleet at as soon as the term begins: the store may lose it before all is translated.
    fn load_held(&mut self) -> Option<Step> {
        let hold = self.pin.hold().filter(|hold| hold.snapshot.is_none())?;
        match &self.stored_state {
            StoredState::Known { record, held } if hold.is_obeyed_by(record) => {
                hold.snapshot.clone_from(held);
                let known = Arc::new(Snapshot::empty(self.name.clone()));
                held.is_none().then(|| Step::LoadHeld { record: record.clone(), known })
            }
            _ => None,
        }
    }

    fn publication(&mut self, live: Arc<Snapshot>, term: Term, now: SystemTime) -> Option<Step> {
        let published = match &self.stored_state {
            StoredState::Known { held, .. } => held.clone(),
            StoredState::Nothing | StoredState::Unread(_) => None,
        };
        if let Some(held) = &published
            && self.inheritance.is_awaited(held, &live)
        {
            return None;
        }
        let live = match (&self.stored_state, &published) {
            (_, Some(held)) => self.oversized.filled(live, held),
            (StoredState::Known { record, held: None }, None)
                if record.is_live() && self.oversized.wants(&live) =>
            {
                return Some(Step::LoadHeld { record: record.clone(), known: live });
            }
            _ => live,
        };
        let content = match self.pin.hold() {
            None => live,
            Some(Hold { snapshot: Some(pinned), .. }) => {
                with_endpoints_of(pinned, &live, published.as_deref())
            }
            Some(hold) => match &self.stored_state {
                // What is published already holds the same, and need not be in the history any more.
                StoredState::Known { record, held } if hold.is_obeyed_by(record) => {
                    let Some(held) = held else {
                        return Some(Step::LoadHeld { record: record.clone(), known: live });
                    };
                    with_endpoints_of(hold.snapshot.insert(held.clone()), &live, Some(held))
                }
                _ => return self.pin.load(live),
            },
        };
        let content = self.quarantine.applied_to(content);
        // A fleet that is pinned holds nothing that came later.
        let revision = match self.is_pinned() {
            false => self.revision,
            true => self.stored_head.map_or(0, |stored_head| stored_head.revision),
        };
        let (expected, held) = match &mut self.stored_state {
            StoredState::Nothing => (None, None),
            StoredState::Unread(head) => (Some(*head), None),
            StoredState::Known { record, .. } if !record.is_live() => (Some(record.head), None),
            StoredState::Known { record, held } => {
                let is_same =
                    record.pin == self.pin.state(record.head) && record.roots() == content.roots();
                let is_same = is_same && record.is_understood();
                if is_same && held.is_none() {
                    self.quarantine.published(held.insert(Arc::new(content.at(record.head))));
                }
                if Some(record.head) < self.remembered {
                    self.repair = Some(LOST);
                } else if is_same {
                    self.stored_head = Some(StoredHead { head: record.head, revision });
                    self.objects = 0;
                    return self.pin.restored_at(record).map(Step::RestoreOrder);
                }
                let Some(held) = held else {
                    return Some(Step::LoadHeld { record: record.clone(), known: content });
                };
                (Some(record.head), Some(held.clone()))
            }
        };
        let cause = self.cause();
        self.objects = 0;
        let head = self.next_head(term);
        let pin = self.pin.state(head);
        let snapshot = Arc::new(content.at(head));
        let write = Step::Publish(Publication { snapshot, expected, held, time: now, cause, pin });
        self.writing = revision;
        self.in_flight = Some(write.clone());
        Some(write)
    }

    fn retirement(&mut self, cause: &str, term: Term, now: SystemTime) -> Option<Step> {
        self.stored_head = None;
        match &self.stored_state {
            // It was never in the store, or it has been retired.
            StoredState::Nothing if self.highest == 0 => return None,
            StoredState::Known { record, .. }
                if !record.is_live() && Some(record.head) >= self.remembered =>
            {
                return None;
            }
            // A tombstone that the store lost is written again: a reader that was away has yet to see it.
            StoredState::Nothing | StoredState::Unread(_) | StoredState::Known { .. } => {}
        }
        let write = Step::Retire(Retirement {
            fleet: self.name.clone(),
            expected: self.stored_state.head(),
            tombstone: self.next_head(term),
            time: now,
            cause: self.repair.unwrap_or(cause).into(),
            order: self.pin.number(),
        });
        self.in_flight = Some(write.clone());
        Some(write)
    }

    /// A write is done.
    pub(super) fn written(&mut self, record: Record, held: Option<Arc<Snapshot>>) {
        self.in_flight = None;
        self.repair = None;
        let revision = self.writing;
        self.stored_head = record.is_live().then_some(StoredHead { head: record.head, revision });
        self.uncleaned = record.is_live().then(|| self.uncleaned.unwrap_or_default());
        self.inheritance = Inheritance::settled();
        if let Some(held) = &held {
            self.quarantine.published(held);
        } else {
            self.pin.retired();
            self.quarantine = Quarantine::default();
        }
        self.stored_state = StoredState::Known { record: Arc::new(record), held };
    }

    /// A write was refused because the store holds something else.
    pub(super) fn refused(&mut self) {
        self.in_flight = None;
        self.unsure = true;
    }

    /// A write cannot be done as it is. The next one relies on nothing.
    pub(super) fn impossible(&mut self) {
        self.in_flight = None;
        self.forget_held();
    }

    /// The snapshot of an earlier term has been loaded.
    pub(super) fn held(&mut self, loaded: Loaded) {
        self.quarantine.inherit(&loaded.snapshot);
        match &mut self.stored_state {
            // What was left out must not be taken for what is there.
            _ if !loaded.unopened.is_empty() => self.forget_held(),
            StoredState::Known { record, held } if record.head == loaded.snapshot.head => {
                *held = Some(loaded.snapshot);
            }
            _ => {}
        }
    }

    /// Nothing that the store holds of the fleet is relied on any more.
    pub(super) fn forget_held(&mut self) {
        if let Some(head) = self.stored_state.head() {
            self.stored_state = StoredState::Unread(head);
        }
    }

    /// Readers cannot use what the store holds at this head. Returns whether it is published again, all of it: a write that
    /// is under way may repair it by itself, and a report of an earlier head is out of date.
    pub(super) fn damaged(&mut self, head: Head) -> bool {
        let is_published = matches!(&self.stored_state,
            StoredState::Known { record, .. } if record.is_live() && record.head == head);
        let damaged = is_published && self.is_quiet() && !self.unsure;
        if damaged {
            self.repair = Some("repair: the content of the store was damaged");
            self.forget_held();
        }
        damaged
    }

    /// The pinned snapshot has been loaded. Ignored if the fleet is pinned to another one by now.
    pub(super) fn pinned_is(&mut self, head: Head, snapshot: Arc<Snapshot>) {
        if let Some(hold) = self.pin.hold()
            && hold.at.head == head
        {
            hold.snapshot = Some(snapshot);
        }
    }

    /// Receives the answers of its proxies. Returns whether a step may follow.
    pub(super) fn receive(&mut self, feedback: Arc<FleetFeedback>) -> bool {
        self.quarantine.receive(feedback)
    }

    /// The order that the store lost is there again.
    pub(super) fn order_restored(&mut self, order: &PinOrder) {
        self.pin.restored(order);
    }

    /// The store's record at the beginning of the term.
    pub(super) fn begins_at(&mut self, record: Arc<Record>) {
        self.highest = self.highest.max(record.head.sequence);
        self.pin.begins_at(&record);
        self.stored_state = StoredState::Known { record, held: None };
    }

    /// A replica remembers a record that the store has lost. Returns whether it is new: because of an order that this
    /// writer does not know, or of a fleet that readers still have.
    pub(super) fn remembers(
        &mut self,
        record: &Arc<Record>,
        snapshot: Option<&Arc<Snapshot>>,
    ) -> bool {
        let newest = self.stored_state.head().max(self.remembered);
        let is_newer = newest < Some(record.head) && self.highest < record.head.sequence;
        self.highest = self.highest.max(record.head.sequence);
        self.remembered = self.remembered.max(Some(record.head));
        self.pin.remembers(record, snapshot) || is_newer
    }

    /// Compares what the store holds with what was written. Returns whether they are the same; otherwise nothing
    /// that was believed of the store is relied on.
    pub(super) fn found(&mut self, found: Option<Head>) -> bool {
        self.unsure = false;
        let expected = self.stored_state.head();
        if expected == found {
            return true;
        }
        self.repair =
            Some(if found < expected { LOST } else { "repair: the store had something else" });
        self.highest = self.highest.max(found.map_or(0, |head| head.sequence));
        self.stored_state = found.map_or(StoredState::Nothing, StoredState::Unread);
        false
    }

    /// The last order of an operator, as the store has it. Returns whether it is new.
    pub(super) fn ordered(&mut self, order: Option<&PinOrder>) -> bool {
        self.pin.ordered(order)
    }

    /// Where an operator holds it, and whether that is what is served.
    pub(super) fn pin_state(&self) -> PinState {
        self.pin.state(self.stored_state.head().unwrap_or_default())
    }

    /// Whether no write is under way that could explain a difference.
    pub(super) fn is_quiet(&self) -> bool {
        self.activity != Activity::Working && self.in_flight.is_none()
    }

    pub(super) fn is_unsure(&self) -> bool {
        self.unsure
    }

    pub(super) fn stored_head(&self) -> Option<StoredHead> {
        self.stored_head
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.pin.is_pinned()
    }

    /// A round of cleaning begins. Returns whether the fleet is one to be cleaned.
    pub(super) fn cleaning_round(&mut self, urgent: bool) -> bool {
        self.uncleaned = match self.uncleaned {
            Some(rounds) => Some(rounds.saturating_add(1)),
            None => self.newest().map(|_| 0),
        };
        if urgent {
            self.uncleaned = self.uncleaned.map(|rounds| rounds.max(ROUNDS));
        }
        self.is_uncleaned()
    }

    pub(super) fn is_uncleaned(&self) -> bool {
        self.uncleaned.is_some()
    }

    /// Whether it has waited for so long that other steps wait for it: otherwise a fleet that changes all the time is
    /// never cleaned.
    pub(super) fn is_long_uncleaned(&self) -> bool {
        self.uncleaned.is_some_and(|rounds| rounds >= ROUNDS)
    }

    /// The step of cleaning it, if it is to be cleaned and can be now.
    pub(super) fn clean(&mut self) -> Option<Step> {
        self.uncleaned?;
        let newest = self.newest()?.clone();
        self.uncleaned = None;
        Some(Step::Clean(newest))
    }

    /// The snapshot in the store, if no write is under way.
    fn newest(&self) -> Option<&Arc<Snapshot>> {
        match &self.stored_state {
            StoredState::Known { held, .. } if self.is_quiet() => held.as_ref(),
            _ => None,
        }
    }

    fn cause(&self) -> Arc<str> {
        if let Some(repair) = self.repair {
            return repair.into();
        }
        let before = match &self.stored_state {
            StoredState::Known { record, .. } => record.pin.clone(),
            StoredState::Nothing | StoredState::Unread(_) => PinState::default(),
        };
        match self.pin_state().pinned {
            Some(pinned) if before.number != self.pin.number() => {
                format!("pinned to {pinned}").into()
            }
            Some(_) if self.pin.is_lost() => "repair: the store had lost the pin".into(),
            None if before.pinned.is_some() => self.pin.released().into(),
            _ if self.stored_head.is_none() => "first translation".into(),
            _ if self.objects == 0 => "acknowledgements of proxies".into(),
            _ if self.objects == 1 => "1 object changed".into(),
            _ => format!("{} objects changed", self.objects).into(),
        }
    }

    fn next_head(&mut self, term: Term) -> Head {
        // Sequences go on across terms, so that (epoch, fence, sequence) never comes twice.
        self.highest = self.highest.saturating_add(1);
        Head { epoch: term.epoch, fence: term.fence, sequence: self.highest }
    }
}

impl StoredState {
    fn head(&self) -> Option<Head> {
        match self {
            Self::Nothing => None,
            Self::Unread(head) => Some(*head),
            Self::Known { record, .. } => Some(record.head),
        }
    }
}
