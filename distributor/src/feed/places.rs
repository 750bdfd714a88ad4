//! Where streams find their fleet, in memory or not.

use super::{Fleet, FleetMap, News};
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{Record, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// The fleets there are. Clones are cheap, and all see the same.
#[derive(Clone, Debug)]
pub(crate) struct Fleets {
    pub(super) places: watch::Receiver<Places>,
    /// Those whose newest snapshot cannot be loaded.
    pub(super) damaged: watch::Receiver<BTreeMap<FleetName, Head>>,
    /// What was last read of those that the store has lost.
    pub(super) remembered: watch::Receiver<Vec<Arc<Record>>>,
    /// Told when the sums of a fleet's answers may have changed.
    pub(super) answers: Arc<Notify>,
    pub(super) asked: Arc<Asked>,
}

/// Replaced when a fleet comes or goes, not when it is loaded or dropped, nor when its snapshot changes.
pub(super) type Places = Arc<BTreeMap<FleetName, Arc<Place>>>;

/// A fleet that there is. It is small: there may be many of them, and few in memory.
#[derive(Debug)]
pub(super) struct Place {
    /// The streams that wait for the fleet listen to it, so that each fleet wakes only its own.
    stage: watch::Sender<Stage>,
}

/// How much of a fleet is here.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
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
        "what the store holds of {0} cannot be used, which the translator mends: connect again"
    )]
    Damaged(FleetName),
    #[error("{0} is not loaded within {PATIENCE:?}: connect again")]
    Late(FleetName),
}

/// The fleets that streams wait for. Only those that there are, so there is a bound on it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    names: Mutex<BTreeSet<FleetName>>,
    bell: Notify,
}

/// How long a stream waits for a fleet that is there and not loaded. Envoy gives up waiting for its first configuration
/// after 15 s, and another replica may be faster.
const PATIENCE: Duration = Duration::from_secs(10);

impl Fleets {
    /// All that are in memory.
    pub(crate) fn all(&self) -> FleetMap {
        let places = self.places.borrow().clone();
        let loaded = places.iter().filter_map(|(name, place)| Some((name.clone(), place.fleet()?)));
        Arc::new(loaded.collect())
    }

    /// If it is in memory.
    pub(crate) fn get(&self, name: &FleetName) -> Option<Arc<Fleet>> {
        self.places.borrow().get(name)?.fleet()
    }

    pub(crate) fn stage(&self, name: &FleetName) -> Option<Stage> {
        self.places.borrow().get(name).map(|place| place.stage())
    }

    /// Whether it is in the store, as far as is known here: one that is retired may be in memory all the same.
    pub(crate) fn is_published(&self, name: &FleetName) -> bool {
        self.stage(name).is_some_and(|stage| match stage {
            Stage::Loaded(fleet) => fleet.is_live(),
            Stage::Known { .. } | Stage::Failed { .. } => true,
        })
    }

    /// All that there are.
    pub(crate) fn stages(&self) -> BTreeMap<FleetName, Stage> {
        let places = self.places.borrow().clone();
        places.iter().map(|(name, place)| (name.clone(), place.stage())).collect()
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

    /// The fleet and its news, if it is in memory.
    pub(crate) fn enter(&self, name: &FleetName) -> Option<(Arc<Fleet>, News)> {
        self.places.borrow().get(name)?.enter()
    }

    /// The same once it is in memory: for a fleet that is not published that may take any time, and for one that is the time
    /// of a load.
    pub(crate) async fn wait_for(&self, name: &FleetName) -> Result<(Arc<Fleet>, News), Unserved> {
        let mut places = self.places.clone();
        loop {
            let stage = {
                let known = places.wait_for(|places| places.contains_key(name)).await;
                let known = known.map_err(|_| Unserved::Ended)?;
                known.get(name).map(|place| place.stage.subscribe())
            };
            let Some(stage) = stage else { continue };
            let loaded = timeout(PATIENCE, self.load(name, stage)).await;
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
        mut stage: watch::Receiver<Stage>,
    ) -> Result<Option<(Arc<Fleet>, News)>, Unserved> {
        loop {
            match &*stage.borrow_and_update() {
                Stage::Loaded(fleet) => return Ok(Some((fleet.clone(), fleet.news()))),
                Stage::Failed { reason: Failure::StoreAway, .. } => {
                    return Err(Unserved::StoreAway(name.clone()));
                }
                Stage::Failed { reason: Failure::Damaged, .. } => {
                    return Err(Unserved::Damaged(name.clone()));
                }
                Stage::Known { .. } => self.asked.ask(name),
            }
            if stage.changed().await.is_err() {
                return Ok(None);
            }
        }
    }
}

impl Place {
    pub(super) fn known(record: &Record) -> Self {
        Self { stage: watch::Sender::new(Stage::of(record)) }
    }

    pub(super) fn loaded(fleet: Arc<Fleet>) -> Self {
        Self { stage: watch::Sender::new(Stage::Loaded(fleet)) }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage.borrow().clone()
    }

    pub(super) fn fleet(&self) -> Option<Arc<Fleet>> {
        match &*self.stage.borrow() {
            Stage::Loaded(fleet) => Some(fleet.clone()),
            Stage::Known { .. } | Stage::Failed { .. } => None,
        }
    }

    /// The news are taken while the stage cannot change: a fleet without listeners may be dropped, and this stream would wait
    /// for news of a fleet that comes back as another.
    fn enter(&self) -> Option<(Arc<Fleet>, News)> {
        match &*self.stage.borrow() {
            Stage::Loaded(fleet) => Some((fleet.clone(), fleet.news())),
            Stage::Known { .. } | Stage::Failed { .. } => None,
        }
    }

    /// Another record of a fleet that is not in memory.
    pub(super) fn note(&self, record: &Record) {
        // Nobody waits for this, so nobody is woken.
        self.stage.send_if_modified(|stage| {
            match stage {
                Stage::Known { head, bytes } | Stage::Failed { head, bytes, .. } => {
                    (*head, *bytes) = (record.head, record.bytes);
                }
                Stage::Loaded(_) => {}
            }
            false
        });
    }

    pub(super) fn load(&self, fleet: Arc<Fleet>) {
        self.stage.send_replace(Stage::Loaded(fleet));
    }

    pub(super) fn fail(&self, error: &StoreError) {
        let reason = if error.is_temporary() { Failure::StoreAway } else { Failure::Damaged };
        self.stage.send_if_modified(|stage| match *stage {
            Stage::Known { head, bytes } | Stage::Failed { head, bytes, .. } => {
                *stage = Stage::Failed { head, bytes, reason };
                true
            }
            Stage::Loaded(_) => false,
        });
    }

    /// Whether a stream is served from here, or waits to be.
    pub(super) fn is_in_use(&self) -> bool {
        self.stage.receiver_count() > 0 || self.stage.borrow().has_streams()
    }

    /// Lets go of the fleet unless someone uses it. Whether it did.
    pub(super) fn drop_unused(&self) -> bool {
        let mut dropped = None;
        // Who comes while this is decided waits for it, and asks for the fleet again.
        self.stage.send_if_modified(|stage| {
            if self.stage.receiver_count() == 0 && !stage.has_streams() {
                let unloaded = stage.unloaded();
                dropped = Some(std::mem::replace(stage, unloaded));
            }
            false
        });
        // A large one takes a while to drop, which is not for the lock.
        dropped.is_some()
    }

    /// Whether nothing is left of a fleet that is retired.
    pub(super) fn is_over(&self) -> bool {
        match &*self.stage.borrow() {
            Stage::Loaded(fleet) => !fleet.is_live() && !fleet.has_streams(),
            Stage::Known { .. } | Stage::Failed { .. } => false,
        }
    }
}

impl Stage {
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

impl Asked {
    fn ask(&self, name: &FleetName) {
        let is_news = self.names().insert(name.clone());
        if is_news {
            self.bell.notify_one();
        }
    }

    /// Waits until someone asks. For one task.
    pub(super) async fn next(&self) -> BTreeSet<FleetName> {
        self.bell.notified().await;
        std::mem::take(&mut *self.names())
    }

    fn names(&self) -> std::sync::MutexGuard<'_, BTreeSet<FleetName>> {
        // Nothing is left half done by a thread that panics with the lock.
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
