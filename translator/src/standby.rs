//! Reads heads, with the orders of operators, and the content of pinned fleets while another translator leads: if the
//! store loses its data together with the leader, only the next leader still has them.

use futures::future::BoxFuture;
use heliograph_snapshot::{FleetName, Section, Snapshot};
use heliograph_store::{Loaded, Notice, Reader, Record, StoreError, Watch};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A reader of all heads, and of the content of fleets that operators hold.
pub(crate) struct Standby {
    reader: Arc<dyn Reader>,
    watch: Box<dyn Watch>,
    fleets: BTreeMap<FleetName, Remembered>,
    /// The held fleets whose content is to be loaded, each once.
    unloaded: VecDeque<FleetName>,
    /// Kept here, so that neither a change nor a caller that stops waiting cancels it.
    loading: Option<BoxFuture<'static, Result<Loaded, StoreError>>>,
    /// When to load, after a load that failed.
    retry_at: Instant,
}

/// The last record of a fleet, and its content if it is pinned.
pub(crate) type Remembered = (Arc<Record>, Option<Arc<Snapshot>>);

/// Between two tries to load what could not be loaded.
const RETRY: Duration = Duration::from_secs(1);

impl Standby {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> Self {
        let watch = reader.watch();
        Self {
            reader,
            watch,
            fleets: BTreeMap::new(),
            unloaded: VecDeque::new(),
            loading: None,
            retry_at: Instant::now(),
        }
    }

    /// Everything that is remembered.
    pub(crate) fn into_remembered(self) -> Vec<Remembered> {
        self.fleets.into_values().collect()
    }

    /// Reads on, for as long as it is awaited. Dropping the future loses nothing.
    pub(crate) async fn read(&mut self) -> Infallible {
        loop {
            self.begin_load();
            let Self { watch, loading, retry_at, unloaded, .. } = self;
            let waits = loading.is_none() && !unloaded.is_empty();
            let loaded = async {
                match loading {
                    Some(loading) => loading.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                notice = watch.next() => {
                    if let Notice::Fleet(record) = notice {
                        self.receive(record);
                    }
                }
                loaded = loaded => self.loaded(loaded),
                () = sleep_until(*retry_at), if waits => {}
            }
        }
    }

    fn begin_load(&mut self) {
        if self.loading.is_some() || Instant::now() < self.retry_at {
            return;
        }
        let next = self.unloaded.front().and_then(|name| self.fleets.get(name));
        self.loading = next.cloned().map(|(record, known)| {
            let reader = self.reader.clone();
            let load = async move { reader.load(record, known).await };
            Box::pin(load) as BoxFuture<'static, _>
        });
    }

    fn receive(&mut self, record: Arc<Record>) {
        let name = record.fleet.clone();
        let known = self.fleets.remove(&name).and_then(|(_, snapshot)| snapshot);
        self.unloaded.retain(|unloaded| *unloaded != name);
        if !record.is_live() {
            return;
        }
        let is_held = record.pin.pinned.is_some();
        let known = known.filter(|_| is_held);
        if is_held && known.as_ref().is_none_or(|known| !holds_same(known, &record)) {
            self.unloaded.push_back(name.clone());
        }
        self.fleets.insert(name, (record, known));
    }

    fn loaded(&mut self, loaded: Result<Loaded, StoreError>) {
        self.loading = None;
        match loaded {
            Ok(Loaded { snapshot, unopened }) if unopened.is_empty() => {
                if let Some((record, known)) = self.fleets.get_mut(&snapshot.fleet)
                    && holds_same(&snapshot, record)
                {
                    self.unloaded.retain(|unloaded| *unloaded != snapshot.fleet);
                    *known = Some(snapshot);
                }
            }
            // The store itself logs that it is unreachable. The others have their turn before this one.
            _ => {
                self.unloaded.rotate_left(usize::from(!self.unloaded.is_empty()));
                self.retry_at = Instant::now() + RETRY;
            }
        }
    }
}

/// Whether all that a fleet is held at is the same. Endpoints are not held.
fn holds_same(known: &Snapshot, record: &Record) -> bool {
    let lasting = |roots: BTreeMap<Section, _>| {
        let lasting = roots.into_iter().filter(|(section, _)| section.lasts());
        lasting.collect::<BTreeMap<_, _>>()
    };
    lasting(known.roots()) == lasting(record.roots())
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::{Change, Head, Resource, ResourceType};
    use heliograph_store::{
        Embedded, History, PinOrder, PinState, Publication, Retirement, Writer as _,
    };
    use std::time::SystemTime;

    struct Writer {
        store: Arc<Embedded>,
        last: Option<Head>,
    }

    impl Writer {
        async fn publish(&mut self, kind: ResourceType, body: &'static str, pin: PinState) {
            let head = self.next();
            let resource = Arc::new(Resource::new("a", body.as_bytes().into()));
            let snapshot = Snapshot::empty(edge()).with(head, [Change::Set(kind, resource)]);
            let publication = Publication {
                snapshot: Arc::new(snapshot),
                expected: self.last.replace(head),
                held: None,
                time: SystemTime::UNIX_EPOCH,
                cause: "test".into(),
                pin,
            };
            self.store.publish(publication).await.unwrap();
        }

        fn next(&self) -> Head {
            Head { fence: 1, sequence: self.last.map_or(1, |last| last.sequence + 1), epoch: 0 }
        }
    }

    fn edge() -> FleetName {
        FleetName::new("default", "edge")
    }

    /// For as long as it takes, without asking it again.
    async fn read_for_a_while(standby: &mut Standby) {
        let _ = tokio::time::timeout(Duration::from_secs(5), standby.read()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_remembers_all_heads_and_the_content_of_fleets_that_are_held() {
        let store = Arc::new(Embedded::new());
        let mut writer = Writer { store: store.clone(), last: None };
        writer.publish(ResourceType::Cluster, "good", PinState::default()).await;
        let mut standby = Standby::new(store.clone());
        read_for_a_while(&mut standby).await;
        assert!(standby.fleets.contains_key(&edge()));
        assert!(standby.fleets[&edge()].1.is_none(), "nobody holds it");

        let at = store.history(edge()).await.unwrap().pop();
        let (by, reason) = ("ann".into(), "".into());
        let order = PinOrder { number: 1, at, time: SystemTime::UNIX_EPOCH, by, reason };
        let held_at = Head { fence: 1, sequence: 1, epoch: 0 };
        writer.publish(ResourceType::Cluster, "good", order.state(held_at)).await;
        read_for_a_while(&mut standby).await;
        assert!(standby.fleets[&edge()].1.is_some());
        let snapshot = standby.fleets[&edge()].1.clone().unwrap();
        assert_eq!(snapshot.get(ResourceType::Cluster, "a").unwrap().body, "good");

        let released = PinState { number: 2, pinned: None };
        writer.publish(ResourceType::Cluster, "next", released).await;
        read_for_a_while(&mut standby).await;
        assert!(standby.fleets[&edge()].0.pin.number == 2);
        assert!(standby.fleets[&edge()].1.is_none());

        let retirement = Retirement {
            fleet: edge(),
            tombstone: writer.next(),
            expected: writer.last,
            time: SystemTime::UNIX_EPOCH,
            cause: "test".into(),
            order: 2,
        };
        store.retire(retirement).await.unwrap();
        read_for_a_while(&mut standby).await;
        assert!(standby.fleets.is_empty());
        assert!(standby.into_remembered().is_empty());
    }
}
