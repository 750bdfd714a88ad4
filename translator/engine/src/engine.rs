use crate::graph::Graph;
use crate::table::{Fact, Table, Unit};
use crate::work::Work;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A table with the graph of what its units read and demand, and with what is dirty.
#[derive(Debug)]
pub struct Engine<T: Table> {
    pub table: T,
    graph: Graph<T::Fact>,
    /// As the facts of their products, so by stage.
    dirty: BTreeSet<Arc<T::Fact>>,
}

impl<T: Table> Engine<T> {
    pub fn new(table: T) -> Self {
        Self { table, graph: Graph::default(), dirty: BTreeSet::new() }
    }

    pub fn graph(&self) -> &Graph<T::Fact> {
        &self.graph
    }

    /// Whether a unit exists.
    pub fn is_demanded(&self, unit: T::Unit) -> bool {
        self.graph.is_demanded(&T::Fact::product(unit))
    }

    /// Makes dirty what reads these facts.
    pub fn touch(&mut self, changed: Vec<T::Fact>) {
        for fact in changed {
            self.dirty.extend(self.graph.readers(&fact).cloned());
        }
    }

    /// Makes a unit dirty, if it exists.
    pub fn touch_unit(&mut self, unit: T::Unit) {
        let unit = T::Fact::product(unit);
        if self.graph.is_demanded(&unit) {
            self.dirty.insert(Arc::new(unit));
        }
    }

    /// Changes which units exist because of an input.
    pub fn demand(&mut self, input: &T::Fact, units: BTreeSet<T::Unit>) {
        self.demand_of(input, units.into_iter().map(T::Fact::product).collect());
    }

    /// Computes what is dirty.
    pub fn settle(&mut self) -> Work {
        let mut work = Work::default();
        loop {
            let next = self.dirty.first().and_then(|fact| fact.unit());
            let changed = self.table.settle_before(next);
            self.touch(changed);
            let Some(fact) = self.dirty.pop_first() else { return work };
            let Some(unit) = fact.unit() else { continue };
            if self.graph.is_demanded(&fact) {
                work.count(unit.stage_name());
                self.compute(&fact, unit);
            }
        }
    }

    fn compute(&mut self, fact: &T::Fact, unit: &T::Unit) {
        let computed = self.table.compute(unit);
        self.graph.record(fact, computed.read);
        debug_assert!(
            computed.demands.iter().all(|demanded| demanded.stage() > unit.stage()),
            "{unit:?} demands a unit of its own or an earlier stage"
        );
        debug_assert!(
            computed.changed.iter().all(|fact| fact.settled_by() >= Some(unit.stage())),
            "{unit:?} changes one of {:?}, which no unit of its stage may change any more",
            computed.changed
        );
        self.demand_of(fact, computed.demands.into_iter().map(T::Fact::product).collect());
        self.touch(computed.changed);
    }

    /// Changes which units exist because of `cause`. A unit without any demand is removed, with its own demands.
    fn demand_of(&mut self, cause: &T::Fact, units: Vec<T::Fact>) {
        let turnover = self.graph.demand(cause, units);
        self.dirty.extend(turnover.born);
        for fact in turnover.dead {
            self.dirty.remove(&fact);
            self.graph.record(&fact, Vec::new());
            self.demand_of(&fact, Vec::new());
            if let Some(unit) = fact.unit() {
                let changed = self.table.forget(unit);
                self.touch(changed);
            }
        }
    }
}
