use super::frames::Frames;
use crate::view::Claims;
use bytes::Bytes;
use heliograph_distributor_protocol::{Request, RequestError};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use http_body_util::BodyExt;
use tonic::Status;
use tonic::body::Body;

/// A request as the stream needs it.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) node: Option<NodeName>,
    pub(crate) request: Request,
}

/// All that is kept of a node. A real Envoy sends 61 KB, most of it the list of its extensions.
#[derive(Debug)]
pub(crate) struct NodeName {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) claims: Claims,
}

/// The requests of both protocols.
pub(crate) trait Wire: Message + Default + TryInto<Request, Error = RequestError> {
    fn take_node(&mut self) -> Option<Node>;
}

/// The requests of one stream, in order.
pub(crate) struct Requests {
    body: Body,
    frames: Frames,
    decode: fn(Bytes) -> Result<Incoming, Status>,
}

impl Requests {
    pub(crate) fn new<M: Wire>(body: Body) -> Self {
        Self { body, frames: Frames::default(), decode: decode::<M> }
    }

    /// The next request; `None` when the client says no more. Nothing is lost if this is dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Option<Incoming>, Status> {
        loop {
            if let Some(message) = self.frames.next()? {
                return (self.decode)(message).map(Some);
            }
            match self.body.frame().await {
                // Anything but data is trailers, which requests have no use for.
                Some(frame) => frame?.into_data().into_iter().for_each(|it| self.frames.push(it)),
                None if self.frames.is_empty() => return Ok(None),
                None => return Err(Status::internal("the stream ended within a request")),
            }
        }
    }
}

impl Wire for DiscoveryRequest {
    fn take_node(&mut self) -> Option<Node> {
        self.node.take()
    }
}

impl Wire for DeltaDiscoveryRequest {
    fn take_node(&mut self) -> Option<Node> {
        self.node.take()
    }
}

fn decode<M: Wire>(message: Bytes) -> Result<Incoming, Status> {
    let mut message = M::decode(message).map_err(|error| {
        Status::invalid_argument(format!("this is not a discovery request: {error}"))
    })?;
    let node = message.take_node();
    let node = node.map(|node| {
        let claims = Claims::of(&node);
        NodeName { id: node.id, cluster: node.cluster, claims }
    });
    let request =
        message.try_into().map_err(|error| Status::resource_exhausted(error.to_string()))?;
    Ok(Incoming { node, request })
}
