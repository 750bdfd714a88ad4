//! The report of a run: its settings, its machine and its results.

mod examples;
mod file;
mod rows;
mod table;

pub use examples::Examples;
pub use file::LoadError;
pub(crate) use rows::{about_rows, client_rows, latency_rows, per_stream, phase_rows, server_rows};
pub(crate) use table::columns;

use crate::page;
use crate::samples::total;
use crate::{Clients, Figures, Machine, PerStream, Sample, Watched};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Of the file. A report with another number is refused, not guessed at.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    pub format: u32,
    pub scenario: Scenario,
    /// The command line. It is shown as it is: leave out what is secret.
    pub command: Vec<String>,
    /// Unix time in milliseconds.
    pub started_ms: u64,
    pub machine: Machine,
    /// Of the programs that took part, by their name.
    pub versions: BTreeMap<String, String>,
    pub phases: Vec<Phase>,
    /// Of the whole run.
    pub figures: Figures,
    pub servers: Vec<Watched>,
    pub per_stream: Option<PerStream>,
    #[serde(default)]
    pub clients: Clients,
    /// What the checker found, in words. All are counted in the figures.
    pub violations: Examples,
    /// The same for errors.
    pub errors: Examples,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// The file it was read from, as written.
    pub text: String,
}

/// A step of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    pub name: String,
    /// Unix time in milliseconds.
    pub started_ms: u64,
    pub ended_ms: u64,
    /// How many there were at its end.
    pub streams: u64,
    /// Of this phase alone: see [`Figures::since`].
    pub figures: Figures,
}

impl Report {
    /// One with nothing measured yet.
    pub fn new(scenario: Scenario, command: Vec<String>, started_ms: u64) -> Self {
        Self {
            format: FORMAT,
            scenario,
            command,
            started_ms,
            machine: Machine::here(),
            versions: BTreeMap::new(),
            phases: Vec::new(),
            figures: Figures::default(),
            servers: Vec::new(),
            per_stream: None,
            clients: Clients::default(),
            violations: Examples::default(),
            errors: Examples::default(),
        }
    }

    /// For terminals.
    pub fn table(&self) -> String {
        table::table(self)
    }

    /// One page that needs nothing else.
    pub fn html(&self) -> String {
        page::page(self)
    }

    /// All servers together.
    pub fn samples(&self) -> Vec<Sample> {
        total(&self.servers)
    }

    /// CPU time that all servers used during the run; none if they were not looked at twice.
    pub fn cpu(&self) -> Option<Duration> {
        used(&self.samples(), 0, u64::MAX)
    }

    /// The sum of the servers' peaks.
    pub fn peak_memory(&self) -> Option<u64> {
        self.samples().iter().map(|sample| sample.peak_rss).max()
    }

    /// The most streams that were up at once.
    pub fn most_streams(&self) -> u64 {
        self.figures.series.streams().map(|(_, streams)| streams).max().unwrap_or(0)
    }
}

impl Phase {
    pub fn took(&self) -> Duration {
        Duration::from_millis(self.ended_ms.saturating_sub(self.started_ms))
    }

    /// CPU time that was used during this phase, as exact as the samples are frequent.
    pub fn cpu(&self, samples: &[Sample]) -> Option<Duration> {
        used(samples, self.started_ms, self.ended_ms)
    }
}

/// Between the last samples before each of the two moments.
fn used(samples: &[Sample], from_ms: u64, to_ms: u64) -> Option<Duration> {
    let until = |ms| samples.iter().rev().find(|sample| sample.at_ms <= ms);
    let first = until(from_ms).or(samples.first())?;
    let last = until(to_ms)?;
    let apart = last.at_ms > first.at_ms;
    apart.then(|| Duration::from_micros(last.cpu_us.saturating_sub(first.cpu_us)))
}
