//! Decides how much of a fleet is stored beside its newest snapshot, and for how long. Independent of Redis.

use heliograph_snapshot::Address;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Bounds, in bytes, of what is stored of a fleet beside its newest snapshot. One fleet must not fill a Redis that all share.
#[derive(Clone, Copy, Debug)]
pub struct RetentionLimits {
    /// The history of a fleet may take twice the size of its newest snapshot, but at least this much, and so may its garbage.
    pub least: u64,
    /// The same, and at most this much.
    pub most: u64,
    /// For so long an object stays that nothing leads to, also when there is too much garbage: a publication waits instead.
    pub grace: Duration,
}

/// The history has so many of the newest steps, however large they are: a fleet can always go back.
const LEAST_STEPS: usize = 2;

/// The objects of a fleet that nothing leads to. They stay for a while, so that a reader of an earlier head can finish.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    found: HashMap<Address, Found>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    at: Instant,
    bytes: u64,
}

/// Which garbage is deleted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Urgency {
    /// What was found by an earlier sweep and is older than the grace; and the oldest, as far as it is more than the bound.
    Bounded(u64),
    /// All: Redis takes no more writes of any fleet.
    OutOfMemory,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        Self { least: 8 << 20, most: 64 << 20, grace: Duration::from_secs(1) }
    }
}

impl RetentionLimits {
    /// How much the history may take, and how much the garbage may, beside a snapshot of this size.
    pub(super) fn of(self, snapshot: u64) -> u64 {
        snapshot.saturating_mul(2).min(self.most).max(self.least)
    }

    /// So many bytes are written between two sweeps. A sweep costs in proportion to the number of objects that the fleet has,
    /// so this is in proportion to its size, too.
    pub(super) fn between_sweeps(self, snapshot: u64) -> u64 {
        self.of(snapshot) / 2
    }

    /// Whether so many bytes are written at once, with a snapshot and garbage of these sizes. The objects that a large
    /// publication replaces are garbage at once and may exceed the bound: a small publication, such as of endpoints,
    /// does not wait for that.
    pub(super) fn is_room(self, garbage: u64, snapshot: u64, bytes: u64) -> bool {
        let (bound, between) = (self.of(snapshot), self.between_sweeps(snapshot));
        let is_small = bytes < between;
        garbage <= bound || (is_small && garbage + bytes <= bound + snapshot + between)
    }
}

impl Garbage {
    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the oldest was found.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.found.values().map(|found| found.at).min()
    }

    /// Forgets an object that is written again: it has new readers.
    pub(super) fn forget(&mut self, address: &Address) {
        if let Some(found) = self.found.remove(address) {
            self.bytes -= found.bytes;
        }
    }

    /// A sweep found this, and no other garbage. Returns what is to be deleted, and forgets it.
    pub(super) fn swept(
        &mut self,
        unreachable: impl IntoIterator<Item = (Address, u64)>,
        now: Instant,
        urgency: Urgency,
        graces: (Duration, Duration),
    ) -> Vec<Address> {
        let (grace, least) = graces;
        let before = std::mem::take(self);
        let mut deleted = Vec::new();
        for (address, bytes) in unreachable {
            let earlier = before.found.get(&address).map(|found| found.at);
            let is_ripe = earlier.is_some_and(|at| now.duration_since(at) >= grace);
            if is_ripe || matches!(urgency, Urgency::OutOfMemory) {
                deleted.push(address);
                continue;
            }
            self.bytes += bytes;
            self.found.insert(address, Found { at: earlier.unwrap_or(now), bytes });
        }
        if let Urgency::Bounded(bound) = urgency
            && self.bytes > bound
        {
            let is_old = |found: &Found| now.duration_since(found.at) >= least;
            let old = self.found.iter().filter(|(_, found)| is_old(found));
            let mut old: Vec<_> = old.map(|(address, found)| (found.at, *address)).collect();
            old.sort_unstable();
            for (_, address) in old {
                if self.bytes <= bound {
                    break;
                }
                self.forget(&address);
                deleted.push(address);
            }
        }
        deleted
    }
}

/// Which steps of the history stay: the newest [`LEAST_STEPS`], and those behind them as far as all together take no more than
/// the bound beside the newest snapshot.
#[derive(Debug)]
pub(super) struct StepBudget {
    bound: u64,
    bytes: u64,
    kept: usize,
}

impl StepBudget {
    pub(super) fn new(bound: u64) -> Self {
        Self { bound, bytes: 0, kept: 0 }
    }

    /// Whether the next step stays, which takes so much beside the newer ones. Those behind one that does not, do not either.
    pub(super) fn admit(&mut self, bytes: u64) -> bool {
        self.bytes = self.bytes.saturating_add(bytes);
        let stays = self.kept < LEAST_STEPS || self.bytes <= self.bound;
        self.kept += usize::from(stays);
        stays
    }

    pub(super) fn kept(&self) -> usize {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const GRACES: (Duration, Duration) = (Duration::from_secs(60), SECOND);

    fn address(number: u8) -> Address {
        Address([number; 32])
    }

    fn objects(numbers: impl IntoIterator<Item = u8>) -> Vec<(Address, u64)> {
        numbers.into_iter().map(|number| (address(number), 10)).collect()
    }

    #[test]
    fn little_garbage_stays_for_the_grace() {
        let (mut garbage, start) = (Garbage::default(), Instant::now());
        let mut swept = |seconds: u32, numbers: &[u8]| {
            let found = objects(numbers.iter().copied());
            garbage.swept(found, start + SECOND * seconds, Urgency::Bounded(100), GRACES)
        };
        assert_eq!(swept(0, &[1]), []);
        assert_eq!(swept(30, &[1, 2]), []);
        assert_eq!(swept(60, &[1, 2]), [address(1)]);
        assert_eq!(swept(61, &[2]), []);
        assert_eq!(swept(90, &[2]), [address(2)]);
    }

    #[test]
    fn of_much_garbage_the_oldest_goes_first_and_nothing_before_the_least_grace() {
        let (mut garbage, start) = (Garbage::default(), Instant::now());
        let bounded = Urgency::Bounded(30);
        assert_eq!(garbage.swept(objects(0..2), start, bounded, GRACES), []);
        assert_eq!(garbage.swept(objects(0..6), start + SECOND / 2, bounded, GRACES), []);
        assert_eq!((garbage.bytes(), garbage.oldest()), (60, Some(start)));
        let mut deleted = garbage.swept(objects(0..6), start + SECOND, bounded, GRACES);
        deleted.sort_unstable();
        assert_eq!(deleted, [address(0), address(1)]);
        assert_eq!(garbage.bytes(), 40, "the others are too young");
        assert_eq!(garbage.swept(objects(2..6), start + SECOND * 2, bounded, GRACES).len(), 1);
        assert_eq!(garbage.bytes(), 30);
        assert_eq!(
            garbage.swept(objects(3..7), start + SECOND * 2, Urgency::OutOfMemory, GRACES).len(),
            4
        );
        assert!(garbage.is_empty() && garbage.bytes() == 0);
    }

    #[test]
    fn the_history_has_two_steps_and_more_as_far_as_there_is_room() {
        let kept_steps = |steps: &[u64], bound| {
            let mut budget = StepBudget::new(bound);
            steps.iter().take_while(|bytes| budget.admit(**bytes)).count()
        };
        assert_eq!(kept_steps(&[], 10), 0);
        assert_eq!(kept_steps(&[100, 100, 100], 10), 2);
        assert_eq!(kept_steps(&[0, 4, 4, 2, 1], 10), 4);
        assert_eq!(kept_steps(&[0, 0, 0], 0), 3);
    }

    #[test]
    fn bounds_follow_the_size_of_the_snapshot() {
        let retention = RetentionLimits { least: 8, most: 64, grace: SECOND };
        assert_eq!([0, 4, 10, 40, u64::MAX].map(|size| retention.of(size)), [8, 8, 20, 64, 64]);
        let is_room = |garbage, bytes| retention.is_room(garbage, 10, bytes);
        assert!(is_room(20, 1000) && !is_room(21, 1000));
        assert!(is_room(30, 9) && !is_room(32, 9), "what was replaced, and some more");
    }

    proptest! {
        /// After any sweeps: the bytes are those of what waits, and what is more than the bound is younger than the least
        /// grace.
        #[test]
        fn garbage_is_bounded(sweeps in prop::collection::vec(
            (0..3_000u64, prop::collection::btree_map(0..20u8, 0..50u64, 0..20)), 1..20,
        )) {
            let (mut garbage, mut now) = (Garbage::default(), Instant::now());
            for (pause, found) in sweeps {
                now += Duration::from_millis(pause);
                let found = found.into_iter().map(|(number, bytes)| (address(number), bytes));
                let found: HashMap<_, _> = found.collect();
                let deleted = garbage.swept(found.clone(), now, Urgency::Bounded(100), GRACES);
                prop_assert!(deleted.iter().all(|address| found.contains_key(address)));
                prop_assert_eq!(deleted.len() + garbage.found.len(), found.len());
                let bytes: u64 = garbage.found.values().map(|found| found.bytes).sum();
                prop_assert_eq!(bytes, garbage.bytes());
                let old = garbage.oldest().is_some_and(|at| now.duration_since(at) >= SECOND);
                prop_assert!(bytes <= 100 || !old);
            }
        }
    }
}
