//! Resource usage of the servers, from the kernel.

mod read;
mod sampler;
mod slope;

pub use sampler::{SampleError, Sampler};
pub use slope::{Line, PerStream, least_squares};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The usage up to a moment, or at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// How many streams the clients had at that moment.
    pub streams: u64,
    /// CPU time used since the start, in microseconds. Of a process it is exact to 10 ms.
    pub cpu_us: u64,
    /// Memory with the shared parts divided among those who share them. Absent where the kernel does not tell it to
    /// us, and for cgroups, which have no such figure.
    pub pss: Option<u64>,
    /// Resident memory; of a cgroup its working set (all but the file cache that is not in use).
    pub rss: u64,
    /// The most that was ever resident.
    pub peak_rss: u64,
    pub open_files: Option<u64>,
}

/// A server and what it used over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watched {
    pub name: String,
    samples: Vec<Sample>,
}

/// With one sample a second: an hour and more. See [`Watched::push`].
const KEPT: usize = 4_096;

impl Sample {
    /// The most precise that there is.
    pub fn memory(&self) -> u64 {
        self.pss.unwrap_or(self.rss)
    }

    fn add(&mut self, other: &Self) {
        let both = |mine: Option<u64>, theirs: Option<u64>| mine?.checked_add(theirs?);
        self.cpu_us = self.cpu_us.saturating_add(other.cpu_us);
        self.pss = both(self.pss, other.pss);
        self.rss = self.rss.saturating_add(other.rss);
        self.peak_rss = self.peak_rss.saturating_add(other.peak_rss);
        self.open_files = both(self.open_files, other.open_files);
        self.streams = self.streams.max(other.streams);
    }
}

impl Watched {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), samples: Vec::new() }
    }

    /// Keeps a bounded number: when there are too many, every second one is dropped. The first and the newest stay.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.len() >= KEPT {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
        }
        self.samples.push(sample);
    }

    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// The most cores that were used between two samples, each at least this far apart.
    pub fn busiest(&self, apart: Duration) -> Option<f64> {
        let apart = u64::try_from(apart.as_millis()).unwrap_or(u64::MAX).max(1);
        let used = self.samples.iter().filter_map(|from| {
            let due = from.at_ms.saturating_add(apart);
            let to = self.samples.get(self.samples.partition_point(|to| to.at_ms < due))?;
            let took = (to.at_ms - from.at_ms) as f64 * 1e3;
            Some(to.cpu_us.saturating_sub(from.cpu_us) as f64 / took)
        });
        used.max_by(f64::total_cmp)
    }
}

/// All servers together, at the moments at which each of them was looked at. Peaks are added up although they need not
/// have been at one time.
pub fn total(servers: &[Watched]) -> Vec<Sample> {
    let mut moments: BTreeMap<u64, (usize, Sample)> = BTreeMap::new();
    for sample in servers.iter().flat_map(|server| &server.samples) {
        moments
            .entry(sample.at_ms)
            .and_modify(|(count, sum)| {
                *count += 1;
                sum.add(sample);
            })
            .or_insert((1, *sample));
    }
    moments.into_values().filter(|(count, _)| *count == servers.len()).map(|(_, sum)| sum).collect()
}
