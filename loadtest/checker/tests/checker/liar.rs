//! A store that lies.

use futures::future::BoxFuture;
use heliograph_snapshot::{Address, Change, FleetName, ResourceType, Section, Snapshot};
use heliograph_store::{
    ClaimedTerm, Cleaned, Embedded, Inspection, Inspector, Loaded, Notice, PinOrder, Publication,
    Published, Reader, Record, Retirement, StoreError, StoreFuture, Term, Watch, Writer,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    None,
    /// After each record, readers receive the one before again.
    GoesBack,
    /// A snapshot lacks one of its resources.
    ServesHalf,
    /// A snapshot has a resource as the one before had it.
    MixesTwo,
    /// What is published third is taken, and never told.
    DropsTheThird,
    /// A second writer finds no records, and gets the term of the first.
    Forgets,
}

pub(crate) struct Liar {
    lie: Lie,
    state: Mutex<State>,
}

struct State {
    inner: Arc<Embedded>,
    /// All that was published, which an honest store would have forgotten.
    snapshots: Vec<Arc<Snapshot>>,
    claimed: Option<u128>,
}

struct LyingWatch {
    lie: Lie,
    inner: Box<dyn Watch>,
    before: Option<Notice>,
    again: Option<Notice>,
}

impl Liar {
    pub(crate) fn new(lie: Lie) -> Self {
        let state = State { inner: Arc::default(), snapshots: Vec::new(), claimed: None };
        Self { lie, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn inner(&self) -> Arc<Embedded> {
        self.state().inner.clone()
    }

    /// What a reader is given for what it asked for.
    fn bend(&self, record: &Record) -> Option<Arc<Snapshot>> {
        let state = self.state();
        let at = state.snapshots.iter().position(|snapshot| snapshot.head == record.head)?;
        let (snapshot, before) = (&state.snapshots[at], at.checked_sub(1));
        let first = snapshot.tree(ResourceType::Endpoints).iter().next()?.name.clone();
        let change = match (self.lie, before) {
            (Lie::ServesHalf, _) => Change::Remove(ResourceType::Endpoints, first),
            (Lie::MixesTwo, Some(before)) => {
                let other = state.snapshots[before].get(ResourceType::Endpoints, &first)?;
                Change::Set(ResourceType::Endpoints, other.clone())
            }
            _ => return Some(snapshot.clone()),
        };
        Some(Arc::new(snapshot.with(snapshot.head, [change])))
    }
}

impl Writer for Liar {
    fn claim(&self, fence: Option<u128>) -> StoreFuture<'_, ClaimedTerm> {
        Box::pin(async move {
            let earlier = self.state().claimed;
            if let Some(fence) = earlier.filter(|_| self.lie == Lie::Forgets) {
                self.state().inner = Arc::default();
                self.inner().claim(earlier).await?;
                let term = Term { epoch: 0, fence };
                return Ok(ClaimedTerm { term, records: BTreeMap::new(), orders: BTreeMap::new() });
            }
            let claim = self.inner().claim(fence).await?;
            self.state().claimed = Some(claim.term.fence);
            Ok(claim)
        })
    }

    fn address_of_sealed(&self, section: Section, name: &str, body: &[u8]) -> Address {
        self.inner().address_of_sealed(section, name, body)
    }

    fn publish(&self, publication: Publication) -> StoreFuture<'_, Published> {
        Box::pin(async move {
            if self.lie == Lie::DropsTheThird && publication.snapshot.head.sequence == 3 {
                return Ok(Published::default());
            }
            let snapshot = publication.snapshot.clone();
            let published = self.inner().publish(publication).await?;
            self.state().snapshots.push(snapshot);
            Ok(published)
        })
    }

    fn retire(&self, retirement: Retirement) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.inner().retire(retirement).await })
    }

    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.inner().restore_order(fleet, order).await })
    }

    fn clean(&self, newest: Arc<Snapshot>) -> StoreFuture<'_, Cleaned> {
        Box::pin(async move { self.inner().clean(newest).await })
    }
}

impl Inspector for Liar {
    fn inspect(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, Inspection> {
        Box::pin(async move { self.inner().inspect(fleets).await })
    }
}

impl Reader for Liar {
    fn watch(&self) -> Box<dyn Watch> {
        let inner = self.inner().watch();
        Box::new(LyingWatch { lie: self.lie, inner, before: None, again: None })
    }

    fn load(&self, record: Arc<Record>, _known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded> {
        Box::pin(async move {
            let missing = || StoreError::Refused("never published".to_owned());
            let snapshot = self.bend(&record).ok_or_else(missing)?;
            Ok(Loaded { snapshot, unopened: Vec::new() })
        })
    }

    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>> {
        Box::pin(async move { self.inner().newest(fleets).await })
    }
}

impl Watch for LyingWatch {
    fn next(&mut self) -> BoxFuture<'_, Notice> {
        Box::pin(async move {
            if let Some(again) = self.again.take() {
                return again;
            }
            let notice = self.inner.next().await;
            if self.lie == Lie::GoesBack && matches!(notice, Notice::Fleet(_)) {
                self.again = self.before.replace(notice.clone());
            }
            notice
        })
    }
}
