use super::*;
use crate::errors::request;
use crate::wire::raw_stream::{RawStream, framed};
use bytes::Bytes;
use heliograph_client::{Options, Protocol};
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use heliograph_snapshot::ResourceType;
use std::time::Duration;
use tokio::task::JoinHandle;

fn slowed(world: &World) -> u64 {
    world.metric("heliograph_distributor_slowed_streams_total")
}

/// An acknowledgement of a response that was never sent.
fn stale() -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { node: None, response_nonce: "of nobody".to_owned(), ..request("") }
}

/// A stream that acknowledges without an end, and as fast as it is read.
async fn flood(world: &World) -> JoinHandle<Result<(), h2::Error>> {
    let mut raw_stream = RawStream::open(&world.server).await;
    raw_stream.send(framed(&request(fleet().as_str())).into()).await.unwrap();
    let words: Bytes = framed(&stale()).repeat(1000).into();
    tokio::spawn(async move {
        loop {
            raw_stream.send(words.clone()).await?;
        }
    })
}

/// Whoever behaves hears of every change in time.
async fn goes_on(world: &mut World, clients: &[Client]) {
    for colour in ["green", "red", "yellow"] {
        world.publish(&gateway(colour)).await;
        for client in clients {
            let there = |state: &State| leads_to(state, "table").as_deref() == Some(colour);
            client.until("the next route", DEADLINE, there).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stream_that_floods_is_read_slower_and_nobody_else_notices() {
    let mut world = world(|args| args.request_rate = 20).await;
    let clients = BOTH.map(|protocol| world.client(protocol));
    let flooding = flood(&world).await;
    assert!(comes_true(|| slowed(&world) == 1).await);
    goes_on(&mut world, &clients).await;
    assert!(!flooding.is_finished(), "it waits for its turn");
    assert_eq!(slowed(&world), 1, "counted once, and nobody else");
    assert!(clients.iter().all(|client| client.state().ended.is_none()));
    warm(&world.client(Protocol::Delta)).await;
}

/// Also where nothing is slowed: a flood on several connections, while threads are few.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn floods_that_are_allowed_leave_the_others_their_time() {
    let mut world = world(|args| args.request_rate = 0).await;
    let clients = BOTH.map(|protocol| world.client(protocol));
    let mut floods = Vec::new();
    for _ in 0..4 {
        floods.push(flood(&world).await);
    }
    goes_on(&mut world, &clients).await;
    warm(&world.client(Protocol::StateOfTheWorld)).await;
    assert_eq!(slowed(&world), 0);
    assert!(floods.iter().all(|flood| !flood.is_finished()));
    floods.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn thousands_of_names_one_by_one_are_not_slowed() {
    let mut world = world(|_| {}).await;
    let count = 2000;
    let all: Vec<_> = (0..count).map(|n| endpoints(&format!("name-{n}"))).collect();
    world.publish(&[gateway("blue"), all].concat()).await;
    let mut raw_stream = RawStream::open(&world.server).await;
    let ask = |n: usize| DeltaDiscoveryRequest {
        node: request(fleet().as_str()).node.filter(|_| n == 0),
        type_url: ResourceType::Endpoints.type_url().to_owned(),
        resource_names_subscribe: vec![format!("name-{n}")],
        ..Default::default()
    };
    for n in 0..count {
        raw_stream.send(framed(&ask(n)).into()).await.unwrap();
    }
    let answers = "heliograph_distributor_responses_total{type=\"endpoints\"}";
    assert!(comes_true(|| world.metric(answers) > 0).await);
    // Requests that come meanwhile are answered together with the next acknowledgement. The answer to the last one, for
    // an unknown type, shows that all were read.
    let vain = DeltaDiscoveryRequest { type_url: "of nobody".into(), ..ask(1) };
    raw_stream.send(framed(&vain).into()).await.unwrap();
    let read = "heliograph_distributor_unknown_types_total";
    assert!(comes_true(|| world.metric(read) == 1).await);
    assert_eq!(slowed(&world), 0);
}

/// One more name costs as much as there are: here 2.75 of the ten seconds that a stream may owe, so that a busy machine
/// does not pay them back in time. By their number and bytes alone all of these requests would cost less than ten.
#[tokio::test]
async fn names_one_by_one_beside_very_many_are_slowed_sooner() {
    let mut world = world(|args| args.request_rate = 4).await;
    let all: Vec<_> = (0..10 << 12).map(|n| endpoints(&format!("name-{n}"))).collect();
    world.publish(&[gateway("blue"), all].concat()).await;
    let ask = |names: Vec<String>| DeltaDiscoveryRequest {
        type_url: ResourceType::Endpoints.type_url().to_owned(),
        resource_names_subscribe: names,
        ..request(fleet().as_str())
    };
    let mut raw_stream = RawStream::open(&world.server).await;
    let many = (0..10 << 12).map(|n| format!("name-{n}")).collect();
    raw_stream.send(framed(&ask(many)).into()).await.unwrap();
    for n in 0..8 {
        raw_stream.send(framed(&ask(vec![format!("another-{n}")])).into()).await.unwrap();
    }
    assert!(comes_true(|| slowed(&world) == 1).await);
}

#[tokio::test]
async fn a_large_request_for_a_fleet_that_is_not_published_does_not_wait_for_long() {
    let world = world(|_| {}).await;
    let names = (0..10_000).map(|n| format!("a-name-that-is-rather-long-{n}")).collect();
    let large = DeltaDiscoveryRequest { resource_names_subscribe: names, ..request("not/there") };
    let mut raw_stream = RawStream::open(&world.server).await;
    raw_stream.send(framed(&large).into()).await.unwrap();
    let status =
        tokio::time::timeout(DEADLINE, raw_stream.receive_once()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("not published"), "{status}");
}

#[tokio::test]
async fn a_fleet_that_is_not_published_is_waited_for_for_a_bounded_time() {
    for protocol in BOTH {
        let world = world(|args| args.unpublished_timeout = Duration::from_secs(2)).await;
        let options = Options::new(world.server.clone(), protocol, "not/there");
        let (code, message) = end(&Client::connect(options).unwrap()).await;
        assert_eq!(code, Code::Unavailable);
        assert!(message.contains("--unpublished-timeout"), "{message}");
        assert_eq!(rejected_clients(&world, "unpublished"), 1);
        assert_eq!(kept(&world), 0);
    }
}

/// Such a fleet is in memory for as long as it has a stream.
#[tokio::test]
async fn a_fleet_that_is_retired_is_waited_for_like_one_that_is_not_published() {
    let mut world = world(|args| args.unpublished_timeout = Duration::from_secs(2)).await;
    let stays = world.client(Protocol::Delta);
    warm(&stays).await;
    world.retire().await;
    let is_retired = || world.acks.of(&fleet()).is_some_and(|summary| summary.head.is_none());
    assert!(comes_true(is_retired).await, "its stream keeps it");
    for count in 1..3 {
        let waiting = world.client(Protocol::StateOfTheWorld);
        assert!(comes_true(|| kept(&world) > 0).await, "its request is counted");
        let (code, message) = end(&waiting).await;
        assert_eq!(code, Code::Unavailable);
        assert!(message.contains("--unpublished-timeout"), "{message}");
        assert_eq!((rejected_clients(&world, "unpublished"), kept(&world)), (count, 0));
    }
    assert_eq!(stays.state().ended, None);
}

/// Large requests have room for few of them together.
#[tokio::test]
async fn a_large_request_for_a_fleet_that_is_retired_does_not_wait_for_long() {
    let mut world = world(|_| {}).await;
    let stays = world.client(Protocol::Delta);
    warm(&stays).await;
    world.retire().await;
    let is_retired = || world.acks.of(&fleet()).is_some_and(|summary| summary.head.is_none());
    assert!(comes_true(is_retired).await, "its stream keeps it");
    let names = (0..10_000).map(|n| format!("a-name-that-is-rather-long-{n}")).collect();
    let large = request(fleet().as_str());
    let large = DeltaDiscoveryRequest { resource_names_subscribe: names, ..large };
    let mut raw_stream = RawStream::open(&world.server).await;
    raw_stream.send(framed(&large).into()).await.unwrap();
    let status =
        tokio::time::timeout(DEADLINE, raw_stream.receive_once()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("not published"), "{status}");
    // Who waits while it comes back is served.
    let waiting = world.client(Protocol::Delta);
    assert!(comes_true(|| kept(&world) > 0).await);
    world.publish(&gateway("green")).await;
    warm(&waiting).await;
}

/// What such streams keep is bounded for all of them together.
#[tokio::test]
async fn requests_that_wait_for_a_fleet_are_counted() {
    let world = world(|args| args.subscription_memory_per_identity = 100 << 10).await;
    let names = (0..1000).map(|n| format!("a-name-that-is-rather-long-{n:020}")).collect();
    let waiting = DeltaDiscoveryRequest { resource_names_subscribe: names, ..request("not/there") };
    let waiting: Bytes = framed(&waiting).into();
    let mut raw_streams = Vec::new();
    // 50 KB each.
    for number in 1..3 {
        let mut raw_stream = RawStream::open(&world.server).await;
        raw_stream.send(waiting.clone()).await.unwrap();
        raw_streams.push(raw_stream);
        assert!(comes_true(|| kept(&world) > number * 45_000).await);
    }
    let mut third = RawStream::open(&world.server).await;
    third.send(waiting).await.unwrap();
    let status = tokio::time::timeout(DEADLINE, third.receive_once()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("--subscription-memory-per-identity"), "{status}");
    assert_eq!(rejected_clients(&world, "identity_memory"), 1);
    // Envoys ask for little before they have something.
    let options = Options::new(world.server.clone(), Protocol::Delta, "not/there");
    let envoy = Client::connect(options).unwrap();
    let before = kept(&world);
    assert!(comes_true(|| kept(&world) > before).await);
    assert!(kept(&world) < before + 200);
    drop((raw_streams, envoy));
    assert!(comes_true(|| kept(&world) == 0).await);
}

#[tokio::test]
async fn names_that_no_fleet_has_are_counted_and_refused_beyond_a_bound() {
    for (flag, reason) in [
        ("--subscription-memory-per-identity", "identity_memory"),
        ("--subscription-memory)", "replica_memory"),
    ] {
        let world = world(|args| {
            match reason {
                "identity_memory" => args.subscription_memory_per_identity = 1 << 20,
                // No client has more than is left.
                _ => args.subscription_memory = 2 << 20,
            }
        })
        .await;
        let client = world.client(Protocol::Delta);
        warm(&client).await;
        assert_eq!(kept(&world), 0);
        let mut statuses = Vec::new();
        let mut raw_streams = Vec::new();
        for number in 0..3 {
            let names = (0..2000).map(|n| format!("{number}-{n}")).collect();
            let ask = DeltaDiscoveryRequest {
                type_url: ResourceType::Endpoints.type_url().to_owned(),
                resource_names_subscribe: names,
                ..request(fleet().as_str())
            };
            let mut raw_stream = RawStream::open(&world.server).await;
            raw_stream.send(framed(&ask).into()).await.unwrap();
            // 600 KB for each, which stay because it does not answer.
            match number {
                0 => {
                    assert!(comes_true(|| kept(&world) > 500_000).await);
                    raw_streams.push(raw_stream);
                }
                _ => statuses.push(raw_stream.receive_once().await.unwrap_err()),
            }
        }
        for status in statuses {
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(status.message().contains(flag), "{status}");
        }
        assert_eq!(rejected_clients(&world, reason), 2);
        // Those who ask for what there is are served.
        warm(&world.client(Protocol::StateOfTheWorld)).await;
        assert_eq!(client.state().ended, None);
        drop(raw_streams);
        assert!(comes_true(|| kept(&world) == 0).await);
    }
}
