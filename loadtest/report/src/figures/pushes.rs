use super::Latencies;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Per change, how many clients answered it and how late the last of them was. Clients are spread over workers, so the
/// last one is only known when their figures are merged: a histogram of each worker's last would be another thing.
///
/// Of the changes only the newest are kept, so that a run of days stays small.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u64, u64)>", into = "Vec<(u32, u64, u64)>")]
pub struct Pushes(BTreeMap<u32, Push>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Push {
    pub clients: u64,
    pub last: Duration,
}

const KEPT: usize = 10_000;

impl Pushes {
    /// By number of the change, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Push)> {
        self.0.iter().map(|(change, push)| (*change, *push))
    }

    pub fn get(&self, change: u32) -> Option<Push> {
        self.0.get(&change).copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How late the last client of each change was.
    pub fn latencies(&self) -> Latencies {
        let mut latencies = Latencies::default();
        for push in self.0.values() {
            latencies.record(push.last);
        }
        latencies
    }

    pub(super) fn answered(&mut self, change: u32, late: Duration) {
        self.add(change, Push { clients: 1, last: late });
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (change, push) in other.iter() {
            self.add(change, push);
        }
    }

    /// A change belongs to where its first client answered it.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.0.retain(|change, _| !earlier.0.contains_key(change));
    }

    fn add(&mut self, change: u32, push: Push) {
        let known = self.0.entry(change).or_default();
        known.clients = known.clients.saturating_add(push.clients);
        // Whole microseconds, as everywhere, so that a push reads back from JSON as it was.
        known.last = known.last.max(Duration::from_micros(micros(push.last)));
        if self.0.len() > KEPT {
            self.0.pop_first();
        }
    }
}

/// Change, clients, microseconds.
impl From<Vec<(u32, u64, u64)>> for Pushes {
    fn from(rows: Vec<(u32, u64, u64)>) -> Self {
        let mut pushes = Self::default();
        for (change, clients, last) in rows {
            pushes.add(change, Push { clients, last: Duration::from_micros(last) });
        }
        pushes
    }
}

impl From<Pushes> for Vec<(u32, u64, u64)> {
    fn from(pushes: Pushes) -> Self {
        pushes.iter().map(|(change, push)| (change, push.clients, micros(push.last))).collect()
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
