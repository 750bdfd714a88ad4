use super::connection_handle::ConnectionHandle;
use crate::load::Ending;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A socket with a limit on how long a write waits for the peer to read. After that it asks the connection to end, and the
/// write stays pending.
#[derive(Debug)]
pub(super) struct WriteTimeout<IO> {
    io: IO,
    handle: ConnectionHandle,
    /// Zero: for ever.
    timeout: Duration,
    /// While the peer takes nothing.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<IO> WriteTimeout<IO> {
    pub(super) fn new(io: IO, handle: ConnectionHandle, timeout: Duration) -> Self {
        Self { io, handle, timeout, waiting: None }
    }

    /// Handles the result of a write; every accepted byte restarts the timeout.
    fn timed<T>(&mut self, context: &mut Context<'_>, written: Poll<T>) -> Poll<T> {
        if written.is_ready() {
            self.waiting = None;
        } else if !self.timeout.is_zero() {
            let timeout = self.timeout;
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
            if waiting.as_mut().poll(context).is_ready() {
                self.waiting = None;
                self.handle.close(Ending::SlowReader);
            }
        }
        written
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for WriteTimeout<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.timed(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, bytes);
        self.timed(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.timed(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (near, _far) = tokio::io::duplex(10);
        let handle = ConnectionHandle::default();
        let mut socket = WriteTimeout::new(near, handle.clone(), WRITE_TIMEOUT);
        socket.write_all(&[0; 10]).await.unwrap();
        let begun = tokio::time::Instant::now();
        tokio::select! {
            _ = socket.write_all(&[0; 10]) => panic!("there is no room"),
            ending = handle.closed() => {
                assert_eq!((ending, begun.elapsed()), (Ending::SlowReader, WRITE_TIMEOUT));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_little_is_not() {
        let (near, mut far) = tokio::io::duplex(10);
        let handle = ConnectionHandle::default();
        let mut socket = WriteTimeout::new(near, handle.clone(), WRITE_TIMEOUT);
        let writing = tokio::spawn(async move { socket.write_all(&[0; 30]).await });
        for _ in 0..30 {
            tokio::time::advance(WRITE_TIMEOUT - Duration::from_secs(1)).await;
            far.read_u8().await.unwrap();
        }
        writing.await.unwrap().unwrap();
        assert!(handle.closed().now_or_never().is_none());
    }
}
