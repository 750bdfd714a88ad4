//! Buffers what a client sends while its call or stream waits for something else.

use super::connection::RECEIVE_WINDOW;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use pin_project_lite::pin_project;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tonic::Status;

pin_project! {
    /// A body of which a part was received before.
    pub(super) struct Resumed<B> {
        early: Option<Bytes>,
        #[pin]
        rest: B,
    }
}

/// How much is received early: as much as a small request. More stays in HTTP/2, which accepts a window of it at most.
const EARLY: usize = 96 << 10;

/// Waits for `work`, and meanwhile receives what the client sends. Otherwise HTTP/2 would keep up to a whole window for
/// each stream, uncounted. `charge` replaces the number of bytes that are kept, or refuses them; then the stream ends.
/// `early` is what was received before. Returns all of it with the outcome.
pub(super) async fn receive_during<T, B>(
    work: impl Future<Output = T>,
    body: &mut B,
    mut early: BytesMut,
    mut charge: impl FnMut(usize) -> Result<(), Status>,
) -> Result<(T, Bytes), Status>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut work = pin!(work);
    let mut charged = None;
    loop {
        let is_enough = early.len() >= EARLY;
        let kept = early.capacity() + if is_enough { RECEIVE_WINDOW as usize } else { 0 };
        // What most of them send takes no more than they have already.
        if charged.replace(kept) != Some(kept) {
            charge(kept)?;
        }
        let frame = tokio::select! {
            biased;
            outcome = &mut work => return Ok((outcome, early.freeze())),
            frame = body.frame(), if !is_enough => frame,
        };
        match frame {
            // Anything but data is trailers, which requests have no use for.
            Some(Ok(frame)) => {
                frame.into_data().into_iter().for_each(|it| early.extend_from_slice(&it));
            }
            Some(Err(_)) => return Err(Status::cancelled("the client is gone")),
            // A later reader of the body sees its end as well.
            None => return Ok((work.await, early.freeze())),
        }
    }
}

impl<B> Resumed<B> {
    pub(super) fn new(early: Bytes, rest: B) -> Self {
        Self { early: Some(early), rest }
    }
}

impl<B: Body<Data = Bytes>> Body for Resumed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        match this.early.take() {
            Some(early) => Poll::Ready(Some(Ok(Frame::data(early)))),
            None => this.rest.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.early.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, StreamExt, stream};
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::oneshot;

    /// A body that sends pieces of this size, so many of them, and then nothing.
    fn body(size: usize, count: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let piece = Bytes::from(vec![7; size]);
        let pieces = stream::repeat(piece).take(count).map(|piece| Ok(Frame::data(piece)));
        StreamBody::new(pieces.chain(stream::pending()))
    }

    #[test]
    fn what_comes_while_work_goes_on_is_counted_and_returned() {
        let (done, work) = oneshot::channel();
        let (mut body, kept) = (body(1000, 20), AtomicUsize::new(0));
        let charge = |bytes| {
            kept.store(bytes, Ordering::Relaxed);
            Ok(())
        };
        let early = BytesMut::from(&b"first"[..]);
        let mut receiving = pin!(receive_during(work, &mut body, early, charge));
        assert!(receiving.as_mut().now_or_never().is_none());
        let counted = kept.load(Ordering::Relaxed);
        assert!((20_005..60_000).contains(&counted), "{counted}");
        done.send("done").unwrap();
        let (outcome, early) = receiving.now_or_never().unwrap().unwrap();
        assert_eq!((outcome, early.len(), &early[..6]), (Ok("done"), 20_005, &b"first\x07"[..]));
    }

    #[test]
    fn who_sends_much_is_read_no_further_and_has_a_window_of_it() {
        let (_done, work) = oneshot::channel::<()>();
        let (mut body, mut kept) = (body(10_000, 1000), 0);
        let charge = |bytes| {
            kept = bytes;
            Ok(())
        };
        let receiving = receive_during(work, &mut body, BytesMut::new(), charge);
        assert!(receiving.now_or_never().is_none());
        let window = RECEIVE_WINDOW as usize;
        assert!((window + EARLY..window + 3 * EARLY).contains(&kept), "{kept}");
        assert!(body.frame().now_or_never().is_some(), "the rest is still there");
    }

    #[test]
    fn who_sends_more_than_there_is_room_for_is_refused() {
        let (_done, work) = oneshot::channel::<()>();
        let charge = |bytes| match bytes {
            ..=50_000 => Ok(()),
            _ => Err(Status::resource_exhausted("too much")),
        };
        let mut body = body(1000, 1000);
        let refused = receive_during(work, &mut body, BytesMut::new(), charge).now_or_never();
        assert_eq!(refused.unwrap().unwrap_err().message(), "too much");
    }

    #[test]
    fn who_says_no_more_is_waited_for() {
        let (done, work) = oneshot::channel();
        let piece = Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"last")));
        let mut body = StreamBody::new(stream::iter([piece]));
        let mut receiving = pin!(receive_during(work, &mut body, BytesMut::new(), |_| Ok(())));
        assert!(receiving.as_mut().now_or_never().is_none());
        done.send(()).unwrap();
        assert_eq!(receiving.now_or_never().unwrap().unwrap().1, "last");
    }

    #[test]
    fn nothing_is_received_for_work_that_is_done() {
        let mut body = body(1000, 1);
        let received = receive_during(async {}, &mut body, BytesMut::new(), |_| Ok(()));
        assert!(received.now_or_never().unwrap().unwrap().1.is_empty());
        assert!(body.frame().now_or_never().is_some());
    }

    #[test]
    fn a_body_that_is_resumed_is_whole() {
        let rest = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"second")))]);
        let resumed = Resumed::new(Bytes::from_static(b"first "), StreamBody::new(rest));
        assert!(!resumed.is_end_stream());
        let whole = resumed.collect().now_or_never().unwrap().unwrap().to_bytes();
        assert_eq!(whole, "first second");
    }
}
