use super::admission_control::Authentication;
use super::early::{Resumed, receive_during};
use crate::identity::{Authenticator, Caller, Peer};
use crate::metrics::GaugeCount;
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

/// All services of one connection, behind the authenticator. Whatever is called, also what does not exist and what is harmless,
/// an unknown caller learns nothing but that it is unknown.
pub(super) struct ConnectionService {
    pub(super) routes: Routes,
    pub(super) authenticator: Arc<Authenticator>,
    pub(super) authentication: Authentication,
    /// The certificate of the connection.
    pub(super) peer: Option<Arc<Peer>>,
    pub(super) _present: GaugeCount,
}

/// After so many unauthenticated calls the client must reconnect: one that tries tokens needs a handshake for each few.
/// Its open streams stay.
const MOST_REFUSED: u32 = 8;

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (mut routes, authenticator, peer) =
            (self.routes.clone(), self.authenticator.clone(), self.peer.clone());
        let authentication = self.authentication.clone();
        let handle = authentication.handle().clone();
        Box::pin(async move {
            let (mut head, mut body) = request.into_parts();
            match admit(&authenticator, peer.as_ref(), &authentication, &head, &mut body).await {
                Ok((caller, early)) => {
                    if let Err(status) = authentication.succeeded(caller.identity()) {
                        return Ok(status.into_http());
                    }
                    // The services behind the authenticator do not need the token.
                    head.headers.remove(AUTHORIZATION);
                    head.extensions.insert(caller);
                    // An unknown caller has asked for nothing, and the time until its connection is closed goes on.
                    handle.used();
                    head.extensions.insert(handle);
                    let request = Request::from_parts(head, body);
                    // A stream keeps its body for as long as it lives.
                    match early.is_empty() {
                        true => routes.call(request).await,
                        false => routes.call(request.map(|rest| Resumed::new(early, rest))).await,
                    }
                }
                Err(status) => {
                    if status.code() == Code::Unauthenticated && handle.refused() >= MOST_REFUSED {
                        handle.request_reconnect();
                    }
                    Ok(status.into_http())
                }
            }
        })
    }
}

/// Authenticates the caller, and receives meanwhile what it sends.
async fn admit(
    authenticator: &Arc<Authenticator>,
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
        authentication.charge_call(number, &mut permit, bytes)
    };
    let admitted = authenticator.admit(peer, &head.headers, authentication.handle().from());
    let (caller, early) = receive_during(admitted, body, BytesMut::new(), charge).await?;
    Ok((caller?, early))
}
