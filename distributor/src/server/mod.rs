//! The gRPC edge: connections, routing and health. What is said on a stream is decided elsewhere.

mod ads;
mod awaited;
mod connection;
mod door;
mod early;
mod frames;
mod guard;
mod health;
mod pace;
mod patient;
mod rebalancer;
mod request;
mod stream;
mod tenure;

pub(crate) use door::Door;
pub(crate) use rebalancer::Rebalancer;

use crate::clients::Clients;
use crate::comparison::Comparisons;
use crate::feed::Fleets;
use crate::followed::Followed;
use crate::identity::{Gate, Peer};
use crate::log_limit::FleetLimits;
use crate::metrics::{Metrics, Present};
use crate::tls::Material;
use ads::Ads;
use door::Visit;
use futures::future::BoxFuture;
use guard::Guard;
use health::Health;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

/// What all streams of this replica use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fleets: Fleets,
    pub(crate) clients: Clients,
    pub(crate) comparisons: Comparisons,
    pub(crate) metrics: Metrics,
    /// Names this replica and its version to clients.
    pub(crate) identifier: String,
    pub(crate) door: Arc<Door>,
    /// Lines about fleets that are not published.
    pub(crate) unpublished: FleetLimits,
}

/// An accept loop of our own: the one of tonic can neither end long streams nor bound what they buffer.
pub(crate) struct Server {
    listener: TcpListener,
    entrance: Entrance,
    shared: Arc<Shared>,
}

/// How connections come in, and who may.
#[derive(Clone)]
pub(crate) struct Entrance {
    /// `None`: plaintext.
    pub(crate) tls: Option<Arc<Followed<Material>>>,
    pub(crate) gate: Arc<Gate>,
}

/// A connection that was let in, and what it needs.
struct Arrival {
    routes: Routes,
    gate: Arc<Gate>,
    visit: Visit,
    stop: CancellationToken,
    present: Present,
}

/// When there are no more file descriptors, accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    pub(crate) fn new(listener: TcpListener, entrance: Entrance, shared: Shared) -> Self {
        Self { listener, entrance, shared: Arc::new(shared) }
    }

    /// Runs until `stop`, and then until all connections have left, which takes the time of a drain at most.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let door = self.shared.door.clone();
        let (health, health_service) = tonic_health::server::health_reporter();
        // The empty name stands for the server as a whole, and serves from the start: what it does not know yet,
        // its clients wait for.
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let health_service = Health::new(health_service, door.clone());
        let routes =
            Routes::new(Ads::new(self.shared.clone())).add_service(health_service).prepare();
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let Some(visit) = door.connect(peer) else { continue };
                    // Acknowledgements and replies are small and waited for. Where the option is refused, it is only
                    // slower.
                    let _ = stream.set_nodelay(true);
                    let arrival = Arrival {
                        routes: routes.clone(),
                        gate: self.entrance.gate.clone(),
                        visit,
                        stop: stop.clone(),
                        present: self.shared.metrics.connection(),
                    };
                    match self.entrance.tls.clone() {
                        None => connections.spawn(arrival.serve(stream)),
                        Some(tls) => connections.spawn(arrival.shake_hands(stream, tls)),
                    };
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections, trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Who comes now finds no listener, and goes to another replica.
        drop(self.listener);
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        connections.close();
        let time = door.drain_time();
        if !connections.is_empty() && !time.is_zero() {
            tracing::info!(connections = connections.len(), "draining for {}s", time.as_secs_f32());
        }
        if timeout(time + connection::LONGEST_END, connections.wait()).await.is_err() {
            tracing::debug!(left = connections.len(), "connections did not end in time");
        }
    }
}

impl Arrival {
    fn serve(self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        self.serve_as(stream, None, CancellationToken::new())
    }

    /// What a handshake needs is kept for as long as it takes, and not for as long as the connection does.
    async fn shake_hands(self, stream: TcpStream, tls: Arc<Followed<Material>>) {
        let shaken: BoxFuture<'_, Option<BoxFuture<'_, ()>>> = Box::pin(async move {
            let accepted = async {
                tokio::select! {
                    accepted = async { tls.current().accept(stream).await } => Some(accepted),
                    () = self.visit.early_departure() => None,
                }
            };
            match self.stop.clone().run_until_cancelled(accepted).await?? {
                Ok(stream) => {
                    let leave = CancellationToken::new();
                    let chain = stream.get_ref().1.peer_certificates();
                    let peer = Peer::new(chain, leave.clone()).map(Arc::new);
                    let serving: BoxFuture<'_, ()> = Box::pin(self.serve_as(stream, peer, leave));
                    Some(serving)
                }
                Err(error) => {
                    self.gate.no_connection(&error);
                    None
                }
            }
        });
        if let Some(serving) = shaken.await {
            serving.await;
        }
    }

    fn serve_as<IO>(
        self,
        io: IO,
        peer: Option<Arc<Peer>>,
        leave: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { routes, gate, visit, stop, present } = self;
        let authentication = visit.authentication();
        let guard = Guard { routes, gate, authentication, peer, _present: present };
        connection::serve(io, guard, visit, leave, stop)
    }
}

/// Errors that say nothing about the next connection.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
