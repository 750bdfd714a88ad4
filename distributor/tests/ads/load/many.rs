use super::*;
use crate::errors::request;
use crate::wire::DELTA;
use heliograph_envoy::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use heliograph_snapshot::ResourceType;
use http::uri::PathAndQuery;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Endpoint;

/// As many as one request may name.
const MANY: usize = 200_000;

/// One delta stream, about endpoints, with what its client holds.
struct Stream {
    requests: mpsc::UnboundedSender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    held: BTreeMap<String, String>,
}

impl Stream {
    /// Opens it with a request that names these, and says what the client holds already.
    async fn open(world: &World, names: Vec<String>, held: BTreeMap<String, String>) -> Self {
        let channel = Endpoint::from_shared(world.server.clone()).unwrap().connect().await.unwrap();
        let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
        grpc.ready().await.unwrap();
        let (requests, receiver) = mpsc::unbounded_channel();
        let first = DeltaDiscoveryRequest {
            type_url: ResourceType::Endpoints.type_url().to_owned(),
            resource_names_subscribe: names,
            initial_resource_versions: held.clone().into_iter().collect(),
            ..request(fleet().as_str())
        };
        requests.send(first).unwrap();
        let requests_out = futures::stream::unfold(receiver, async |mut receiver| {
            let request = receiver.recv().await?;
            Some((request, receiver))
        });
        let path = PathAndQuery::from_static(DELTA);
        let codec = tonic_prost::ProstCodec::default();
        let streaming = grpc.streaming(tonic::Request::new(requests_out), path, codec);
        let responses = streaming.await.unwrap().into_inner();
        Self { requests, responses, held }
    }

    /// Receives a reply and acknowledges it. How many resources it has.
    async fn receive(&mut self) -> usize {
        let reply = tokio::time::timeout(DEADLINE, self.responses.message()).await.unwrap();
        let reply = reply.unwrap().unwrap();
        let count = reply.resources.len();
        self.held.extend(reply.resources.into_iter().map(|it| (it.name, it.version)));
        let acknowledgement = DeltaDiscoveryRequest {
            type_url: reply.type_url,
            response_nonce: reply.nonce,
            ..Default::default()
        };
        self.requests.send(acknowledgement).unwrap();
        count
    }
}

/// Bounds on names are on those that a fleet does not have: one that really has very many is served, also to a client that
/// comes back with all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_may_name_as_many_resources_as_a_large_fleet_has() {
    let mut world = world(|_| {}).await;
    let mut all: Vec<_> = (0..MANY).map(|n| endpoints(&n.to_string())).collect();
    world.publish(&all).await;
    let names: Vec<_> = (0..MANY).map(|n| n.to_string()).collect();
    let mut stream = Stream::open(&world, names.clone(), BTreeMap::new()).await;
    while stream.held.len() < MANY {
        stream.receive().await;
    }
    world.acknowledged(1).await;
    // A change is sent alone.
    let changed = ClusterLoadAssignment {
        cluster_name: "7".to_owned(),
        endpoints: vec![LocalityLbEndpoints::default()],
        ..Default::default()
    };
    all[7].1 = resource("7", &changed);
    world.publish(&all).await;
    assert_eq!(stream.receive().await, 1);
    world.acknowledged(1).await;
    // A client that comes back with all of them gets what it misses.
    let mut held = std::mem::take(&mut stream.held);
    drop(stream);
    held.insert("8".to_owned(), "another".to_owned());
    let mut stream = Stream::open(&world, names, held).await;
    assert_eq!(stream.receive().await, 1);
    world.acknowledged(1).await;
    assert_eq!(kept(&world), 0, "what the fleet has is not counted");
    for reason in ["receiving", "identity_memory", "replica_memory", "requests"] {
        assert_eq!(rejected_clients(&world, reason), 0, "{reason}");
    }
    assert_eq!(world.metric("heliograph_distributor_slowed_streams_total"), 0);
}
