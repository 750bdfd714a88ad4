use super::unit::{Fact, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Who read what, and who wants what: the two relations that decide which work a change causes.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    reads: BTreeMap<Unit, BTreeSet<Fact>>,
    readers: BTreeMap<Fact, BTreeSet<Unit>>,
    demands: BTreeMap<Fact, BTreeSet<Unit>>,
    demanders: BTreeMap<Unit, BTreeSet<Fact>>,
}

/// What became of units when a demand changed.
#[derive(Debug, Default)]
pub(crate) struct Turnover {
    /// Wanted now, and not before.
    pub(crate) born: Vec<Unit>,
    /// Wanted by nobody any more.
    pub(crate) dead: Vec<Unit>,
}

impl Graph {
    /// Replaces what `unit` is known to have read.
    pub(crate) fn record(&mut self, unit: &Unit, facts: BTreeSet<Fact>) {
        let before = self.reads.remove(unit).unwrap_or_default();
        for gone in before.difference(&facts) {
            remove(&mut self.readers, gone, unit);
        }
        for new in facts.difference(&before) {
            self.readers.entry(new.clone()).or_default().insert(unit.clone());
        }
        if !facts.is_empty() {
            self.reads.insert(unit.clone(), facts);
        }
    }

    pub(crate) fn readers(&self, fact: &Fact) -> impl Iterator<Item = &Unit> {
        self.readers.get(fact).into_iter().flatten()
    }

    /// Replaces the units that exist because of `fact`: an object, or another unit's product.
    pub(crate) fn demand(&mut self, fact: &Fact, units: BTreeSet<Unit>) -> Turnover {
        let mut turnover = Turnover::default();
        let before = self.demands.remove(fact).unwrap_or_default();
        for gone in before.difference(&units) {
            if remove(&mut self.demanders, gone, fact) {
                turnover.dead.push(gone.clone());
            }
        }
        for new in units.difference(&before) {
            let demanders = self.demanders.entry(new.clone()).or_default();
            if demanders.is_empty() {
                turnover.born.push(new.clone());
            }
            demanders.insert(fact.clone());
        }
        if !units.is_empty() {
            self.demands.insert(fact.clone(), units);
        }
        turnover
    }

    /// The units from this one on, in order, each with what it exists because of.
    pub(crate) fn demanded_from(
        &self,
        unit: &Unit,
    ) -> impl Iterator<Item = (&Unit, &BTreeSet<Fact>)> + use<'_> {
        self.demanders.range(unit.clone()..)
    }

    pub(crate) fn units(&self) -> usize {
        self.demanders.len()
    }

    pub(crate) fn is_demanded(&self, unit: &Unit) -> bool {
        self.demanders.contains_key(unit)
    }
}

/// Whether that was the last one.
fn remove<K: Ord, V: Ord>(relation: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) -> bool {
    let Some(values) = relation.get_mut(key) else { return false };
    values.remove(value);
    let emptied = values.is_empty();
    if emptied {
        relation.remove(key);
    }
    emptied
}
