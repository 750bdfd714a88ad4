use super::relation::Relation;
use super::unit::{Fact, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Who read what, and who wants what: the two relations that decide which work a change causes.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    reads: BTreeMap<Unit, Box<[Fact]>>,
    readers: Relation<Fact, Unit>,
    demands: BTreeMap<Fact, Box<[Unit]>>,
    demanders: Relation<Unit, Fact>,
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
        for gone in before.iter().filter(|fact| !facts.contains(fact)) {
            self.readers.remove(gone, unit);
        }
        for new in facts.iter().filter(|fact| before.binary_search(fact).is_err()) {
            self.readers.insert(new.clone(), unit.clone());
        }
        if !facts.is_empty() {
            self.reads.insert(unit.clone(), facts.into_iter().collect());
        }
    }

    pub(crate) fn readers(&self, fact: &Fact) -> impl Iterator<Item = &Unit> {
        self.readers.of(fact)
    }

    /// Replaces the units that exist because of `fact`: an object, or another unit's product.
    pub(crate) fn demand(&mut self, fact: &Fact, units: BTreeSet<Unit>) -> Turnover {
        let mut turnover = Turnover::default();
        let before = self.demands.remove(fact).unwrap_or_default();
        for gone in before.iter().filter(|unit| !units.contains(unit)) {
            if self.demanders.remove(gone, fact) {
                turnover.dead.push(gone.clone());
            }
        }
        for new in units.iter().filter(|unit| before.binary_search(unit).is_err()) {
            if self.demanders.insert(new.clone(), fact.clone()) {
                turnover.born.push(new.clone());
            }
        }
        if !units.is_empty() {
            self.demands.insert(fact.clone(), units.into_iter().collect());
        }
        turnover
    }

    /// The units from this one on, in order.
    pub(crate) fn demanded_from(&self, first: Unit) -> impl Iterator<Item = &Unit> + use<'_> {
        self.demanders.keys_from(first)
    }

    /// What a unit exists because of.
    pub(crate) fn demanders(&self, unit: &Unit) -> impl Iterator<Item = &Fact> {
        self.demanders.of(unit)
    }

    pub(crate) fn units(&self) -> usize {
        self.demanders.len()
    }

    pub(crate) fn is_demanded(&self, unit: &Unit) -> bool {
        self.demanders.contains(unit)
    }
}
