use super::budget::Rank;
use heliograph_gateway::objects::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

/// The contents to fetch, each once. Namespaces take turns: one that names thousands of Secrets does not delay the one
/// Secret of another. Within a namespace the order is that of the budget, so that few contents are fetched that turn out
/// not to fit.
#[derive(Debug, Default)]
pub(super) struct FetchQueue {
    waiting: BTreeMap<Arc<str>, BTreeSet<Rank>>,
    /// Those that wait, as they are ordered there.
    ranks: BTreeMap<ObjectKey, Rank>,
    /// The namespace that had the last turn.
    last: Arc<str>,
    /// What failed, and when it is due again.
    later: BTreeMap<ObjectKey, (Instant, Rank)>,
    by_time: BTreeSet<(Instant, Rank)>,
    /// What is being fetched, with a rank if it is to be fetched once more.
    open: BTreeMap<ObjectKey, Option<Rank>>,
}

impl FetchQueue {
    /// One that failed waits for its time all the same.
    pub(super) fn push(&mut self, rank: Rank) {
        let key = rank.key().clone();
        if let Some(again) = self.open.get_mut(&key) {
            *again = Some(rank);
        } else if !self.later.contains_key(&key) {
            self.remove_waiting(&key);
            self.waiting.entry(key.name.namespace.clone()).or_default().insert(rank.clone());
            self.ranks.insert(key, rank);
        }
    }

    /// A fetch has failed.
    pub(super) fn push_later(&mut self, rank: Rank, at: Instant) {
        self.remove(rank.key());
        self.later.insert(rank.key().clone(), (at, rank.clone()));
        self.by_time.insert((at, rank));
    }

    /// Begins the next fetch. It is open until it is [answered](Self::answered), failed or removed.
    pub(super) fn pop(&mut self, now: Instant) -> Option<ObjectKey> {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((_, rank)) = self.by_time.pop_first()
        {
            self.later.remove(rank.key());
            self.push(rank);
        }
        let after = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let next = self.waiting.range::<str, _>(after).next();
        let (namespace, _) = next.or_else(|| self.waiting.iter().next())?;
        let namespace = namespace.clone();
        let key = self.waiting.get(&namespace)?.first()?.key().clone();
        self.remove_waiting(&key);
        self.last = namespace;
        self.open.insert(key.clone(), None);
        Some(key)
    }

    pub(super) fn answered(&mut self, key: &ObjectKey) {
        if let Some(again) = self.open.remove(key).flatten() {
            self.push(again);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Makes failed fetches due.
    pub(super) fn expedite(&mut self) {
        self.later.clear();
        for (_, rank) in std::mem::take(&mut self.by_time) {
            self.push(rank);
        }
    }

    /// Whether a fetch of this object is to begin, now or later.
    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.open.get(key).is_some_and(Option::is_some)
            || self.later.contains_key(key)
            || self.ranks.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.open.remove(key);
        if let Some(due) = self.later.remove(key) {
            self.by_time.remove(&due);
        }
        self.remove_waiting(key);
    }

    fn remove_waiting(&mut self, key: &ObjectKey) {
        let Some(rank) = self.ranks.remove(key) else { return };
        if let Some(ranks) = self.waiting.get_mut(&key.name.namespace) {
            ranks.remove(&rank);
            if ranks.is_empty() {
                self.waiting.remove(&key.name.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::objects::{Kind, ObjectName};
    use std::time::Duration;

    fn rank(namespace: &str, name: &str) -> Rank {
        Rank::new(false, 0, &ObjectName::new(namespace, name).of(Kind::Secret))
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut queue, now) = (FetchQueue::default(), Instant::now());
        for name in ["1", "2", "3", "4"] {
            queue.push(rank("many", name));
        }
        queue.push(rank("one", "1"));
        queue.push(rank("few", "1"));
        queue.push(rank("few", "2"));
        let order: Vec<String> =
            std::iter::from_fn(|| queue.pop(now)).map(|key| key.name.to_string()).collect();
        assert_eq!(order, ["few/1", "many/1", "one/1", "few/2", "many/2", "many/3", "many/4"]);
    }

    #[test]
    fn an_object_is_fetched_once_at_a_time_and_again_if_it_changed_meanwhile() {
        let (mut queue, now) = (FetchQueue::default(), Instant::now());
        let pair = rank("shop", "pair");
        let key = pair.key().clone();
        queue.push(pair.clone());
        queue.push(pair.clone());
        assert_eq!(queue.pop(now), Some(key.clone()));
        assert!(!queue.contains(&key));
        queue.push(pair);
        assert!(queue.contains(&key));
        assert_eq!(queue.pop(now), None);
        queue.answered(&key);
        assert_eq!(queue.pop(now), Some(key.clone()));
        queue.answered(&key);
        assert_eq!(queue.pop(now), None);
    }

    #[test]
    fn what_failed_waits_for_its_time_unless_somebody_waits_for_it() {
        let (mut queue, now) = (FetchQueue::default(), Instant::now());
        let (pair, at) = (rank("shop", "pair"), now + Duration::from_secs(1));
        let key = pair.key().clone();
        queue.push(pair.clone());
        queue.pop(now);
        queue.push_later(pair.clone(), at);
        queue.push(pair.clone());
        assert_eq!((queue.pop(now), queue.next_due()), (None, Some(at)));
        assert_eq!((queue.pop(at), queue.next_due()), (Some(key.clone()), None));
        queue.push_later(pair.clone(), at);
        queue.expedite();
        assert_eq!(queue.pop(now), Some(key.clone()));
        queue.push_later(pair, at);
        queue.remove(&key);
        assert_eq!((queue.pop(at), queue.next_due()), (None, None));
    }
}
