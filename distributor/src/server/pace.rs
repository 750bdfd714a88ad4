use super::tenure::Tenure;
use crate::load::Ending;
use bytes::Bytes;
use http_body::{Body, Frame};
use pin_project_lite::pin_project;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Whether a stream's client takes what it is given. A socket tells only of a connection that reads nothing at all; one
/// that reads and lets a stream's window stay shut is told by this.
#[derive(Debug)]
pub(crate) struct Pace {
    tenure: Tenure,
    /// The times count from here.
    start: Instant,
    /// Since when a frame waits for room in the window, in milliseconds; [`NOTHING`] if none does.
    waiting: AtomicU64,
}

/// Those of all streams.
#[derive(Debug, Default)]
pub(crate) struct Paces {
    all: Mutex<HashMap<u64, Arc<Pace>>>,
    next: AtomicU64,
}

pin_project! {
    /// A response body that notes its pace. What is given to the connection waits there until there is some room for it, and
    /// only then is the body asked for more. So it is given in slices: the rest of a large message is still here when the
    /// client takes no more of it.
    pub(crate) struct Paced<B> {
        #[pin]
        body: B,
        pace: Arc<Pace>,
        // What is left of a message, shared as it came.
        rest: Bytes,
    }
}

const NOTHING: u64 = u64::MAX;
/// As much as a connection takes at once. Smaller ones would cost more, since all streams count the same bytes.
const SLICE: usize = 64 << 10;

impl Pace {
    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    fn gives(&self) {
        self.waiting.store(milliseconds(self.start.elapsed()), Ordering::Relaxed);
    }

    fn is_asked(&self) {
        self.waiting.store(NOTHING, Ordering::Relaxed);
    }

    fn waits_since(&self) -> Option<Duration> {
        let since = self.waiting.load(Ordering::Relaxed);
        (since != NOTHING).then(|| Duration::from_millis(since))
    }
}

impl Paces {
    /// A stream of this connection, and its number.
    pub(crate) fn join(&self, tenure: Tenure, start: Instant) -> (u64, Arc<Pace>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let pace = Arc::new(Pace { tenure, start, waiting: AtomicU64::new(NOTHING) });
        self.all().insert(number, pace.clone());
        (number, pace)
    }

    pub(crate) fn leave(&self, number: u64) {
        self.all().remove(&number);
    }

    /// Gives up the connections on which something has waited for longer than `patience`.
    pub(crate) fn stall(&self, now: Duration, patience: Duration) {
        let late = |pace: &&Arc<Pace>| {
            pace.waits_since().is_some_and(|since| now.saturating_sub(since) > patience)
        };
        let late: Vec<_> = self.all().values().filter(late).cloned().collect();
        late.iter().for_each(|pace| pace.tenure.dismiss(Ending::SlowReader));
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    /// The connections of so many streams, chosen by chance.
    pub(crate) fn some(&self, count: usize) -> Vec<Tenure> {
        let all = self.all();
        let chosen = fastrand::choose_multiple(all.values(), count);
        chosen.into_iter().map(|pace| pace.tenure.clone()).collect()
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Pace>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Paced<B> {
    pub(crate) fn new(body: B, pace: Arc<Pace>) -> Self {
        Self { body, pace, rest: Bytes::new() }
    }
}

impl<B: Body<Data = Bytes, Error = Infallible>> Body for Paced<B> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.project();
        this.pace.is_asked();
        if this.rest.is_empty() {
            match ready!(this.body.poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => *this.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.pace.gives();
        let slice = this.rest.split_to(this.rest.len().min(SLICE));
        Poll::Ready(Some(Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NOTHING - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use http_body_util::BodyExt;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_in_time_ends_its_connection_and_no_other() {
        let (paces, start, patience) = (Paces::default(), Instant::now(), Duration::from_secs(30));
        let (slow, quick, idle) = (Tenure::default(), Tenure::default(), Tenure::default());
        let (_, slow_pace) = paces.join(slow.clone(), start);
        let (_, quick_pace) = paces.join(quick.clone(), start);
        let (_, _idle_pace) = paces.join(idle.clone(), start);
        slow_pace.gives();
        quick_pace.gives();
        quick_pace.is_asked();
        tokio::time::advance(patience).await;
        paces.stall(start.elapsed(), patience);
        assert!(slow.dismissed().now_or_never().is_none(), "not late yet");
        tokio::time::advance(Duration::from_millis(1)).await;
        paces.stall(start.elapsed(), patience);
        assert!(slow.dismissed().now_or_never().is_some());
        assert!(quick.dismissed().now_or_never().is_none());
        assert!(idle.dismissed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_large_message_is_given_in_slices_without_a_copy() {
        let (paces, start) = (Paces::default(), Instant::now());
        let (_, pace) = paces.join(Tenure::default(), start);
        let message = Bytes::from(vec![7; 2 * SLICE + 1]);
        let inner = http_body_util::Full::new(message.clone());
        let mut body = Paced::new(inner, pace.clone());
        let mut lengths = Vec::new();
        let mut at = message.as_ptr();
        while let Some(frame) = body.frame().await {
            assert!(pace.waits_since().is_some(), "until it is asked for more");
            let slice = frame.unwrap().into_data().unwrap();
            assert_eq!(slice.as_ptr(), at);
            at = at.wrapping_add(slice.len());
            lengths.push(slice.len());
        }
        assert_eq!(lengths, [SLICE, SLICE, 1]);
        assert!(pace.waits_since().is_none());
    }

    #[test]
    fn streams_that_left_are_forgotten() {
        let paces = Paces::default();
        let (number, _) = paces.join(Tenure::default(), Instant::now());
        paces.leave(number);
        assert!(paces.all().is_empty());
    }
}
