use crate::wire::DELTA;
use crate::world::*;
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_distributor::{DistributorArgs, DistributorError, LoadArgs, SecurityArgs};
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::ResourceType;
use heliograph_store::{DistributorStore, Embedded};
use http::uri::PathAndQuery;
use prometheus::Registry;
use std::sync::Arc;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

/// What the server says to one request.
pub(crate) async fn answer_to(
    world: &World,
    path: &'static str,
    request: DeltaDiscoveryRequest,
) -> Result<Option<DeltaDiscoveryResponse>, Status> {
    let channel = Endpoint::from_shared(world.server.clone()).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let requests = futures::StreamExt::chain(
        futures::stream::iter([request]),
        futures::stream::pending::<DeltaDiscoveryRequest>(),
    );
    let path = PathAndQuery::from_static(path);
    let responses = grpc.streaming(tonic::Request::new(requests), path, codec).await?;
    let mut responses = responses.into_inner();
    tokio::time::timeout(DEADLINE, responses.message()).await.unwrap()
}

pub(crate) fn request(cluster: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(Node { id: "test".into(), cluster: cluster.into(), ..Default::default() }),
        type_url: ResourceType::Cluster.type_url().to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_first_request_without_a_node_is_told_so() {
    let world = World::start().await;
    let nobody = DeltaDiscoveryRequest { node: None, ..request("") };
    let status = answer_to(&world, DELTA, nobody).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("node"), "{status}");
}

#[tokio::test]
async fn a_cluster_that_is_no_fleet_is_told_what_to_set() {
    for protocol in BOTH {
        let world = World::start().await;
        let long = format!("default/{}", "x".repeat(1000));
        for wrong in ["", "gateway", "a/b/c", &long] {
            let options = Options::new(world.server.clone(), protocol, wrong);
            let client = Client::connect(options).unwrap();
            let state = client.until("end", DEADLINE, |state| state.ended.is_some()).await.unwrap();
            let (code, message) = state.ended.unwrap();
            assert_eq!(code, Code::InvalidArgument);
            assert!(
                message.contains("node.cluster") && message.contains("NAMESPACE/NAME"),
                "{message}"
            );
        }
        assert_eq!(world.metric("heliograph_distributor_refused_streams_total"), 4);
    }
}

#[tokio::test]
async fn too_many_names_are_refused() {
    let mut world = World::start().await;
    world.publish(&gateway("blue")).await;
    let names = (0..1_000_000).map(|n| n.to_string()).collect();
    let many =
        DeltaDiscoveryRequest { resource_names_subscribe: names, ..request(fleet().as_str()) };
    let status = answer_to(&world, DELTA, many).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("1000000 names"), "{status}");
}

#[tokio::test]
async fn long_names_are_refused() {
    let mut world = World::start().await;
    world.publish(&gateway("blue")).await;
    let long = DeltaDiscoveryRequest {
        initial_resource_versions: [("x".repeat(2000), "1".to_owned())].into(),
        ..request(fleet().as_str())
    };
    let status = answer_to(&world, DELTA, long).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("2000 bytes"), "{status}");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused() {
    let world = World::start().await;
    let large = DeltaDiscoveryRequest {
        resource_names_subscribe: vec!["x".repeat(33 << 20)],
        ..request(fleet().as_str())
    };
    let status = answer_to(&world, DELTA, large).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("a request of"), "{status}");
}

#[tokio::test]
async fn other_methods_and_services_are_not_there() {
    let world = World::start().await;
    for path in [
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/Other",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
    ] {
        let status = answer_to(&world, path, request(fleet().as_str())).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
}

#[tokio::test]
async fn a_shutdown_ends_all_streams() {
    let mut world = World::start().await;
    world.publish(&gateway("blue")).await;
    let serving = [world.client(Protocol::Delta), world.client(Protocol::StateOfTheWorld)];
    let waiting = Options::new(world.server.clone(), Protocol::Delta, "not/published");
    let waiting = Client::connect(waiting).unwrap();
    world.acknowledged(2).await;
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    assert!(comes_true(|| world.metric(streams) == 2).await);
    world.stop.cancel();
    for client in serving.iter().chain([&waiting]) {
        let ended = |state: &State| state.ended.is_some();
        let state = client.until("end", DEADLINE, ended).await.unwrap();
        assert_eq!(state.ended.unwrap().0, Code::Unavailable);
    }
    tokio::time::timeout(DEADLINE, world.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn addresses_are_refused_with_one_clear_line() {
    let world = World::start().await;
    let build = async |address: &str, insecure_plaintext| {
        let args = DistributorArgs {
            xds_address: address.parse().unwrap(),
            insecure_plaintext,
            replica: None,
            load: LoadArgs::default(),
        };
        let security = SecurityArgs::default();
        let store = DistributorStore::new(Arc::new(Embedded::new()));
        heliograph_distributor::build(&args, &security, store, &Registry::new(), &Readiness::new())
            .await
    };
    let error = build("0.0.0.0:0", false).await.err().unwrap();
    assert!(matches!(error, DistributorError::Plaintext(_)));
    assert!(error.to_string().contains("--insecure-plaintext"), "{error}");
    assert!(build("0.0.0.0:0", true).await.is_ok());
    let args = |address: &str| DistributorArgs {
        xds_address: address.parse().unwrap(),
        insecure_plaintext: true,
        replica: None,
        load: LoadArgs::default(),
    };
    let admin = "127.0.0.1:19000".parse().unwrap();
    for same in ["127.0.0.1:19000", "0.0.0.0:19000"] {
        let error = args(same).check_beside(admin).unwrap_err().to_string();
        assert!(error.contains("--admin-address") && error.contains("--xds-address"), "{error}");
    }
    assert!(args("127.0.0.1:18000").check_beside(admin).is_ok());
    assert!(args("127.0.0.2:19000").check_beside(admin).is_ok());
    let taken = world.server.strip_prefix("http://").unwrap();
    let error = build(taken, false).await.err().unwrap();
    assert!(error.to_string().contains("is in use"), "{error}");
}
