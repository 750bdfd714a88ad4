use super::*;
use crate::wire::raw::PREFACE;
use heliograph_client::Protocol;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

#[tokio::test]
async fn an_old_connection_ends_and_its_client_comes_back() {
    for protocol in BOTH {
        let world = world(|args| args.connection_age = Duration::from_secs(2)).await;
        let mut client = world.client(protocol);
        warm(&client).await;
        let (code, message) = end(&client).await;
        assert_eq!(code, Code::Unavailable);
        assert!(message.contains("--connection-age"), "{message}");
        assert_eq!(ended(&world, "age"), 1);
        assert!(comes_true(|| connections(&world) == 0).await);
        client.reconnect();
        world.acknowledged(1).await;
    }
}

#[tokio::test]
async fn a_drain_is_spread_over_its_time() {
    let drain = Duration::from_secs(3);
    let world = world(|args| args.drain_time = Some(drain)).await;
    let clients: Vec<_> = (0..40).map(|n| world.client(BOTH[n % 2])).collect();
    world.acknowledged(40).await;
    let begun = Instant::now();
    world.stop.cancel();
    assert!(comes_true(|| !world.readiness.is_ready()).await);
    let ends = clients.iter().map(async |client| {
        let (code, message) = end(client).await;
        assert_eq!(code, Code::Unavailable);
        assert!(message.contains("shutting down"), "{message}");
        begun.elapsed()
    });
    let mut ends = futures::future::join_all(ends).await;
    ends.sort();
    // A quarter of the time has a quarter of the ends; a busy machine may be late with some.
    assert!(ends[39] - ends[0] > drain / 2, "{ends:?}");
    assert!(ends[39] - ends[20] > drain / 6, "{ends:?}");
    assert_eq!(ended(&world, "drain"), 40);
    tokio::time::timeout(DEADLINE, world.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_drain_is_over_when_everybody_has_left() {
    let world = world(|args| args.drain_time = Some(100 * DEADLINE)).await;
    let client = world.client(Protocol::Delta);
    warm(&client).await;
    world.stop.cancel();
    assert!(comes_true(|| !world.readiness.is_ready()).await);
    drop(client);
    tokio::time::timeout(DEADLINE, world.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let world = world(|args| args.first_request_timeout = Duration::from_secs(2)).await;
    let client = world.client(Protocol::Delta);
    warm(&client).await;
    let mut mute = silent(&world).await;
    let mut polite = silent(&world).await;
    polite.write_all(PREFACE).await.unwrap();
    closed(&mut mute).await;
    closed(&mut polite).await;
    assert_eq!(ended(&world, "silence"), 2);
    assert!(client.state().ended.is_none(), "who has asked may be silent");
    assert!(comes_true(|| connections(&world) == 1).await);
}
