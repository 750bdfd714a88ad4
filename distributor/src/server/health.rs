use super::AdmissionControl;
use super::admission_control::StreamPermit;
use super::connection_handle::ConnectionHandle;
use crate::identity::Caller;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use pin_project_lite::pin_project;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::pb::health_server::{Health as Service, HealthServer};

/// `grpc.health.v1.Health` within the bounds of streams: each call counts as one until its response has ended.
#[derive(Debug)]
pub(crate) struct Health<S> {
    inner: HealthServer<S>,
    admission_control: Arc<AdmissionControl>,
}

pin_project! {
    /// The body of a response, with what counts for as long as it lives.
    struct Counted {
        #[pin]
        body: Body,
        _stream_permit: StreamPermit,
    }
}

/// A request names a service, and this is more than a name has. It is so small that it needs no permit where requests are received.
const LARGEST: usize = 4 << 10;
/// How long a client may take to send that.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

impl<S: Service> Health<S> {
    pub(crate) fn new(inner: HealthServer<S>, admission_control: Arc<AdmissionControl>) -> Self {
        Self { inner: inner.max_decoding_message_size(LARGEST), admission_control }
    }

    async fn respond(mut self, head: Parts, body: Body) -> Result<Response<Body>, Status> {
        let (handle, caller) =
            (head.extensions.get::<ConnectionHandle>(), head.extensions.get::<Caller>());
        let handle = handle.ok_or_else(|| Status::internal("a request without a connection"))?;
        let caller =
            caller.ok_or_else(|| Status::unauthenticated("the caller is unknown"))?.clone();
        let stream_permit = self.admission_control.admit(handle, caller.identity())?;
        // Otherwise who calls again and again would have more than its part of --admission-rate.
        stream_permit.answered();
        // It is ready at once, and receives the whole request before it answers.
        let call = tower::Service::call(&mut self.inner, Request::from_parts(head, body));
        let late = |_| Status::deadline_exceeded("a request was begun and not ended in time");
        let Ok(response) = timeout(RECEIVE_TIMEOUT, call).await.map_err(late)?;
        Ok(response.map(|body| caller.limit_body(Counted { body, _stream_permit: stream_permit })))
    }
}

impl<S> Clone for Health<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), admission_control: self.admission_control.clone() }
    }
}

impl<S> NamedService for Health<S> {
    const NAME: &'static str = <HealthServer<S> as NamedService>::NAME;
}

impl<S: Service> tower::Service<Request<Body>> for Health<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let responding = self.clone().respond(head, body);
        responding.map(|response| Ok(response.unwrap_or_else(Status::into_http))).boxed()
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = ready!(http_body::Body::poll_frame(self.project().body, context));
        Poll::Ready(frame.map(|frame| {
            Ok(frame.unwrap_or_else(|status| {
                let mut trailers = HeaderMap::new();
                // Only a message with bytes that no header may have is refused, and it is percent-encoded.
                let _ = status.add_header(&mut trailers);
                Frame::trailers(trailers)
            }))
        }))
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }
}
