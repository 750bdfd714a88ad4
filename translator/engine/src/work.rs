use std::collections::BTreeMap;

/// How many units were computed, by stage. Work must be in proportion to the change: tests hold it to that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work(BTreeMap<&'static str, u64>);

impl Work {
    pub fn of(&self, stage: &str) -> u64 {
        self.0.get(stage).copied().unwrap_or_default()
    }

    pub fn by_stage(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(stage, count)| (*stage, *count))
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(crate) fn count(&mut self, stage: &'static str) {
        *self.0.entry(stage).or_default() += 1;
    }
}
