use super::connection_handle::ConnectionHandle;
use crate::load::Ending;
use bytes::Bytes;
use http_body::{Body, Frame};
use parking_lot::{Mutex, MutexGuard};
use pin_project_lite::pin_project;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Since when a stream waits for its client to read. A socket shows only that a connection reads nothing at all; this also
/// shows that a client reads from the connection and keeps the window of a stream shut.
#[derive(Debug)]
pub(crate) struct ReadProgress {
    handle: ConnectionHandle,
    /// The times count from here.
    start: Instant,
    /// Since when a frame waits for room in the window, in milliseconds; [`NOT_WAITING`] if none does.
    waiting: AtomicU64,
}

/// The read progress of all open streams.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams {
    all: Mutex<HashMap<u64, Arc<ReadProgress>>>,
    next: AtomicU64,
}

pin_project! {
    /// A response body that records the read progress of its client. The connection asks the body for more only when it
    /// has room for what it got before. So the body yields slices: the rest of a large message is still here when the
    /// client stops reading it.
    pub(crate) struct TrackedBody<B> {
        #[pin]
        body: B,
        read_progress: Arc<ReadProgress>,
        // What is left of a message, shared as it came.
        rest: Bytes,
    }
}

const NOT_WAITING: u64 = u64::MAX;
/// As much as a connection takes at once. Smaller ones would cost more, since all streams count the same bytes.
const SLICE: usize = 64 << 10;

impl ReadProgress {
    pub(crate) fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }

    fn mark_waiting(&self) {
        self.waiting.store(milliseconds(self.start.elapsed()), Ordering::Relaxed);
    }

    fn mark_ready(&self) {
        self.waiting.store(NOT_WAITING, Ordering::Relaxed);
    }

    fn waiting_since(&self) -> Option<Duration> {
        let since = self.waiting.load(Ordering::Relaxed);
        (since != NOT_WAITING).then(|| Duration::from_millis(since))
    }
}

impl OpenStreams {
    /// A stream of this connection, and its number.
    pub(crate) fn join(
        &self,
        handle: ConnectionHandle,
        start: Instant,
    ) -> (u64, Arc<ReadProgress>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let read_progress =
            Arc::new(ReadProgress { handle, start, waiting: AtomicU64::new(NOT_WAITING) });
        self.all().insert(number, read_progress.clone());
        (number, read_progress)
    }

    pub(crate) fn leave(&self, number: u64) {
        self.all().remove(&number);
    }

    /// Closes the connections on which something has waited for longer than `limit`.
    pub(crate) fn close_stalled(&self, now: Duration, limit: Duration) {
        let late = |read_progress: &&Arc<ReadProgress>| {
            read_progress.waiting_since().is_some_and(|since| now.saturating_sub(since) > limit)
        };
        let late: Vec<_> = self.all().values().filter(late).cloned().collect();
        late.iter().for_each(|read_progress| read_progress.handle.close(Ending::SlowReader));
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    /// The connections of so many streams, chosen at random.
    pub(crate) fn choose(&self, count: usize) -> Vec<ConnectionHandle> {
        let all = self.all();
        let chosen = fastrand::choose_multiple(all.values(), count);
        chosen.into_iter().map(|read_progress| read_progress.handle.clone()).collect()
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<ReadProgress>>> {
        self.all.lock()
    }
}

impl<B> TrackedBody<B> {
    pub(crate) fn new(body: B, read_progress: Arc<ReadProgress>) -> Self {
        Self { body, read_progress, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes, Error = Infallible>> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.project();
        this.read_progress.mark_ready();
        if this.rest.is_empty() {
            match ready!(this.body.poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.read_progress.mark_waiting();
        let slice = this.rest.split_to(this.rest.len().min(SLICE));
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NOT_WAITING - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use http_body_util::BodyExt;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_in_time_ends_its_connection_and_no_other() {
        let (open_streams, start, limit) =
            (OpenStreams::default(), Instant::now(), Duration::from_secs(30));
        let (slow, quick, idle) =
            (ConnectionHandle::default(), ConnectionHandle::default(), ConnectionHandle::default());
        let (_, slow_progress) = open_streams.join(slow.clone(), start);
        let (_, quick_progress) = open_streams.join(quick.clone(), start);
        let (_, _idle_progress) = open_streams.join(idle.clone(), start);
        slow_progress.mark_waiting();
        quick_progress.mark_waiting();
        quick_progress.mark_ready();
        tokio::time::advance(limit).await;
        open_streams.close_stalled(start.elapsed(), limit);
        assert!(slow.closed().now_or_never().is_none(), "not late yet");
        tokio::time::advance(Duration::from_millis(1)).await;
        open_streams.close_stalled(start.elapsed(), limit);
        assert!(slow.closed().now_or_never().is_some());
        assert!(quick.closed().now_or_never().is_none());
        assert!(idle.closed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_large_message_is_given_in_slices_without_a_copy() {
        let (open_streams, start) = (OpenStreams::default(), Instant::now());
        let (_, read_progress) = open_streams.join(ConnectionHandle::default(), start);
        let message = Bytes::from(vec![7; 2 * SLICE + 1]);
        let inner = http_body_util::Full::new(message.clone());
        let mut body = TrackedBody::new(inner, read_progress.clone());
        let mut lengths = Vec::new();
        let mut at = message.as_ptr();
        while let Some(frame) = body.frame().await {
            assert!(read_progress.waiting_since().is_some(), "until it is asked for more");
            let slice = frame.unwrap().into_data().unwrap();
            assert_eq!(slice.as_ptr(), at);
            at = at.wrapping_add(slice.len());
            lengths.push(slice.len());
        }
        assert_eq!(lengths, [SLICE, SLICE, 1]);
        assert!(read_progress.waiting_since().is_none());
    }

    #[test]
    fn streams_that_left_are_forgotten() {
        let open_streams = OpenStreams::default();
        let (number, _) = open_streams.join(ConnectionHandle::default(), Instant::now());
        open_streams.leave(number);
        assert!(open_streams.all().is_empty());
    }
}
