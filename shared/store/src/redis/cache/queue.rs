//! The snapshots that wait to be written, without IO and without a clock.

use bytes::Bytes;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use tokio::time::Instant;

/// A snapshot to write, and the record that it was loaded for.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub(super) record: Bytes,
    pub(super) snapshot: Arc<Snapshot>,
}

/// One snapshot of each fleet at most: a newer one replaces an older one.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    pending: BTreeMap<FleetName, Pending>,
    /// Those of them that may be written, in the order in which they are.
    ready: BTreeSet<(Reverse<Option<u64>>, Instant, FleetName)>,
    /// The others, in the order in which they are due.
    waiting: BTreeSet<(Instant, FleetName)>,
}

#[derive(Debug)]
struct Pending {
    record: Bytes,
    snapshot: Weak<Snapshot>,
    head: Head,
    /// `None` after a failed write: then the snapshot is kept only while other code uses it, so that retries need no
    /// memory.
    held: Option<Arc<Snapshot>>,
    /// When it may be written.
    due: Instant,
    /// When the fleet last had clients, in seconds since 1970.
    last_use: Option<u64>,
}

impl WriteQueue {
    /// Whether it is to be written. One that replaces another is due when that was.
    pub(super) fn offer(&mut self, work: Work, due: Instant, last_use: Option<u64>) -> bool {
        let before = self.pending.get(&work.snapshot.fleet);
        if before.is_some_and(|before| before.head >= work.snapshot.head) {
            return false;
        }
        let due = before.map_or(due, |before| before.due);
        let held = Some(work.snapshot.clone());
        self.insert(work, held, due, last_use);
        true
    }

    /// Tries a failed write again at `due`, unless a newer snapshot is pending.
    pub(super) fn postpone(&mut self, work: Work, due: Instant, last_use: Option<u64>) {
        if !self.pending.contains_key(&work.snapshot.fleet) {
            self.insert(work, None, due, last_use);
        }
    }

    pub(super) fn remove(&mut self, fleet: &FleetName) {
        let _ = self.take(fleet);
    }

    /// The fleet has clients, at so many seconds since 1970.
    pub(super) fn used(&mut self, fleet: &FleetName, now: u64) {
        let Some(pending) = self.pending.get_mut(fleet) else { return };
        let before = (Reverse(pending.last_use), pending.due, fleet.clone());
        pending.last_use = Some(now);
        if self.ready.remove(&before) {
            self.ready.insert((Reverse(Some(now)), before.1, before.2));
        }
    }

    /// The next snapshot to write: first the fleets with the most recent use. `all`: also those that are not due.
    pub(super) fn next(&mut self, now: Instant, all: bool) -> Option<Work> {
        while let Some((due, _)) = self.waiting.first()
            && *due <= now
            && let Some((_, fleet)) = self.waiting.pop_first()
        {
            self.make_ready(fleet);
        }
        if all {
            let is_held =
                |fleet: &FleetName| self.pending.get(fleet).is_some_and(|it| it.held.is_some());
            let held = self.waiting.extract_if(.., |(_, fleet)| is_held(fleet));
            let held: Vec<_> = held.map(|(_, fleet)| fleet).collect();
            held.into_iter().for_each(|fleet| self.make_ready(fleet));
        }
        while let Some((.., fleet)) = self.ready.pop_first() {
            let Some(pending) = self.pending.remove(&fleet) else { continue };
            // Otherwise the snapshot was dropped.
            if let Some(snapshot) = pending.snapshot.upgrade() {
                return Some(Work { record: pending.record, snapshot });
            }
        }
        None
    }

    /// When something may be written. `None`: nothing is pending.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let ready = self.ready.first().map(|(_, due, _)| *due);
        ready.or_else(|| self.waiting.first().map(|(due, _)| *due))
    }

    fn insert(
        &mut self,
        work: Work,
        held: Option<Arc<Snapshot>>,
        due: Instant,
        last_use: Option<u64>,
    ) {
        let Work { record, snapshot } = work;
        let fleet = snapshot.fleet.clone();
        self.remove(&fleet);
        self.waiting.insert((due, fleet.clone()));
        let (head, snapshot) = (snapshot.head, Arc::downgrade(&snapshot));
        self.pending.insert(fleet, Pending { record, snapshot, head, held, due, last_use });
    }

    fn make_ready(&mut self, fleet: FleetName) {
        if let Some(Pending { due, last_use, .. }) = self.pending.get(&fleet) {
            self.ready.insert((Reverse(*last_use), *due, fleet));
        }
    }

    fn take(&mut self, fleet: &FleetName) -> Option<Pending> {
        let pending = self.pending.remove(fleet)?;
        let place = (pending.due, fleet.clone());
        if !self.waiting.remove(&place) {
            self.ready.remove(&(Reverse(pending.last_use), place.0, place.1));
        }
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::Change;
    use std::time::Duration;

    fn work(name: &str, sequence: u64) -> Work {
        let head = Head { epoch: 0, fence: 1, sequence };
        let snapshot = Snapshot::empty(fleet(name)).with(head, std::iter::empty::<Change>());
        Work { record: Bytes::new(), snapshot: Arc::new(snapshot) }
    }

    fn fleet(name: &str) -> FleetName {
        FleetName::new("default", name)
    }

    fn all(queue: &mut WriteQueue, now: Instant) -> Vec<FleetName> {
        let works = std::iter::from_fn(|| queue.next(now, false));
        works.map(|work| work.snapshot.fleet.clone()).collect()
    }

    #[test]
    fn a_fleet_that_is_used_while_it_waits_goes_first() {
        let (mut queue, now) = (WriteQueue::default(), Instant::now());
        for (name, last_use) in [("a", None), ("b", Some(1)), ("c", Some(2)), ("d", None)] {
            assert!(queue.offer(work(name, 1), now, last_use));
        }
        assert_eq!(queue.next(now, false).unwrap().snapshot.fleet, fleet("c"));
        queue.used(&fleet("d"), 3);
        // Replaced by something newer, and by something that was offered late.
        assert!(queue.offer(work("a", 2), now, Some(4)));
        assert!(queue.offer(work("e", 1), now, Some(5)));
        assert_eq!(all(&mut queue, now), ["e", "a", "d", "b"].map(fleet));
        assert_eq!(queue.next_due(), None);
        assert!(queue.ready.is_empty() && queue.waiting.is_empty());
    }

    #[test]
    fn what_is_not_due_waits_and_what_is_removed_is_gone() {
        let (mut queue, now) = (WriteQueue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        let kept = work("c", 1);
        queue.postpone(kept.clone(), later, Some(9));
        for (name, due) in [("a", now), ("b", later), ("d", now), ("e", later)] {
            assert!(queue.offer(work(name, 1), due, None));
        }
        assert_eq!(queue.next(now, false).unwrap().snapshot.fleet, fleet("a"));
        ["d", "e"].iter().for_each(|name| queue.remove(&fleet(name)));
        assert!(queue.next(now, false).is_none());
        assert_eq!(queue.next_due(), Some(later));
        assert_eq!(queue.next(now, true).unwrap().snapshot.fleet, fleet("b"), "at the end");
        assert!(queue.next(now, true).is_none(), "it failed a moment ago");
        assert_eq!(all(&mut queue, later), [fleet("c")]);
        assert!(queue.pending.is_empty() && queue.ready.is_empty() && queue.waiting.is_empty());
    }
}
