use super::{Scenario, Step, built_in};
use crate::workload::{UpdateKind, Workload};
use serde_saphyr::UserMessageFormatter;
use std::io;
use std::path::{Path, PathBuf};

/// Each is one line that says where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error(
        "{0:?} is neither a built-in scenario nor a file: `loadtest list` shows those there are"
    )]
    Unknown(String),
    #[error("cannot read the scenario {}: {cause}", path.display())]
    Read { path: PathBuf, cause: io::Error },
    #[error("the scenario {name} is not valid: {reason}")]
    Invalid { name: String, reason: String },
}

/// A larger number is probably a typing error.
const MOST_CLIENTS: usize = 1_000_000;
const MOST_RESOURCES: usize = 1_000_000;
const MOST_FLEETS: usize = 10_000;
const MOST_SERVERS: usize = 64;

impl Scenario {
    /// A built-in one, or a file.
    pub fn find(named: &str) -> Result<Self, ScenarioError> {
        if let Some(text) = built_in(named) {
            return Self::parse(named, text);
        }
        let path = Path::new(named);
        let text = std::fs::read_to_string(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound => ScenarioError::Unknown(named.to_owned()),
            _ => ScenarioError::Read { path: path.to_owned(), cause },
        })?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        Self::parse(&name, &text)
    }

    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let invalid = |reason| ScenarioError::Invalid { name: name.to_owned(), reason };
        let options = serde_saphyr::options! { with_snippet: false };
        let mut scenario: Self = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| one_line(&error.render_with_formatter(&UserMessageFormatter)))
            .map_err(invalid)?;
        (scenario.name, scenario.text) = (name.to_owned(), text.to_owned());
        scenario.check().map_err(invalid)?;
        Ok(scenario)
    }

    /// What no type says.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: usize, least: usize, most: usize| {
            let fits = (least..=most).contains(&value);
            fits.then_some(()).ok_or(format!("{what}: {value} is not from {least} to {most}"))
        };
        within("clients", self.clients, 1, MOST_CLIENTS)?;
        within("processes", self.processes, 1, MOST_SERVERS)?;
        within("fleets", self.fleets, 1, MOST_FLEETS)?;
        within("servers", self.servers, 1, MOST_SERVERS)?;
        within("streams-per-connection", self.streams_per_connection, 1, MOST_CLIENTS)?;
        within("resources: clusters", self.resources.clusters, 0, MOST_RESOURCES)?;
        within("resources: listeners", self.resources.listeners, 0, MOST_RESOURCES)?;
        within("resources: routes", self.resources.routes, 0, MOST_RESOURCES)?;
        within("resources: secrets", self.resources.secrets, 0, MOST_RESOURCES)?;
        if self.connect.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("connect: rate: write clients a second, more than 0".to_owned());
        }
        for group in &self.population {
            group.check()?;
        }
        self.check_changes()
    }

    fn check_changes(&self) -> Result<(), String> {
        let counts = self.steps.iter().map(|step| match step {
            Step::Change { count, .. } => u64::from(*count),
            _ => 0,
        });
        let changes = counts.sum::<u64>().saturating_mul(self.repeat.into());
        if changes > u64::from(Workload::LAST) {
            return Err(format!("{changes} changes are too many: at most {}", Workload::LAST));
        }
        for step in &self.steps {
            if let Step::Scale { to, .. } = step {
                let fits = (1..=MOST_SERVERS).contains(to) && self.resources.clusters > 0;
                fits.then_some(()).ok_or(format!(
                    "{step}: write from 1 to {MOST_SERVERS} servers, and clusters whose endpoints change meanwhile"
                ))?;
            }
            let Step::Change { kind, every, .. } = step else { continue };
            if every.is_zero() {
                return Err(format!("{step}: every: write how long it is from one to the next"));
            }
            let resources = match kind {
                UpdateKind::Endpoint => self.resources.clusters,
                UpdateKind::Route => self.resources.listeners,
                UpdateKind::Clusters => self.resources.clusters,
                UpdateKind::Full => self.resources.clusters + self.resources.listeners,
            };
            if resources == 0 {
                return Err(format!("{step}: there is nothing to change: see resources"));
            }
        }
        Ok(())
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
