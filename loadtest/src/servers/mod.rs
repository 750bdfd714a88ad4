//! The servers under test: running already, or started by the harness, on loopback and for the time of a run.

mod certificates;
mod control_plane;
mod envoy_gateway;
mod heliograph;
mod kubernetes;
mod peer;
mod program;

pub(crate) use control_plane::{CONTROLLER_NAME as HELIOGRAPH, ControlPlane, ObjectSource, Ours};
pub(crate) use envoy_gateway::{CONTROLLER_NAME as ENVOY_GATEWAY, EnvoyGateway};
pub(crate) use kubernetes::Kubernetes;
pub(crate) use program::{Program, Start};
pub use program::{Programs, Stop};

use crate::drive::{DriveError, Driver};
use crate::scenario::Balance;
use crate::security::Security;
use certificates::Certificates;
use heliograph::Heliograph;
pub(crate) use heliograph::Retired;
use heliograph_report::Sampler;
use heliograph_testing::Port;
use peer::Peer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the harness can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Launch {
    /// A Redis and our distributors
    Heliograph,
    /// go-control-plane's SnapshotCache, with one snapshot for all clients
    SnapshotCache,
    /// The same, with one snapshot for each client
    SnapshotCachePerClient,
    /// go-control-plane's LinearCache
    LinearCache,
}

/// The target of a run: servers, the driver of their changes, and their processes.
#[derive(Debug)]
pub struct Target {
    servers: Servers,
    pub(crate) driver: Driver,
    pub(crate) security: Security,
    /// Servers that others started.
    given: Vec<(String, Sampler)>,
    /// Last, so that it goes after those who use it.
    _certificates: Option<Certificates>,
}

#[derive(Debug)]
enum Servers {
    Given(Vec<String>),
    Heliograph(Heliograph),
    Peer(Peer),
}

/// Each says what to do, in one line.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    #[error(
        "there is no {name} beside loadtest or on the PATH: {advice}, or set {variable} to its path"
    )]
    Missing { name: String, variable: &'static str, advice: &'static str },
    #[error("there is no {name} in {}: build both programs of that version, with `cargo build --release -p heliograph-distributor -p heliograph-translator`", folder.display())]
    Incomplete { name: &'static str, folder: PathBuf },
    #[error("cannot start {name}: {cause}")]
    Start { name: String, cause: std::io::Error },
    #[error("{name} has ended; the last that it said: {line}")]
    Ended { name: String, line: String },
    #[error("{name} is not there in time ({what}); the last that it said: {line}")]
    Late { name: String, what: &'static str, line: String },
    #[error("cannot prepare {}: {cause}", path.display())]
    Prepare { path: PathBuf, cause: std::io::Error },
    #[error("no key ring for the store: {0}")]
    Keys(String),
    #[error("no certificates for servers and clients: {0}")]
    Certificates(String),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error("{0} is one process: it cannot be started more than once")]
    Single(&'static str),
    #[error("the Kubernetes API: {0}")]
    Api(String),
    #[error("the servers are not ours to restart or to add to: use --launch")]
    NotOurs,
}

impl Target {
    /// Servers that run already.
    pub fn given(
        addresses: Vec<String>,
        driver: Driver,
        security: Security,
        watched: Vec<(String, Sampler)>,
    ) -> Self {
        let servers = Servers::Given(addresses);
        Self { servers, driver, security, given: watched, _certificates: None }
    }

    /// Starts so many servers, each on this CPU if it is said, and with certificates for them and all clients if there is
    /// to be TLS. They are gone when the target is dropped.
    pub async fn launch(
        launch: Launch,
        count: usize,
        programs: &Programs,
        cpu: Option<usize>,
        tls: bool,
        balance: Balance,
    ) -> Result<Self, ServersError> {
        let certificates = if tls { Some(Certificates::make()?) } else { None };
        let (servers, driver) = if launch == Launch::Heliograph {
            let started =
                Heliograph::start(programs, count, cpu, certificates.as_ref(), balance).await?;
            (Servers::Heliograph(started.0), Driver::Store(started.1))
        } else {
            let started = Peer::start(launch, count, programs, cpu, certificates.as_ref()).await?;
            (Servers::Peer(started.0), Driver::Peer(started.1))
        };
        let security = certificates.as_ref().map(Certificates::of_clients).unwrap_or_default();
        Ok(Self { servers, driver, security, given: Vec::new(), _certificates: certificates })
    }

    pub fn is_ours(&self) -> bool {
        !matches!(self.servers, Servers::Given(_))
    }

    /// Where clients connect.
    pub fn addresses(&self) -> Vec<String> {
        match &self.servers {
            Servers::Given(addresses) => addresses.clone(),
            Servers::Heliograph(servers) => servers.addresses(),
            Servers::Peer(peer) => vec![peer.address()],
        }
    }

    /// As it is called in the report, if the harness started it.
    pub fn name(&self, server: usize) -> Option<&str> {
        match &self.servers {
            Servers::Given(_) => None,
            Servers::Heliograph(servers) => servers.name(server),
            Servers::Peer(peer) => Some(peer.program().name()),
        }
    }

    /// All measured programs, by name, with a store's.
    pub fn watched(&self) -> Vec<(String, Sampler)> {
        match &self.servers {
            Servers::Given(_) => self.given.clone(),
            Servers::Heliograph(_) | Servers::Peer(_) => {
                let pids = self.pids().into_iter();
                pids.map(|(name, pid)| (name, Sampler::pids([pid]))).collect()
            }
        }
    }

    /// The processes of those that the harness started, by name.
    pub fn pids(&self) -> Vec<(String, u32)> {
        let programs = match &self.servers {
            Servers::Given(_) => Vec::new(),
            Servers::Heliograph(servers) => servers.programs(),
            Servers::Peer(peer) => vec![peer.program()],
        };
        let pid = |program: &Program| Some((program.name().to_owned(), program.pid()?));
        programs.into_iter().filter_map(pid).collect()
    }

    /// The versions that programs report.
    pub async fn versions(&self) -> BTreeMap<String, String> {
        match &self.servers {
            Servers::Given(_) => BTreeMap::new(),
            Servers::Heliograph(servers) => servers.versions().await,
            Servers::Peer(peer) => peer.versions().await,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.addresses().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends a server. It does not serve until it is started again.
    pub async fn stop(&mut self, server: usize, stop: Stop) -> Result<(), ServersError> {
        match &mut self.servers {
            Servers::Heliograph(servers) => servers.stop(server, stop).await,
            Servers::Given(_) | Servers::Peer(_) => Err(ServersError::NotOurs),
        }
    }

    /// Starts a server where it was, and waits until it is ready.
    pub async fn restart(&mut self, server: usize) -> Result<(), ServersError> {
        match &mut self.servers {
            Servers::Heliograph(servers) => servers.restart(server).await,
            Servers::Given(_) | Servers::Peer(_) => Err(ServersError::NotOurs),
        }
    }

    pub async fn add(&mut self, count: usize) -> Result<(), ServersError> {
        match &mut self.servers {
            Servers::Heliograph(servers) => servers.add(count).await,
            Servers::Given(_) | Servers::Peer(_) => Err(ServersError::NotOurs),
        }
    }

    /// Takes the servers away that came last, so many, and says which they were. They serve until they are asked to end.
    pub(crate) fn retire(&mut self, count: usize) -> Result<Retired, ServersError> {
        match &mut self.servers {
            Servers::Heliograph(servers) => Ok(servers.retire(count)),
            Servers::Given(_) | Servers::Peer(_) => Err(ServersError::NotOurs),
        }
    }

    /// How many streams each server says that it has: what an autoscaler reads. None while one does not answer.
    pub(crate) async fn streams(&self) -> Option<Vec<u64>> {
        match &self.servers {
            Servers::Heliograph(servers) => servers.streams().await,
            Servers::Given(_) | Servers::Peer(_) => None,
        }
    }

    /// Makes servers give back memory that they do not need, where they have a call for it.
    pub async fn collect(&mut self) -> Result<(), DriveError> {
        match &mut self.driver {
            Driver::Peer(peer) => peer.collect().await,
            Driver::Store(_) | Driver::Files(_) | Driver::None => Ok(()),
        }
    }
}

/// A port for a program whose address others get before it starts. No other caller gets it while this process runs.
pub(crate) fn reserve_port(name: &str) -> Result<u16, ServersError> {
    let failed = |cause| ServersError::Start { name: name.to_owned(), cause };
    Port::reserve().map(|port| port.number()).map_err(failed)
}

fn url(tls: bool, address: impl std::fmt::Display) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// The first line that a program prints when it is asked for its version.
async fn version(program: &Path) -> Option<String> {
    let mut command = tokio::process::Command::new(program);
    let output = command.arg("--version").kill_on_drop(true).output().await.ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.trim().to_owned())
}
