//! From the store to the streams.

use crate::acks::FleetAcks;
use crate::comparison::Comparison;
use crate::metrics::Metrics;
use crate::view::{Classes, Views};
use heliograph_distributor_protocol::{Encodings, Memo};
use heliograph_shared::admin::Guard;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use heliograph_store::{Subscription, Update};
use prometheus::IntCounter;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;

/// The task that hears of new snapshots. It alone changes what the others read.
#[derive(Debug)]
pub(crate) struct Feed {
    fleets: watch::Sender<FleetMap>,
    damaged: watch::Sender<BTreeSet<FleetName>>,
    answers: Arc<Notify>,
    /// Of all fleets, so that there is one bound on what it keeps.
    memo: Arc<Memo>,
    unclassed: IntCounter,
}

/// The fleets there are. Clones are cheap, and all see the same.
#[derive(Clone, Debug)]
pub(crate) struct Fleets {
    map: watch::Receiver<FleetMap>,
    /// Those whose newest snapshot cannot be loaded.
    damaged: watch::Receiver<BTreeSet<FleetName>>,
    /// Told when the sums of a fleet's answers may have changed.
    answers: Arc<Notify>,
}

/// What the streams of one fleet share.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) name: FleetName,
    pub(crate) memo: Arc<Memo>,
    pub(crate) encodings: Encodings,
    pub(crate) acks: FleetAcks,
    pub(crate) comparison: Comparison,
    pub(crate) classes: Arc<Classes>,
    /// The newest snapshot; `None` while the fleet is retired. Each stream listens to one of them, and they are told one
    /// after the other: ten thousand streams that are woken together would all be in line before a client that connects,
    /// and before it again with each of its requests.
    waves: [watch::Sender<Option<Arc<Views>>>; WAVES],
    /// How many streams there were.
    streams: AtomicUsize,
}

/// The newest snapshot of a fleet, as a stream hears of it.
pub(crate) type News = watch::Receiver<Option<Arc<Views>>>;

/// Replaced when a fleet comes or goes, not when its snapshot changes.
pub(crate) type FleetMap = Arc<BTreeMap<FleetName, Arc<Fleet>>>;

/// With ten thousand streams, a wave takes a few milliseconds.
const WAVES: usize = 64;
/// How often the fleets are counted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Feed {
    /// `unclassed` counts the clients for which a fleet has no class left.
    pub(crate) fn new(unclassed: IntCounter) -> (Self, Fleets) {
        let (sender, receiver) = watch::channel(FleetMap::default());
        let (told, damaged) = watch::channel(BTreeSet::new());
        let answers = Arc::new(Notify::new());
        let memo = Arc::default();
        let feed =
            Self { fleets: sender, damaged: told, answers: answers.clone(), memo, unclassed };
        (feed, Fleets { map: receiver, damaged, answers })
    }

    /// `synced` is done once all fleets are there that the store held at first.
    pub(crate) async fn run(
        self,
        mut updates: Subscription,
        synced: Guard,
        metrics: Metrics,
    ) -> Infallible {
        let mut synced = Some(synced);
        // What cannot be loaded is no update, so it is looked for.
        let mut look = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                update = updates.next() => {
                    match update {
                        Update::Published(snapshot, time) => self.publish(snapshot, time).await,
                        Update::Retired(fleet, _) => self.retire(&fleet),
                        Update::Synced => synced.take().map_or((), Guard::done),
                    }
                    // A newer snapshot may heal what was rejected.
                    self.answers.notify_one();
                }
                _ = look.tick() => {
                    self.memo.age();
                    let live = self.fleets.borrow().values().filter(|fleet| fleet.is_live()).count();
                    let classes = self.fleets.borrow().values().map(|fleet| fleet.classes.len()).sum();
                    metrics.classes(classes);
                    metrics.fleets(live, updates.damaged(), updates.unopened());
                    self.tell_damage(updates.damaged_fleets().into_iter().collect());
                }
            }
        }
    }

    /// A snapshot may come again at the same head, with secrets that could not be opened before.
    async fn publish(&self, snapshot: Arc<Snapshot>, time: SystemTime) {
        let fleet = self.fleets.borrow().get(&snapshot.fleet).cloned();
        tracing::debug!(fleet = %snapshot.fleet, head = %snapshot.head, "new snapshot");
        match fleet {
            Some(fleet) => {
                let views = match fleet.current() {
                    Some(views) => views.next(snapshot, time),
                    None => Views::new(snapshot, fleet.classes.clone()),
                };
                fleet.tell(&Arc::new(views)).await;
            }
            None => {
                let (answers, memo) = (self.answers.clone(), self.memo.clone());
                let fleet = Fleet::new(snapshot, answers, memo, self.unclassed.clone());
                let fleet = Arc::new(fleet);
                self.fleets.send_modify(|fleets| {
                    Arc::make_mut(fleets).insert(fleet.name.clone(), fleet);
                });
            }
        }
    }

    /// The streams of a retired fleet keep what they have, and go on if the fleet comes back.
    fn retire(&self, name: &FleetName) {
        tracing::debug!(fleet = %name, "retired");
        if let Some(fleet) = self.fleets.borrow().get(name) {
            // Nothing is said of it, so all may hear of it at once.
            fleet.waves.iter().for_each(|wave| drop(wave.send_replace(None)));
        }
        self.drop_retired();
    }

    /// Drops the retired fleets whose last stream has ended: as this happens whenever a fleet goes, no more of them are
    /// left over than there were fleets at once.
    fn drop_retired(&self) {
        self.fleets.send_modify(|fleets| {
            let fleets = Arc::make_mut(fleets);
            fleets.retain(|_, fleet| fleet.is_live() || fleet.has_streams());
        });
    }

    /// It is reported, because the translator can mend it.
    fn tell_damage(&self, damaged: BTreeSet<FleetName>) {
        if *self.damaged.borrow() != damaged {
            self.damaged.send_replace(damaged);
            self.answers.notify_one();
        }
    }
}

impl Fleets {
    pub(crate) fn get(&self, name: &FleetName) -> Option<Arc<Fleet>> {
        self.map.borrow().get(name).cloned()
    }

    pub(crate) fn all(&self) -> FleetMap {
        self.map.borrow().clone()
    }

    pub(crate) fn damaged(&self) -> BTreeSet<FleetName> {
        self.damaged.borrow().clone()
    }

    /// Resolves when clients may have answered since this was last waited for. For one task.
    pub(crate) async fn answered(&self) {
        self.answers.notified().await;
    }

    /// The fleet and its news, once it is published. `None`: the feed has ended.
    ///
    /// The receiver is taken while the map is borrowed, and so cannot change: a fleet without one would be dropped
    /// when it is retired, and this stream would wait for news of a fleet that comes back as another.
    pub(crate) async fn published(&mut self, name: &FleetName) -> Option<(Arc<Fleet>, News)> {
        let fleets = self.map.wait_for(|fleets| fleets.contains_key(name)).await.ok()?;
        fleets.get(name).map(|fleet| (fleet.clone(), fleet.news()))
    }
}

impl Fleet {
    fn new(
        snapshot: Arc<Snapshot>,
        answers: Arc<Notify>,
        memo: Arc<Memo>,
        unclassed: IntCounter,
    ) -> Self {
        let classes = Arc::new(Classes::new(unclassed));
        let views = Arc::new(Views::new(snapshot.clone(), classes.clone()));
        Self {
            name: snapshot.fleet.clone(),
            memo,
            encodings: Encodings::default(),
            acks: FleetAcks::new(answers),
            comparison: Comparison::default(),
            waves: std::array::from_fn(|_| watch::Sender::new(Some(views.clone()))),
            streams: AtomicUsize::new(0),
            classes,
        }
    }

    async fn tell(&self, views: &Arc<Views>) {
        for wave in &self.waves {
            wave.send_replace(Some(views.clone()));
            if wave.receiver_count() > 0 {
                yield_now().await;
            }
        }
    }

    fn news(&self) -> News {
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        self.waves[number % WAVES].subscribe()
    }

    /// What there is now.
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
mod tests {
    use super::*;

    fn snapshot(fleet: &str, sequence: u64) -> Arc<Snapshot> {
        let head = Head { epoch: 0, fence: 1, sequence };
        Arc::new(Snapshot::empty(FleetName::new("default", fleet)).with(head, []))
    }

    fn unclassed() -> IntCounter {
        IntCounter::new("unclassed", "in a test").unwrap()
    }

    #[tokio::test]
    async fn a_stream_that_came_before_a_retirement_hears_of_the_return() {
        let (feed, mut fleets) = Feed::new(unclassed());
        let name = FleetName::new("default", "a");
        feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
        let (_, news) = fleets.published(&name).await.unwrap();
        feed.retire(&name);
        feed.publish(snapshot("a", 3), SystemTime::UNIX_EPOCH).await;
        assert!(news.borrow().is_some());
    }

    #[tokio::test]
    async fn a_retired_fleet_goes_once_its_last_stream_has_ended() {
        let (feed, mut fleets) = Feed::new(unclassed());
        let name = FleetName::new("default", "a");
        feed.publish(snapshot("a", 1), SystemTime::UNIX_EPOCH).await;
        let stream = fleets.published(&name).await.unwrap();
        feed.retire(&name);
        feed.publish(snapshot("b", 1), SystemTime::UNIX_EPOCH).await;
        assert!(fleets.get(&name).is_some());
        drop(stream);
        feed.publish(snapshot("c", 1), SystemTime::UNIX_EPOCH).await;
        feed.retire(&FleetName::new("default", "b"));
        assert!(fleets.get(&name).is_none());
        assert_eq!(fleets.all().len(), 1);
    }
}
