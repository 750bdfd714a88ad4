use crate::members::Members;
use std::collections::BTreeMap;

/// Which members belong to which key. A key without members is absent.
#[derive(Debug)]
pub struct Relation<K, V>(BTreeMap<K, Members<V>>);

impl<K: Ord, V: Ord> Relation<K, V> {
    pub fn insert(&mut self, key: K, member: V) {
        self.0.entry(key).or_default().insert(member);
    }

    pub fn remove(&mut self, key: &K, member: &V) {
        let Some(members) = self.0.get_mut(key) else { return };
        members.remove(member);
        if members.is_empty() {
            self.0.remove(key);
        }
    }

    /// The members of a key, in order.
    pub fn of(&self, key: &K) -> impl Iterator<Item = &V> + use<'_, K, V> {
        self.0.get(key).into_iter().flat_map(Members::iter)
    }

    pub fn count(&self, key: &K) -> usize {
        self.0.get(key).map_or(0, Members::len)
    }

    /// The keys from this one on, in order.
    pub fn keys_from(&self, first: K) -> impl Iterator<Item = &K> + use<'_, K, V> {
        self.0.range(first..).map(|(key, _)| key)
    }
}

impl<K, V> Default for Relation<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}
