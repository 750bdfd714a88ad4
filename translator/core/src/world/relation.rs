use std::collections::{BTreeMap, BTreeSet};

/// What belongs to what. A key without members is not there.
#[derive(Debug)]
pub(super) struct Relation<K, V>(BTreeMap<K, Members<V>>);

impl<K: Ord, V: Ord> Relation<K, V> {
    /// Whether it is the first member.
    pub(super) fn insert(&mut self, key: K, member: V) -> bool {
        let members = self.0.entry(key).or_default();
        let is_first = members.is_empty();
        members.insert(member);
        is_first
    }

    /// Whether it was the last member.
    pub(super) fn remove(&mut self, key: &K, member: &V) -> bool {
        let Some(members) = self.0.get_mut(key) else { return false };
        members.remove(member);
        let is_last = members.is_empty();
        if is_last {
            self.0.remove(key);
        }
        is_last
    }

    /// The members of a key, in order.
    pub(super) fn of(&self, key: &K) -> impl Iterator<Item = &V> + use<'_, K, V> {
        self.0.get(key).into_iter().flat_map(Members::iter)
    }

    pub(super) fn count(&self, key: &K) -> usize {
        self.0.get(key).map_or(0, Members::len)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys from this one on, in order.
    pub(super) fn keys_from(&self, first: K) -> impl Iterator<Item = &K> + use<'_, K, V> {
        self.0.range(first..).map(|(key, _)| key)
    }
}

impl<K, V> Default for Relation<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// A set that has one member or two, as a rule. A `BTreeSet` of one has room for eleven, which is most of the memory when
/// there are a hundred thousand of them. One that grows is a `BTreeSet` after all.
#[derive(Debug)]
enum Members<T> {
    /// In order.
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

/// As many as can be moved about for the price of an allocation.
const FEW: usize = 16;

impl<T: Ord> Members<T> {
    fn insert(&mut self, member: T) {
        match self {
            Self::Many(many) => drop(many.insert(member)),
            Self::Few(few) => {
                let Err(place) = few.binary_search(&member) else { return };
                if few.len() < FEW {
                    few.reserve_exact(1);
                    few.insert(place, member);
                } else {
                    let many = few.drain(..).chain([member]);
                    *self = Self::Many(many.collect());
                }
            }
        }
    }

    fn remove(&mut self, member: &T) {
        match self {
            Self::Many(many) => drop(many.remove(member)),
            Self::Few(few) => {
                if let Ok(place) = few.binary_search(member) {
                    few.remove(place);
                }
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In order.
    fn iter(&self) -> impl Iterator<Item = &T> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few), None),
            Self::Many(many) => (None, Some(many)),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

impl<T> Default for Members<T> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..24_u8), 0..200)) {
            let (mut members, mut expected) = (Members::default(), BTreeSet::new());
            for (comes, member) in steps {
                if comes {
                    members.insert(member);
                    expected.insert(member);
                } else {
                    members.remove(&member);
                    expected.remove(&member);
                }
                prop_assert!(members.iter().eq(&expected));
                prop_assert_eq!(members.is_empty(), expected.is_empty());
            }
        }
    }
}
