use super::connections::Connections;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take to send the head of its request, and to ask again on the same connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The limit of a request's head: a request of ours has some hundred bytes.
const LARGEST_HEAD: usize = 16 << 10;
/// How long a client that never finishes its request can hold up the end of the program.
const GRACE: Duration = Duration::from_secs(1);
/// After this the next connection is accepted, where that failed for want of something.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Answers until `shutdown` resolves, and a moment longer for requests under way. `router` is for a client from that address.
pub(super) async fn serve(
    listener: TcpListener,
    router: impl Fn(IpAddr) -> Router,
    shutdown: impl Future<Output = ()> + Send + 'static,
) {
    let (connections, tasks) = (Arc::<Mutex<Connections>>::default(), TaskTracker::new());
    let (stop, over) = (CancellationToken::new(), CancellationToken::new());
    let _ends = over.clone().drop_guard();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let mut open = connections.lock();
                let (number, end) = open.open(peer.ip());
                drop(open);
                let serving = serve_one(stream, router(peer.ip()), stop.clone());
                let (connections, over) = (connections.clone(), over.clone());
                tasks.spawn(async move {
                    tokio::select! {
                        () = serving => {}
                        () = end.cancelled() => {}
                        () = over.cancelled() => {}
                    }
                    connections.lock().close(number);
                });
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "the admin port cannot accept connections, retrying");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    stop.cancel();
    tasks.close();
    let _ = timeout(GRACE, tasks.wait()).await;
}

async fn serve_one(stream: TcpStream, router: Router, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // An error is the client's: it left, was too slow, or spoke something else.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
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
