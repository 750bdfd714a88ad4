use super::frames::Frames;
use crate::view::Claims;
use bytes::Bytes;
use heliograph_distributor_protocol::{Protocol, Request, RequestError};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use http_body_util::BodyExt;
use tonic::Status;
use tonic::body::Body;

/// A request as the stream needs it.
#[derive(Debug)]
pub(crate) struct Incoming {
    /// Unread. Some clients repeat it with every request, and only the first counts.
    pub(crate) node: Option<Bytes>,
    pub(crate) request: Request,
}

/// All that is kept of a node. A real Envoy sends 61 KB, most of it the list of its extensions.
#[derive(Debug)]
pub(crate) struct NodeName {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) claims: Claims,
}

/// The requests of one stream, in order.
pub(crate) struct Requests {
    protocol: Protocol,
    body: Body,
    frames: Frames,
}

impl Requests {
    pub(crate) fn new(protocol: Protocol, body: Body) -> Self {
        Self { protocol, body, frames: Frames::default() }
    }

    /// The next request; `None` when the client says no more. Nothing is lost if this is dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Option<Incoming>, Status> {
        loop {
            if let Some(message) = self.frames.next()? {
                let (request, node) = Request::scan(self.protocol, message).map_err(refusal)?;
                return Ok(Some(Incoming { node, request }));
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

impl NodeName {
    pub(crate) fn read(node: Bytes) -> Result<Self, Status> {
        let node = Node::decode(node).map_err(|error| {
            Status::invalid_argument(format!("the node of this request cannot be read: {error}"))
        })?;
        let claims = Claims::of(&node);
        Ok(Self { id: node.id, cluster: node.cluster, claims })
    }
}

/// Why a request ends its stream.
pub(crate) fn refusal(error: RequestError) -> Status {
    match error {
        RequestError::Malformed(_) => Status::invalid_argument(error.to_string()),
        RequestError::TooManyNames { .. }
        | RequestError::TooLong { .. }
        | RequestError::TooManyBytes { .. } => Status::resource_exhausted(error.to_string()),
    }
}
