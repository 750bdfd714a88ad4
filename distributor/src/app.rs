use crate::acks::{Acks, Reporter};
use crate::clients::Clients;
use crate::comparison::Comparer;
use crate::feed::{Budget, Feed, Fleets};
use crate::identity::{Security, SecurityArgs, SecurityError};
use crate::load::{LoadArgs, LoadMetrics};
use crate::log_limit::FleetLimits;
use crate::metrics::Metrics;
use crate::pages;
use crate::server::{AdmissionControl, Rebalancer, Server, ServerSecurity, Shared};
use heliograph_shared::admin::{Pages, Readiness, ReadinessToken};
use heliograph_shared::net::{self, BindError};
use heliograph_store::{DistributorStore, Subscription};
use prometheus::Registry;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// The flags of a program that serves proxies.
#[derive(Clone, Debug, clap::Args)]
pub struct DistributorArgs {
    /// Address of the xDS port, where proxies connect
    #[arg(
        long,
        help_heading = "xDS",
        env = "HELIO_XDS_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:18000"
    )]
    pub xds_address: SocketAddr,

    /// Allow connections from other machines without TLS
    #[arg(long, help_heading = "xDS", env = "HELIO_INSECURE_PLAINTEXT")]
    pub insecure_plaintext: bool,

    /// Name of this replica, in responses to proxies and in reports [default: the host name]
    #[arg(long, help_heading = "xDS", env = "HELIO_REPLICA", value_name = "NAME")]
    pub replica: Option<String>,

    #[command(flatten)]
    pub load: LoadArgs,
}

#[derive(Debug, thiserror::Error)]
pub enum DistributorError {
    #[error(
        "xDS address {0} can be reached from other machines, and xDS is served without encryption: give \
         --xds-cert and --xds-key, choose a loopback address with --xds-address, or accept that with \
         --insecure-plaintext"
    )]
    Plaintext(SocketAddr),
    #[error(
        "the admin address {admin} and the xDS address {xds} are the same: choose another with --admin-address \
         or --xds-address"
    )]
    SameAddress { admin: SocketAddr, xds: SocketAddr },
    #[error("--insecure-plaintext and --xds-cert contradict each other: set only one of them")]
    Contradiction,
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// A distributor that listens and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    store: DistributorStore,
    feed: Feed,
    fleets: Fleets,
    clients: Clients,
    security: Security,
    metrics: Metrics,
    admission_control: Arc<AdmissionControl>,
    rebalancer: Rebalancer,
    replica: String,
    readiness: Readiness,
    synced: ReadinessToken,
}

/// Everything that can be refused is refused here.
pub async fn build(
    args: &DistributorArgs,
    security: &SecurityArgs,
    store: DistributorStore,
    registry: &Registry,
    readiness: &Readiness,
) -> Result<Bound, DistributorError> {
    let security = security.open(registry)?;
    match (security.tls.is_some(), args.insecure_plaintext) {
        (true, true) => return Err(DistributorError::Contradiction),
        (false, false) if !args.xds_address.ip().is_loopback() => {
            return Err(DistributorError::Plaintext(args.xds_address));
        }
        _ => {}
    }
    let metrics = Metrics::register(registry)?;
    let listener = net::bind("xDS address", "--xds-address", args.xds_address).await?;
    // Asked of the listener, because port 0 becomes another.
    let address = listener.local_addr().unwrap_or(args.xds_address);
    let (feed, fleets) = Feed::new(metrics.class_limit_exceeded.clone());
    let feed = match args.load.fleet_memory {
        0 => feed,
        limit => feed.within(Budget::new(limit, args.load.fleet_idle)),
    };
    let replica = args.replica.clone().unwrap_or_else(host_name);
    let load_metrics = LoadMetrics::register(registry, &args.load)?;
    let admission_control = Arc::new(AdmissionControl::new(&args.load, load_metrics));
    let rate = args.load.rebalance_rate;
    let rebalancer =
        Rebalancer::new(store.replicas.clone(), admission_control.clone(), &replica, rate);
    let synced = readiness.token("snapshots");
    let readiness = readiness.clone();
    Ok(Bound {
        listener,
        address,
        store,
        feed,
        fleets,
        clients: Clients::default(),
        security,
        metrics,
        admission_control,
        rebalancer,
        replica,
        readiness,
        synced,
    })
}

impl DistributorArgs {
    /// Two of our own listeners on one port get a better error than that it is in use.
    pub fn check_beside(&self, admin: SocketAddr) -> Result<(), DistributorError> {
        let xds = self.xds_address;
        let any = admin.ip().is_unspecified() || xds.ip().is_unspecified();
        if admin.port() == xds.port() && admin.port() != 0 && (any || admin.ip() == xds.ip()) {
            return Err(DistributorError::SameAddress { admin, xds });
        }
        Ok(())
    }
}

impl Bound {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The longest additional time for shutting down.
    pub fn drain_time(&self) -> Duration {
        self.admission_control.drain_time()
    }

    pub fn acks(&self) -> Acks {
        Acks::new(self.fleets.clone())
    }

    /// Adds the distributor's pages to those of its program.
    pub fn add_pages(&self, pages: Pages) -> Pages {
        pages::add(pages, &self.fleets, &self.clients, &self.admission_control)
    }

    /// Serves until `stop`. From then on it is not ready, and its streams end within the time of a drain; their clients
    /// connect elsewhere.
    pub async fn run(self, stop: CancellationToken) -> Result<(), DistributorError> {
        let Self { listener, address: _, store, feed, fleets, security, metrics, .. } = self;
        let Self { clients, admission_control, rebalancer, replica, readiness, synced, .. } = self;
        let failures = metrics.report_failures.clone();
        let reporter = Reporter::new(store.feedback, fleets.clone(), &replica, failures);
        let identifier = format!("{replica} heliograph/{}", env!("CARGO_PKG_VERSION"));
        let (comparer, comparisons) = Comparer::new(store.reader.clone(), fleets.clone());
        // Beside the server, so that taking in a large snapshot does not keep connections waiting.
        let mut endless = JoinSet::new();
        endless.spawn(feed.run(Subscription::choosing(store.reader), synced, metrics.clone()));
        endless.spawn(reporter.run());
        endless.spawn(comparer.run());
        let server_security = ServerSecurity {
            tls: security.tls.clone(),
            authenticator: security.authenticator.clone(),
        };
        endless.spawn(security.follow());
        endless.spawn(admission_control.clone().close_slow_readers());
        endless.spawn(rebalancer.run(readiness.clone(), stop.clone()));
        endless.spawn(unready(readiness, stop.clone()));
        let unpublished = FleetLimits::default();
        let shared = Shared {
            fleets,
            clients,
            comparisons,
            metrics,
            identifier,
            admission_control,
            unpublished,
        };
        let server = Server::new(listener, server_security, shared);
        tokio::select! {
            () = server.run(stop) => Ok(()),
            Some(ended) = endless.join_next() => match ended? {},
        }
    }
}

/// From `stop` on new clients are to go elsewhere, until all is over.
async fn unready(readiness: Readiness, stop: CancellationToken) -> Infallible {
    stop.cancelled().await;
    // Never done.
    let _leaving = readiness.token("shutdown");
    std::future::pending().await
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() }
}
