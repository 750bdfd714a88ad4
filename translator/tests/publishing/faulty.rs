use heliograph_snapshot::{Address, FleetName, Head, ResourceType, Section, Snapshot};
use heliograph_store::{
    AckReport, ClaimedTerm, Cleaned, Embedded, FeedbackReader, Inspection, Inspector, Loaded,
    PinOrder, Publication, Published, Reader, Record, Retirement, StoreError, StoreFuture, Watch,
    Writer,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// An embedded store behind a network that fails on demand. It notes what it is asked.
#[derive(Default)]
pub(crate) struct Faulty(Mutex<State>);

#[derive(Default)]
struct State {
    store: Arc<Embedded>,
    away: bool,
    answers_to_lose: usize,
    breaks: bool,
    noted: Noted,
}

/// What the store was asked for.
#[derive(Clone, Default)]
pub(crate) struct Noted {
    /// Publications, also those that were asked for again.
    pub(crate) publications: Vec<Publication>,
    pub(crate) retirements: usize,
    pub(crate) loads: usize,
    pub(crate) cleaned: Vec<Head>,
    pub(crate) claims: usize,
    /// Questions that were not answered.
    pub(crate) unanswered: usize,
}

impl Faulty {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What is behind the network at this moment.
    pub(crate) fn inner(&self) -> Arc<Embedded> {
        self.state().store.clone()
    }

    /// Nothing is done and nothing is answered, until told otherwise.
    pub(crate) fn set_away(&self, away: bool) {
        self.state().away = away;
    }

    /// So many writes are done, and their answers lost.
    pub(crate) fn lose_answers(&self, count: usize) {
        self.state().answers_to_lose = count;
    }

    /// Writing to it panics from now on.
    pub(crate) fn break_down(&self) {
        self.state().breaks = true;
    }

    /// As after FLUSHALL.
    pub(crate) fn lose_everything(&self) {
        self.replace(Arc::default());
    }

    /// Another store takes over, as after a failover.
    pub(crate) fn replace(&self, store: Arc<Embedded>) {
        self.state().store = store;
    }

    pub(crate) fn noted(&self) -> Noted {
        self.state().noted.clone()
    }

    /// The newest records.
    pub(crate) async fn records(&self) -> BTreeMap<FleetName, Arc<Record>> {
        let store = self.inner();
        let fleets = store.inspect(vec![]).await.unwrap().heads.into_keys().collect();
        store.newest(fleets).await.unwrap()
    }

    /// The newest snapshots of the fleets that are live.
    pub(crate) async fn live(&self) -> BTreeMap<FleetName, Arc<Snapshot>> {
        let store = self.inner();
        let mut live = BTreeMap::new();
        for (fleet, record) in self.records().await {
            if record.is_live() {
                live.insert(fleet, store.load(record, None).await.unwrap().snapshot);
            }
        }
        live
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn reach(&self) -> Result<Arc<Embedded>, StoreError> {
        let mut state = self.state();
        if state.away {
            state.noted.unanswered += 1;
            return Err(no_answer());
        }
        Ok(state.store.clone())
    }

    /// The answer to a write, if it arrives.
    fn answer<T>(&self, answer: T) -> Result<T, StoreError> {
        let mut state = self.state();
        if state.answers_to_lose == 0 {
            return Ok(answer);
        }
        state.answers_to_lose -= 1;
        state.noted.unanswered += 1;
        Err(no_answer())
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable("no answer".to_owned())
}

impl Writer for Faulty {
    fn claim(&self, fence: Option<u128>) -> StoreFuture<'_, ClaimedTerm> {
        self.state().noted.claims += 1;
        Box::pin(async move { self.reach()?.claim(fence).await })
    }

    /// Not the plain hash, as in a store that others can read.
    fn address_of_sealed(&self, _section: Section, _name: &str, body: &[u8]) -> Address {
        Address::of(&[b"key", body].concat())
    }

    fn publish(&self, publication: Publication) -> StoreFuture<'_, Published> {
        self.state().noted.publications.push(publication.clone());
        let breaks = self.state().breaks;
        Box::pin(async move {
            assert!(!breaks, "told to break down by a test");
            let published = self.reach()?.publish(publication).await?;
            self.answer(published)
        })
    }

    fn retire(&self, retirement: Retirement) -> StoreFuture<'_, ()> {
        self.state().noted.retirements += 1;
        Box::pin(async move {
            self.reach()?.retire(retirement).await?;
            self.answer(())
        })
    }

    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.reach()?.restore_order(fleet, order).await })
    }

    fn clean(&self, newest: Arc<Snapshot>) -> StoreFuture<'_, Cleaned> {
        self.state().noted.cleaned.push(newest.head);
        Box::pin(async move { self.reach()?.clean(newest).await })
    }
}

impl Inspector for Faulty {
    fn inspect(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, Inspection> {
        Box::pin(async move { self.reach()?.inspect(fleets).await })
    }
}

impl Reader for Faulty {
    fn watch(&self) -> Box<dyn Watch> {
        self.inner().watch()
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        Box::pin(async move { self.reach()?.newest(fleets).await })
    }

    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        self.state().noted.loads += 1;
        Box::pin(async move { self.reach()?.load(record, known).await })
    }
}

impl FeedbackReader for Faulty {
    fn read_reports(&self) -> StoreFuture<'_, Vec<AckReport>> {
        Box::pin(async move { self.reach()?.read_reports().await })
    }
}

impl Noted {
    /// What was to be published, each head once. The same head never comes with other content.
    pub(crate) fn versions(&self) -> BTreeMap<(FleetName, Head), Record> {
        let mut versions = BTreeMap::new();
        for publication in &self.publications {
            let record = publication.record();
            let key = (record.fleet.clone(), record.head);
            let before = versions.insert(key, record.clone());
            assert!(before.is_none_or(|before| before == record), "{record:?}");
        }
        versions
    }

    /// What a publication wrote, if all that its `held` has is there already.
    pub(crate) fn written(publication: &Publication) -> usize {
        let nothing = Snapshot::empty(publication.snapshot.fleet.clone());
        let held = publication.held.as_deref().unwrap_or(&nothing);
        let fresh = |kind| publication.snapshot.tree(kind).differences(held.tree(kind)).len();
        ResourceType::ALL.into_iter().map(fresh).sum()
    }
}
