//! The steps of a run, from a small file.

mod brief;
mod builtin;
mod read;
mod span;
mod step;

pub use builtin::{BUILT_IN, built_in};
pub use read::ScenarioError;
pub use span::{Share, Span, TextError};
pub use step::{Restart, Step};

use crate::population::Group;
use crate::workload::Resources;
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scenario {
    /// That of its file.
    #[serde(skip)]
    pub name: String,
    /// As it was written.
    #[serde(skip)]
    pub text: String,
    /// What it shows, in one line.
    pub about: String,
    pub clients: usize,
    /// Of clients. There are more if one would have too many of them.
    #[serde(default = "one")]
    pub processes: usize,
    #[serde(default = "one")]
    pub fleets: usize,
    /// How many are started, if the harness starts them.
    #[serde(default = "one")]
    pub servers: usize,
    #[serde(default)]
    pub balance: Balance,
    #[serde(default)]
    pub protocol: Protocols,
    #[serde(default = "one")]
    pub streams_per_connection: usize,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default)]
    pub population: Vec<Group>,
    #[serde(default)]
    pub connect: Connect,
    #[serde(default)]
    pub steps: Vec<Step>,
    /// How often the steps are taken.
    #[serde(default = "once")]
    pub repeat: u32,
    #[serde(default)]
    pub end: End,
}

/// What servers that the harness starts do with streams that they have. By default they let none go, and end at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Balance {
    /// Streams a second that one lets go at most while it has more than the others.
    pub rebalance_rate: u32,
    /// Over how long one that ends lets all go.
    pub drain_time: Span,
}

/// Which of the two xDS protocols clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Protocols {
    #[default]
    Delta,
    /// State of the world.
    Sotw,
    /// Every other one.
    Mixed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// Clients a second; all at once without it.
    pub rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// How long all clients may take to have everything.
    pub settle: Span,
}

impl Scenario {
    /// Whether only servers that the harness starts can take its steps.
    pub fn needs_own_servers(&self) -> bool {
        let needs = |step: &Step| {
            matches!(step, Step::Restart { .. } | Step::AddServers(_) | Step::Scale { .. })
        };
        self.steps.iter().any(needs)
    }

    pub fn makes_changes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Change { .. }))
    }
}

impl Default for End {
    fn default() -> Self {
        Self { settle: Span(Duration::from_secs(30)) }
    }
}

fn one() -> usize {
    1
}

fn once() -> u32 {
    1
}

#[cfg(test)]
mod tests;
