//! Measures Heliograph and its peers in one run on the same cores with the same clients: the figures of each, and their
//! ratios.
//!
//! There are two lanes, each with a table of its own: servers of xDS, and control planes that make it from Kubernetes
//! objects. An [`experiment`] or a [`control_plane`] trial is done for each contender in turn, and again from the first
//! if there are several rounds: so a change of the machine's speed affects all of them.

mod control_plane;
mod experiment;
mod lines;
mod page;
mod peak;
mod table;

pub use page::{PageError, find_place, rewrite};
pub use table::ResultsTable;

use crate::run::RunError;
use crate::servers::{Launch, Programs, ServersError};
use control_plane::Trial;
use experiment::Experiment;
use lines::LINES;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The measurements of a benchmark, and their settings.
#[derive(Clone, Debug)]
pub struct Bench {
    pub programs: Programs,
    /// Those of another build, which is measured in turn with this one.
    pub before: Option<Programs>,
    /// Rows by number; all if there are none.
    pub rows: Vec<u8>,
    pub rounds: usize,
    /// Measure a tenth of everything, to try it out. The figures are not comparable.
    pub brief: bool,
    /// Without the peers there is nothing to compare with, but ours can be looked at.
    pub without_peers: bool,
    /// How long objects change all the time.
    pub churn: Duration,
    /// How many routes are asked for through an Envoy.
    pub probes: usize,
    pub server_cpu: Option<usize>,
    pub clients_cpu: Option<usize>,
    pub stop: CancellationToken,
}

/// Why a contender has no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Run(Box<RunError>),
    #[error(transparent)]
    Servers(#[from] ServersError),
    #[error(transparent)]
    Drive(#[from] crate::drive::DriveError),
    #[error("cannot tell {0}: is this Linux, and are its files in /proc readable?")]
    NoSample(&'static str),
    #[error("it is still busy after {0:?}")]
    Busy(std::time::Duration),
    #[error("a proxy: {0}")]
    Proxy(String),
    #[error("there is no row {0}: choose among 1 to 13")]
    Row(u8),
}

impl From<RunError> for BenchError {
    fn from(error: RunError) -> Self {
        Self::Run(Box::new(error))
    }
}

/// A part of the bench with a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The distributor against go-control-plane.
    Distributor,
    /// All of ours against Envoy Gateway.
    ControlPlane,
}

/// A contender of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contender {
    Ours,
    /// Ours, as another build has it.
    Before,
    Snapshot,
    Linear,
    PerClient,
    EnvoyGateway,
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
    /// One HTTPRoute more: microseconds of CPU, seconds until a proxy has it, and bytes that it is sent.
    RouteCpu,
    RouteTime,
    RouteBytes,
    /// That CPU over the same with a tenth of the routes, and the same of the units that were translated.
    RouteGrowth,
    UnitsGrowth,
    /// Responses with route tables for ten routes that are added within 100 ms.
    BurstResponses,
    /// Fleets that a changed route of one Gateway among many touches.
    TouchedFleets,
    /// One endpoint: microseconds of CPU, seconds until it is in the store and until a proxy has it.
    EndpointCpu,
    EndpointStored,
    EndpointTime,
    /// Seconds from all objects known to the first snapshot.
    ColdStart,
    /// Bytes, of the translator alone.
    TranslatorMemory,
    /// The same over a directory with so many routes, each with a Service and an EndpointSlice; and what one more route adds.
    DirectoryMemory(usize),
    RouteMemory,
    /// While objects change all the time: seconds of CPU a minute, and the most bytes of memory.
    ChurnCpu,
    ChurnMemory,
    /// Through an Envoy: seconds until a new route answers, answers that are wrong, the last routes over the first.
    ProbeMedian,
    ProbeLate,
    ProbeWrong,
    ProbeGrowth,
    /// Many routes at once: seconds until every status reports them, writes of statuses, and those of these that changed
    /// nothing.
    AttachTime,
    AttachWrites,
    AttachIdleWrites,
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
    versions: BTreeMap<String, String>,
}

impl Contender {
    fn launch(self) -> Launch {
        match self {
            // The latter is not launched with clients of its own.
            Self::Ours | Self::Before | Self::EnvoyGateway => Launch::Heliograph,
            Self::Snapshot => Launch::SnapshotCache,
            Self::Linear => Launch::LinearCache,
            Self::PerClient => Launch::SnapshotCachePerClient,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "heliograph",
            Self::Before => "heliograph, before",
            Self::Snapshot => "SnapshotCache",
            Self::Linear => "LinearCache",
            Self::PerClient => "SnapshotCache, one per client",
            Self::EnvoyGateway => "Envoy Gateway",
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

    /// What the programs of a contender say of themselves. Another build of ours has no line of its own.
    fn add_versions(&mut self, contender: Contender, versions: BTreeMap<String, String>) {
        if contender != Contender::Before {
            self.versions.extend(versions);
        }
    }

    /// Something to know of an experiment with a contender.
    fn add_note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl Lane {
    pub const ALL: [Self; 2] = [Self::Distributor, Self::ControlPlane];

    fn has(self, row: u8) -> bool {
        (self == Self::ControlPlane) == matches!(row, 6..=10 | 13)
    }

    fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Distributor => &[
                Contender::Ours,
                Contender::Before,
                Contender::Snapshot,
                Contender::Linear,
                Contender::PerClient,
            ],
            Self::ControlPlane => &[Contender::Ours, Contender::Before, Contender::EnvoyGateway],
        }
    }
}

impl Bench {
    /// The parts that are asked for.
    pub fn lanes(&self) -> Result<Vec<Lane>, BenchError> {
        let known = |row: &u8| LINES.iter().any(|line| line.row == *row);
        if let Some(row) = self.rows.iter().find(|row| !known(row)) {
            return Err(BenchError::Row(*row));
        }
        let asked =
            |lane: &Lane| self.rows.is_empty() || self.rows.iter().any(|row| lane.has(*row));
        Ok(Lane::ALL.into_iter().filter(asked).collect())
    }

    /// Measures, and says on the way what it does. A contender that fails has no figures, and a note says why.
    pub async fn run(&self, lane: Lane, say: impl FnMut(&str)) -> ResultsTable {
        let mut results = Results::default();
        match lane {
            Lane::Distributor => self.run_distributors(&mut results, say).await,
            Lane::ControlPlane => self.run_control_planes(&mut results, say).await,
        }
        ResultsTable::new(results, lane, self)
    }

    async fn run_distributors(&self, results: &mut Results, mut say: impl FnMut(&str)) {
        let experiments: Vec<_> =
            Experiment::ALL.into_iter().filter(|it| it.is_for(&self.rows)).collect();
        for round in 1..=self.rounds {
            for experiment in &experiments {
                for contender in self.present(experiment.contenders()) {
                    let what = format!("{}: {}", experiment.name(), contender.name());
                    say(&format!("round {round} of {}, {what}", self.rounds));
                    match experiment.measure(self, contender, results).await {
                        Ok(found) => results.add(contender, found),
                        // What was measured until then is worth showing.
                        Err(BenchError::Run(error)) if matches!(*error, RunError::Interrupted) => {
                            results.add_note(INTERRUPTED.to_owned());
                            return;
                        }
                        Err(error) => failed(&what, &error, results, &mut say),
                    }
                }
            }
        }
    }

    async fn run_control_planes(&self, results: &mut Results, mut say: impl FnMut(&str)) {
        let trials: Vec<_> = Trial::ALL.into_iter().filter(|it| it.is_for(&self.rows)).collect();
        for round in 1..=self.rounds {
            for trial in &trials {
                for contender in self.present(trial.contenders()) {
                    let what = format!("{}: {}", trial.name(), contender.name());
                    say(&format!("round {round} of {}, {what}", self.rounds));
                    let measured = tokio::select! {
                        measured = trial.measure(self, contender, results) => Some(measured),
                        () = self.stop.cancelled() => None,
                    };
                    match measured {
                        Some(Ok(())) => {}
                        Some(Err(error)) => failed(&what, &error, results, &mut say),
                        None => {
                            results.add_note(INTERRUPTED.to_owned());
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Those that there are here.
    fn present(&self, contenders: &'static [Contender]) -> impl Iterator<Item = Contender> {
        contenders.iter().copied().filter(move |contender| match contender {
            Contender::Ours => true,
            Contender::Before => self.before.is_some(),
            _ => !self.without_peers,
        })
    }

    /// Where the programs of a contender are.
    fn programs_of(&self, contender: Contender) -> &Programs {
        let other = self.before.as_ref().filter(|_| contender == Contender::Before);
        other.unwrap_or(&self.programs)
    }
}

const INTERRUPTED: &str = "interrupted: the rest was not measured";

fn failed(what: &str, error: &BenchError, results: &mut Results, say: &mut impl FnMut(&str)) {
    let text = format!("{what}: {error}");
    say(&text);
    results.add_note(text);
}
