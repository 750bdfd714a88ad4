use super::certificates::Certificates;
use super::envoy_gateway::EnvoyGateway;
use super::heliograph::{Heliograph, address_in, get};
use super::kubernetes::Kubernetes;
use super::{Program, Programs, ServersError, Start, version};
use crate::drive::StoreDriver;
use crate::scenario::Balance;
use crate::security::Security;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What makes xDS of the objects of a Kubernetes API, and serves it with mutual TLS.
#[derive(Debug)]
pub(crate) enum ControlPlane {
    Heliograph(Box<Ours>),
    EnvoyGateway(Box<EnvoyGateway>),
}

/// Redis, a distributor and a translator. Over a directory there is no distributor: no proxy connects.
#[derive(Debug)]
pub(crate) struct Ours {
    translator: Program,
    admin: SocketAddr,
    path: PathBuf,
    servers: Heliograph,
    store: StoreDriver,
    certificates: Certificates,
}

/// Where a translator reads objects.
#[derive(Clone, Copy)]
pub(crate) enum ObjectSource<'a> {
    Api(&'a Kubernetes),
    Directory(&'a Path),
}

/// What a GatewayClass of ours names.
pub(crate) const CONTROLLER_NAME: &str = "heliograph.dev/gateway-controller";
const POLL_INTERVAL: Duration = Duration::from_millis(5);

impl ControlPlane {
    /// Address of the xDS port, where proxies connect.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Heliograph(ours) => {
                ours.servers.addresses().into_iter().next().unwrap_or_default()
            }
            Self::EnvoyGateway(gateway) => gateway.address(),
        }
    }

    /// How proxies show who they are.
    pub(crate) fn security(&self) -> Security {
        match self {
            Self::Heliograph(ours) => ours.certificates.of_clients(),
            Self::EnvoyGateway(gateway) => gateway.security(),
        }
    }

    /// All that takes part: what belongs to the API does not.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self {
            Self::Heliograph(ours) => {
                let programs = ours.servers.programs().into_iter().chain([&ours.translator]);
                programs.filter_map(Program::pid).collect()
            }
            Self::EnvoyGateway(gateway) => gateway.pid().into_iter().collect(),
        }
    }

    pub(crate) async fn versions(&self) -> BTreeMap<String, String> {
        match self {
            Self::Heliograph(ours) => {
                let mut versions = ours.servers.versions().await;
                let translator = version(&ours.path).await;
                versions.extend(translator.map(|version| ("translator".to_owned(), version)));
                versions
            }
            Self::EnvoyGateway(gateway) => gateway.versions().await,
        }
    }
}

impl Ours {
    pub(crate) async fn start(
        programs: &Programs,
        source: ObjectSource<'_>,
        cpu: Option<usize>,
    ) -> Result<Self, ServersError> {
        let build = "build it with `cargo build --release -p heliograph-translator`";
        let path = programs.find_own("translator", "TRANSLATOR", build)?;
        let certificates = Certificates::make()?;
        let (distributors, mut arguments) = match source {
            ObjectSource::Api(kubernetes) => {
                let file = kubernetes.kubeconfig().as_os_str();
                let flags = ["--kubernetes", "--lease-namespace", "default", "--kubeconfig"];
                (1, flags.map(OsStr::new).into_iter().chain([file]).collect::<Vec<_>>())
            }
            ObjectSource::Directory(directory) => {
                (0, vec![OsStr::new("--dir"), directory.as_os_str()])
            }
        };
        let tls = Some(&certificates);
        let (servers, store) =
            Heliograph::start(programs, distributors, cpu, tls, Balance::default()).await?;
        arguments.extend([
            OsStr::new("--store"),
            OsStr::new(servers.store()),
            OsStr::new("--store-keys"),
            servers.keys().as_os_str(),
            OsStr::new("--admin-address"),
            OsStr::new("127.0.0.1:0"),
            OsStr::new("--log-level"),
            OsStr::new("info"),
        ]);
        let start = Start { name: "translator", program: &path, arguments, cpu };
        let mut translator = Program::start(programs, start)?;
        let listens = |line: &str| address_in(line, "admin=");
        let admin = translator.printed("it listens", listens).await?;
        Ok(Self { translator, admin, path, servers, store, certificates })
    }

    /// When it knew all objects: from then on it can translate. Over a directory, when all is published.
    pub(crate) async fn synced(&self, within: Duration) -> Result<Instant, ServersError> {
        let begun = Instant::now();
        while !super::heliograph::is_ready(self.admin).await {
            if begun.elapsed() > within {
                let (name, line) = ("translator".to_owned(), "not ready".to_owned());
                return Err(ServersError::Late { name, what: "it knows all objects", line });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(Instant::now())
    }

    pub(crate) fn store(&self) -> &StoreDriver {
        &self.store
    }

    pub(crate) fn translator_pid(&self) -> Option<u32> {
        self.translator.pid()
    }

    /// The sum of a metric of the translator over all its labels.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let page = get(self.admin, "/metrics").await?;
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '{']).then(|| rest.rsplit_once(' '))??.1.parse::<f64>().ok()
        });
        Some(values.sum())
    }
}
