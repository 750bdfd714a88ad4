//! Passes snapshots from the store to the streams.

mod budget;
mod registry;

pub(crate) use budget::Budget;
pub(crate) use registry::{FleetState, Fleets, Unserved};

use crate::acks::FleetAcks;
use crate::comparison::Comparison;
use crate::metrics::{LoadReason, Metrics};
use crate::view::{Classes, Views};
use heliograph_distributor_protocol::{Encodings, TransitionCache, TransitionCacheBudget};
use heliograph_shared::admin::ReadinessToken;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use heliograph_store::{Record, Subscription, Update};
use prometheus::IntCounter;
use registry::{FleetRegistry, FleetSlot, RequestedFleets};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::Instant;

/// The task that receives new snapshots. It alone changes what the others read.
#[derive(Debug)]
pub(crate) struct Feed {
    slots: watch::Sender<FleetRegistry>,
    damaged: watch::Sender<BTreeMap<FleetName, Head>>,
    remembered: watch::Sender<Vec<Arc<Record>>>,
    answers: Arc<Notify>,
    requested: Arc<RequestedFleets>,
    budget: Budget,
    /// The budget's times count from here.
    start: Instant,
    /// One bound on what is kept of the decisions of all fleets. Each has its own, so that no fleet pushes out what others decided.
    transition_budget: Arc<TransitionCacheBudget>,
    class_limit_exceeded: IntCounter,
}

/// The state that the streams of one fleet share while it is in memory.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) name: FleetName,
    pub(crate) transitions: Arc<TransitionCache>,
    pub(crate) encodings: Encodings,
    pub(crate) acks: FleetAcks,
    pub(crate) comparison: Comparison,
    pub(crate) classes: Arc<Classes>,
    /// The newest snapshot; `None` while the fleet is retired. Each stream listens to one of these channels, and they
    /// receive it one after the other: ten thousand streams that are woken together would all be in line before a client
    /// that connects, and before it again with each of its requests.
    waves: [watch::Sender<Option<Arc<Views>>>; WAVES],
    /// How many streams there were.
    streams: AtomicUsize,
}

/// Receives the newest snapshot of a fleet, for a stream.
pub(crate) type ViewsReceiver = watch::Receiver<Option<Arc<Views>>>;

/// Fleets that are in memory.
pub(crate) type FleetMap = Arc<BTreeMap<FleetName, Arc<Fleet>>>;

/// With ten thousand streams, a wave takes a few milliseconds.
const WAVES: usize = 64;
/// How often the fleets are counted, and unused ones are dropped.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Feed {
    /// `class_limit_exceeded` counts the clients for which a fleet has no class left. All fleets are kept in memory.
    pub(crate) fn new(class_limit_exceeded: IntCounter) -> (Self, Fleets) {
        let (slots, receiver) = watch::channel(FleetRegistry::default());
        let (damaged_sender, damaged) = watch::channel(BTreeMap::new());
        let (remembered_sender, remembered) = watch::channel(Vec::new());
        let (answers, requested) = (Arc::new(Notify::new()), Arc::new(RequestedFleets::default()));
        let feed = Self {
            slots,
            damaged: damaged_sender,
            remembered: remembered_sender,
            answers: answers.clone(),
            requested: requested.clone(),
            budget: Budget::boundless(),
            start: Instant::now(),
            transition_budget: Arc::default(),
            class_limit_exceeded,
        };
        (feed, Fleets { slots: receiver, damaged, remembered, answers, requested })
    }

    /// Keeps what fits.
    pub(crate) fn within(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// `synced` is done once all fleets are there that the store held at first, as far as they fit.
    pub(crate) async fn run(
        mut self,
        mut updates: Subscription,
        synced: ReadinessToken,
        metrics: Metrics,
    ) -> Infallible {
        let mut synced = Some(synced);
        let mut is_listed = false;
        let requested = self.requested.clone();
        // What cannot be loaded is no update, so it is looked for.
        let mut ticker = tokio::time::interval(CHECK_INTERVAL);
        loop {
            tokio::select! {
                update = updates.next() => {
                    match update {
                        Update::Known(record) => self.on_known_record(&record, &mut updates, &metrics),
                        Update::Listed => is_listed = true,
                        Update::Published(snapshot, time) => {
                            self.budget.set_size(&snapshot.fleet, snapshot.bytes() as u64);
                            self.publish(snapshot, time).await;
                        }
                        Update::Failed(fleet, error) => {
                            let slot = self.slots.borrow().get(&fleet).cloned();
                            slot.iter().for_each(|slot| slot.fail(&error));
                        }
                        Update::Retired(fleet, _) => {
                            self.budget.forget(&fleet);
                            self.retire(&fleet);
                        }
                        Update::Synced => synced.take().map_or((), ReadinessToken::done),
                    }
                    // A newer snapshot may heal what was rejected.
                    self.answers.notify_one();
                }
                names = requested.next() => {
                    names.iter().for_each(|name| self.load_for_clients(name, &mut updates, &metrics));
                }
                _ = ticker.tick() => {
                    self.age_transitions();
                    self.drop_unused(&mut updates, &metrics);
                    self.count(&updates, &metrics);
                    self.report_if_changed(&self.damaged, updates.damaged_fleets());
                    self.report_if_changed(&self.remembered, updates.remembered());
                }
            }
            // The smallest go first, so all must be known.
            if is_listed {
                self.load_ahead(&mut updates, &metrics);
            }
        }
    }

    /// A fleet that is not kept has a newer record.
    fn on_known_record(&mut self, record: &Record, updates: &mut Subscription, metrics: &Metrics) {
        let name = &record.fleet;
        self.budget.set_size(name, record.bytes);
        if let Some(last_use) = updates.last_use(name) {
            self.budget.prefer(name, last_use);
        }
        let slot = self.slots.borrow().get(name).cloned();
        match slot {
            Some(slot) => {
                // It may be left over from a fleet that was retired, with or without streams that wait for its return.
                let is_unused = slot.drop_unused();
                slot.update_record(record);
                if !is_unused {
                    self.load_for_clients(name, updates, metrics);
                }
            }
            None => self.add(name, FleetSlot::known(record)),
        }
    }

    fn load_ahead(&mut self, updates: &mut Subscription, metrics: &Metrics) {
        while let Some(name) = self.budget.next_ahead(self.start.elapsed()) {
            metrics.load(LoadReason::Ahead);
            updates.keep(&name);
        }
    }

    fn load_for_clients(
        &mut self,
        name: &FleetName,
        updates: &mut Subscription,
        metrics: &Metrics,
    ) {
        if self.budget.in_use(name, self.start.elapsed()) {
            tracing::debug!(fleet = %name, "loaded because a proxy asks for it");
            metrics.load(LoadReason::Asked);
        }
        updates.keep_first(name);
    }

    /// Nothing else holds the snapshot of a fleet whose last stream has ended: what was decided for its streams goes with it.
    fn drop_unused(&mut self, updates: &mut Subscription, metrics: &Metrics) {
        let (now, slots) = (self.start.elapsed(), self.slots.borrow().clone());
        let in_use = slots.iter().filter(|(_, slot)| slot.is_in_use());
        let in_use: Vec<_> = in_use.map(|(name, _)| name.clone()).collect();
        in_use.iter().for_each(|name| self.load_for_clients(name, updates, metrics));
        updates.mark_used(&in_use);
        for name in self.budget.to_drop(now) {
            if slots.get(&name).is_none_or(|slot| slot.drop_unused()) {
                tracing::debug!(fleet = %name, "dropped because no proxy uses it");
                self.budget.dropped(&name);
                updates.release(&name);
                metrics.dropped();
            }
        }
    }

    fn age_transitions(&self) {
        let slots = self.slots.borrow().clone();
        slots.values().filter_map(|slot| slot.fleet()).for_each(|fleet| fleet.transitions.age());
    }

    fn count(&self, updates: &Subscription, metrics: &Metrics) {
        let slots = self.slots.borrow().clone();
        let loaded: Vec<_> = slots.values().filter_map(|slot| slot.fleet()).collect();
        metrics.classes(loaded.iter().map(|fleet| fleet.classes.len()).sum());
        let live = loaded.iter().filter(|fleet| fleet.is_live()).count();
        let known = slots.len() - (loaded.len() - live);
        metrics.fleets(known, live, updates.damaged(), updates.unopened());
        metrics.fleet_bytes(self.budget.used());
    }

    /// A snapshot may come again at the same head, with secrets that could not be opened before.
    async fn publish(&self, snapshot: Arc<Snapshot>, time: SystemTime) {
        let slot = self.slots.borrow().get(&snapshot.fleet).cloned();
        tracing::debug!(fleet = %snapshot.fleet, head = %snapshot.head, "new snapshot");
        if let Some(fleet) = slot.as_ref().and_then(|slot| slot.fleet()) {
            let views = match fleet.current() {
                Some(views) => views.next(snapshot, time),
                None => Views::new(snapshot, fleet.classes.clone()),
            };
            fleet.send(&Arc::new(views)).await;
            return;
        }
        let (answers, transitions) =
            (self.answers.clone(), TransitionCache::within(self.transition_budget.clone()));
        let fleet =
            Arc::new(Fleet::new(snapshot, answers, transitions, self.class_limit_exceeded.clone()));
        match slot {
            Some(slot) => slot.load(fleet),
            None => self.add(&fleet.name.clone(), FleetSlot::loaded(fleet)),
        }
    }

    fn add(&self, name: &FleetName, slot: FleetSlot) {
        self.slots.send_modify(|slots| {
            Arc::make_mut(slots).insert(name.clone(), Arc::new(slot));
        });
    }

    /// The streams of a retired fleet keep what they have, and go on if the fleet comes back.
    fn retire(&self, name: &FleetName) {
        tracing::debug!(fleet = %name, "retired");
        let fleet = self.slots.borrow().get(name).and_then(|slot| slot.fleet());
        if let Some(fleet) = &fleet {
            // Clients are sent nothing because of it, so all streams may be woken at once.
            fleet.waves.iter().for_each(|wave| drop(wave.send_replace(None)));
        }
        self.drop_retired(fleet.is_none().then_some(name));
    }

    /// Drops one that was only known, and the retired fleets whose last stream has ended: as this happens whenever a fleet
    /// goes, no more of them are left over than there were fleets at once.
    fn drop_retired(&self, known: Option<&FleetName>) {
        self.slots.send_modify(|slots| {
            let slots = Arc::make_mut(slots);
            slots.retain(|name, slot| Some(name) != known && !slot.is_over());
        });
    }

    /// Reports what the store has lost or damaged, because the translator can repair it.
    fn report_if_changed<T: PartialEq>(&self, known: &watch::Sender<T>, now: T) {
        if *known.borrow() != now {
            known.send_replace(now);
            self.answers.notify_one();
        }
    }
}

impl Fleet {
    fn new(
        snapshot: Arc<Snapshot>,
        answers: Arc<Notify>,
        transitions: TransitionCache,
        class_limit_exceeded: IntCounter,
    ) -> Self {
        let classes = Arc::new(Classes::new(class_limit_exceeded));
        let views = Arc::new(Views::new(snapshot.clone(), classes.clone()));
        Self {
            name: snapshot.fleet.clone(),
            transitions: Arc::new(transitions),
            encodings: Encodings::default(),
            acks: FleetAcks::new(answers),
            comparison: Comparison::default(),
            waves: std::array::from_fn(|_| watch::Sender::new(Some(views.clone()))),
            streams: AtomicUsize::new(0),
            classes,
        }
    }

    async fn send(&self, views: &Arc<Views>) {
        for wave in &self.waves {
            wave.send_replace(Some(views.clone()));
            if wave.receiver_count() > 0 {
                yield_now().await;
            }
        }
    }

    fn subscribe(&self) -> ViewsReceiver {
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        self.waves[number % WAVES].subscribe()
    }

    /// The current views.
    pub(crate) fn current(&self) -> Option<Arc<Views>> {
        self.waves[0].borrow().clone()
    }

    /// Where the newest snapshot stands.
    pub(crate) fn head(&self) -> Option<Head> {
        self.current().map(|views| views.head())
    }

    fn is_live(&self) -> bool {
        self.waves[0].borrow().is_some()
    }

    fn has_streams(&self) -> bool {
        self.waves.iter().any(|wave| wave.receiver_count() > 0)
    }
}

#[cfg(test)]
mod tests;
