use crate::acks::Acks;
use crate::feed::{Feed, Fleets};
use crate::metrics::Metrics;
use crate::server::{Server, Shared};
use heliograph_shared::admin::{Guard, Readiness};
use heliograph_shared::net::{self, BindError};
use heliograph_shared::store::Store;
use prometheus::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The flags of a program that serves proxies.
#[derive(Clone, Debug, clap::Args)]
pub struct DistributorArgs {
    /// Where proxies connect
    #[arg(
        long,
        help_heading = "xDS",
        env = "HELIO_XDS_ADDRESS",
        value_name = "IP:PORT",
        default_value = "127.0.0.1:18000"
    )]
    pub xds_address: SocketAddr,

    /// Serve other machines without encryption and without asking who they are
    #[arg(long, help_heading = "xDS", env = "HELIO_INSECURE_PLAINTEXT")]
    pub insecure_plaintext: bool,

    /// How this replica names itself to proxies; without it, the host's name
    #[arg(long, help_heading = "xDS", env = "HELIO_REPLICA", value_name = "NAME")]
    pub replica: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum DistributorError {
    #[error(
        "xDS address {0} can be reached from other machines, and xDS is served without encryption: choose \
         a loopback address with --xds-address, or accept that with --insecure-plaintext"
    )]
    Plaintext(SocketAddr),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
    #[error("the store is closed")]
    StoreClosed,
}

/// A distributor that listens and does not answer yet.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    store: Arc<dyn Store>,
    feed: Feed,
    fleets: Fleets,
    metrics: Metrics,
    identifier: String,
    synced: Guard,
}

/// Everything that can be refused is refused here.
pub async fn build(
    args: &DistributorArgs,
    store: Arc<dyn Store>,
    registry: &Registry,
    readiness: &Readiness,
) -> Result<Bound, DistributorError> {
    if !args.xds_address.ip().is_loopback() && !args.insecure_plaintext {
        return Err(DistributorError::Plaintext(args.xds_address));
    }
    let metrics = Metrics::register(registry)?;
    let listener = net::bind("xDS address", "--xds-address", args.xds_address).await?;
    // Asked of the listener, because port 0 becomes another.
    let address = listener.local_addr().unwrap_or(args.xds_address);
    let (feed, fleets) = Feed::new();
    let replica = args.replica.clone().unwrap_or_else(host_name);
    let identifier = format!("{replica} heliograph/{}", env!("CARGO_PKG_VERSION"));
    let synced = readiness.guard("snapshots");
    Ok(Bound { listener, address, store, feed, fleets, metrics, identifier, synced })
}

impl Bound {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn acks(&self) -> Acks {
        Acks::new(self.fleets.clone())
    }

    /// Serves until `stop`. All streams end then, and their clients connect elsewhere.
    pub async fn run(self, stop: CancellationToken) -> Result<(), DistributorError> {
        let shared = Shared {
            fleets: self.fleets,
            metrics: self.metrics,
            identifier: self.identifier,
            stop: stop.clone(),
        };
        let server = Server::new(self.listener, shared);
        tokio::select! {
            () = server.run() => Ok(()),
            // The feed ends only with the store.
            outcome = self.feed.run(self.store, self.synced) => outcome,
        }
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unnamed".to_owned() } else { name.to_owned() }
}
