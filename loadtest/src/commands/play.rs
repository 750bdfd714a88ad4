use super::{Outcome, Usage, complain};
use crate::Security;
use crate::drive::{Driver, FilesDriver, StoreDriver};
use crate::play::play;
use crate::run::RunOptions;
use crate::scenario::{Protocols, Scenario};
use crate::servers::{Launch, Programs, Target};
use anyhow::Context;
use heliograph_report::{Report, Sampler};
use heliograph_shared::output;
use heliograph_store::StoreArgs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// A built-in scenario, or a file
    scenario: String,

    /// URL of a running server, http://HOST:PORT or https://HOST:PORT; can be repeated
    #[arg(long, value_name = "URL", conflicts_with = "launch")]
    server: Vec<String>,
    /// Servers to start for the duration of the run
    #[arg(long, value_name = "WHAT")]
    launch: Option<Launch>,
    /// Start these servers with TLS, with generated certificates for servers and clients
    #[arg(long, requires = "launch")]
    launch_tls: bool,

    /// Number of clients, instead of the scenario's
    #[arg(long, value_name = "NUMBER")]
    clients: Option<usize>,
    #[arg(long)]
    protocol: Option<Protocols>,
    /// Fleet of the clients (node.cluster), if the servers have other fleets than the load test creates
    #[arg(long, value_name = "NAME")]
    fleet: Option<String>,
    /// Use few clients and short steps, to try a scenario
    #[arg(long)]
    brief: bool,

    /// How changes reach the servers
    #[arg(long, value_name = "HOW", default_value = "none", conflicts_with = "launch")]
    drive: Drive,
    /// Directory that a translator or `helio standalone` reads, for --drive files
    #[arg(long, value_name = "DIR", required_if_eq("drive", "files"))]
    directory: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    security: Security,

    /// Process ID of a server, to measure its resource use; can be repeated
    #[arg(long, value_name = "PID", conflicts_with_all = ["launch", "cgroup"])]
    pid: Vec<u32>,
    /// Directory of the servers' cgroup (version 2), to measure their resource use
    #[arg(long, value_name = "DIR", conflicts_with = "launch")]
    cgroup: Option<PathBuf>,
    /// Address on which to serve the results as Prometheus metrics during the run
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,

    /// Write the report as JSON, for `loadtest compare`
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Run the servers on this CPU
    #[arg(long, value_name = "CPU", requires = "launch")]
    pin_server: Option<usize>,
    /// Run the clients on this CPU
    #[arg(long, value_name = "CPU")]
    pin_clients: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Drive {
    /// The store in Redis (--store, --store-keys), as a translator would
    Store,
    /// Files in a directory
    Files,
    /// No changes: the clients only watch
    None,
}

impl RunArgs {
    pub(super) async fn run(self: Box<Self>) -> anyhow::Result<Outcome> {
        let scenario = self.scenario()?;
        let stop = CancellationToken::new();
        tokio::spawn(stop_at_signal(stop.clone())?);
        let programs = Programs::here()?;
        let options = RunOptions {
            programs: programs.clone(),
            clients_cpu: self.pin_clients,
            metrics: self.metrics,
            live: true,
            stop: stop.clone(),
        };
        let target = tokio::select! {
            target = self.target(&scenario, &programs) => target?,
            () = stop.cancelled() => anyhow::bail!("interrupted before it began"),
        };
        let command = std::env::args().collect();
        let finished = play(&scenario, self.fleet.clone(), command, target, options).await?;
        self.write(&finished.report)?;
        let printed = output::result(&finished.report.table());
        finished.notes.iter().for_each(|note| complain(&format!("note: {note}")));
        printed?;
        Ok(if finished.is_good() && !stop.is_cancelled() { Outcome::Good } else { Outcome::Bad })
    }

    /// As the file says, but for what flags say.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let mut scenario =
            Scenario::find(&self.scenario).map_err(|error| Usage(error.to_string()))?;
        if self.brief {
            scenario = scenario.brief();
        }
        scenario.clients = self.clients.unwrap_or(scenario.clients);
        scenario.protocol = self.protocol.unwrap_or(scenario.protocol);
        scenario.check().map_err(Usage)?;
        self.check(&scenario).map_err(Usage)?;
        Ok(scenario)
    }

    fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let name = &scenario.name;
        if self.server.is_empty() && self.launch.is_none() {
            return Err("against what? Name a server with --server http://HOST:PORT, or start one with --launch heliograph".to_owned());
        }
        if scenario.needs_own_servers() && self.launch != Some(Launch::Heliograph) {
            return Err(format!(
                "{name} restarts servers, or has more or fewer of them, so they have to be its own: use --launch heliograph"
            ));
        }
        let peer = self.launch.is_some_and(|launch| launch != Launch::Heliograph);
        if peer && scenario.fleets > 1 {
            return Err(format!(
                "{name} has {} fleets, and go-control-plane's caches serve one: use --launch heliograph",
                scenario.fleets
            ));
        }
        if self.launch.is_none() && self.drive == Drive::None && scenario.makes_changes() {
            return Err(format!(
                "{name} makes changes: say how the servers hear of them, with --drive store or --drive files"
            ));
        }
        if self.fleet.is_some() && (self.launch.is_some() || self.drive != Drive::None) {
            return Err("--fleet is for servers that the harness does not drive: it makes fleets of its own".to_owned());
        }
        Ok(())
    }

    async fn target(&self, scenario: &Scenario, programs: &Programs) -> anyhow::Result<Target> {
        if let Some(launch) = self.launch {
            // A peer is one process, whatever the scenario would like.
            let count = if launch == Launch::Heliograph { scenario.servers } else { 1 };
            let (cpu, tls, balance) = (self.pin_server, self.launch_tls, scenario.balance);
            return Ok(Target::launch(launch, count, programs, cpu, tls, balance).await?);
        }
        for server in &self.server {
            self.security.server(server).map_err(|error| Usage(format!("{error:#}")))?;
        }
        let driver = match (self.drive, &self.directory) {
            (Drive::Store, _) => Driver::Store(StoreDriver::open(&self.store)?),
            (Drive::Files, Some(directory)) => Driver::Files(FilesDriver::new(directory)),
            (Drive::Files | Drive::None, _) => Driver::None,
        };
        let mut watched: Vec<_> =
            self.pid.iter().map(|pid| (format!("process {pid}"), Sampler::pids([*pid]))).collect();
        let cgroup = self.cgroup.clone();
        watched.extend(cgroup.map(|path| (path.display().to_string(), Sampler::cgroup(path))));
        Ok(Target::given(self.server.clone(), driver, self.security.clone(), watched))
    }

    fn write(&self, report: &Report) -> anyhow::Result<()> {
        let write = |path: &Path, text: String| {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        if let Some(path) = &self.json {
            write(path, report.to_json()?)?;
        }
        if let Some(path) = &self.html {
            write(path, report.html())?;
        }
        Ok(())
    }
}

/// Caught from this call on.
pub(super) fn stop_at_signal(stop: CancellationToken) -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        stop.cancel();
    })
}
