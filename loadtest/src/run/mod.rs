//! A run: clients against a target, step by step, with all that is measured on the way.
//!
//! Scenarios and benchmarks take their steps through [`Run`]. Each method does one thing and returns when it is done;
//! the time between two calls of [`Run::phase`] is a phase of the report.

mod changes;
mod cost;
mod error;
mod finish;
mod live;
mod metrics;
mod reports;
mod scale;
mod watch;
mod workers;

pub use changes::Changes;
pub use error::RunError;
pub use finish::Finished;
pub use scale::Scale;

use crate::population::{Conduct, Group};
use crate::scenario::{Protocols, Share, Span};
use crate::servers::{Programs, Stop, Target};
use crate::worker::{Begin, ClientTotals, Excuse, Spread, WorkerOrder};
use crate::workload::{Resources, Workload};
use cost::Cost;
use heliograph_report::{Figures, Phase, Report, Sample, Scenario, Watched};
use live::Stage;
use reports::WorkerReports;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use watch::{Watch, unix_ms};
use workers::Workers;

/// The plan of a run, before it starts.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// For the report.
    pub scenario: Scenario,
    pub command: Vec<String>,
    /// The most clients that there will be.
    pub clients: usize,
    /// Of clients; there are more if they need more.
    pub processes: usize,
    /// From this client on they have a process of their own.
    pub newcomers: Option<usize>,
    pub fleets: usize,
    /// What clients say instead of the workload's fleets, to servers that know others.
    pub fleet: Option<String>,
    pub protocols: Protocols,
    pub streams_per_connection: usize,
    pub resources: Resources,
    pub population: Vec<Group>,
}

/// How a run is carried out.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub programs: Programs,
    /// The CPU of the clients' processes.
    pub clients_cpu: Option<usize>,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Whether to show on the terminal how it goes.
    pub live: bool,
    /// Ends the run: what is under way fails with [`RunError::Interrupted`].
    pub stop: CancellationToken,
}

pub struct Run {
    target: Target,
    workload: Workload,
    workers: Workers,
    reports: Arc<WorkerReports>,
    watch: Arc<Watch>,
    stage: Arc<Stage>,
    report: Report,
    phase: Option<(String, u64, Figures)>,
    cost: Cost,
    /// How many CPUs the processes of the clients may run on.
    clients_cpus: usize,
    spread: Spread,
    clients: usize,
    /// The number of the last change.
    changes: u32,
    /// Whether it was waited for those who connected last.
    settled: bool,
    errors: Vec<String>,
    notes: Vec<String>,
    tasks: Tasks,
    stop: CancellationToken,
}

/// The tasks beside the run. They end when this is dropped.
struct Tasks {
    handles: Vec<AbortHandle>,
    stage: Arc<Stage>,
}

impl RunPlan {
    /// With the defaults of a scenario: one fleet, delta, a bare node.
    pub fn new(scenario: Scenario, clients: usize, resources: Resources) -> Self {
        Self {
            scenario,
            command: Vec::new(),
            clients,
            processes: 1,
            newcomers: None,
            fleets: 1,
            fleet: None,
            protocols: Protocols::Delta,
            streams_per_connection: 1,
            resources,
            population: Vec::new(),
        }
    }
}

impl RunOptions {
    pub fn new(programs: Programs) -> Self {
        let stop = CancellationToken::new();
        Self { programs, clients_cpu: None, metrics: None, live: false, stop }
    }
}

impl Run {
    /// Gives the servers the resources to serve, and starts the processes of the clients. No client is connected yet.
    pub async fn start(
        plan: RunPlan,
        mut target: Target,
        options: RunOptions,
    ) -> Result<Self, RunError> {
        let RunOptions { programs, clients_cpu, metrics, live, stop } = options;
        let mut workload = Workload::new(&plan.resources, plan.fleets);
        during(&stop, target.driver.set_up(&mut workload)).await??;
        let crowd = plan.newcomers.unwrap_or(plan.clients);
        let count =
            reports::processes(crowd, plan.processes) + usize::from(plan.newcomers.is_some());
        let reports = Arc::new(WorkerReports::new(count));
        let spread = Spread { workers: count, newcomers: plan.newcomers };
        let mut workers = Workers::start(&programs, count, clients_cpu, reports.clone())?;
        let begin = Begin {
            worker: 0,
            spread,
            servers: target.addresses(),
            security: target.security.clone(),
            streams_per_connection: plan.streams_per_connection,
            protocols: plan.protocols,
            population: plan.population,
            resources: plan.resources,
            fleets: plan.fleets,
            fleet: plan.fleet,
            knowledge: target.driver.knowledge(),
            base: workload.base().to_string(),
        };
        during(&stop, workers.begin(&begin)).await??;
        let watch = Arc::new(Watch::new(reports.clone(), target.watched(), workers.pids()));
        watch.sample().await?;
        let mut report = Report::new(plan.scenario, plan.command, unix_ms());
        report.versions = during(&stop, target.versions()).await?;
        report.versions.insert("loadtest".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let stage = Arc::new(Stage::new(live));
        let mut tasks = Tasks { handles: Vec::new(), stage: stage.clone() };
        let metrics = match metrics {
            Some(address) => {
                let (metrics, serving) = metrics::serve(address).await?;
                tasks.handles.push(serving);
                Some(metrics)
            }
            None => None,
        };
        let follow = live::follow(reports.clone(), watch.clone(), stage.clone(), metrics);
        tasks.handles.push(tokio::spawn(follow).abort_handle());
        Ok(Self {
            target,
            workload,
            workers,
            reports,
            watch,
            stage,
            report,
            phase: None,
            cost: Cost::default(),
            clients_cpus: clients_cpu.map_or_else(cpus, |_| 1),
            spread,
            clients: 0,
            changes: 0,
            settled: false,
            errors: Vec::new(),
            notes: Vec::new(),
            tasks,
            stop,
        })
    }

    /// Begins a new phase of the report.
    pub async fn phase(&mut self, name: &str) -> Result<(), RunError> {
        let figures = self.figures().await?;
        self.watch.sample().await?;
        self.close_phase(&figures);
        self.phase = Some((name.to_owned(), unix_ms(), figures.clone()));
        self.stage.set(|scene| (scene.phase, scene.begun) = (name.to_owned(), figures));
        Ok(())
    }

    /// Clients connect until there are so many, at so many a second or all at once. Returns when all have begun to;
    /// [`Run::settle`] waits for them.
    pub async fn connect(&mut self, clients: usize, rate: Option<f64>) -> Result<(), RunError> {
        self.begin_to_connect(clients, rate).await?;
        let allowed = rate.map_or(0.0, |rate| clients as f64 / rate);
        let allowed = Duration::try_from_secs_f64(allowed).unwrap_or_default();
        self.until(allowed + STEP, |it| it.clients >= clients).await
    }

    /// The same, and other things can happen meanwhile.
    pub async fn begin_to_connect(
        &mut self,
        clients: usize,
        rate: Option<f64>,
    ) -> Result<(), RunError> {
        let (needed, processes) = (reports::processes(clients, 1), self.workers.count());
        if needed > processes {
            return Err(RunError::TooMany { clients, needed, processes });
        }
        if self.clients == 0 && !self.cost.is_begun() {
            let before = self.sample().await?;
            self.cost.add(before);
        }
        let first = std::mem::replace(&mut self.clients, clients);
        self.settled = false;
        self.stage.set(|scene| scene.wanted = clients);
        let rate = rate.map(|rate| rate / self.spread.workers_of(first) as f64);
        self.workers.send(&WorkerOrder::Connect { clients, rate }).await
    }

    /// Waits until every client that behaves is connected and has everything, the newest change too.
    pub async fn settle(&mut self, within: Duration) -> Result<(), RunError> {
        // What workers do not know of yet must not pass for settled.
        self.sync().await?;
        let clients = self.clients;
        self.until(within, |it| it.clients >= clients && it.lacking == 0).await?;
        // Only the first time: what comes after that is no longer the cost of connecting.
        if !std::mem::replace(&mut self.settled, true) && self.cost.is_open() {
            let now = self.sample().await?;
            self.cost.add(now);
        }
        Ok(())
    }

    /// Nothing happens.
    pub async fn idle(&mut self, span: Duration) -> Result<(), RunError> {
        self.during(tokio::time::sleep(span)).await
    }

    /// A share of the clients drop their streams and come back with what they hold, spread over a time. Returns when
    /// they are back.
    pub async fn reconnect(&mut self, share: Share, over: Duration) -> Result<(), RunError> {
        self.cost.close();
        self.sync().await?;
        let before = self.reports.totals();
        let coming: usize = self.reports.clients().iter().map(|count| share.of(*count)).sum();
        self.workers.send(&WorkerOrder::Reconnect { share, over: Span(over) }).await?;
        let back = |it: &ClientTotals| it.opened >= before.opened + coming as u64;
        self.until(over + STEP, |it| back(it) && it.lacking == 0).await
    }

    pub async fn behave(&mut self, share: Share, conduct: Conduct) -> Result<(), RunError> {
        self.cost.close();
        self.workers.send(&WorkerOrder::Behave { share, conduct }).await
    }

    /// From now on streams may end like that without being errors.
    pub async fn excuse(&mut self, excuse: Excuse) -> Result<(), RunError> {
        self.workers.send(&WorkerOrder::Excuse(excuse)).await
    }

    /// Stops a server and starts it again. Its streams may end meanwhile, see [`Run::excuse`].
    pub async fn restart_server(&mut self, server: usize, stop: Stop) -> Result<(), RunError> {
        let old = self.stop_server(server, stop).await?;
        self.start_server(server, old).await
    }

    /// Stops all servers, then starts them again.
    pub async fn restart_servers(&mut self) -> Result<(), RunError> {
        let mut stopped = Vec::new();
        for server in 0..self.servers() {
            stopped.push(self.stop_server(server, Stop::Ask).await?);
        }
        for (server, old) in stopped.into_iter().enumerate() {
            self.start_server(server, old).await?;
        }
        Ok(())
    }

    /// More servers. Clients that connect from now on choose among all.
    pub async fn add_servers(&mut self, count: usize) -> Result<(), RunError> {
        self.cost.close();
        during_or_failed(&self.stop, &self.reports, self.target.add(count)).await??;
        let known = self.watch.names();
        for (name, sampler) in self.target.watched() {
            if !known.contains(&name) {
                self.watch.add(name, sampler);
            }
        }
        self.workers.send(&WorkerOrder::Servers(self.target.addresses())).await
    }

    /// The sum of what all servers use now. None if their processes are not known.
    pub async fn sample(&mut self) -> Result<Option<Sample>, RunError> {
        self.sync().await?;
        Ok(self.watch.sample().await?)
    }

    /// The usage of the processes of clients.
    pub fn clients_used(&self) -> Watched {
        self.watch.clients()
    }

    /// All figures up to now.
    pub async fn figures(&mut self) -> Result<Figures, RunError> {
        self.sync().await?;
        Ok(self.reports.figures())
    }

    pub fn totals(&self) -> ClientTotals {
        self.reports.totals()
    }

    /// How many clients were ordered to connect.
    pub fn clients(&self) -> usize {
        self.clients
    }

    pub fn target(&mut self) -> &mut Target {
        &mut self.target
    }

    pub fn servers(&self) -> usize {
        self.target.len()
    }

    /// Which process it was.
    async fn stop_server(&mut self, server: usize, stop: Stop) -> Result<Option<u32>, RunError> {
        self.cost.close();
        let name = self.server_name(server);
        let pid = self.pid(&name);
        // What it used up to now stays counted.
        self.watch.sample().await?;
        self.watch.leaves(&name);
        during_or_failed(&self.stop, &self.reports, self.target.stop(server, stop)).await??;
        Ok(pid)
    }

    async fn start_server(&mut self, server: usize, old: Option<u32>) -> Result<(), RunError> {
        during_or_failed(&self.stop, &self.reports, self.target.restart(server)).await??;
        let name = self.server_name(server);
        if let (Some(old), Some(new)) = (old, self.pid(&name)) {
            self.watch.returns(&name, old, new);
        }
        self.sync().await
    }

    fn server_name(&self, server: usize) -> String {
        self.target.name(server).unwrap_or_default().to_owned()
    }

    fn pid(&self, name: &str) -> Option<u32> {
        self.target.pids().into_iter().find(|(known, _)| known == name).map(|(_, pid)| pid)
    }

    fn close_phase(&mut self, figures: &Figures) {
        let Some((name, started_ms, begun)) = self.phase.take() else { return };
        let (ended_ms, streams) = (unix_ms(), self.reports.totals().up as u64);
        let figures = figures.since(&begun);
        self.report.phases.push(Phase { name, started_ms, ended_ms, streams, figures });
    }

    /// All orders are carried out, and the reports show the clients after that.
    async fn sync(&mut self) -> Result<(), RunError> {
        self.workers.ask(&WorkerOrder::Tell).await?;
        during(&self.stop, self.workers.answered()).await?
    }

    async fn during<T>(&self, future: impl Future<Output = T>) -> Result<T, RunError> {
        during_or_failed(&self.stop, &self.reports, future).await
    }

    async fn until(
        &self,
        within: Duration,
        condition: impl Fn(&ClientTotals) -> bool,
    ) -> Result<(), RunError> {
        let mut changes = self.reports.changes();
        let met = async {
            while !condition(&self.reports.totals()) {
                if let Some(reason) = self.reports.no_server() {
                    return Err(RunError::NoServer(reason));
                }
                // Also without a change: patience with a server that is none ends by the clock.
                let _ = tokio::time::timeout(POLL_INTERVAL, changes.changed()).await;
            }
            Ok(())
        };
        match self.during(tokio::time::timeout(within, met)).await? {
            Ok(met) => met,
            Err(_) => Err(self.unsettled(within)),
        }
    }

    fn unsettled(&self, within: Duration) -> RunError {
        let ClientTotals { clients, up, warm, lacking, .. } = self.reports.totals();
        let missing = if clients < self.clients {
            format!("only {clients} of {} have begun to connect", self.clients)
        } else if up < clients {
            format!("{} have no stream", clients - up)
        } else if warm < clients {
            format!(
                "{} have not been sent a whole configuration; is their fleet known?",
                clients - warm
            )
        } else {
            format!("change {} is missing at some", self.changes)
        };
        RunError::Unsettled { within, lacking, clients, missing }
    }
}

/// For what takes moments once it has begun.
const STEP: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.handles.iter().for_each(AbortHandle::abort);
        self.stage.end();
    }
}

async fn during<T>(
    stop: &CancellationToken,
    future: impl Future<Output = T>,
) -> Result<T, RunError> {
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(RunError::Interrupted),
        done = future => Ok(done),
    }
}

async fn during_or_failed<T>(
    stop: &CancellationToken,
    reports: &WorkerReports,
    future: impl Future<Output = T>,
) -> Result<T, RunError> {
    let mut changes = reports.changes();
    let failed = async {
        loop {
            if let Some(reason) = reports.failure() {
                return reason;
            }
            let _ = changes.changed().await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => Err(RunError::Interrupted),
        done = future => Ok(done),
        reason = failed => Err(RunError::Worker(reason)),
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
