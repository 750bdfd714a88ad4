mod isolation;
mod log;
mod preserved;
mod source;

use crate::election::{Lead, Resign, lost, won};
use crate::event_debounce::EventDebounce;
use crate::feedback::{Blamed, Feedback, blamed_anew};
use crate::leave_out::Isolation;
use crate::metrics::TranslatorMetrics;
use crate::provider::Input;
use crate::provider::kubernetes::Refresh;
use crate::publish::{PublishEvent, Publisher, TermError, TooLarge};
use crate::report::{Report, count, in_words};
use crate::standby::{Remembered, Standby};
use heliograph_gateway::objects::{Kind, ObjectKey};
use heliograph_gateway::status::Status;
use heliograph_gateway::{Event, Limits, Outcome, World};
use heliograph_shared::admin::ReadinessToken;
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{Record, TranslatorStore};
use log::{log_decision, log_pins, log_problems};
use source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a new leader waits for all objects before it logs what is missing.
const WAITING: Duration = Duration::from_secs(10);

/// Owns the world, and publishes what follows from it for as long as it leads.
pub struct Translator {
    store: TranslatorStore,
    fence: Option<u128>,
    world: World,
    report: watch::Sender<Report>,
    damage: watch::Sender<BTreeMap<FleetName, Head>>,
    remembered: watch::Sender<Vec<Arc<Record>>>,
    feedback: watch::Sender<Option<Arc<Feedback>>>,
    metrics: TranslatorMetrics,
    /// The objects that changed since the last settling.
    changed: BTreeSet<ObjectKey>,
    /// The fleets that Gateways shared in this term, and do no more.
    unshared: BTreeSet<FleetName>,
    isolation: Isolation,
    /// The fleets for which what an earlier term left out is left out with the next settling.
    inheriting: Vec<FleetName>,
    /// How often the world was settled.
    settled: u64,
    /// When it was last decided what is left out.
    isolated: Option<Instant>,
    /// Done once every fleet is out, or once there is nothing to do but stand by.
    unready: Option<ReadinessToken>,
    /// Whether statuses of objects tell what is wrong with them, so that the log need not.
    has_statuses: bool,
}

/// Why a term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TermEnd {
    Stopped,
    /// Another translator leads, or soon will.
    Lost,
}

impl Translator {
    /// `fence` is the token of a term that was won elsewhere; without it the store finds one. `unready` is done once every
    /// fleet has been published, or found to be what it should be; or, of one that is elected, once it can stand by.
    pub fn new(
        store: TranslatorStore,
        fence: Option<u128>,
        metrics: TranslatorMetrics,
        unready: ReadinessToken,
    ) -> Self {
        Self {
            store,
            fence,
            world: World::new(),
            report: watch::Sender::new(Report::default()),
            damage: watch::Sender::default(),
            remembered: watch::Sender::default(),
            feedback: watch::Sender::default(),
            metrics,
            changed: BTreeSet::new(),
            unshared: BTreeSet::new(),
            isolation: Isolation::default(),
            inheriting: Vec::new(),
            settled: 0,
            isolated: None,
            unready: Some(unready),
            has_statuses: false,
        }
    }

    /// How much one object may ask of what it shares with others.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { world: World::with_limits(limits), ..self }
    }

    /// The latest report. It is empty while another translator leads.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Where to say which fleets replicas cannot load. It may be said again for as long as it is so.
    pub fn damage(&self) -> watch::Sender<BTreeMap<FleetName, Head>> {
        self.damage.clone()
    }

    /// Where to say what replicas read of fleets that the store has lost since.
    pub(crate) fn remembered(&self) -> watch::Sender<Vec<Arc<Record>>> {
        self.remembered.clone()
    }

    /// Where to put what proxies answered.
    pub(crate) fn feedback(&self) -> watch::Sender<Option<Arc<Feedback>>> {
        self.feedback.clone()
    }

    /// Leads from the start: claims the store, and translates events, until it is stopped or the term ends. A store that
    /// is unreachable delays only the writes to it.
    pub async fn run(
        mut self,
        inputs: mpsc::Receiver<Input>,
        stop: CancellationToken,
    ) -> Result<(), TermError> {
        let over = async {
            stop.cancelled().await;
            TermEnd::Stopped
        };
        let fence = self.fence;
        self.lead(&mut Source::new(inputs), fence, Vec::new(), over).await.map(drop)
    }

    /// Leads in each term that is won, and stands by in between, until it is stopped. The world is kept all the time; what
    /// follows from it is only there in a term.
    pub async fn run_elected(
        mut self,
        inputs: mpsc::Receiver<Input>,
        mut leadership: watch::Receiver<Option<Lead>>,
        refresh: Refresh,
        resign: Resign,
        stop: CancellationToken,
    ) -> Result<(), TermError> {
        self.has_statuses = true;
        let mut source = Source::new(inputs);
        loop {
            let mut standby = Standby::new(self.store.reader.clone());
            let lead = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                lead = self.stand_by(&mut source, &mut leadership, &refresh, &mut standby) => lead,
            };
            let remembered = standby.into_remembered();
            let over = async {
                tokio::select! {
                    () = stop.cancelled() => TermEnd::Stopped,
                    () = lost(&mut leadership, lead.fence) => TermEnd::Lost,
                }
            };
            match self.lead(&mut source, Some(lead.fence), remembered, over).await {
                Ok(TermEnd::Stopped) => return Ok(()),
                Ok(TermEnd::Lost) => {}
                Err(TermError::Fenced(error)) => {
                    tracing::error!("this translator gives up the lead: {error}");
                    resign.resign();
                    tokio::select! {
                        () = stop.cancelled() => return Ok(()),
                        () = lost(&mut leadership, lead.fence) => {}
                    }
                }
                Err(died) => return Err(died),
            }
            self.forget().await?;
        }
    }

    /// Applies events, until a term is won and every object of that moment is known: a watch may be behind, and
    /// publications must not go back.
    async fn stand_by(
        &mut self,
        source: &mut Source,
        leadership: &mut watch::Receiver<Option<Lead>>,
        refresh: &Refresh,
        standby: &mut Standby,
    ) -> Lead {
        let mut won_term: Option<(Lead, u64)> = None;
        let mut patience = None;
        loop {
            self.apply(std::mem::take(&mut source.events));
            // No task reads the changes meanwhile.
            self.changed.clear();
            if source.synced
                && let Some(guard) = self.unready.take()
            {
                guard.done();
            }
            if let Some((lead, asking)) = won_term
                && source.synced
                && source.fresh >= asking
            {
                return lead;
            }
            let standing = async {
                match won_term {
                    None => Some(won(leadership).await),
                    Some((lead, _)) => {
                        lost(leadership, lead.fence).await;
                        None
                    }
                }
            };
            tokio::select! {
                lead = standing => {
                    won_term = lead.map(|lead| (lead, refresh.ask()));
                    patience = lead.map(|_| Instant::now() + WAITING);
                }
                () = source.fill() => {}
                never = standby.read() => match never {},
                () = sleep_until(patience.unwrap_or_else(Instant::now)), if patience.is_some() => {
                    patience = None;
                    let awaited = refresh.awaited(won_term.map_or(0, |(_, asking)| asking));
                    tracing::warn!(
                        "leads, but publishes nothing yet, because not all objects of these kinds could be read since then: {}; /status has the cause",
                        awaited.join(", ")
                    );
                }
            }
        }
    }

    /// One term.
    async fn lead(
        &mut self,
        source: &mut Source,
        fence: Option<u128>,
        remembered: Vec<Remembered>,
        over: impl Future<Output = TermEnd>,
    ) -> Result<TermEnd, TermError> {
        let TranslatorStore { writer, reader, feedback: _ } = self.store.clone();
        let mut publisher = Publisher::new(writer, reader, fence, self.metrics.clone());
        publisher.remember(remembered);
        self.report.send_modify(|report| report.fence = fence);
        let (mut damage, mut lost) = (self.damage.subscribe(), self.remembered.subscribe());
        // What proxies answered in an earlier term is new to this one.
        let (mut feedback, mut known) = (self.feedback.subscribe(), None);
        feedback.mark_changed();
        lost.mark_changed();
        let (mut over, mut debounce, mut is_first) = (pin!(over), EventDebounce::default(), true);
        // Who stood by knows everything.
        let mut due = source.synced.then(Instant::now);
        self.changed.extend(self.world.objects().cloned());
        loop {
            let isolate_at = self.isolate_at();
            let settle_at = due.into_iter().chain(self.isolation.delay.due()).min();
            tokio::select! {
                biased;
                over = &mut over => return Ok(over),
                events = publisher.events() => {
                    self.handle_events(events?, &publisher);
                    if !self.inheriting.is_empty() {
                        due = Some(Instant::now());
                    }
                    continue;
                }
                Ok(()) = damage.changed() => {
                    let damaged = damage.borrow_and_update().clone();
                    publisher.repair(&damaged);
                    continue;
                }
                Ok(()) = lost.changed() => {
                    let records = lost.borrow_and_update().clone();
                    publisher.remember(records.into_iter().map(|record| (record, None)).collect());
                    continue;
                }
                Ok(()) = feedback.changed() => {
                    if self.receive(&mut known, &mut publisher) {
                        due = Some(Instant::now());
                    }
                    continue;
                }
                () = sleep_until(isolate_at.unwrap_or_else(Instant::now)), if isolate_at.is_some() => {
                    if self.isolate(&publisher) {
                        due = Some(Instant::now());
                    }
                    continue;
                }
                () = sleep_until(settle_at.unwrap_or_else(Instant::now)), if settle_at.is_some() => {}
                () = source.fill(), if source.has_room() => {
                    due = Some(debounce.due(Instant::now()));
                    continue;
                }
            }
            due = None;
            self.apply_admitted(std::mem::take(&mut source.events));
            if !source.synced {
                continue;
            }
            let outcome = {
                let mut settle = pin!(self.settle());
                tokio::select! {
                    biased;
                    over = &mut over => {
                        // Nothing is written from here on. The world comes back when it is settled.
                        drop(publisher);
                        if over == TermEnd::Lost {
                            settle.await?;
                        }
                        return Ok(over);
                    }
                    outcome = &mut settle => outcome?,
                }
            };
            debounce.flushed(Instant::now());
            self.log_outcome(&outcome, is_first);
            self.record_unshared(&outcome);
            let preserved = self.preserved(source);
            let retired = outcome.retired.clone();
            self.publish(outcome, &preserved, &mut publisher);
            self.isolated(&retired, &mut publisher);
            if publisher.preserve(preserved) || is_first {
                publisher.complete();
            }
            is_first = false;
            self.handle_events(vec![], &publisher);
        }
    }

    /// Drops all that follows from the objects: the next term may be far away, and begins with everything.
    async fn forget(&mut self) -> Result<(), TermError> {
        self.changed.clear();
        self.unshared.clear();
        self.forget_isolation();
        self.metrics.oversized(0);
        self.metrics.standing(0, false);
        self.metrics.fleets(0);
        self.report.send_replace(Report::default());
        let mut world = std::mem::take(&mut self.world);
        self.world = tokio::task::spawn_blocking(move || {
            world.forget_derived();
            world
        })
        .await?;
        Ok(())
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in events {
            self.metrics.event(&event);
            self.changed.insert(event.key());
            self.world.apply(event);
        }
    }

    /// Logs what people who edit objects want to know.
    fn log_outcome(&self, outcome: &Outcome, first: bool) {
        let changed = &self.changed;
        let objects = count(changed.len(), "object");
        if first {
            let of_kind =
                |wanted: fn(Kind) -> bool| changed.iter().filter(|key| wanted(key.kind)).count();
            let gateways = count(of_kind(|kind| kind == Kind::Gateway), "Gateway");
            let routes = count(of_kind(Kind::is_route), "route");
            tracing::info!("translated {objects}, among them {gateways} and {routes}");
        } else if self.has_statuses {
            // Most changes are those of endpoints.
            tracing::debug!("translated again: {objects} changed");
        } else if !changed.is_empty() {
            tracing::info!("translated again: {objects} changed");
        }
        if first && self.has_statuses {
            return log_problems(outcome);
        }
        let report = self.report.borrow();
        for (key, status) in &outcome.statuses {
            let Some(status) = status else { continue };
            let before = report.statuses.get(key).map(|before| before.problems(key));
            let before = before.unwrap_or_default();
            for problem in status.problems(key).iter().filter(|new| !before.contains(new)) {
                match status {
                    Status::Ignored(_) => tracing::info!("{}", in_words(problem)),
                    _ => tracing::warn!("{}", in_words(problem)),
                }
            }
        }
    }

    /// Computes where that does not hold up tasks that wait for IO.
    async fn settle(&mut self) -> Result<Outcome, TermError> {
        let mut world = std::mem::take(&mut self.world);
        let started = Instant::now();
        let (world, outcome) = tokio::task::spawn_blocking(move || {
            let outcome = world.settle();
            (world, outcome)
        })
        .await?;
        self.world = world;
        self.metrics.settled(started.elapsed(), &outcome.work);
        Ok(outcome)
    }

    /// Passes on the changes. A notification follows when they are in the store.
    fn publish(
        &mut self,
        mut outcome: Outcome,
        preserved: &BTreeSet<FleetName>,
        publisher: &mut Publisher,
    ) {
        let objects = std::mem::take(&mut self.changed).len();
        let blamed = match &*self.feedback.borrow() {
            Some(feedback) => blamed_anew(feedback, &self.world, &outcome),
            None => Blamed::new(),
        };
        for (fleet, changes) in std::mem::take(&mut outcome.changes) {
            publisher.change(&fleet, changes, objects);
        }
        for fleet in &outcome.retired {
            publisher.retire(fleet);
        }
        self.metrics.fleets(publisher.fleets());
        self.report.send_modify(|report| {
            report.record(outcome, publisher);
            report.preserve(preserved);
            report.record_blame(blamed);
        });
    }

    /// Records what is in the store.
    fn handle_events(&mut self, events: Vec<PublishEvent>, publisher: &Publisher) {
        for event in &events {
            match event {
                PublishEvent::Claimed { term, fleets } => {
                    tracing::info!(%term, fleets, "claimed the store");
                }
                PublishEvent::Stored { fleet, head, written } if *written => {
                    self.metrics.published();
                    tracing::debug!(%fleet, %head, "published");
                }
                PublishEvent::Stored { fleet, head, .. } => {
                    tracing::debug!(%fleet, %head, "unchanged")
                }
                PublishEvent::Inherited { fleet, left_out } => self.inherit(fleet, left_out),
                PublishEvent::Retired { fleet, cause } => {
                    tracing::info!(%fleet, "retired: {cause}")
                }
                PublishEvent::TooLarge { fleet, resource: TooLarge { kind, name, bytes } } => {
                    tracing::error!(
                        %fleet, %kind, name = &**name, bytes,
                        "a resource is too large for the store: proxies keep their previous version of it, and all other changes continue"
                    )
                }
                PublishEvent::Decided { fleet, decision } => log_decision(fleet, decision),
                PublishEvent::Pins(pins) => log_pins(&self.report.borrow().pins, pins),
            }
        }
        if !events.is_empty() {
            self.report.send_modify(|report| report.record_events(events, publisher));
        }
        if let Some(guard) = self.unready.take_if(|_| publisher.is_out()) {
            guard.done();
        }
    }
}
