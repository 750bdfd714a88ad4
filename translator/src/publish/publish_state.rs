//! The publish state of all fleets: decides which calls to make to the store, and reads their results, without IO.

mod isolation;
mod retention;

use super::events::PublishEvent;
use super::fleet::{Activity, Fleet, StoredHead, Wanted};
use super::step::Step;
pub(super) use super::survey::{Found, Survey};
use crate::standby::Remembered;
use heliograph_snapshot::{Change, FleetName, Head};
use heliograph_store::{ClaimedTerm, Inspection, Loaded, PinOrder, Pinned, StoreError, Term};
use retention::Retention;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::SystemTime;

/// The wanted content of the store, and its content as far as the writer knows.
#[derive(Debug, Default)]
pub(super) struct PublishState {
    /// The token of whatever elected this writer; later that of the claim.
    fence: Option<u128>,
    /// What the writer writes with. Never less than what it once wrote with: readers do not go back.
    term: Term,
    /// What the store said to the last claim, unless it has lost it since.
    claim: Option<Term>,
    /// Whether the store has ever been claimed.
    begun: bool,
    /// Whether all fleets that there are have been spoken of.
    complete: bool,
    /// The fleets that are not retired although the translation does not have them.
    preserved: BTreeSet<FleetName>,
    fleets: BTreeMap<FleetName, Fleet>,
    /// The fleets that may have a step to take.
    due: BTreeSet<FleetName>,
    /// The fleets that are not, as far as is known, what they are to be.
    pending: BTreeSet<FleetName>,
    /// The fleets that are to be cleaned and perhaps can be now.
    uncleaned: BTreeSet<FleetName>,
    /// The pinned fleets, as last reported.
    pins: BTreeMap<FleetName, Pinned>,
    /// The fleets that were left alone since the last survey began: what it says of others may be older than a write.
    quiet: BTreeSet<FleetName>,
    /// How many resources of all fleets are too large for the store.
    oversized: usize,
    retention: Retention,
    /// What others remember, until the store is claimed and it is known whether that was lost.
    remembered: Vec<Remembered>,
    /// The fleet that had the last step, so that all have their turn.
    last: Option<FleetName>,
    events: Vec<PublishEvent>,
    /// The fleets that have become what they are to be since this was asked for.
    settled: Vec<FleetName>,
}

/// The store's answer to a step.
#[derive(Debug)]
pub(super) enum Reply {
    Done,
    Loaded(Loaded),
}

/// The next action after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    GoOn,
    /// The fleet is left alone for a while: the step failed for this many times.
    Rest(u32),
    /// The store must be inspected.
    Survey,
}

/// Why fleets go of which the objects do not speak.
const FORGOTTEN: &str = "its Gateway was deleted while no translator ran";

impl PublishState {
    /// `fence` is the token of whatever elected this writer.
    pub(super) fn new(fence: Option<u128>) -> Self {
        Self { fence, ..Self::default() }
    }

    /// A fleet changed, because so many objects did.
    pub(super) fn want(&mut self, fleet: &FleetName, changes: Vec<Change>, objects: usize) {
        self.change(fleet, |it| it.change(changes, objects));
    }

    /// A fleet is no more.
    pub(super) fn unwant(&mut self, fleet: &FleetName) {
        self.change(fleet, Fleet::retire);
    }

    /// Preserves these fleets while the translation does not have them. Returns whether they are others than before.
    pub(super) fn preserve(&mut self, preserved: BTreeSet<FleetName>) -> bool {
        std::mem::replace(&mut self.preserved, preserved) != self.preserved
    }

    /// All fleets are known: those of earlier terms that are not wanted, and are not preserved, are retired.
    pub(super) fn complete(&mut self) {
        self.complete = true;
        for (name, fleet) in &mut self.fleets {
            if matches!(fleet.wanted, Wanted::Unknown) && !self.preserved.contains(name) {
                fleet.wanted = Wanted::Gone(FORGOTTEN);
                self.due.insert(name.clone());
                self.pending.insert(name.clone());
            }
        }
    }

    /// The next step of a fleet that has one. It is worked on from now on.
    pub(super) fn next(&mut self, now: SystemTime) -> Option<(FleetName, Step)> {
        self.claim?;
        while let Some(name) = self.take_due() {
            let Some(fleet) = self.fleets.get_mut(&name) else { continue };
            if fleet.activity != Activity::Idle {
                continue;
            }
            if fleet.is_long_uncleaned()
                && let Some(clean) = fleet.clean()
            {
                self.begin(&name);
                return Some((name, clean));
            }
            let before = fleet.stored_head();
            let step = fleet.step(self.term, now);
            let oversized = fleet.take_oversized().into_iter();
            self.events.extend(
                oversized.map(|resource| PublishEvent::TooLarge { fleet: name.clone(), resource }),
            );
            let decisions = fleet.take_decisions().into_iter();
            self.events.extend(
                decisions.map(|decision| PublishEvent::Decided { fleet: name.clone(), decision }),
            );
            let left_out = fleet.take_inherited();
            if !left_out.is_empty() {
                self.events.push(PublishEvent::Inherited { fleet: name.clone(), left_out });
            }
            if fleet.stored_head() != before {
                self.report_stored(&name, false);
            }
            self.bound_versions(&name);
            let Some(step) = step else {
                self.settled(&name);
                continue;
            };
            self.pending.insert(name.clone());
            self.begin(&name);
            self.last = Some(name.clone());
            return Some((name, step));
        }
        None
    }

    /// The next fleet to be cleaned. It is worked on from now on.
    pub(super) fn next_to_clean(&mut self) -> Option<(FleetName, Step)> {
        self.claim?;
        while let Some(name) = self.uncleaned.pop_first() {
            let Some(fleet) = self.fleets.get_mut(&name) else { continue };
            // One that is worked on has its turn when it is settled.
            if fleet.activity == Activity::Idle
                && let Some(clean) = fleet.clean()
            {
                self.begin(&name);
                return Some((name, clean));
            }
        }
        None
    }

    /// It is time to look after all fleets; if it is `urgent`, before anything else is done for them.
    pub(super) fn clean_all(&mut self, urgent: bool) {
        for (name, fleet) in &mut self.fleets {
            if fleet.cleaning_round(urgent) {
                self.uncleaned.insert(name.clone());
            }
        }
    }

    /// Readers cannot use what the store holds of a fleet at this head. Returns whether it is published again.
    pub(super) fn damaged(&mut self, name: &FleetName, head: Head) -> bool {
        let damaged = self.fleets.get_mut(name).is_some_and(|fleet| fleet.damaged(head));
        if damaged {
            self.mark_due(name);
        }
        damaged
    }

    /// Records of publications before this term, which replicas remember and the store may have lost. Returns for how
    /// many fleets they are new: readers have fleets that are not wanted, or orders of an operator.
    pub(super) fn remembers(&mut self, records: impl IntoIterator<Item = Remembered>) -> usize {
        if !self.begun {
            // The last that was said of a fleet holds.
            self.remembered.extend(records);
            return 0;
        }
        let mut changed = 0;
        for (record, snapshot) in records {
            // Readers refuse what this writer says of it, too: a new epoch must begin, as the store says to the claim.
            if !record.is_live() || Term::from(record.head) > self.term {
                continue;
            }
            let name = &record.fleet;
            if self.entry(name).remembers(&record, snapshot.as_ref()) {
                changed += 1;
                self.mark_due(name);
            }
        }
        changed
    }

    /// Begins an inspection of the store. Its answer is compared with the fleets that are not written meanwhile.
    pub(super) fn survey(&mut self) -> Survey {
        let quiet = self.fleets.iter().filter(|(_, fleet)| fleet.is_quiet());
        self.quiet = quiet.map(|(name, _)| name.clone()).collect();
        match self.claim {
            Some(_) => Survey::Inspect(self.fleets.keys().cloned().collect()),
            None => Survey::Claim(self.fence),
        }
    }

    /// The term has begun, or begun again in a store that had lost it.
    pub(super) fn claimed(&mut self, claim: ClaimedTerm) -> Result<Found, StoreError> {
        let ClaimedTerm { term, records, orders } = claim;
        self.fence = Some(term.fence);
        self.claim = Some(term);
        self.term = self.term.max(term);
        self.events.push(PublishEvent::Claimed { term, fleets: records.len() });
        if !std::mem::replace(&mut self.begun, true) {
            for (name, record) in records {
                self.entry(&name).begins_at(record);
                self.mark_due(&name);
            }
            let remembered = std::mem::take(&mut self.remembered);
            let remembered = self.remembers(remembered);
            self.take_orders(&orders);
            return Ok(Found { remembered, ..Found::default() });
        }
        let heads = records.into_iter().map(|(name, record)| (name, record.head)).collect();
        let found = self.compare(&heads)?;
        self.take_orders(&orders);
        Ok(found)
    }

    pub(super) fn inspected(&mut self, inspection: Inspection) -> Result<Found, StoreError> {
        let Inspection { term, heads, orders } = inspection;
        if term > self.term {
            return Err(StoreError::Fenced { ours: self.term, theirs: term });
        }
        if self.claim.is_some_and(|claim| term < claim) {
            // The store must know again which terms to refuse, before anything is written.
            self.claim = None;
            return Ok(Found::default());
        }
        let found = self.compare(&heads)?;
        self.take_orders(&orders);
        Ok(found)
    }

    /// Takes over what came of a step. An error ends the term.
    pub(super) fn done(
        &mut self,
        name: &FleetName,
        step: Step,
        outcome: Result<Reply, StoreError>,
    ) -> Result<NextAction, StoreError> {
        let Some(fleet) = self.fleets.get_mut(name) else { return Ok(NextAction::GoOn) };
        let next_action = match outcome {
            Ok(reply) => {
                fleet.attempts = 0;
                self.succeeded(name, step, reply);
                NextAction::GoOn
            }
            Err(error @ StoreError::Fenced { .. }) => return Err(error),
            Err(error) => after_failure(fleet, &step, &error),
        };
        self.end(name, next_action);
        Ok(next_action)
    }

    /// A fleet has been left alone for long enough.
    pub(super) fn rested(&mut self, name: &FleetName) {
        if let Some(fleet) = self.fleets.get_mut(name) {
            fleet.activity = Activity::Idle;
        }
        self.mark_due(name);
    }

    pub(super) fn take_events(&mut self) -> Vec<PublishEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn take_settled(&mut self) -> Vec<FleetName> {
        std::mem::take(&mut self.settled)
    }

    pub(super) fn has_claim(&self) -> bool {
        self.claim.is_some()
    }

    /// Whether every fleet has been published, or found to be what it should be, at least once.
    pub(super) fn is_out(&self) -> bool {
        let awaited = |fleet: &Fleet| {
            matches!(fleet.wanted, Wanted::Content(_)) && fleet.stored_head().is_none()
        };
        self.begun && self.complete && !self.fleets.values().any(awaited)
    }

    pub(super) fn stored_head(&self, fleet: &FleetName) -> Option<StoredHead> {
        self.fleets.get(fleet).and_then(Fleet::stored_head)
    }

    pub(super) fn revision(&self, fleet: &FleetName) -> u64 {
        self.fleets.get(fleet).map_or(0, Fleet::revision)
    }

    /// How many fleets there are to be.
    pub(super) fn wanted(&self) -> usize {
        let wanted = self.fleets.values().filter(|it| matches!(it.wanted, Wanted::Content(_)));
        wanted.count()
    }

    /// Whether there is to be such a fleet.
    pub(super) fn is_wanted(&self, name: &FleetName) -> bool {
        let fleet = self.fleets.get(name);
        fleet.is_some_and(|fleet| matches!(fleet.wanted, Wanted::Content(_)))
    }

    /// How many fleets are not what they are to be.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn pinned(&self) -> usize {
        self.pins.len()
    }

    fn succeeded(&mut self, name: &FleetName, step: Step, reply: Reply) {
        let Some(fleet) = self.fleets.get_mut(name) else { return };
        match (step, reply) {
            (Step::Publish(publication), _) => {
                let record = publication.record();
                fleet.written(record, Some(publication.snapshot));
                self.uncleaned.insert(name.clone());
                self.report_stored(name, true);
            }
            (Step::Retire(retirement), _) => {
                fleet.written(retirement.record(), None);
                let cause = retirement.cause;
                self.events.push(PublishEvent::Retired { fleet: name.clone(), cause });
            }
            (Step::LoadHeld { .. }, Reply::Loaded(loaded)) => fleet.held(loaded),
            (Step::LoadPinned { record, .. }, Reply::Loaded(loaded)) => {
                fleet.pinned_is(record.head, loaded.snapshot);
            }
            (Step::RestoreOrder(order), _) => fleet.order_restored(&order),
            (Step::Clean(_) | Step::LoadHeld { .. } | Step::LoadPinned { .. }, _) => {}
        }
        self.bound_versions(name);
    }

    /// Compares what the store holds with what was written.
    fn compare(&mut self, heads: &BTreeMap<FleetName, Head>) -> Result<Found, StoreError> {
        let mut found = Found::default();
        for (name, head) in heads {
            let theirs = Term::from(*head);
            if theirs > self.term {
                return Err(StoreError::Fenced { ours: self.term, theirs });
            }
            if !self.fleets.contains_key(name) {
                found.unknown += 1;
                let cause = "a translator of an earlier term had left it";
                let wanted = self.wanted_if_unknown(name, cause);
                self.fleets.insert(name.clone(), Fleet::unknown(name.clone(), wanted, *head));
                self.mark_due(name);
            }
        }
        for name in std::mem::take(&mut self.quiet) {
            let Some(fleet) = self.fleets.get_mut(&name) else { continue };
            let was_unsure = fleet.is_unsure();
            let same = fleet.found(heads.get(&name).copied());
            found.lost += usize::from(!same);
            if !same || was_unsure {
                self.mark_due(&name);
            }
        }
        Ok(found)
    }

    fn take_orders(&mut self, orders: &BTreeMap<FleetName, PinOrder>) {
        for (name, fleet) in &mut self.fleets {
            if fleet.ordered(orders.get(name)) {
                self.due.insert(name.clone());
            }
        }
        let pinned = self.fleets.iter();
        let pins = pinned.filter_map(|(name, it)| Some((name.clone(), it.pin_state().pinned?)));
        let pins: BTreeMap<_, _> = pins.collect();
        if pins != self.pins {
            self.pins = pins.clone();
            self.events.push(PublishEvent::Pins(pins));
        }
    }

    fn entry(&mut self, name: &FleetName) -> &mut Fleet {
        let wanted = self.wanted_if_unknown(name, FORGOTTEN);
        let fleet = self.fleets.entry(name.clone());
        fleet.or_insert_with(|| Fleet::new(name.clone(), wanted))
    }

    /// The wanted content of a fleet that the translation does not have.
    fn wanted_if_unknown(&self, name: &FleetName, cause: &'static str) -> Wanted {
        match self.complete && !self.preserved.contains(name) {
            true => Wanted::Gone(cause),
            false => Wanted::Unknown,
        }
    }

    fn take_due(&mut self) -> Option<FleetName> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.due.range::<FleetName, _>((after, Bound::Unbounded)).next().cloned();
        match next {
            Some(name) => self.due.take(&name),
            None => self.due.pop_first(),
        }
    }

    /// Marks a fleet that may have a step to take.
    fn mark_due(&mut self, name: &FleetName) {
        self.due.insert(name.clone());
        self.pending.insert(name.clone());
    }

    fn begin(&mut self, name: &FleetName) {
        self.quiet.remove(name);
        if let Some(fleet) = self.fleets.get_mut(name) {
            fleet.activity = Activity::Working;
        }
    }

    fn end(&mut self, name: &FleetName, next_action: NextAction) {
        if let Some(fleet) = self.fleets.get_mut(name) {
            fleet.activity = match next_action {
                NextAction::Rest(_) => Activity::Resting,
                NextAction::GoOn | NextAction::Survey => Activity::Idle,
            };
        }
        self.due.insert(name.clone());
    }

    /// A fleet has no step to take.
    fn settled(&mut self, name: &FleetName) {
        let Some(fleet) = self.fleets.get(name) else { return };
        if fleet.is_uncleaned() {
            self.uncleaned.insert(name.clone());
        }
        if !fleet.is_unsure()
            && let Some(name) = self.pending.take(name)
        {
            self.settled.push(name);
        }
    }

    fn report_stored(&mut self, name: &FleetName, written: bool) {
        if let Some(StoredHead { head, .. }) = self.stored_head(name) {
            self.events.push(PublishEvent::Stored { fleet: name.clone(), head, written });
        }
    }
}

fn after_failure(fleet: &mut Fleet, step: &Step, error: &StoreError) -> NextAction {
    match (step, error) {
        // What is not due is not done, so it may as well be asked for the next time.
        (Step::Clean(_), _) => return NextAction::GoOn,
        (
            Step::Publish(_) | Step::Retire(_),
            StoreError::Conflict { .. } | StoreError::NotNewer { .. },
        ) => {
            fleet.refused();
            return NextAction::Survey;
        }
        // Whether it was done is not known: the same is asked for again.
        (Step::Publish(_) | Step::Retire(_), error) if error.is_temporary() => {}
        (Step::Publish(_) | Step::Retire(_), _) => fleet.impossible(),
        (Step::LoadHeld { .. }, error) if error.is_temporary() => {}
        (Step::LoadHeld { .. }, _) => {
            fleet.forget_held();
            return NextAction::GoOn;
        }
        (Step::LoadPinned { .. } | Step::RestoreOrder(_), _) => {}
    }
    fleet.attempts = fleet.attempts.saturating_add(1);
    NextAction::Rest(fleet.attempts)
}
