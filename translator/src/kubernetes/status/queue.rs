//! The queue of objects: each waits once, however often it changes, and its latest status is written.

use heliograph_gateway::objects::{Kind, ObjectKey};
use heliograph_shared::token_bucket::TokenBucket;
use std::collections::BTreeMap;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct StatusQueue {
    entries: BTreeMap<ObjectKey, Entry>,
    /// Who waits, by rank and then by the time from which it may be its turn.
    waiting: [BTreeMap<QueuePosition, ObjectKey>; 2],
    /// Distinguishes objects that came at the same time.
    count: u64,
}

#[derive(Debug)]
struct Entry {
    turn: Turn,
    /// Its priority: the lower is first.
    rank: usize,
    /// How often the write at hand has failed.
    attempts: u32,
}

#[derive(Debug)]
enum Turn {
    Waiting(QueuePosition),
    /// Whether it changed meanwhile.
    Working {
        changed: bool,
    },
}

type QueuePosition = (Instant, u64);

/// Ten thousand routes take half a minute, and leave the API server to others: it is also asked for few at a time.
const WRITES_PER_SECOND: f64 = 400.0;
const BURST: f64 = 400.0;

pub(super) fn write_rate_limit(now: Instant) -> TokenBucket<Instant> {
    TokenBucket::new(WRITES_PER_SECOND, BURST, now)
}

impl StatusQueue {
    /// Queues an object that may need a write. After a failure it keeps its pause. Urgent objects come first.
    pub(super) fn mark(&mut self, key: ObjectKey, is_urgent: bool, now: Instant) {
        let rank = if is_urgent { 0 } else { rank(&key) };
        match self.entries.get_mut(&key) {
            Some(Entry { turn: Turn::Working { changed }, .. }) => *changed = true,
            Some(Entry { turn: Turn::Waiting((at, _)), attempts, rank: before })
                if *before <= rank && (*at <= now || *attempts > 0) => {}
            Some(Entry { turn: Turn::Waiting((at, _)), attempts, .. }) => {
                let at = if *attempts > 0 { *at } else { now };
                self.enqueue(key, rank, at);
            }
            None => self.enqueue(key, rank, now),
        }
    }

    /// The next object. It is being written until [`StatusQueue::done`] or [`StatusQueue::retry_at`] is called with it.
    pub(super) fn next(&mut self, now: Instant) -> Option<ObjectKey> {
        let mut ranks = self.waiting.iter_mut().filter_map(BTreeMap::first_entry);
        let key = ranks.find(|first| first.key().0 <= now)?.remove();
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.turn = Turn::Working { changed: false };
        }
        Some(key)
    }

    /// It is as it is to be, as far as was known when it had its turn.
    pub(super) fn done(&mut self, key: ObjectKey, now: Instant) {
        let entry = self.entries.remove(&key);
        if let Some(Entry { turn: Turn::Working { changed: true }, .. }) = entry {
            self.retry_at(key, now);
        }
    }

    /// It waits again, until then.
    pub(super) fn retry_at(&mut self, key: ObjectKey, at: Instant) {
        let rank = self.entries.get(&key).map_or_else(|| rank(&key), |entry| entry.rank);
        self.enqueue(key, rank, at);
    }

    fn enqueue(&mut self, key: ObjectKey, rank: usize, at: Instant) {
        self.count += 1;
        let position = (at, self.count);
        let new = Entry { turn: Turn::Working { changed: false }, rank, attempts: 0 };
        let entry = self.entries.entry(key.clone()).or_insert(new);
        if let Turn::Waiting(before) = entry.turn {
            self.waiting[entry.rank].remove(&before);
        }
        (entry.turn, entry.rank) = (Turn::Waiting(position), rank);
        self.waiting[rank].insert(position, key);
    }

    /// Counts that it failed. Returns how often it has.
    pub(super) fn failed(&mut self, key: &ObjectKey) -> u32 {
        self.entries.get_mut(key).map_or(1, |entry| {
            entry.attempts = entry.attempts.saturating_add(1);
            entry.attempts
        })
    }

    /// When the next has its turn, if nothing else happens.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let first = self.waiting.iter().filter_map(BTreeMap::first_key_value);
        first.map(|((at, _), _)| *at).min()
    }

    /// How many wait or are worked on.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// Gateways and their classes are few, and people wait for them: they do not wait for ten thousand routes.
fn rank(key: &ObjectKey) -> usize {
    match key.kind {
        Kind::GatewayClass | Kind::Gateway | Kind::ListenerSet => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::objects::ObjectName;
    use std::time::Duration;

    fn route(name: &str) -> ObjectKey {
        ObjectName::new("shop", name).of(Kind::HTTPRoute)
    }

    #[test]
    fn each_waits_once_and_gateways_come_first() {
        let (mut queue, now) = (StatusQueue::default(), Instant::now());
        let gateway = ObjectName::new("shop", "web").of(Kind::Gateway);
        for key in [route("b"), route("a"), gateway.clone(), route("b")] {
            queue.mark(key, false, now);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(order, [gateway, route("b"), route("a")]);
        assert_eq!((queue.next_at(), queue.len()), (None, 3));
        order.into_iter().for_each(|key| queue.done(key, now));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn what_is_urgent_goes_before_all_others_of_its_kind() {
        let (mut queue, now) = (StatusQueue::default(), Instant::now());
        for name in ["a", "b", "c"] {
            queue.mark(route(name), false, now);
        }
        queue.mark(route("c"), true, now);
        queue.mark(route("c"), false, now);
        let order: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(order, [route("c"), route("a"), route("b")]);
    }

    #[test]
    fn what_changes_while_it_is_worked_on_has_another_turn() {
        let (mut queue, now) = (StatusQueue::default(), Instant::now());
        queue.mark(route("a"), false, now);
        let key = queue.next(now).unwrap();
        queue.mark(route("a"), false, now);
        assert_eq!(queue.next(now), None, "one at a time");
        queue.done(key, now);
        assert_eq!(queue.next(now), Some(route("a")));
        queue.done(route("a"), now);
        assert_eq!(queue.next(now), None);
    }

    #[test]
    fn what_failed_keeps_its_pause_and_what_can_wait_does_not() {
        let (mut queue, now) = (StatusQueue::default(), Instant::now());
        let later = now + Duration::from_secs(5);
        for (name, fails) in [("bad", true), ("minor", false)] {
            queue.mark(route(name), false, now);
            let key = queue.next(now).unwrap();
            if fails {
                assert_eq!(queue.failed(&key), 1);
            }
            queue.retry_at(key, later);
        }
        assert_eq!(queue.next_at(), Some(later));
        queue.mark(route("bad"), false, now);
        queue.mark(route("minor"), false, now);
        assert_eq!((queue.next(now), queue.next(now)), (Some(route("minor")), None));
        assert_eq!(queue.next(later), Some(route("bad")));
        assert_eq!(queue.failed(&route("bad")), 2);
    }

    #[test]
    fn a_storm_is_spread() {
        let start = Instant::now();
        let (mut rate_limit, mut now, mut made) = (write_rate_limit(start), start, 0);
        while now < start + Duration::from_secs(10) {
            match rate_limit.acquire(now) {
                Ok(()) => made += 1,
                Err(wait) => now += wait,
            }
        }
        assert!((4_390..=4_401).contains(&made), "{made}");
    }
}
