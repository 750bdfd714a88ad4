use crate::table::Fact;
use std::cell::RefCell;

/// The facts that one unit has read. A reader records each read, also one that finds nothing: a fact that appears later
/// makes the units dirty that missed it.
#[derive(Debug)]
pub struct Reads<F> {
    facts: RefCell<Vec<F>>,
    /// The stage of the unit that reads. `None`: no unit reads, and nothing is asserted.
    stage: Option<usize>,
}

impl<F: Fact> Reads<F> {
    pub fn of_stage(stage: usize) -> Self {
        Self { facts: RefCell::default(), stage: Some(stage) }
    }

    /// Of a reader outside of any unit, for queries.
    pub fn unrecorded() -> Self {
        Self { facts: RefCell::default(), stage: None }
    }

    pub fn record(&self, fact: F) {
        let Some(stage) = self.stage else { return };
        debug_assert!(
            fact.settled_by().is_none_or(|settled_by| settled_by < stage),
            "a unit of stage {stage} read {fact:?}, which a later stage may still change"
        );
        self.facts.borrow_mut().push(fact);
    }

    /// In order, each fact once.
    pub fn into_facts(self) -> Vec<F> {
        let mut facts = self.facts.into_inner();
        facts.sort_unstable();
        facts.dedup();
        facts
    }
}
