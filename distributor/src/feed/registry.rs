//! The registry in which streams find their fleet, in memory or not.

use super::{Fleet, FleetMap, ViewsReceiver};
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{Record, StoreError};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// The fleets there are. Clones are cheap, and all see the same.
#[derive(Clone, Debug)]
pub(crate) struct Fleets {
    pub(super) slots: watch::Receiver<FleetRegistry>,
    /// Those whose newest snapshot cannot be loaded.
    pub(super) damaged: watch::Receiver<BTreeMap<FleetName, Head>>,
    /// What was last read of those that the store has lost.
    pub(super) remembered: watch::Receiver<Vec<Arc<Record>>>,
    /// Notified when the sums of a fleet's answers may have changed.
    pub(super) answers: Arc<Notify>,
    pub(super) requested: Arc<RequestedFleets>,
}

/// Replaced when a fleet comes or goes, not when it is loaded or dropped, nor when its snapshot changes.
pub(super) type FleetRegistry = Arc<BTreeMap<FleetName, Arc<FleetSlot>>>;

/// The registry's entry of one fleet. It is small: there may be many fleets, and few in memory.
#[derive(Debug)]
pub(super) struct FleetSlot {
    /// The streams that wait for the fleet listen to it, so that each fleet wakes only its own.
    state: watch::Sender<FleetState>,
}

/// How much of a fleet is here.
#[derive(Clone, Debug)]
pub(crate) enum FleetState {
    /// It is known by its record alone.
    Known {
        head: Head,
        bytes: u64,
    },
    /// The same, and it could not be loaded when that was last tried.
    Failed {
        head: Head,
        bytes: u64,
        reason: Failure,
    },
    Loaded(Arc<Fleet>),
}

/// Why a fleet cannot be loaded, in words that are fit for a client: what exactly is wrong with the store is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    StoreAway,
    Damaged,
}

/// Why a stream is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unserved {
    #[error("this replica is shutting down: connect again")]
    Ended,
    #[error(
        "this replica does not have {0} in memory, and the store does not answer: connect again"
    )]
    StoreAway(FleetName),
    #[error(
        "the content of {0} in the store cannot be used until the translator repairs it: connect again"
    )]
    Damaged(FleetName),
    #[error("{0} was not loaded within {LOAD_TIMEOUT:?}: connect again")]
    Late(FleetName),
}

/// The fleets that streams wait for. Only known fleets are in it, so it is bounded.
#[derive(Debug, Default)]
pub(super) struct RequestedFleets {
    names: Mutex<BTreeSet<FleetName>>,
    added: Notify,
}

/// How long a stream waits for a fleet that is there and not loaded. Envoy gives up waiting for its first configuration
/// after 15 s, and another replica may be faster.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);

impl Fleets {
    /// All that are in memory.
    pub(crate) fn all(&self) -> FleetMap {
        let slots = self.slots.borrow().clone();
        let loaded = slots.iter().filter_map(|(name, slot)| Some((name.clone(), slot.fleet()?)));
        Arc::new(loaded.collect())
    }

    /// If it is in memory.
    pub(crate) fn get(&self, name: &FleetName) -> Option<Arc<Fleet>> {
        self.slots.borrow().get(name)?.fleet()
    }

    pub(crate) fn state(&self, name: &FleetName) -> Option<FleetState> {
        self.slots.borrow().get(name).map(|slot| slot.state())
    }

    /// Whether it is in the store, as far as is known here: one that is retired may be in memory all the same.
    pub(crate) fn is_published(&self, name: &FleetName) -> bool {
        self.state(name).is_some_and(|state| match state {
            FleetState::Loaded(fleet) => fleet.is_live(),
            FleetState::Known { .. } | FleetState::Failed { .. } => true,
        })
    }

    /// All that there are.
    pub(crate) fn states(&self) -> BTreeMap<FleetName, FleetState> {
        let slots = self.slots.borrow().clone();
        slots.iter().map(|(name, slot)| (name.clone(), slot.state())).collect()
    }

    pub(crate) fn damaged(&self) -> BTreeMap<FleetName, Head> {
        self.damaged.borrow().clone()
    }

    pub(crate) fn remembered(&self) -> Vec<Arc<Record>> {
        self.remembered.borrow().clone()
    }

    /// Resolves when clients may have answered since this was last waited for. For one task.
    pub(crate) async fn answered(&self) {
        self.answers.notified().await;
    }

    /// The fleet and a receiver of its views, if it is in memory.
    pub(crate) fn subscribe(&self, name: &FleetName) -> Option<(Arc<Fleet>, ViewsReceiver)> {
        self.slots.borrow().get(name)?.subscribe()
    }

    /// The same once it is in memory: for a fleet that is not published that may take any time, and for one that is the time
    /// of a load.
    pub(crate) async fn wait_for(
        &self,
        name: &FleetName,
    ) -> Result<(Arc<Fleet>, ViewsReceiver), Unserved> {
        let mut slots = self.slots.clone();
        loop {
            let state = {
                let known = slots.wait_for(|slots| slots.contains_key(name)).await;
                let known = known.map_err(|_| Unserved::Ended)?;
                known.get(name).map(|slot| slot.state.subscribe())
            };
            let Some(state) = state else { continue };
            let loaded = timeout(LOAD_TIMEOUT, self.load(name, state)).await;
            match loaded.map_err(|_| Unserved::Late(name.clone()))?? {
                Some(entered) => return Ok(entered),
                // It is retired, and may come back.
                None => continue,
            }
        }
    }

    async fn load(
        &self,
        name: &FleetName,
        mut state: watch::Receiver<FleetState>,
    ) -> Result<Option<(Arc<Fleet>, ViewsReceiver)>, Unserved> {
        loop {
            match &*state.borrow_and_update() {
                FleetState::Loaded(fleet) => return Ok(Some((fleet.clone(), fleet.subscribe()))),
                FleetState::Failed { reason: Failure::StoreAway, .. } => {
                    return Err(Unserved::StoreAway(name.clone()));
                }
                FleetState::Failed { reason: Failure::Damaged, .. } => {
                    return Err(Unserved::Damaged(name.clone()));
                }
                FleetState::Known { .. } => self.requested.request(name),
            }
            if state.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}

impl FleetSlot {
    pub(super) fn known(record: &Record) -> Self {
        Self { state: watch::Sender::new(FleetState::of(record)) }
    }

    pub(super) fn loaded(fleet: Arc<Fleet>) -> Self {
        Self { state: watch::Sender::new(FleetState::Loaded(fleet)) }
    }

    pub(super) fn state(&self) -> FleetState {
        self.state.borrow().clone()
    }

    pub(super) fn fleet(&self) -> Option<Arc<Fleet>> {
        match &*self.state.borrow() {
            FleetState::Loaded(fleet) => Some(fleet.clone()),
            FleetState::Known { .. } | FleetState::Failed { .. } => None,
        }
    }

    /// Subscribes while the state cannot change: a fleet without receivers may be dropped, and this stream would wait for a
    /// fleet that comes back as another.
    fn subscribe(&self) -> Option<(Arc<Fleet>, ViewsReceiver)> {
        match &*self.state.borrow() {
            FleetState::Loaded(fleet) => Some((fleet.clone(), fleet.subscribe())),
            FleetState::Known { .. } | FleetState::Failed { .. } => None,
        }
    }

    /// Replaces the record of a fleet that is not in memory.
    pub(super) fn update_record(&self, record: &Record) {
        // No stream waits for this, so none is woken.
        self.state.send_if_modified(|state| {
            match state {
                FleetState::Known { head, bytes } | FleetState::Failed { head, bytes, .. } => {
                    (*head, *bytes) = (record.head, record.bytes);
                }
                FleetState::Loaded(_) => {}
            }
            false
        });
    }

    pub(super) fn load(&self, fleet: Arc<Fleet>) {
        self.state.send_replace(FleetState::Loaded(fleet));
    }

    pub(super) fn fail(&self, error: &StoreError) {
        let reason = if error.is_temporary() { Failure::StoreAway } else { Failure::Damaged };
        self.state.send_if_modified(|state| match *state {
            FleetState::Known { head, bytes } | FleetState::Failed { head, bytes, .. } => {
                *state = FleetState::Failed { head, bytes, reason };
                true
            }
            FleetState::Loaded(_) => false,
        });
    }

    /// Whether a stream is served from here, or waits to be.
    pub(super) fn is_in_use(&self) -> bool {
        self.state.receiver_count() > 0 || self.state.borrow().has_streams()
    }

    /// Drops the fleet unless a stream uses it. Returns whether it did.
    pub(super) fn drop_unused(&self) -> bool {
        let mut dropped = None;
        // Who comes while this is decided waits for it, and asks for the fleet again.
        self.state.send_if_modified(|state| {
            if self.state.receiver_count() == 0 && !state.has_streams() {
                let unloaded = state.unloaded();
                dropped = Some(std::mem::replace(state, unloaded));
            }
            false
        });
        // A large one takes a while to drop, which is not for the lock.
        dropped.is_some()
    }

    /// Whether nothing is left of a fleet that is retired.
    pub(super) fn is_over(&self) -> bool {
        match &*self.state.borrow() {
            FleetState::Loaded(fleet) => !fleet.is_live() && !fleet.has_streams(),
            FleetState::Known { .. } | FleetState::Failed { .. } => false,
        }
    }
}

impl FleetState {
    fn of(record: &Record) -> Self {
        Self::Known { head: record.head, bytes: record.bytes }
    }

    fn unloaded(&self) -> Self {
        match self {
            Self::Known { head, bytes } | Self::Failed { head, bytes, .. } => {
                Self::Known { head: *head, bytes: *bytes }
            }
            Self::Loaded(fleet) => {
                let views = fleet.current();
                let bytes = views.as_ref().map_or(0, |views| views.bytes());
                let head = views.map(|views| views.head()).unwrap_or_default();
                Self::Known { head, bytes }
            }
        }
    }

    fn has_streams(&self) -> bool {
        matches!(self, Self::Loaded(fleet) if fleet.has_streams())
    }
}

impl RequestedFleets {
    fn request(&self, name: &FleetName) {
        let is_news = self.names().insert(name.clone());
        if is_news {
            self.added.notify_one();
        }
    }

    /// Waits for a request. For one task.
    pub(super) async fn next(&self) -> BTreeSet<FleetName> {
        self.added.notified().await;
        std::mem::take(&mut *self.names())
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<FleetName>> {
        // Nothing is left half done by a thread that panics with the lock.
        self.names.lock()
    }
}
