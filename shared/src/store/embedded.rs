use super::{Claim, Store, StoreError, Subscription, Update};
use futures::future::BoxFuture;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The store inside one process: for standalone use and for tests. Closed when it is dropped.
#[derive(Debug, Default)]
pub struct Embedded {
    table: Arc<Mutex<Table>>,
    /// Rings after every change. It carries nothing: who hears it reads the table.
    doorbell: watch::Sender<()>,
}

/// What the store holds, without IO and without a clock.
#[derive(Debug, Default)]
struct Table {
    /// The newest term that a writer began, as (epoch, fence).
    term: (u64, u128),
    fleets: BTreeMap<FleetName, Entry>,
    /// Each fleet once, under the number of its last change. A reader that has read up to one number finds
    /// what changed since behind it, however many fleets there are.
    changes: BTreeMap<u64, FleetName>,
    last_change: u64,
}

#[derive(Debug)]
struct Entry {
    changed: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Live(Arc<Snapshot>),
    Retired(Head),
}

/// A reader's memory is bounded by the number of fleets and holds no snapshot: a snapshot is looked up when it is
/// yielded, so a slow reader gets the newest.
struct Reader {
    table: Arc<Mutex<Table>>,
    doorbell: watch::Receiver<()>,
    /// Fleets that changed and have not been yielded since, in the order in which they changed.
    pending: VecDeque<FleetName>,
    /// The change up to which `pending` was filled.
    read_to: u64,
    /// The head last yielded of every fleet that the reader believes live.
    yielded: BTreeMap<FleetName, Head>,
    synced: bool,
}

impl Embedded {
    pub fn new() -> Self {
        Self::default()
    }

    fn write<T>(
        &self,
        change: impl FnOnce(&mut Table) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let outcome = change(&mut lock(&self.table));
        if outcome.is_ok() {
            self.doorbell.send_replace(());
        }
        outcome
    }
}

impl Store for Embedded {
    fn claim(&self, fence: Option<u128>) -> BoxFuture<'_, Result<Claim, StoreError>> {
        Box::pin(async move { lock(&self.table).claim(fence, unix_milliseconds()) })
    }

    fn publish(
        &self,
        snapshot: Arc<Snapshot>,
        expected: Option<Head>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.write(|table| {
                let (fleet, head) = (snapshot.fleet.clone(), snapshot.head);
                table.advance(fleet, head, expected, State::Live(snapshot))
            })
        })
    }

    fn retire(
        &self,
        fleet: FleetName,
        tombstone: Head,
        expected: Option<Head>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            self.write(|table| table.advance(fleet, tombstone, expected, State::Retired(tombstone)))
        })
    }

    fn subscribe(&self) -> Box<dyn Subscription> {
        let doorbell = self.doorbell.subscribe();
        let table = lock(&self.table);
        Box::new(Reader {
            table: self.table.clone(),
            doorbell,
            pending: table.live().cloned().collect(),
            read_to: table.last_change,
            yielded: BTreeMap::new(),
            synced: false,
        })
    }
}

impl Table {
    fn claim(&mut self, fence: Option<u128>, now: u128) -> Result<Claim, StoreError> {
        let (epoch, current) = self.term;
        let fence = fence.unwrap_or_else(|| now.max(current.saturating_add(1)));
        self.admit(epoch, fence)?;
        self.term = (epoch, fence);
        let heads =
            self.fleets.iter().map(|(fleet, entry)| (fleet.clone(), entry.state.head())).collect();
        Ok(Claim { epoch, fence, heads })
    }

    /// Moves a fleet to `head`, or changes nothing.
    fn advance(
        &mut self,
        fleet: FleetName,
        head: Head,
        expected: Option<Head>,
        state: State,
    ) -> Result<(), StoreError> {
        self.admit(head.epoch, head.fence)?;
        let found = self.fleets.get(&fleet).map(|entry| entry.state.head());
        if found != expected {
            return Err(StoreError::Conflict { fleet, expected, found });
        }
        if let Some(found) = found
            && head <= found
        {
            return Err(StoreError::NotNewer { fleet, offered: head, found });
        }
        // A store that was emptied has forgotten the claim, and must still refuse the term before it.
        self.term = (head.epoch, head.fence);
        self.last_change += 1;
        let entry = Entry { changed: self.last_change, state };
        if let Some(before) = self.fleets.insert(fleet.clone(), entry) {
            self.changes.remove(&before.changed);
        }
        self.changes.insert(self.last_change, fleet);
        Ok(())
    }

    /// Refuses a writer whose term is over.
    fn admit(&self, epoch: u64, fence: u128) -> Result<(), StoreError> {
        if (epoch, fence) < self.term {
            return Err(StoreError::Fenced { ours: fence, theirs: self.term.1 });
        }
        Ok(())
    }

    fn live(&self) -> impl Iterator<Item = &FleetName> {
        self.fleets
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Live(_)))
            .map(|(fleet, _)| fleet)
    }

    fn changed_after(&self, change: u64) -> impl Iterator<Item = &FleetName> {
        self.changes.range(change.saturating_add(1)..).map(|(_, fleet)| fleet)
    }
}

impl State {
    fn head(&self) -> Head {
        match self {
            Self::Live(snapshot) => snapshot.head,
            Self::Retired(tombstone) => *tombstone,
        }
    }
}

impl Subscription for Reader {
    fn next(&mut self) -> BoxFuture<'_, Option<Update>> {
        Box::pin(async move {
            loop {
                if let Some(update) = self.take() {
                    return Some(update);
                }
                // At once if it rang since it was last waited for, so no change slips between.
                self.doorbell.changed().await.ok()?;
            }
        })
    }
}

impl Reader {
    /// The next update, if there is one now.
    fn take(&mut self) -> Option<Update> {
        let table = self.table.clone();
        let table = lock(&table);
        loop {
            while let Some(fleet) = self.pending.pop_front() {
                if let Some(entry) = table.fleets.get(&fleet)
                    && let Some(update) = self.tell(fleet, &entry.state)
                {
                    return Some(update);
                }
            }
            if !self.synced {
                self.synced = true;
                return Some(Update::Synced);
            }
            // Only once all of the last round is told: a fleet that changes all the time takes its turn.
            self.pending.extend(table.changed_after(self.read_to).cloned());
            self.read_to = table.last_change;
            if self.pending.is_empty() {
                return None;
            }
        }
    }

    /// What the reader has yet to hear of a fleet: nothing where it took a newer state before its turn came.
    fn tell(&mut self, fleet: FleetName, state: &State) -> Option<Update> {
        match state {
            State::Live(snapshot) => {
                let before = self.yielded.insert(fleet, snapshot.head);
                (before != Some(snapshot.head)).then(|| Update::Published(snapshot.clone()))
            }
            State::Retired(tombstone) => {
                self.yielded.remove(&fleet)?;
                Some(Update::Retired(fleet, *tombstone))
            }
        }
    }
}

/// Nothing panics while it holds the lock, so a poisoned table is a whole one.
fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_milliseconds() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(fence: u128, sequence: u64) -> Head {
        Head { epoch: 0, fence, sequence }
    }

    fn publish(table: &mut Table, name: &str, head: Head) {
        let fleet = FleetName::new("default", name);
        let expected = table.fleets.get(&fleet).map(|entry| entry.state.head());
        let snapshot = Arc::new(Snapshot::empty(fleet.clone()).with(head, []));
        table.advance(fleet, head, expected, State::Live(snapshot)).unwrap();
    }

    #[test]
    fn without_an_election_the_fence_is_the_time_or_one_above_the_last() {
        let mut table = Table::default();
        assert_eq!(table.claim(None, 1_000).unwrap().fence, 1_000);
        assert_eq!(table.claim(None, 1_000).unwrap().fence, 1_001);
        assert_eq!(table.claim(None, 7).unwrap().fence, 1_002, "the clock went back");
        assert_eq!(table.claim(Some(5_000), 7).unwrap().fence, 5_000);
        assert_eq!(table.claim(None, 7).unwrap().fence, 5_001);
    }

    #[test]
    fn a_wake_up_finds_one_change_among_a_thousand_fleets() {
        let mut table = Table::default();
        for number in 0..1_000 {
            publish(&mut table, &format!("fleet-{number}"), head(1, 1));
        }
        let before = table.last_change;
        publish(&mut table, "fleet-500", head(1, 2));
        publish(&mut table, "fleet-500", head(1, 3));
        let changed: Vec<_> = table.changed_after(before).map(FleetName::as_str).collect();
        assert_eq!(changed, ["default/fleet-500"]);
        assert_eq!(table.changes.len(), 1_000, "the log grew beyond one line a fleet");
    }

    #[test]
    fn an_epoch_outweighs_every_fence() {
        let mut table = Table::default();
        table.claim(Some(900), 0).unwrap();
        publish(&mut table, "one", Head { epoch: 1, fence: 3, sequence: 1 });
        assert_eq!(
            table.claim(Some(2), 0),
            Err(StoreError::Fenced { ours: 2, theirs: 3 }),
            "a claim takes the epoch of the store"
        );
        assert_eq!(table.claim(Some(4), 0).unwrap().epoch, 1);
        assert!(matches!(table.admit(0, 900), Err(StoreError::Fenced { .. })));
    }
}
