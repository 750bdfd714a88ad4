//! The gRPC edge: connections, routing and health. What is said on a stream is decided elsewhere.

mod ads;
mod frames;
mod guard;
mod request;
mod stream;

use crate::comparison::Comparisons;
use crate::feed::Fleets;
use crate::followed::Followed;
use crate::identity::{Gate, Peer};
use crate::metrics::{Metrics, Present};
use crate::tls::Material;
use ads::Ads;
use guard::Guard;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

/// What all streams of this replica use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fleets: Fleets,
    pub(crate) comparisons: Comparisons,
    pub(crate) metrics: Metrics,
    /// How many streams may look at a new snapshot at once. Ten thousand that are woken together would otherwise all
    /// be in line before a client that connects, and before it again with each of its requests.
    pub(crate) looks: Semaphore,
    /// Names this replica and its version to clients.
    pub(crate) identifier: String,
    pub(crate) stop: CancellationToken,
}

/// An accept loop of our own: the one of tonic can neither end long streams nor bound what they buffer.
pub(crate) struct Server {
    listener: TcpListener,
    door: Door,
    shared: Arc<Shared>,
}

/// How connections come in, and who may.
#[derive(Clone)]
pub(crate) struct Door {
    /// `None`: plaintext.
    pub(crate) tls: Option<Arc<Followed<Material>>>,
    pub(crate) gate: Arc<Gate>,
}

/// Requests are small but for the first of a reconnect, which lists all that the client holds.
const RECEIVE_WINDOW: u32 = 256 << 10;
/// What a client that does not read may hold of our memory beyond the shared bytes.
const SEND_BUFFER: usize = 64 << 10;
/// An Envoy opens one, or one per type.
const STREAMS_PER_CONNECTION: u32 = 32;
/// A peer that vanished without a word is noticed after both.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);
/// When there are no more file descriptors, accepting at once again would only spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long clients may take to read the end of their streams.
const LONGEST_END: Duration = Duration::from_secs(3);

/// Enough to keep all cores busy.
pub(crate) const LOOKS: usize = 64;

impl Server {
    pub(crate) fn new(listener: TcpListener, door: Door, shared: Shared) -> Self {
        Self { listener, door, shared: Arc::new(shared) }
    }

    /// Runs until the shared token stops it.
    pub(crate) async fn run(self) {
        let stop = self.shared.stop.clone();
        let (health, health_service) = tonic_health::server::health_reporter();
        // The empty name stands for the server as a whole, and serves from the start: what it does not know yet,
        // its clients wait for.
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let routes =
            Routes::new(Ads::new(self.shared.clone())).add_service(health_service).prepare();
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    let present = self.shared.metrics.connection();
                    let (door, routes) = (self.door.clone(), routes.clone());
                    connections.spawn(connection(stream, door, routes, stop.clone(), present));
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections, trying again");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        connections.close();
        if timeout(LONGEST_END, connections.wait()).await.is_err() {
            tracing::debug!(left = connections.len(), "connections did not end in time");
        }
    }
}

async fn connection(
    stream: TcpStream,
    Door { tls, gate }: Door,
    routes: Routes,
    stop: CancellationToken,
    _present: Present,
) {
    // Acknowledgements and replies are small and waited for. Where the option is refused, it is only slower.
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return serve(stream, Guard { routes, gate, peer: None }, stop).await;
    };
    let accepted = stop.run_until_cancelled(async { tls.current().accept(stream).await }).await;
    match accepted {
        Some(Ok(stream)) => {
            let leave = stop.child_token();
            let chain = stream.get_ref().1.peer_certificates();
            let peer = Peer::new(chain, leave.clone()).map(Arc::new);
            serve(stream, Guard { routes, gate, peer }, leave).await;
        }
        Some(Err(error)) => gate.no_connection(&error),
        None => {}
    }
}

/// Speaks HTTP/2 until the other side ends or `stop` does.
async fn serve<Io>(io: Io, guard: Guard, stop: CancellationToken)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(4 * RECEIVE_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), guard));
    let outcome = tokio::select! {
        outcome = &mut connection => outcome,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                outcome = &mut connection => outcome,
                () = sleep(LONGEST_END) => Ok(()),
            }
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended");
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
