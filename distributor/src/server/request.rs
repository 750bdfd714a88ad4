use heliograph_distributor_protocol::{Request, RequestError};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use std::marker::PhantomData;
use tonic::body::Body;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic::{Status, Streaming};

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
}

/// The requests of both protocols.
pub(crate) trait Wire:
    Message + Default + TryInto<Request, Error = RequestError> + 'static
{
    fn take_node(&mut self) -> Option<Node>;
}

struct Requests<M>(PhantomData<fn() -> M>);

/// A delta reconnect lists every name and version that the client holds.
const RECEIVE_LIMIT: usize = 32 << 20;
/// Most messages are acknowledgements of a hundred bytes.
const BUFFER: usize = 512;

pub(crate) fn requests<M: Wire>(body: Body) -> Streaming<Incoming> {
    Streaming::new_request(Requests::<M>(PhantomData), body, None, Some(RECEIVE_LIMIT))
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

impl<M: Wire> Decoder for Requests<M> {
    type Item = Incoming;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Incoming>, Status> {
        let mut message = M::decode(buffer).map_err(|error| {
            Status::invalid_argument(format!("this is not a discovery request: {error}"))
        })?;
        let node = message.take_node();
        let node = node.map(|node| NodeName { id: node.id, cluster: node.cluster });
        let request =
            message.try_into().map_err(|error| Status::resource_exhausted(error.to_string()))?;
        Ok(Some(Incoming { node, request }))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, BUFFER)
    }
}
