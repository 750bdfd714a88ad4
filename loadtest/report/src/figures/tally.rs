use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often each kind of something happened. The number of kinds is bounded: when there are more, those that sort
/// last are counted together as `other`. That choice is the same in whatever order tallies are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, u64>", into = "BTreeMap<String, u64>")]
pub struct Tally {
    kinds: BTreeMap<String, u64>,
    other: u64,
}

const KINDS: usize = 32;
/// The name under which the rest is counted together.
pub(crate) const OTHER: &str = "other";

impl Tally {
    pub fn add(&mut self, kind: &str) {
        self.add_n(kind, 1);
    }

    pub fn add_n(&mut self, kind: &str, count: u64) {
        if kind == OTHER {
            self.other = self.other.saturating_add(count);
        } else if let Some(known) = self.kinds.get_mut(kind) {
            *known = known.saturating_add(count);
        } else if count > 0 {
            self.kinds.insert(kind.to_owned(), count);
            if self.kinds.len() > KINDS {
                let last = self.kinds.pop_last().map_or(0, |(_, last)| last);
                self.other = self.other.saturating_add(last);
            }
        }
    }

    pub fn total(&self) -> u64 {
        self.iter().fold(0, |total, (_, count)| total.saturating_add(count))
    }

    /// Kinds in order, `other` last.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        let other = (self.other > 0).then_some((OTHER, self.other));
        self.kinds.iter().map(|(kind, count)| (kind.as_str(), *count)).chain(other)
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (kind, count) in other.iter() {
            self.add_n(kind, count);
        }
    }

    /// `earlier` is an earlier state of this one.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        // A kind that has since been moved to `other` took its count there.
        let moved = earlier.kinds.iter().filter(|(kind, _)| !self.kinds.contains_key(*kind));
        let moved = moved.fold(earlier.other, |moved, (_, count)| moved.saturating_add(*count));
        self.other = self.other.saturating_sub(moved);
        for (kind, count) in &mut self.kinds {
            *count = count.saturating_sub(earlier.kinds.get(kind).copied().unwrap_or(0));
        }
        self.kinds.retain(|_, count| *count > 0);
    }
}

impl From<BTreeMap<String, u64>> for Tally {
    fn from(kinds: BTreeMap<String, u64>) -> Self {
        let mut tally = Self::default();
        for (kind, count) in kinds {
            tally.add_n(&kind, count);
        }
        tally
    }
}

impl From<Tally> for BTreeMap<String, u64> {
    fn from(tally: Tally) -> Self {
        tally.iter().map(|(kind, count)| (kind.to_owned(), count)).collect()
    }
}
