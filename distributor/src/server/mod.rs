//! The gRPC edge: connections, routing and health. Sessions decide what is sent on a stream.

mod admission_control;
mod ads;
mod connection;
mod connection_handle;
mod connection_service;
mod early;
mod frames;
mod health;
mod pending_changes;
mod read_progress;
mod rebalancer;
mod request;
mod stream;
mod write_timeout;

pub(crate) use admission_control::AdmissionControl;
pub(crate) use rebalancer::Rebalancer;

use crate::clients::Clients;
use crate::comparison::Comparisons;
use crate::feed::Fleets;
use crate::identity::{Authenticator, Peer};
use crate::log_limit::FleetLimits;
use crate::metrics::{GaugeCount, Metrics};
use crate::tls::Material;
use crate::watched_files::WatchedFiles;
use admission_control::ConnectionPermit;
use ads::Ads;
use connection_service::ConnectionService;
use futures::future::BoxFuture;
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

/// The state that all streams of this replica share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fleets: Fleets,
    pub(crate) clients: Clients,
    pub(crate) comparisons: Comparisons,
    pub(crate) metrics: Metrics,
    /// Names this replica and its version to clients.
    pub(crate) identifier: String,
    pub(crate) admission_control: Arc<AdmissionControl>,
    /// Lines about fleets that are not published.
    pub(crate) unpublished: FleetLimits,
}

/// An accept loop of our own: the one of tonic can neither end long streams nor bound what they buffer.
pub(crate) struct Server {
    listener: TcpListener,
    security: ServerSecurity,
    shared: Arc<Shared>,
}

/// How connections are encrypted and callers authenticated.
#[derive(Clone)]
pub(crate) struct ServerSecurity {
    /// `None`: plaintext.
    pub(crate) tls: Option<Arc<WatchedFiles<Material>>>,
    pub(crate) authenticator: Arc<Authenticator>,
}

/// An admitted connection, and what it needs.
struct AcceptedConnection {
    routes: Routes,
    authenticator: Arc<Authenticator>,
    permit: ConnectionPermit,
    stop: CancellationToken,
    present: GaugeCount,
}

/// When there are no more file descriptors, accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Server {
    pub(crate) fn new(listener: TcpListener, security: ServerSecurity, shared: Shared) -> Self {
        Self { listener, security, shared: Arc::new(shared) }
    }

    /// Runs until `stop`, and then until all connections have left, which takes the time of a drain at most.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let admission_control = self.shared.admission_control.clone();
        let (health, health_service) = tonic_health::server::health_reporter();
        // The empty name stands for the server as a whole, and serves from the start: what it does not know yet,
        // its clients wait for.
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let health_service = Health::new(health_service, admission_control.clone());
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
                    let Some(permit) = admission_control.connect(peer) else { continue };
                    // Acknowledgements and replies are small and waited for. Where the option is refused, it is only
                    // slower.
                    let _ = stream.set_nodelay(true);
                    let connection = AcceptedConnection {
                        routes: routes.clone(),
                        authenticator: self.security.authenticator.clone(),
                        permit,
                        stop: stop.clone(),
                        present: self.shared.metrics.connection(),
                    };
                    match self.security.tls.clone() {
                        None => connections.spawn(connection.serve(stream)),
                        Some(tls) => connections.spawn(connection.accept_tls(stream, tls)),
                    };
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections, retrying");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // Who comes now finds no listener, and goes to another replica.
        drop(self.listener);
        health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        connections.close();
        let time = admission_control.drain_time();
        if !connections.is_empty() && !time.is_zero() {
            tracing::info!(connections = connections.len(), "draining for {}s", time.as_secs_f32());
        }
        if timeout(time + connection::CLOSE_TIMEOUT, connections.wait()).await.is_err() {
            tracing::debug!(left = connections.len(), "connections did not end in time");
        }
    }
}

impl AcceptedConnection {
    fn serve(self, stream: TcpStream) -> impl Future<Output = ()> + Send + 'static {
        self.serve_as(stream, None, CancellationToken::new())
    }

    /// A function of its own, so that the memory of a handshake is freed after it, and not with the connection.
    async fn accept_tls(self, stream: TcpStream, tls: Arc<WatchedFiles<Material>>) {
        let accepted_tls: BoxFuture<'_, Option<BoxFuture<'_, ()>>> = Box::pin(async move {
            let accepted = async {
                tokio::select! {
                    accepted = async { tls.current().accept(stream).await } => Some(accepted),
                    () = self.permit.wait_for_early_end() => None,
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
                    self.authenticator.handshake_failed(&error);
                    None
                }
            }
        });
        if let Some(serving) = accepted_tls.await {
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
        let Self { routes, authenticator, permit, stop, present } = self;
        let authentication = permit.authentication();
        let service =
            ConnectionService { routes, authenticator, authentication, peer, _present: present };
        connection::serve(io, service, permit, leave, stop)
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
