//! Ours and the peers in one run on the same cores with the same clients: the figures of each, and their ratios.
//!
//! An [`experiment`] is done for each contender in turn, and again from the first if there are several rounds: what
//! changes on the machine meanwhile then changes for all.

mod experiment;
mod lines;
mod page;
mod peak;
mod table;

pub use page::{PageError, find_place, rewrite};
pub use table::Table;

use crate::run::RunError;
use crate::servers::{Launch, Programs, ServersError};
use experiment::Experiment;
use lines::LINES;
use std::collections::BTreeMap;
use tokio_util::sync::CancellationToken;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Bench {
    pub programs: Programs,
    /// Rows by number; all if there are none.
    pub rows: Vec<u8>,
    pub rounds: usize,
    /// A tenth of everything, to see whether it works. The figures are not comparable.
    pub brief: bool,
    /// Without go-control-plane there is nothing to compare with, but ours can be looked at.
    pub without_peers: bool,
    pub server_cpu: Option<usize>,
    pub clients_cpu: Option<usize>,
    pub stop: CancellationToken,
}

/// Why a contender has no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error(transparent)]
    Drive(#[from] crate::drive::DriveError),
    #[error("cannot tell {0}: is this Linux, and are its files in /proc readable?")]
    NoSample(&'static str),
    #[error("it is still busy after {0:?}")]
    Busy(std::time::Duration),
    #[error("row {0} is not measured here: choose among 1, 2, 3, 4, 5, 11 and 12")]
    Row(u8),
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contender {
    Ours,
    Snapshot,
    Linear,
    PerClient,
}

/// A kind of figure that an experiment has of each contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Figure {
    /// Bytes a stream, as it is. With how many clusters and as many endpoints resources.
    Memory(Amount),
    /// The same after a forced garbage collection.
    MemoryCollected(Amount),
    /// Bytes a stream with nothing to serve.
    Empty,
    EmptyTls,
    EmptyRealNode,
    /// Microseconds of CPU a stream.
    ChangeCpu(Amount),
    /// Seconds until the last client has acknowledged.
    LastAck,
    /// Seconds until a client that comes during a push has everything.
    NewcomerMedian,
    NewcomerLate,
    /// Microseconds of CPU a stream for a large push in state of the world.
    FullCpu,
    /// Bytes above what was used before it.
    FullGrowth,
    /// All drop their streams and come back: microseconds of CPU a stream, seconds until the server has dealt with all.
    ReconnectCpu,
    ReconnectTime,
    /// Memory afterwards over memory before.
    ReconnectMemory,
    /// Resources that were sent although the client held them, a stream.
    ReconnectResent,
    /// Bytes that were sent, a stream, in state of the world.
    ReconnectBytes,
    /// Clients until the memory is used up.
    Survivors,
}

/// How much there is to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    /// 1,000 clusters and their endpoints.
    Thousand,
    /// 5,000 of each.
    FiveThousand,
}

/// All that was measured: a figure for each round.
#[derive(Clone, Debug, Default)]
pub struct Results {
    figures: BTreeMap<(Figure, Contender), Vec<f64>>,
    /// What to know before the figures are believed.
    notes: Vec<String>,
    pub(crate) versions: BTreeMap<String, String>,
}

impl Contender {
    fn launch(self) -> Launch {
        match self {
            Self::Ours => Launch::Heliograph,
            Self::Snapshot => Launch::SnapshotCache,
            Self::Linear => Launch::LinearCache,
            Self::PerClient => Launch::SnapshotCachePerClient,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "heliograph",
            Self::Snapshot => "SnapshotCache",
            Self::Linear => "LinearCache",
            Self::PerClient => "SnapshotCache, one per client",
        }
    }
}

impl Results {
    /// The median of all rounds.
    fn get(&self, figure: Figure, contender: Contender) -> Option<f64> {
        let mut values = self.figures.get(&(figure, contender))?.clone();
        values.sort_by(f64::total_cmp);
        let [lower, upper] =
            [(values.len() - 1) / 2, values.len() / 2].map(|at| values.get(at).copied());
        Some((lower? + upper?) / 2.0)
    }

    fn add(&mut self, contender: Contender, found: Vec<(Figure, f64)>) {
        for (figure, value) in found {
            self.figures.entry((figure, contender)).or_default().push(value);
        }
    }

    /// Something to know of an experiment with a contender.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl Bench {
    /// Measures, and says on the way what it does. A contender that fails has no figures, and a note says why.
    pub async fn run(&self, mut say: impl FnMut(&str)) -> Result<Table, BenchError> {
        let known = |row: &u8| LINES.iter().any(|line| line.row == *row);
        if let Some(row) = self.rows.iter().find(|row| !known(row)) {
            return Err(BenchError::Row(*row));
        }
        let mut results = Results::default();
        let experiments: Vec<_> =
            Experiment::ALL.into_iter().filter(|it| it.is_for(&self.rows)).collect();
        for round in 1..=self.rounds {
            for experiment in &experiments {
                for contender in experiment.contenders() {
                    if self.without_peers && *contender != Contender::Ours {
                        continue;
                    }
                    let what = format!("{}: {}", experiment.name(), contender.name());
                    say(&format!("round {round} of {}, {what}", self.rounds));
                    match experiment.measure(self, *contender, &mut results).await {
                        Ok(found) => results.add(*contender, found),
                        // What was measured until then is worth showing.
                        Err(BenchError::Run(RunError::Interrupted)) => {
                            results.note("interrupted: the rest was not measured".to_owned());
                            return Ok(Table::new(results, self));
                        }
                        Err(error) => {
                            say(&format!("{what}: {error}"));
                            results.note(format!("{what}: {error}"));
                        }
                    }
                }
            }
        }
        Ok(Table::new(results, self))
    }
}
