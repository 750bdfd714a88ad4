use super::Shared;
use super::request::Requests;
use super::stream::AdsStream;
use crate::identity::Caller;
use heliograph_distributor_protocol::Protocol;
use http::header::CONTENT_TYPE;
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

    fn respond(&self, protocol: Protocol, caller: Caller, body: Body) -> Response<Body> {
        let requests = Requests::new(protocol, body);
        let stream = AdsStream::new(self.shared.clone(), protocol, caller.clone(), requests);
        let mut response = Response::new(caller.guard(stream.into_body()));
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
        let (mut head, body) = request.into_parts();
        // Whoever comes without one did not come through the gate.
        let Some(caller) = head.extensions.remove::<Caller>() else {
            return ready(Ok(Status::unauthenticated("nobody asked who you are").into_http()));
        };
        let method = head.uri.path().rsplit('/').next().unwrap_or_default();
        ready(Ok(match method {
            "DeltaAggregatedResources" => self.respond(Protocol::Delta, caller, body),
            "StreamAggregatedResources" => self.respond(Protocol::StateOfTheWorld, caller, body),
            _ => Status::unimplemented("no such method").into_http(),
        }))
    }
}
