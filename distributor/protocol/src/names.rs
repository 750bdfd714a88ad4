use heliograph_snapshot::Version;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// A sorted set of names. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameSet(Arc<[Arc<str>]>);

/// Finds equal sets among streams, so that ten thousand proxies that ask for the same names hold them once.
#[derive(Debug, Default)]
pub(crate) struct NamePool {
    sets: Mutex<Sets>,
}

#[derive(Debug, Default)]
struct Sets {
    known: BTreeMap<Version, Weak<[Arc<str>]>>,
    /// Past this many, sets that no stream holds any more are swept out.
    sweep_at: usize,
}

/// So few sets are not worth a sweep.
const SMALLEST_SWEEP: usize = 64;

impl NameSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|own| (**own).cmp(name)).is_ok()
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.0.iter()
    }

    /// Where it is in memory. Sets that a pool has seen are equal if and only if they are in the same place.
    pub(crate) fn address(&self) -> usize {
        if self.is_empty() { 0 } else { self.0.as_ptr().addr() }
    }

    /// How much memory it takes, in hundreds of bytes: names that no snapshot has are its own.
    pub(crate) fn size(&self) -> usize {
        self.iter().map(|name| 32 + name.len()).sum::<usize>() / 100
    }

    fn digest(&self) -> Version {
        let nothing = Version::of(b"");
        Version::of_set(self.iter().map(|name| (&**name, nothing)))
    }
}

impl Default for NameSet {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl FromIterator<Arc<str>> for NameSet {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(names: I) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        // As a rule a name or two behind a set that is sorted, which a stable sort finds out and merges.
        names.sort();
        names.dedup();
        Self(names.into())
    }
}

impl NamePool {
    pub(crate) fn intern(&self, set: NameSet) -> NameSet {
        if set.is_empty() {
            return set;
        }
        let digest = set.digest();
        // A panic elsewhere leaves at worst a set unshared.
        let mut sets = self.sets.lock();
        if let Some(known) = sets.known.get(&digest).and_then(Weak::upgrade) {
            return NameSet(known);
        }
        if sets.known.len() >= sets.sweep_at {
            sets.known.retain(|_, set| set.strong_count() > 0);
            sets.sweep_at = SMALLEST_SWEEP.max(2 * sets.known.len());
        }
        sets.known.insert(digest, Arc::downgrade(&set.0));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> NameSet {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn a_set_is_sorted_and_without_duplicates() {
        let set = set(&["b", "a", "b"]);
        assert_eq!(set.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert!(set.contains("b") && !set.contains("c"));
    }

    #[test]
    fn equal_sets_become_one() {
        let pool = NamePool::default();
        let one = pool.intern(set(&["a", "b"]));
        let other = pool.intern(set(&["b", "a"]));
        assert!(Arc::ptr_eq(&one.0, &other.0));
        assert!(!Arc::ptr_eq(&one.0, &pool.intern(set(&["a"])).0));
    }

    #[test]
    fn sets_that_nobody_holds_are_swept() {
        let pool = NamePool::default();
        for number in 0..10_000 {
            pool.intern(set(&[&number.to_string()]));
        }
        assert!(pool.sets.lock().known.len() <= SMALLEST_SWEEP);
    }
}
