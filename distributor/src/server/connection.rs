use super::admission_control::ConnectionPermit;
use super::connection_service::ConnectionService;
use super::write_timeout::WriteTimeout;
use crate::load::Ending;
use futures::FutureExt;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Requests are small but for the first of a reconnect, which lists all that the client holds.
pub(super) const RECEIVE_WINDOW: u32 = 256 << 10;
/// It also bounds how many small frames may come in a row before the connection is taken for a flood, and a client that asks
/// for names one by one sends thousands.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How much of our memory a client that does not read may use, beyond the shared bytes.
const SEND_BUFFER: usize = 64 << 10;
/// An Envoy opens one, and asks for health now and then.
const STREAMS_PER_CONNECTION: u32 = 8;
/// A request has a dozen headers, and the largest is a token. It also bounds how many CONTINUATION frames are read.
const HEADERS: u32 = 16 << 10;
/// How many streams a client may reset before they were handled (rapid reset), and how many may be reset because the
/// client broke the rules. Then the connection is closed.
const EARLY_RESETS: usize = 20;
const ERROR_RESETS: usize = 64;
/// A peer that vanished without a word is noticed after both.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the streams of an old connection go on after its client was asked not to open more. They end by themselves, but
/// for those of ADS.
const STREAM_GRACE: Duration = Duration::from_secs(2);
/// How long clients may take to read the end of their streams.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Serves one connection until its client or its time ends it. `leave` is for who no longer trusts it, `stop` is that of
/// the whole replica.
///
/// Not an `async fn`, which has room for its arguments twice for as long as it runs, and boxed, because what is moved
/// to be pinned has it twice too: a connection that does nothing is mostly what is kept here.
pub(super) fn serve<IO>(
    io: IO,
    service: ConnectionService,
    permit: ConnectionPermit,
    leave: CancellationToken,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = WriteTimeout::new(io, permit.handle.clone(), permit.send_timeout());
    let mut connection = Box::pin(builder().serve_connection(TokioIo::new(io), service));
    async move {
        let handle = &permit.handle;
        let mut left = std::pin::pin!(leave.cancelled().fuse());
        let mut end = std::pin::pin!(permit.wait_for_end(&stop));
        let ending = loop {
            tokio::select! {
                outcome = &mut connection => return ended(outcome),
                () = handle.reconnect_requested() => connection.as_mut().graceful_shutdown(),
                () = &mut left => connection.as_mut().graceful_shutdown(),
                ending = &mut end => break ending,
            }
        };
        if matches!(ending, Ending::Silence | Ending::Unauthenticated | Ending::SlowReader) {
            // The client is gone, so GOAWAY cannot be sent.
            return;
        }
        connection.as_mut().graceful_shutdown();
        if ending == Ending::Age {
            tokio::select! {
                outcome = &mut connection => return ended(outcome),
                () = sleep(STREAM_GRACE) => {}
            }
        }
        handle.end(ending);
        tokio::select! {
            outcome = &mut connection => ended(outcome),
            () = sleep(CLOSE_TIMEOUT) => {}
        }
    }
}

fn builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .max_header_list_size(HEADERS)
        .max_pending_accept_reset_streams(EARLY_RESETS)
        .max_local_error_reset_streams(ERROR_RESETS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

fn ended(outcome: hyper::Result<()>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, "connection ended");
    }
}
