use heliograph_translator_core::objects::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tokio::time::Instant;

/// What is to be fetched, each object once. Namespaces take turns: one that names thousands of Secrets does not hold up the
/// one Secret of another.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// The namespace that had the last turn.
    last: Arc<str>,
    /// What failed, and when it is due again.
    later: BTreeMap<ObjectKey, Instant>,
    by_time: BTreeSet<(Instant, ObjectKey)>,
    /// What is being fetched, and whether it is to be fetched once more.
    open: BTreeMap<ObjectKey, bool>,
}

impl Queue {
    /// One that failed waits for its time all the same.
    pub(super) fn push(&mut self, key: ObjectKey) {
        if let Some(again) = self.open.get_mut(&key) {
            *again = true;
        } else if !self.later.contains_key(&key) {
            self.waiting.entry(key.name.namespace.clone()).or_default().insert(key);
        }
    }

    /// A fetch has failed.
    pub(super) fn push_later(&mut self, key: ObjectKey, at: Instant) {
        self.remove(&key);
        self.by_time.insert((at, key.clone()));
        self.later.insert(key, at);
    }

    /// Begins the next fetch. It is open until it is [answered](Self::answered), failed or removed.
    pub(super) fn pop(&mut self, now: Instant) -> Option<ObjectKey> {
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((_, key)) = self.by_time.pop_first()
        {
            self.later.remove(&key);
            self.push(key);
        }
        let after = (Bound::Excluded(&*self.last), Bound::Unbounded);
        let next = self.waiting.range::<str, _>(after).next();
        let (namespace, _) = next.or_else(|| self.waiting.iter().next())?;
        let namespace = namespace.clone();
        let keys = self.waiting.get_mut(&namespace)?;
        let key = keys.pop_first()?;
        if keys.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.last = namespace;
        self.open.insert(key.clone(), false);
        Some(key)
    }

    pub(super) fn answered(&mut self, key: &ObjectKey) {
        if self.open.remove(key) == Some(true) {
            self.push(key.clone());
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// What failed is due.
    pub(super) fn hasten(&mut self) {
        self.by_time.clear();
        for key in std::mem::take(&mut self.later).into_keys() {
            self.push(key);
        }
    }

    /// Whether a fetch of this object is to begin, now or later.
    pub(super) fn contains(&self, key: &ObjectKey) -> bool {
        self.open.get(key) == Some(&true)
            || self.later.contains_key(key)
            || self.waiting.get(&key.name.namespace).is_some_and(|keys| keys.contains(key))
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.open.remove(key);
        if let Some(at) = self.later.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
        if let Some(keys) = self.waiting.get_mut(&key.name.namespace) {
            keys.remove(key);
            if keys.is_empty() {
                self.waiting.remove(&key.name.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_translator_core::objects::{Kind, ObjectName};
    use std::time::Duration;

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectName::new(namespace, name).of(Kind::Secret)
    }

    #[test]
    fn namespaces_take_turns() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for name in ["1", "2", "3", "4"] {
            queue.push(key("many", name));
        }
        queue.push(key("one", "1"));
        queue.push(key("few", "1"));
        queue.push(key("few", "2"));
        let order: Vec<String> =
            std::iter::from_fn(|| queue.pop(now)).map(|key| key.name.to_string()).collect();
        assert_eq!(order, ["few/1", "many/1", "one/1", "few/2", "many/2", "many/3", "many/4"]);
    }

    #[test]
    fn an_object_is_fetched_once_at_a_time_and_again_if_it_changed_meanwhile() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let key = key("shop", "pair");
        queue.push(key.clone());
        queue.push(key.clone());
        assert_eq!(queue.pop(now), Some(key.clone()));
        assert!(!queue.contains(&key));
        queue.push(key.clone());
        assert!(queue.contains(&key));
        assert_eq!(queue.pop(now), None);
        queue.answered(&key);
        assert_eq!(queue.pop(now), Some(key.clone()));
        queue.answered(&key);
        assert_eq!(queue.pop(now), None);
    }

    #[test]
    fn what_failed_waits_for_its_time_unless_somebody_waits_for_it() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, at) = (key("shop", "pair"), now + Duration::from_secs(1));
        queue.push(key.clone());
        queue.pop(now);
        queue.push_later(key.clone(), at);
        queue.push(key.clone());
        assert_eq!((queue.pop(now), queue.next_due()), (None, Some(at)));
        assert_eq!((queue.pop(at), queue.next_due()), (Some(key.clone()), None));
        queue.push_later(key.clone(), at);
        queue.hasten();
        assert_eq!(queue.pop(now), Some(key.clone()));
        queue.push_later(key.clone(), at);
        queue.remove(&key);
        assert_eq!((queue.pop(at), queue.next_due()), (None, None));
    }
}
