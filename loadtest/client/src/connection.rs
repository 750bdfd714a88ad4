use crate::state::{Ask, Response};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use heliograph_envoy::Any;
use heliograph_envoy::envoy::config::core::v3::{ControlPlane, Node};
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use heliograph_envoy::google::rpc;
use heliograph_snapshot::ResourceType;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Delta,
    StateOfTheWorld,
}

/// Responses of a type that is not served here are of no interest.
pub(crate) type Responses = BoxStream<'static, Result<Option<Response>, Status>>;

const DELTA: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const STATE_OF_THE_WORLD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// Opens a stream. The node goes with the first request alone, as Envoy does when told to.
pub(crate) async fn open(
    channel: Channel,
    protocol: Protocol,
    node: Node,
    asks: impl Stream<Item = Ask> + Send + 'static,
) -> Result<Responses, Status> {
    let mut node = Some(node);
    match protocol {
        Protocol::Delta => {
            let requests = asks.map(move |ask| delta_request(ask, node.take()));
            let responses = call(channel, DELTA, requests).await?;
            Ok(responses.map(|response| response.map(delta_response)).boxed())
        }
        Protocol::StateOfTheWorld => {
            let requests = asks.map(move |ask| whole_request(ask, node.take()));
            let responses = call(channel, STATE_OF_THE_WORLD, requests).await?;
            Ok(responses.map(|response| response.map(whole_response)).boxed())
        }
    }
}

async fn call<Q, P>(
    channel: Channel,
    path: &'static str,
    requests: impl Stream<Item = Q> + Send + 'static,
) -> Result<tonic::Streaming<P>, Status>
where
    Q: Message + 'static,
    P: Message + Default + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = tonic_prost::ProstCodec::<Q, P>::default();
    let path = PathAndQuery::from_static(path);
    Ok(grpc.streaming(tonic::Request::new(requests), path, codec).await?.into_inner())
}

fn delta_request(ask: Ask, node: Option<Node>) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node,
        type_url: ask.kind.type_url().to_owned(),
        resource_names_subscribe: ask.subscribe,
        resource_names_unsubscribe: ask.unsubscribe,
        initial_resource_versions: ask.held,
        response_nonce: ask.nonce,
        error_detail: ask.error.map(detail),
        ..Default::default()
    }
}

fn whole_request(ask: Ask, node: Option<Node>) -> DiscoveryRequest {
    DiscoveryRequest {
        node,
        type_url: ask.kind.type_url().to_owned(),
        resource_names: ask.names,
        version_info: ask.version,
        response_nonce: ask.nonce,
        error_detail: ask.error.map(detail),
        ..Default::default()
    }
}

fn delta_response(response: DeltaDiscoveryResponse) -> Option<Response> {
    let resources = response.resources.into_iter();
    Some(Response {
        kind: ResourceType::from_type_url(&response.type_url)?,
        nonce: response.nonce,
        version: response.system_version_info,
        control_plane: identifier(response.control_plane),
        resources: resources
            .map(|resource| (resource.version, resource.resource.unwrap_or_default().value))
            .collect(),
        removed: response.removed_resources,
        whole: false,
    })
}

fn whole_response(response: DiscoveryResponse) -> Option<Response> {
    let kind = ResourceType::from_type_url(&response.type_url)?;
    let body = |resource: Any| (String::new(), resource.value);
    Some(Response {
        kind,
        nonce: response.nonce,
        version: response.version_info,
        control_plane: identifier(response.control_plane),
        resources: response.resources.into_iter().map(body).collect(),
        removed: Vec::new(),
        whole: matches!(kind, ResourceType::Cluster | ResourceType::Listener),
    })
}

fn identifier(control_plane: Option<ControlPlane>) -> String {
    control_plane.unwrap_or_default().identifier
}

fn detail(message: String) -> rpc::Status {
    rpc::Status { code: Code::InvalidArgument.into(), message, ..Default::default() }
}
