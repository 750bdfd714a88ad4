//! Runs an Envoy for each Gateway, so that a directory and one command are enough to serve traffic.

mod bootstrap;
mod envoy;
mod lifeline;

use crate::output;
use anyhow::{Context, bail};
use envoy::Envoy;
use heliograph_gateway::infra::Infra;
use heliograph_model::InfraPort;
use heliograph_shared::admin::{Readiness, ReadinessToken};
use heliograph_shared::backoff::Backoff;
use heliograph_snapshot::FleetName;
use heliograph_translator::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// All that it takes to run Envoys.
pub(crate) struct Envoys {
    program: PathBuf,
    xds: SocketAddr,
    /// Removed, with all that the Envoys wrote, when this is dropped.
    directory: TempDir,
}

/// One Gateway's Envoy, which is started again when it ends.
struct Station {
    fleet: FleetName,
    program: PathBuf,
    xds: SocketAddr,
    directory: PathBuf,
}

/// The end of a running station that the owner holds.
struct Running {
    infra: watch::Sender<Arc<Infra>>,
    stop: CancellationToken,
}

impl Envoys {
    /// `program` is what the operator named; otherwise it is looked for on the path.
    pub(crate) async fn new(program: Option<&Path>, xds: SocketAddr) -> anyhow::Result<Self> {
        let program = envoy::find_program(program, std::env::var_os("PATH").as_deref())?;
        envoy::check_program(&program).await?;
        let directory = tempfile::Builder::new()
            .prefix("helio-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        Ok(Self { program, xds, directory })
    }

    /// Runs an Envoy for each fleet of the report, until it is stopped. The program is not ready before the first
    /// Envoys are.
    ///
    /// They are started by a thread of its own that ends last, because the kernel ties them to the thread that
    /// starts them, and threads of a pool may end at any time.
    pub(crate) fn spawn(
        self,
        report: watch::Receiver<Report>,
        readiness: &Readiness,
        stop: CancellationToken,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + 'static> {
        let readiness = readiness.clone();
        let unready = readiness.token("envoys");
        let (done, outcome) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("envoys".to_owned()).spawn(move || {
            let outcome = runtime.block_on(self.run(report, &readiness, unready, stop));
            let _ = done.send(outcome);
        })?;
        Ok(async { outcome.await.context("the thread that runs the Envoys ended unexpectedly")? })
    }

    async fn run(
        self,
        mut report: watch::Receiver<Report>,
        readiness: &Readiness,
        unready: ReadinessToken,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut unready = Some(unready);
        let mut running: BTreeMap<FleetName, Running> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        let mut clashes = BTreeSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                changed = report.changed() => if changed.is_err() {
                    // The translator has ended, and it is for it to say why.
                    stop.cancelled().await;
                    break;
                },
                Some(ended) = tasks.join_next() => { ended??; continue }
            }
            let wanted = {
                let report = report.borrow_and_update();
                // It may say something of proxies before anything is translated.
                if !report.complete {
                    continue;
                }
                report.infra.clone()
            };
            if unready.is_some() {
                check_ports(&wanted)?;
            }
            clashes = warn_of_clashes(&wanted, &clashes);
            running.retain(|fleet, station| {
                let keep = wanted.contains_key(fleet);
                if !keep {
                    station.stop.cancel();
                }
                keep
            });
            for (fleet, infra) in wanted {
                if let Some(station) = running.get(&fleet) {
                    station.infra.send_if_modified(|before| {
                        let changed = *before != infra;
                        *before = infra;
                        changed
                    });
                    continue;
                }
                let token = unready.as_ref().map(|_| readiness.token("envoys"));
                let (sender, receiver) = watch::channel(infra);
                let stop = stop.child_token();
                tasks.spawn(self.station(&fleet).keep(receiver, token, stop.clone()));
                running.insert(fleet, Running { infra: sender, stop });
            }
            if let Some(token) = unready.take() {
                token.done();
            }
        }
        // Each stops its Envoy, which takes a bounded time.
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    fn station(&self, fleet: &FleetName) -> Station {
        Station {
            fleet: fleet.clone(),
            program: self.program.clone(),
            xds: self.xds,
            directory: self.directory.path().join(fleet.as_str().replace('/', "_")),
        }
    }
}

impl Station {
    /// Keeps an Envoy running until it is stopped.
    async fn keep(
        self,
        mut infra: watch::Receiver<Arc<Infra>>,
        mut unready: Option<ReadinessToken>,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut failures = 0_u32;
        loop {
            let started = Instant::now();
            let mut envoy = Envoy::start(&self.program, &self.directory, &self.fleet, self.xds)?;
            let ended = tokio::select! {
                () = stop.cancelled() => None,
                ended = self.supervise(&mut envoy, &mut infra, &mut unready) => Some(ended?),
            };
            let Some(status) = ended else {
                // Readiness does not wait for an Envoy that is not wanted any more.
                if let Some(token) = unready.take() {
                    token.done();
                }
                envoy.stop().await;
                return Ok(());
            };
            if started.elapsed() > LONG_RUN {
                failures = 0;
            }
            failures = failures.saturating_add(1);
            let pause = BACKOFF.pause(failures);
            tracing::error!(
                "the Envoy of {} exited with {status} and restarts in {pause:?}: {}",
                self.fleet,
                envoy.last_log_lines(),
            );
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Prints where it listens once it does and whenever that changes. Returns when the Envoy ends.
    async fn supervise(
        &self,
        envoy: &mut Envoy,
        infra: &mut watch::Receiver<Arc<Infra>>,
        unready: &mut Option<ReadinessToken>,
    ) -> anyhow::Result<std::process::ExitStatus> {
        let live = envoy.live(READY_WARNING_AFTER, &self.fleet);
        tokio::select! {
            ended = envoy.ended() => return Ok(ended?),
            () = live => {}
        }
        if let Some(token) = unready.take() {
            token.done();
        }
        loop {
            let ports = infra.borrow_and_update().ports.clone();
            let closed = envoy.closed_ports(&ports, OPEN_WITHIN);
            tokio::select! {
                ended = envoy.ended() => return Ok(ended?),
                changed = infra.changed() => {
                    if changed.is_err() { return Ok(envoy.ended().await?) }
                    continue;
                }
                closed = closed => self.print_ports(ports, &closed)?,
            }
            tokio::select! {
                ended = envoy.ended() => return Ok(ended?),
                changed = infra.changed() => if changed.is_err() { return Ok(envoy.ended().await?) },
            }
        }
    }

    /// Prints where it listens, and logs where it should and does not.
    fn print_ports(&self, mut ports: Vec<InfraPort>, closed: &BTreeSet<u16>) -> anyhow::Result<()> {
        let fleet = &self.fleet;
        for port in closed {
            if is_taken(*port) {
                tracing::error!(
                    "port {port} of {fleet} is in use by another program: choose another port in the Gateway, or stop that program and start helio again"
                );
            } else {
                tracing::error!(
                    "port {port} of {fleet} is not open: /fleets on the admin port has the error of its Envoy"
                );
            }
        }
        ports.retain(|port| !closed.contains(&port.bind_port));
        if !ports.is_empty() || closed.is_empty() {
            output::line(&format!("Gateway {fleet} listens on {}", addresses(&ports)))?;
        }
        Ok(())
    }
}

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
/// An Envoy that ran for so long did not end because of how it was started.
const LONG_RUN: Duration = Duration::from_secs(60);
const READY_WARNING_AFTER: Duration = Duration::from_secs(30);
/// How long an Envoy may take to open a port that it has received.
const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// `127.0.0.1:8080, 127.0.0.1:10443 for its port 443`.
fn addresses(ports: &[InfraPort]) -> String {
    let addresses: Vec<String> = ports
        .iter()
        .map(|InfraPort { port, bind_port, .. }| {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *bind_port));
            if port == bind_port {
                address.to_string()
            } else {
                format!("{address} for its port {port}")
            }
        })
        .collect();
    if addresses.is_empty() { "no port".to_owned() } else { addresses.join(", ") }
}

/// Fails if another program listens at a port of a Gateway. Envoy would not report it: it shares ports with others that
/// allow this.
fn check_ports(wanted: &BTreeMap<FleetName, Arc<Infra>>) -> anyhow::Result<()> {
    for (fleet, infra) in wanted {
        for InfraPort { bind_port, .. } in &infra.ports {
            if is_taken(*bind_port) {
                bail!(
                    "port {bind_port} of {fleet} is in use: stop what listens there or change the Gateway"
                );
            }
        }
    }
    Ok(())
}

fn is_taken(port: u16) -> bool {
    let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    bound.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
}

/// Two Gateways are two machines in a cluster, and one here. Returns the ports that more than one Gateway has.
fn warn_of_clashes(
    wanted: &BTreeMap<FleetName, Arc<Infra>>,
    known: &BTreeSet<(u16, FleetName)>,
) -> BTreeSet<(u16, FleetName)> {
    let mut owners: BTreeMap<u16, &FleetName> = BTreeMap::new();
    let mut clashes = BTreeSet::new();
    for (fleet, infra) in wanted {
        for InfraPort { bind_port, .. } in &infra.ports {
            let owner = *owners.entry(*bind_port).or_insert(fleet);
            if owner != fleet {
                let clash = (*bind_port, fleet.clone());
                if !known.contains(&clash) {
                    tracing::warn!(
                        "Gateways {owner} and {fleet} share port {bind_port} on this machine: either may receive a request"
                    );
                }
                clashes.insert(clash);
            }
        }
    }
    clashes
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_model::TransportPort;

    fn infra(name: &str, ports: &[u16]) -> (FleetName, Arc<Infra>) {
        let fleet = FleetName::new("default", name);
        let ports = ports.iter().copied().map(TransportPort::tcp).map(InfraPort::new).collect();
        (fleet.clone(), Arc::new(Infra { fleet, ports, proxies: None }))
    }

    #[test]
    fn people_are_told_where_to_send_requests() {
        let (_, infra) = infra("edge", &[443, 8080]);
        assert_eq!(addresses(&infra.ports), "127.0.0.1:10443 for its port 443, 127.0.0.1:8080");
        assert_eq!(addresses(&[]), "no port");
    }

    #[test]
    fn a_port_of_two_gateways_is_noticed() {
        let wanted = BTreeMap::from([infra("a", &[8080]), infra("b", &[8081, 8080])]);
        let clashes = warn_of_clashes(&wanted, &BTreeSet::new());
        assert_eq!(clashes, BTreeSet::from([(8080, FleetName::new("default", "b"))]));
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let wanted = BTreeMap::from([infra("edge", &[port])]);
        let error = check_ports(&wanted).unwrap_err().to_string();
        assert!(error.starts_with(&format!("port {port} of default/edge is in use")), "{error}");
        drop(taken);
        // A child that another test has just forked may have it for a moment longer.
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while let Err(error) = check_ports(&wanted) {
            assert!(std::time::Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
    }
}
