use super::door::Authentication;
use crate::identity::{Gate, Peer};
use crate::metrics::Present;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
use tonic::Code;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service;

/// All services of one connection, behind the gate. Whatever is called, also what does not exist and what is harmless,
/// an unknown caller learns nothing but that it is unknown.
pub(super) struct Guard {
    pub(super) routes: Routes,
    pub(super) gate: Arc<Gate>,
    pub(super) authentication: Authentication,
    /// The certificate of the connection.
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) _present: Present,
}

/// After so many the connection ends: whoever tries tokens pays for each few with a handshake. Streams that it has stay.
const MOST_REFUSED: u32 = 8;

impl hyper::service::Service<Request<Incoming>> for Guard {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (mut routes, gate, peer) = (self.routes.clone(), self.gate.clone(), self.peer.clone());
        let authentication = self.authentication.clone();
        let tenure = authentication.tenure().clone();
        Box::pin(async move {
            match gate.admit(peer.as_ref(), request.headers(), tenure.from()).await {
                Ok(caller) => {
                    if let Err(status) = authentication.succeeded(caller.identity()) {
                        return Ok(status.into_http());
                    }
                    // Nobody behind the gate has use for a token.
                    request.headers_mut().remove(AUTHORIZATION);
                    request.extensions_mut().insert(caller);
                    // An unknown caller has asked for nothing, and the time until its connection is closed goes on.
                    tenure.used();
                    request.extensions_mut().insert(tenure);
                    routes.call(request).await
                }
                Err(status) => {
                    if status.code() == Code::Unauthenticated && tenure.refused() >= MOST_REFUSED {
                        tenure.send_elsewhere();
                    }
                    Ok(status.into_http())
                }
            }
        })
    }
}
