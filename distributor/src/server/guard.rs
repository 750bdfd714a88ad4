use super::door::Authentication;
use super::early::{Resumed, receive_during};
use crate::identity::{Caller, Gate, Peer};
use crate::metrics::Present;
use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
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

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (mut routes, gate, peer) = (self.routes.clone(), self.gate.clone(), self.peer.clone());
        let authentication = self.authentication.clone();
        let tenure = authentication.tenure().clone();
        Box::pin(async move {
            let (mut head, mut body) = request.into_parts();
            match admit(&gate, peer.as_ref(), &authentication, &head, &mut body).await {
                Ok((caller, early)) => {
                    if let Err(status) = authentication.succeeded(caller.identity()) {
                        return Ok(status.into_http());
                    }
                    // Nobody behind the gate has use for a token.
                    head.headers.remove(AUTHORIZATION);
                    head.extensions.insert(caller);
                    // An unknown caller has asked for nothing, and the time until its connection is closed goes on.
                    tenure.used();
                    head.extensions.insert(tenure);
                    let request = Request::from_parts(head, body);
                    // A stream keeps its body for as long as it lives.
                    match early.is_empty() {
                        true => routes.call(request).await,
                        false => routes.call(request.map(|rest| Resumed::new(early, rest))).await,
                    }
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

/// Asks who calls, and receives what it sends while that cannot be told yet.
async fn admit(
    gate: &Arc<Gate>,
    peer: Option<&Arc<Peer>>,
    authentication: &Authentication,
    head: &Parts,
    body: &mut Incoming,
) -> Result<(Caller, Bytes), Status> {
    let (mut waiting, mut permit) = (None, None);
    let charge = |bytes| {
        // Nearly all are known at once.
        if bytes == 0 {
            return Ok(());
        }
        let number = *waiting.get_or_insert_with(|| authentication.number());
        authentication.keep_call(number, &mut permit, bytes)
    };
    let admitted = gate.admit(peer, &head.headers, authentication.tenure().from());
    let (caller, early) = receive_during(admitted, body, BytesMut::new(), charge).await?;
    Ok((caller?, early))
}
