use crate::{
    ACKS_EXPIRY, AckReport, ClaimedTerm, Inspection, PRESENCE_EXPIRY, PinOrder, Presence,
    Publication, Record, Retirement, StoreError, Term,
};
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use tokio::time::Instant;

/// The content of the store, without IO and without a clock.
///
/// Its memory is bounded by the fleets: a snapshot and a bounded history of each live one, and a record for every name
/// that a retired one had.
#[derive(Debug)]
pub(super) struct Table {
    /// How many steps of a fleet's history are kept.
    steps: usize,
    /// The newest term that a writer began.
    term: Term,
    fleets: BTreeMap<FleetName, Entry>,
    /// Each fleet once, under the number of its last change. A reader that has read up to one number finds
    /// what changed since behind it, however many fleets there are.
    changes: BTreeMap<u64, FleetName>,
    last_change: u64,
    orders: BTreeMap<FleetName, Ordered>,
    /// By replica, with the time at which they expire.
    reports: BTreeMap<String, (Instant, AckReport)>,
    presences: BTreeMap<String, (Instant, Presence)>,
}

#[derive(Debug)]
struct Entry {
    changed: u64,
    record: Arc<Record>,
    /// Of a retired fleet there is none.
    snapshot: Option<Arc<Snapshot>>,
    /// Newest first.
    history: VecDeque<Kept>,
}

/// A snapshot that can be loaded though it is not the newest.
#[derive(Clone, Debug)]
struct Kept {
    record: Arc<Record>,
    snapshot: Arc<Snapshot>,
}

#[derive(Debug)]
struct Ordered {
    order: PinOrder,
    /// What the fleet is held at, if it is: the history moves on, and this stays.
    snapshot: Option<Arc<Snapshot>>,
}

impl Table {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            steps,
            term: Term::default(),
            fleets: BTreeMap::new(),
            changes: BTreeMap::new(),
            last_change: 0,
            orders: BTreeMap::new(),
            reports: BTreeMap::new(),
            presences: BTreeMap::new(),
        }
    }

    pub(super) fn term(&self) -> Term {
        self.term
    }

    pub(super) fn claim(
        &mut self,
        fence: Option<u128>,
        now: u128,
    ) -> Result<ClaimedTerm, StoreError> {
        let fence = fence.unwrap_or_else(|| now.max(self.term.fence.saturating_add(1)));
        let term = Term { fence, ..self.term };
        self.admit(term)?;
        self.term = term;
        let records = self.fleets.iter();
        let records = records.map(|(fleet, entry)| (fleet.clone(), entry.record.clone())).collect();
        Ok(ClaimedTerm { term, records, orders: self.orders() })
    }

    pub(super) fn adopt(&mut self, from: Term) -> Result<Term, StoreError> {
        if self.term != from {
            return Err(StoreError::Refused(format!(
                "the store's term is {}, no longer {from}: check again before you raise the epoch",
                self.term
            )));
        }
        let Some(epoch) = from.epoch.checked_add(1) else {
            return Err(StoreError::Refused(format!("there is no epoch above {}", from.epoch)));
        };
        self.term = Term { epoch, fence: 0 };
        Ok(self.term)
    }

    /// Whether this changed anything: what is asked again does not.
    pub(super) fn publish(&mut self, publication: Publication) -> Result<bool, StoreError> {
        let record = Arc::new(publication.record());
        if !self.admit_record(&record, publication.expected)? {
            return Ok(false);
        }
        let entry = self.fleets.get_mut(&record.fleet);
        let mut history = entry.map(|entry| mem::take(&mut entry.history)).unwrap_or_default();
        if publication.is_step() {
            let snapshot = publication.snapshot.clone();
            history.push_front(Kept { record: record.clone(), snapshot });
            history.truncate(self.steps);
        }
        self.enter(record, Some(publication.snapshot), history);
        Ok(true)
    }

    /// Whether this changed anything. With the fleet go its history and its pin.
    pub(super) fn retire(&mut self, retirement: Retirement) -> Result<bool, StoreError> {
        let record = Arc::new(retirement.record());
        if !self.admit_record(&record, retirement.expected)? {
            return Ok(false);
        }
        self.orders.remove(&record.fleet);
        self.enter(record, None, VecDeque::new());
        Ok(true)
    }

    pub(super) fn inspect(&self) -> Inspection {
        let heads = self.fleets.iter();
        let heads = heads.map(|(fleet, entry)| (fleet.clone(), entry.record.head)).collect();
        Inspection { term: self.term, heads, orders: self.orders() }
    }

    pub(super) fn newest(&self, fleets: &[FleetName]) -> BTreeMap<FleetName, Arc<Record>> {
        let found =
            fleets.iter().filter_map(|fleet| Some((fleet.clone(), self.record(fleet)?.clone())));
        found.collect()
    }

    pub(super) fn record(&self, fleet: &FleetName) -> Option<&Arc<Record>> {
        self.fleets.get(fleet).map(|entry| &entry.record)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &FleetName> {
        self.fleets.iter().filter(|(_, entry)| entry.record.is_live()).map(|(fleet, _)| fleet)
    }

    pub(super) fn last_change(&self) -> u64 {
        self.last_change
    }

    pub(super) fn changed_after(&self, change: u64) -> impl Iterator<Item = &FleetName> {
        self.changes.range(change.saturating_add(1)..).map(|(_, fleet)| fleet)
    }

    pub(super) fn load(&self, record: &Record) -> Result<Arc<Snapshot>, StoreError> {
        let pinned = self
            .orders
            .get(&record.fleet)
            .and_then(|ordered| Some((ordered.order.at.as_ref()?, ordered.snapshot.as_ref()?)));
        let kept = self.fleets.get(&record.fleet).into_iter().flat_map(Entry::loadable);
        let mut kept = kept.chain(pinned);
        match kept.find(|(kept, _)| ***kept == *record) {
            Some((_, snapshot)) => Ok(snapshot.clone()),
            None => Err(StoreError::Damaged {
                fleet: record.fleet.clone(),
                reason: format!("the snapshot at {} is no longer kept", record.head),
            }),
        }
    }

    pub(super) fn history(&self, fleet: &FleetName) -> Vec<Arc<Record>> {
        let steps = self.fleets.get(fleet).into_iter().flat_map(|entry| &entry.history);
        steps.map(|step| step.record.clone()).collect()
    }

    pub(super) fn order(&mut self, fleet: FleetName, order: PinOrder) -> Result<(), StoreError> {
        let known = self.orders.get(&fleet).map(|known| &known.order);
        if known.is_some_and(|known| known.number >= order.number && *known != order) {
            return Err(StoreError::Refused(format!("{fleet}: a later order was given")));
        }
        let mut snapshot = None;
        if let Some(at) = &order.at {
            let mut steps = self.fleets.get(&fleet).into_iter().flat_map(|entry| &entry.history);
            let is_it = |step: &&Kept| step.record.head == at.head && step.record.state == at.state;
            let Some(step) = steps.find(is_it) else {
                return Err(StoreError::Refused(format!(
                    "{fleet}: {} is not in the history; a fleet can be pinned only to a head that is listed there",
                    at.head
                )));
            };
            snapshot = Some(step.snapshot.clone());
        }
        self.orders.insert(fleet, Ordered { order, snapshot });
        Ok(())
    }

    pub(super) fn set_report(&mut self, report: AckReport, now: Instant) {
        self.expire(now);
        self.reports.insert(report.replica.clone(), (now + ACKS_EXPIRY, report));
    }

    pub(super) fn reports(&mut self, now: Instant) -> Vec<AckReport> {
        self.expire(now);
        self.reports.values().map(|(_, report)| report.clone()).collect()
    }

    pub(super) fn set_presence(&mut self, presence: Presence, now: Instant) {
        self.expire(now);
        self.presences.insert(presence.replica.clone(), (now + PRESENCE_EXPIRY, presence));
    }

    pub(super) fn presences(&mut self, now: Instant) -> Vec<Presence> {
        self.expire(now);
        self.presences.values().map(|(_, presence)| presence.clone()).collect()
    }

    fn expire(&mut self, now: Instant) {
        self.reports.retain(|_, (expiry, _)| *expiry > now);
        self.presences.retain(|_, (expiry, _)| *expiry > now);
    }

    fn orders(&self) -> BTreeMap<FleetName, PinOrder> {
        let orders = self.orders.iter();
        orders.map(|(fleet, ordered)| (fleet.clone(), ordered.order.clone())).collect()
    }

    /// Whether a record is to be entered. Not if it is there already: then its writer did not receive the answer and
    /// asks again, which is right whatever happened since.
    fn admit_record(&self, record: &Record, expected: Option<Head>) -> Result<bool, StoreError> {
        let found = self.record(&record.fleet);
        if found.is_some_and(|found| **found == *record) {
            return Ok(false);
        }
        self.admit(record.head.into())?;
        let found = found.map(|found| found.head);
        let fleet = || record.fleet.clone();
        if found != expected {
            return Err(StoreError::Conflict { fleet: fleet(), expected, found });
        }
        match found {
            Some(found) if record.head <= found => {
                Err(StoreError::NotNewer { fleet: fleet(), offered: record.head, found })
            }
            _ => Ok(true),
        }
    }

    /// Refuses a writer whose term is over.
    fn admit(&self, ours: Term) -> Result<(), StoreError> {
        if ours < self.term {
            return Err(StoreError::Fenced { ours, theirs: self.term });
        }
        Ok(())
    }

    fn enter(
        &mut self,
        record: Arc<Record>,
        snapshot: Option<Arc<Snapshot>>,
        history: VecDeque<Kept>,
    ) {
        // Who writes in a term that no claim began has begun it.
        self.term = record.head.into();
        self.last_change += 1;
        let (changed, fleet) = (self.last_change, record.fleet.clone());
        let entry = Entry { changed, record, snapshot, history };
        if let Some(before) = self.fleets.insert(fleet.clone(), entry) {
            self.changes.remove(&before.changed);
        }
        self.changes.insert(changed, fleet);
    }
}

impl Entry {
    /// The newest first.
    fn loadable(&self) -> impl Iterator<Item = (&Arc<Record>, &Arc<Snapshot>)> {
        let newest = self.snapshot.iter().map(|snapshot| (&self.record, snapshot));
        newest.chain(self.history.iter().map(|step| (&step.record, &step.snapshot)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PinState;
    use std::time::SystemTime;

    fn head(fence: u128, sequence: u64) -> Head {
        Head { epoch: 0, fence, sequence }
    }

    fn publish(table: &mut Table, name: &str, head: Head) {
        let fleet = FleetName::new("default", name);
        let publication = Publication {
            expected: table.record(&fleet).map(|record| record.head),
            snapshot: Arc::new(Snapshot::empty(fleet).with(head, [])),
            held: None,
            time: SystemTime::UNIX_EPOCH,
            cause: "test".into(),
            pin: PinState::default(),
        };
        assert_eq!(table.publish(publication), Ok(true));
    }

    #[test]
    fn without_an_election_the_fence_is_the_time_or_one_above_the_last() {
        let mut table = Table::new(1);
        let mut fence = |given, now| table.claim(given, now).unwrap().term.fence;
        assert_eq!(fence(None, 1_000), 1_000);
        assert_eq!(fence(None, 1_000), 1_001);
        assert_eq!(fence(None, 7), 1_002, "the clock went back");
        assert_eq!(fence(Some(5_000), 7), 5_000);
        assert_eq!(fence(None, 7), 5_001);
    }

    #[test]
    fn a_wake_up_finds_one_change_among_a_thousand_fleets() {
        let mut table = Table::new(1);
        for number in 0..1_000 {
            publish(&mut table, &format!("fleet-{number}"), head(1, 1));
        }
        let before = table.last_change();
        publish(&mut table, "fleet-500", head(1, 2));
        publish(&mut table, "fleet-500", head(1, 3));
        let changed: Vec<_> = table.changed_after(before).map(FleetName::as_str).collect();
        assert_eq!(changed, ["default/fleet-500"]);
        assert_eq!(table.changes.len(), 1_000, "the log grew beyond one line a fleet");
    }

    #[test]
    fn an_epoch_outweighs_every_fence() {
        let mut table = Table::new(1);
        table.claim(Some(900), 0).unwrap();
        publish(&mut table, "one", Head { epoch: 1, fence: 3, sequence: 1 });
        let (ours, theirs) = (Term { epoch: 1, fence: 2 }, Term { epoch: 1, fence: 3 });
        assert_eq!(
            table.claim(Some(2), 0),
            Err(StoreError::Fenced { ours, theirs }),
            "a claim takes the epoch of the store"
        );
        assert_eq!(table.claim(Some(4), 0).unwrap().term.epoch, 1);
        let older = Term { epoch: 0, fence: 900 };
        assert!(matches!(table.admit(older), Err(StoreError::Fenced { .. })));
    }

    #[test]
    fn what_is_neither_newest_nor_history_nor_pinned_is_not_kept() {
        let mut table = Table::new(1);
        let fleet = FleetName::new("default", "one");
        publish(&mut table, "one", head(1, 1));
        let first = table.history(&fleet).remove(0);
        let order = |number, at| PinOrder {
            number,
            at,
            time: SystemTime::UNIX_EPOCH,
            by: "me".into(),
            reason: "test".into(),
        };
        table.order(fleet.clone(), order(1, Some(first.clone()))).unwrap();
        publish(&mut table, "one", head(1, 2));
        assert_eq!(table.load(&first).unwrap().head, first.head);
        table.order(fleet.clone(), order(2, None)).unwrap();
        assert!(matches!(table.load(&first), Err(StoreError::Damaged { .. })));
        let forged = Record { cause: "forged".into(), ..Record::clone(&table.history(&fleet)[0]) };
        assert!(matches!(table.load(&forged), Err(StoreError::Damaged { .. })));
    }
}
