use super::Caller;
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tonic::Status;

/// The body of a response for as long as its caller may read it. Then it ends with a status that says why, and what it
/// held is dropped.
pub(crate) struct ExpiringBody<B> {
    /// `None` once it ended.
    body: Option<Pin<Box<B>>>,
    lapse: Pin<Box<dyn Future<Output = Status> + Send>>,
}

impl<B> ExpiringBody<B> {
    pub(super) fn new(body: B, caller: Caller) -> Self {
        Self { body: Some(Box::pin(body)), lapse: Box::pin(caller.lapse()) }
    }
}

impl<B> Body for ExpiringBody<B>
where
    B: Body<Data = Bytes, Error = Infallible>,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.body.is_some()
            && let Poll::Ready(status) = self.lapse.as_mut().poll(cx)
        {
            self.body = None;
            let mut trailers = HeaderMap::new();
            // Only a message with bytes that no header may have is refused, and it is percent-encoded.
            let _ = status.add_header(&mut trailers);
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(cx));
        if frame.is_none() {
            self.body = None;
        }
        Poll::Ready(frame)
    }
}
