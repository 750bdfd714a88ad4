//! Decides which contents fit into the budget of their namespace. This depends on the objects and their sizes alone, not
//! on the order in which they came.

use heliograph_gateway::objects::{ObjectKey, Seniority};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// How many contents of unknown size have room at once where there was none. Without a bound, each byte that becomes free
/// would put thousands of them into the queue, of which few fit.
const AT_ONCE: usize = 8;

/// The order in which contents of a namespace have room. Those that objects of the same namespace name come first: otherwise
/// a tenant could name old Secrets of another one, and there would be no room for those that the other one uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    is_foreign: bool,
    seniority: Seniority<ObjectKey>,
}

/// The contents that are named and exist, by namespace.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The most bytes of a namespace.
    most: u64,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    ranks: BTreeMap<ObjectKey, Rank>,
    /// What changed since it was settled, by namespace.
    changed: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// In bytes; none before the first fetch.
    sizes: BTreeMap<Rank, Option<u64>>,
    /// Of the sizes that are known.
    total: u64,
    /// This one and all after it have no room.
    first_over: Option<Rank>,
}

impl Rank {
    pub(super) fn new(is_foreign: bool, created: i64, key: &ObjectKey) -> Self {
        Self { is_foreign, seniority: Seniority::new(created, key.clone()) }
    }

    pub(super) fn key(&self) -> &ObjectKey {
        self.seniority.of()
    }
}

impl Budget {
    pub(super) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// It is named and exists, and has this rank.
    pub(super) fn update_rank(&mut self, rank: Rank) {
        let key = rank.key().clone();
        if self.ranks.get(&key) == Some(&rank) {
            return;
        }
        let size = self.remove(&key).flatten();
        let namespace = self.namespaces.entry(key.name.namespace.clone()).or_default();
        namespace.total += size.unwrap_or_default();
        namespace.sizes.insert(rank.clone(), size);
        self.ranks.insert(key.clone(), rank);
        self.mark_changed(&key);
    }

    pub(super) fn resize(&mut self, key: &ObjectKey, bytes: u64) {
        let Some(rank) = self.ranks.get(key) else { return };
        let namespace = self.namespaces.get_mut(&key.name.namespace);
        if let Some((namespace, size)) = namespace.and_then(|it| {
            let size = it.sizes.insert(rank.clone(), Some(bytes))?;
            Some((it, size))
        }) {
            namespace.total = namespace.total - size.unwrap_or_default() + bytes;
        }
        self.mark_changed(key);
    }

    /// It is gone, or nothing names it any more. Returns the size that it had.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Option<u64>> {
        let rank = self.ranks.remove(key)?;
        let namespace = self.namespaces.get_mut(&key.name.namespace)?;
        let size = namespace.sizes.remove(&rank)?;
        namespace.total -= size.unwrap_or_default();
        self.mark_changed(key);
        Some(size)
    }

    /// The next [`settle`](Self::settle) returns it.
    pub(super) fn mark_changed(&mut self, key: &ObjectKey) {
        self.changed.entry(key.name.namespace.clone()).or_default().insert(key.clone());
    }

    pub(super) fn rank(&self, key: &ObjectKey) -> Option<&Rank> {
        self.ranks.get(key)
    }

    /// Finds what has room. Returns all of which that may be news.
    pub(super) fn settle(&mut self) -> BTreeSet<ObjectKey> {
        let mut all = BTreeSet::new();
        for (name, mut changed) in std::mem::take(&mut self.changed) {
            let Some(namespace) = self.namespaces.get_mut(&name) else { continue };
            namespace.settle(self.most, &mut changed);
            if namespace.sizes.is_empty() {
                self.namespaces.remove(&name);
            }
            all.append(&mut changed);
        }
        all
    }

    pub(super) fn is_over(&self, key: &ObjectKey) -> bool {
        let rank = self.ranks.get(key);
        rank.is_some_and(|rank| self.first_over(key).is_some_and(|first| rank >= first))
    }

    /// Whether it has no room, and all before it have: if it becomes smaller, it may fit.
    pub(super) fn is_first_over(&self, key: &ObjectKey) -> bool {
        self.ranks.get(key).is_some_and(|rank| self.first_over(key) == Some(rank))
    }

    fn first_over(&self, key: &ObjectKey) -> Option<&Rank> {
        self.namespaces.get(&key.name.namespace)?.first_over.as_ref()
    }
}

impl Namespace {
    fn settle(&mut self, most: u64, changed: &mut BTreeSet<ObjectKey>) {
        let before = self.first_over.take();
        // Usually all fits, and nothing has to be counted.
        if before.is_some() || self.total > most {
            let (mut sum, mut unknown) = (0, 0);
            let is_over = |(rank, size): &(&Rank, &Option<u64>)| {
                sum += size.unwrap_or_default();
                unknown += usize::from(size.is_none());
                let had_no_room = before.as_ref().is_some_and(|before| *rank >= before);
                sum > most || (size.is_none() && unknown > AT_ONCE && had_no_room)
            };
            self.first_over = self.sizes.iter().find(is_over).map(|(rank, _)| rank.clone());
        }
        if before == self.first_over {
            return;
        }
        let (from, to) = match (&before, &self.first_over) {
            (Some(a), Some(b)) => (a.min(b), Bound::Included(a.max(b))),
            (Some(it), None) | (None, Some(it)) => (it, Bound::Unbounded),
            (None, None) => return,
        };
        let between = self.sizes.range((Bound::Included(from), to));
        changed.extend(between.map(|(rank, _)| rank.key().clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_gateway::objects::{Kind, ObjectName};

    fn key(number: usize) -> ObjectKey {
        ObjectName::new("shop", &format!("{number:03}")).of(Kind::Secret)
    }

    fn with_room(budget: &Budget, all: usize) -> usize {
        (0..all).filter(|number| !budget.is_over(&key(*number))).count()
    }

    /// Where there was no room, sizes that are not known are found out a few at a time.
    #[test]
    fn free_room_does_not_let_in_everything_of_unknown_size() {
        let mut budget = Budget::new(100);
        (0..1000).for_each(|number| budget.update_rank(Rank::new(false, 0, &key(number))));
        assert_eq!((budget.settle().len(), with_room(&budget, 1000)), (1000, 1000));
        (0..3).for_each(|number| budget.resize(&key(number), 40));
        budget.settle();
        assert_eq!(with_room(&budget, 1000), 2);
        assert!(budget.is_first_over(&key(2)));
        budget.resize(&key(0), 10);
        let news = budget.settle();
        assert_eq!((news.len(), with_room(&budget, 1000)), (11, 3 + AT_ONCE));
        budget.resize(&key(3), 1);
        budget.settle();
        assert_eq!(with_room(&budget, 1000), 4 + AT_ONCE);
        for number in 0..1000 {
            budget.remove(&key(number));
        }
        budget.settle();
        assert!(budget.namespaces.is_empty() && budget.ranks.is_empty());
    }
}
