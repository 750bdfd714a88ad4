use super::Shared;
use super::admission_control::StreamPermit;
use super::connection_handle::ConnectionHandle;
use super::read_progress::TrackedBody;
use super::request::Requests;
use super::stream::AdsStream;
use crate::identity::Caller;
use heliograph_distributor_protocol::Protocol;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;

/// `envoy.service.discovery.v3.AggregatedDiscoveryService`, with a response body of our own. The generated service
/// would copy every message for every stream.
#[derive(Clone, Debug)]
pub(crate) struct Ads {
    shared: Arc<Shared>,
}

impl Ads {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Decides whether a stream is admitted, before anything is done for it.
    fn admit(&self, head: &Parts, caller: &Caller) -> Result<Arc<StreamPermit>, Status> {
        let handle = head.extensions.get::<ConnectionHandle>();
        let handle = handle.ok_or_else(|| Status::internal("a request without a connection"))?;
        self.shared.admission_control.admit(handle, caller.identity()).map(Arc::new)
    }

    fn respond(&self, protocol: Protocol, head: &Parts, body: Body) -> Response<Body> {
        // A request without a caller did not pass the authenticator.
        let Some(caller) = head.extensions.get::<Caller>().cloned() else {
            return Status::unauthenticated("the client is not authenticated").into_http();
        };
        let stream_permit = match self.admit(head, &caller) {
            Ok(stream_permit) => stream_permit,
            Err(status) => return status.into_http(),
        };
        let requests = Requests::new(protocol, body, stream_permit.clone());
        let read_progress = stream_permit.read_progress();
        let stream =
            AdsStream::new(self.shared.clone(), protocol, caller.clone(), requests, stream_permit);
        let body = caller.limit_body(TrackedBody::new(stream.into_body(), read_progress));
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        response
    }
}

impl NamedService for Ads {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

impl tower::Service<Request<Body>> for Ads {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let method = head.uri.path().rsplit('/').next().unwrap_or_default();
        ready(Ok(match method {
            "DeltaAggregatedResources" => self.respond(Protocol::Delta, &head, body),
            "StreamAggregatedResources" => self.respond(Protocol::StateOfTheWorld, &head, body),
            _ => Status::unimplemented("no such method").into_http(),
        }))
    }
}
