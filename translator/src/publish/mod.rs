//! The one writer of the store. [`PublishState`] decides which calls to make; this module makes them.

mod events;
mod fleet;
mod inheritance;
mod outage;
mod oversized;
mod pin;
mod publish_state;
mod quarantine;
mod step;
mod survey;

pub use events::PublishEvent;
pub(crate) use fleet::StoredHead;
pub use oversized::TooLarge;
pub use quarantine::Decision;

use crate::feedback::Feedback;
use crate::leave_out::Versions;
use crate::metrics::TranslatorMetrics;
use crate::report::count;
use crate::standby::Remembered;
use heliograph_shared::backoff::Backoff;
use heliograph_shared::failure_log::OutageLog;
use heliograph_snapshot::{Change, FleetName, Head, Resource, Section};
use heliograph_store::{ClaimedTerm, Inspection, Loaded, Reader, StoreError, Writer};
use publish_state::{Found, NextAction, PublishState, Reply, Survey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use step::Step;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

/// For how many fleets the store is asked something at a time.
const AT_ONCE: usize = 16;

/// The shortest time between two surveys of what the store holds; the longest is twice that.
const SURVEY_INTERVAL: Duration = Duration::from_secs(1);

/// How soon to survey when a write was refused.
const SURVEY_DELAY_AFTER_REFUSAL: Duration = Duration::from_millis(50);

/// Between two tries of what fails.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

/// How often fleets that do not change are cleaned.
const CLEAN_INTERVAL: Duration = Duration::from_secs(30);

/// How long a fleet that was damaged is left alone, once it has been published again: where it cannot be repaired, because a
/// replica fails on something else, it is not written over and over.
const REPAIR_INTERVAL: Duration = Duration::from_secs(30);

/// Has the wanted content and the content of the store, for one term, and makes the store equal to the wanted content.
///
/// Changes are accepted at any time, without waiting. The caller of [`Publisher::events`] drives the work.
pub struct Publisher {
    writer: Arc<dyn Writer>,
    reader: Arc<dyn Reader>,
    state: PublishState,
    metrics: TranslatorMetrics,
    /// What was asked for, and the pauses before it is asked again.
    jobs: JoinSet<Done>,
    asking: usize,
    /// The fleet that is cleaned while there is nothing else to do for it.
    cleaning: Option<FleetName>,
    surveying: bool,
    survey_at: Instant,
    /// How often the survey has failed.
    attempts: u32,
    clean_at: Instant,
    /// What the store does not answer to: a fleet, or a survey.
    unanswered: BTreeSet<Option<FleetName>>,
    /// That the connection to the store is lost is logged by the store itself.
    outage: OutageLog,
    /// What it answers to with something else than is asked, so that each is one line.
    broken: BTreeSet<Option<FleetName>>,
    /// The fleets that were not cleaned the last time, for the same reason.
    uncleaned: BTreeSet<FleetName>,
    /// When fleets that were damaged were last published again, for as long as that matters.
    repaired: BTreeMap<FleetName, Instant>,
}

/// Why a term ended.
#[derive(Debug, thiserror::Error)]
pub enum TermError {
    /// A newer term has begun, and the store says what to do.
    #[error(transparent)]
    Fenced(#[from] StoreError),
    #[error("translation failed: {0}")]
    Died(#[from] JoinError),
    #[error("the writer of the store failed: {0}")]
    WriterDied(JoinError),
}

enum Done {
    Step(FleetName, Box<Step>, Result<Reply, StoreError>),
    Claim(Result<ClaimedTerm, StoreError>),
    Inspect(Result<Inspection, StoreError>),
    Rested(FleetName),
}

impl Publisher {
    /// `fence` is the token of whatever elected this writer; without an election there is none. The store is claimed
    /// as soon as it can be.
    pub fn new(
        writer: Arc<dyn Writer>,
        reader: Arc<dyn Reader>,
        fence: Option<u128>,
        metrics: TranslatorMetrics,
    ) -> Self {
        let now = Instant::now();
        Self {
            writer,
            reader,
            state: PublishState::new(fence),
            metrics,
            jobs: JoinSet::new(),
            asking: 0,
            cleaning: None,
            surveying: false,
            survey_at: now,
            attempts: 0,
            clean_at: now + CLEAN_INTERVAL,
            unanswered: BTreeSet::new(),
            outage: OutageLog::default(),
            broken: BTreeSet::new(),
            uncleaned: BTreeSet::new(),
            repaired: BTreeMap::new(),
        }
    }

    /// A fleet is to change. For a fleet that is new in this term, `changes` are all its resources. `objects` is how
    /// many objects brought that about, for the history.
    pub fn change(&mut self, fleet: &FleetName, changes: Vec<Change>, objects: usize) {
        let changes = changes.into_iter().map(|change| addressed(&*self.writer, change)).collect();
        self.state.want(fleet, changes, objects);
        self.metrics.oversized(self.state.oversized());
    }

    /// A fleet is to go.
    pub fn retire(&mut self, fleet: &FleetName) {
        self.state.unwant(fleet);
        self.metrics.oversized(self.state.oversized());
    }

    /// All fleets are known: those of earlier terms that are not wanted, and are not preserved, are retired.
    pub fn complete(&mut self) {
        self.state.complete();
    }

    /// Preserves these fleets while the translation does not have them. Returns whether they are others than before:
    /// then [`Publisher::complete`] is to be called again.
    pub(crate) fn preserve(&mut self, preserved: BTreeSet<FleetName>) -> bool {
        self.state.preserve(preserved)
    }

    /// Publishes all of these fleets again, because replicas cannot use what the store holds of them at these heads.
    pub fn repair(&mut self, damaged: &BTreeMap<FleetName, Head>) {
        let now = Instant::now();
        self.repaired.retain(|_, at| now.duration_since(*at) < REPAIR_INTERVAL);
        let before = self.repaired.len();
        for (fleet, head) in damaged {
            if !self.repaired.contains_key(fleet) && self.state.damaged(fleet, *head) {
                self.repaired.insert(fleet.clone(), now);
                tracing::debug!(%fleet, "damaged");
            }
        }
        let repaired = self.repaired.len() - before;
        self.metrics.repairs(repaired);
        if repaired > 0 {
            tracing::warn!(
                "found damage in the store: {}; publishing again",
                count(repaired, "fleet")
            );
        }
    }

    /// Records that distributors, or this program as a standby, read of fleets that the store has lost since: deletions
    /// to write again, and orders of operators to obey.
    pub(crate) fn remember(&mut self, records: Vec<Remembered>) {
        let fleets = self.state.remembers(records);
        self.log_remembered(fleets);
    }

    fn log_remembered(&self, fleets: usize) {
        self.metrics.repairs(fleets);
        if fleets > 0 {
            let fleets = count(fleets, "fleet");
            tracing::warn!(
                "the store lost records of {fleets}: a deletion, or an order to pin or release it; writing them again"
            );
        }
    }

    /// Receives the answers of proxies: a resource that too many reject goes into quarantine.
    pub(crate) fn receive(&mut self, feedback: &Feedback) {
        self.state.receive(feedback);
    }

    /// The parts that an earlier term left out of these fleets are left out of their wanted content now.
    pub(crate) fn inherited(&mut self, fleets: impl IntoIterator<Item = FleetName>) {
        self.state.inherited(fleets);
    }

    /// The published versions of a fleet's resources, and the accepted ones.
    pub(crate) fn versions<'a>(&'a self, fleet: &FleetName) -> Option<impl Versions + use<'a>> {
        self.state.versions(fleet)
    }

    /// Where an operator holds it, nothing follows from what proxies say.
    pub(crate) fn is_pinned(&self, fleet: &FleetName) -> bool {
        self.state.is_pinned(fleet)
    }

    /// The number of the last change of this fleet.
    pub(crate) fn revision(&self, fleet: &FleetName) -> u64 {
        self.state.revision(fleet)
    }

    /// Where a fleet stands in the store, and which changes that holds.
    pub(crate) fn stored_head(&self, fleet: &FleetName) -> Option<StoredHead> {
        self.state.stored_head(fleet)
    }

    /// How many fleets there are to be.
    pub fn fleets(&self) -> usize {
        self.state.wanted()
    }

    /// How many fleets are not yet in the store as they are to be.
    pub fn pending(&self) -> usize {
        self.state.pending()
    }

    /// Whether every fleet has been published, or found to be what it should be, at least once.
    pub fn is_out(&self) -> bool {
        self.state.is_out()
    }

    /// Works until there are events to report. An error ends the term. Dropping the future loses nothing.
    pub async fn events(&mut self) -> Result<Vec<PublishEvent>, TermError> {
        loop {
            self.start_steps();
            let events = self.state.take_events();
            if !events.is_empty() {
                return Ok(events);
            }
            tokio::select! {
                () = sleep_until(self.survey_at), if !self.surveying => self.survey(),
                Some(done) = self.jobs.join_next() => {
                    self.handle(done.map_err(TermError::WriterDied)?)?;
                }
            }
        }
    }

    /// Starts all steps that are due.
    fn start_steps(&mut self) {
        while self.asking < AT_ONCE
            && let Some((fleet, step)) = self.state.next(SystemTime::now())
        {
            self.asking += 1;
            self.perform(fleet, step);
        }
        // Whatever was wrong with a fleet for which nothing is to be done any more, it is over.
        for fleet in self.state.take_settled() {
            self.record_success(Some(&fleet));
        }
        if self.cleaning.is_none()
            && let Some((fleet, step)) = self.state.next_to_clean()
        {
            self.cleaning = Some(fleet.clone());
            self.perform(fleet, step);
        }
        self.metrics.standing(self.state.pending(), self.state.has_claim());
    }

    fn perform(&mut self, fleet: FleetName, step: Step) {
        self.jobs.spawn(perform(self.writer.clone(), self.reader.clone(), fleet, step));
    }

    fn survey(&mut self) {
        self.surveying = true;
        let writer = self.writer.clone();
        match self.state.survey() {
            Survey::Claim(fence) => {
                self.jobs.spawn(async move { Done::Claim(writer.claim(fence).await) })
            }
            Survey::Inspect(fleets) => {
                self.jobs.spawn(async move { Done::Inspect(writer.inspect(fleets).await) })
            }
        };
    }

    fn handle(&mut self, done: Done) -> Result<(), TermError> {
        match done {
            Done::Rested(fleet) => self.state.rested(&fleet),
            Done::Step(fleet, step, outcome) => self.handle_step(fleet, *step, outcome)?,
            Done::Claim(Ok(claim)) => {
                let found = self.state.claimed(claim)?;
                self.surveyed(found);
            }
            Done::Inspect(Ok(inspection)) => {
                let found = self.state.inspected(inspection)?;
                self.surveyed(found);
            }
            Done::Claim(Err(error)) | Done::Inspect(Err(error)) => self.survey_failed(error)?,
        }
        Ok(())
    }

    fn handle_step(
        &mut self,
        fleet: FleetName,
        step: Step,
        outcome: Result<Reply, StoreError>,
    ) -> Result<(), TermError> {
        if self.cleaning.take_if(|cleaned| *cleaned == fleet).is_none() {
            self.asking -= 1;
        }
        match (&step, &outcome) {
            (Step::Clean(_), outcome) => self.record_cleaned(&fleet, outcome.as_ref().err()),
            (_, Ok(_)) => self.record_success(Some(&fleet)),
            (_, Err(error)) => self.record_failure(Some(&fleet), error),
        }
        if let Err(StoreError::Full(_)) = &outcome {
            // Any fleet may have what fills it, and one that is cleaned now deletes all that nothing leads to.
            self.state.clean_all(true);
        }
        match self.state.done(&fleet, step, outcome)? {
            NextAction::GoOn => {}
            NextAction::Survey => {
                self.survey_at = self.survey_at.min(Instant::now() + SURVEY_DELAY_AFTER_REFUSAL);
            }
            NextAction::Rest(attempts) => {
                let pause = BACKOFF.jittered(attempts, fastrand::f64());
                self.jobs.spawn(async move {
                    sleep(pause).await;
                    Done::Rested(fleet)
                });
            }
        }
        Ok(())
    }

    fn surveyed(&mut self, found: Found) {
        self.record_success(None);
        self.surveying = false;
        self.attempts = 0;
        let now = Instant::now();
        // A store that lost its term is claimed again at once.
        let pause = if self.state.has_claim() { SURVEY_INTERVAL } else { Duration::ZERO };
        self.survey_at = now + pause.mul_f64(1.0 + fastrand::f64());
        if now >= self.clean_at {
            self.clean_at = now + CLEAN_INTERVAL;
            self.state.clean_all(false);
            self.uncleaned.retain(|fleet| self.state.is_wanted(fleet));
        }
        self.metrics.pinned(self.state.pinned());
        let Found { lost, unknown, remembered } = found;
        self.log_remembered(remembered);
        self.metrics.repairs(lost + unknown);
        if lost > 0 {
            tracing::warn!("the store lost {}; publishing again", count(lost, "fleet"));
        }
        if unknown > 0 {
            let fleets = count(unknown, "fleet");
            tracing::warn!("the store has {fleets} that were not written in this term; retiring");
        }
    }

    fn survey_failed(&mut self, error: StoreError) -> Result<(), TermError> {
        if let StoreError::Fenced { .. } = error {
            return Err(error.into());
        }
        self.record_failure(None, &error);
        self.surveying = false;
        self.attempts = self.attempts.saturating_add(1);
        self.survey_at = Instant::now() + BACKOFF.jittered(self.attempts, fastrand::f64());
        Ok(())
    }
}

async fn perform(
    writer: Arc<dyn Writer>,
    reader: Arc<dyn Reader>,
    fleet: FleetName,
    step: Step,
) -> Done {
    let outcome = match step.clone() {
        Step::LoadHeld { record, known } => {
            reader.load(record, Some(known)).await.map(Reply::Loaded)
        }
        Step::LoadPinned { record, known } => {
            let loaded = reader.load(record, Some(known)).await.and_then(whole);
            loaded.map(Reply::Loaded).map_err(unpinnable)
        }
        Step::Publish(publication) => writer.publish(publication).await.map(|_| Reply::Done),
        Step::Retire(retirement) => writer.retire(retirement).await.map(|()| Reply::Done),
        Step::RestoreOrder(order) => {
            writer.restore_order(fleet.clone(), order).await.map(|()| Reply::Done)
        }
        Step::Clean(newest) => writer.clean(newest).await.map(|_| Reply::Done),
    };
    Done::Step(fleet, Box::new(step), outcome)
}

/// A snapshot of which parts are missing is not served.
fn whole(loaded: Loaded) -> Result<Loaded, StoreError> {
    let Some(secret) = loaded.unopened.first() else { return Ok(loaded) };
    Err(StoreError::Damaged {
        fleet: loaded.snapshot.fleet.clone(),
        reason: format!(
            "{secret} of the pinned snapshot is sealed with a key that this translator lacks: add the key"
        ),
    })
}

/// The pinned snapshot cannot be loaded. Nothing is published in its place.
fn unpinnable(error: StoreError) -> StoreError {
    match error {
        StoreError::Damaged { fleet, reason } => {
            let reason = format!(
                "what an operator holds it at cannot be loaded: {reason}. Proxies keep what they have; roll it back to a \
                 head that is listed, or `helio snapshot release {fleet}`"
            );
            StoreError::Damaged { fleet, reason }
        }
        other => other,
    }
}

/// Replaces the version of a sealed resource by the store's keyed hash, so that the version reveals nothing of the
/// content.
fn addressed(writer: &dyn Writer, change: Change) -> Change {
    let moved = |section: Section, resource: Arc<Resource>| {
        if !section.seals(&resource) {
            return resource;
        }
        let Resource { name, body, .. } = &*resource;
        let address = writer.address_of_sealed(section, name, body);
        Arc::new(Resource::at(address, name.clone(), body.clone()).confidential(true))
    };
    match change {
        Change::Set(kind, resource) => Change::Set(kind, moved(kind.into(), resource)),
        Change::SetInternal(internal, resource) => {
            Change::SetInternal(internal, moved(internal.into(), resource))
        }
        gone @ (Change::Remove(..) | Change::RemoveInternal(..)) => gone,
    }
}

#[cfg(test)]
mod tests;
