use super::*;
use heliograph_client::Protocol;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// More than any kernel keeps for a server that does not read.
const ENOUGH: usize = 64 << 20;

/// Says the same over and over until the server hangs up, before [`ENOUGH`], and with which word.
async fn hung_up_on(stream: TcpStream, mut next: impl FnMut() -> Vec<u8>) -> Option<u32> {
    let (mut answers, mut stream) = stream.into_split();
    let reading = tokio::spawn(async move {
        let mut all = Vec::new();
        // A reset is an end as well.
        let _ = answers.read_to_end(&mut all).await;
        all
    });
    let mut sent_bytes = 0;
    while sent_bytes < ENOUGH {
        let more: Vec<u8> = (0..100).flat_map(|_| next()).collect();
        let sent = tokio::time::timeout(DEADLINE, stream.write_all(&more)).await;
        match sent.expect("the server reads or hangs up") {
            Ok(()) => sent_bytes += more.len(),
            Err(_) => break,
        }
    }
    assert!(sent_bytes < ENOUGH, "it goes on reading");
    raw::goaway_error(&tokio::time::timeout(DEADLINE, reading).await.unwrap().unwrap())
}

/// ENHANCE_YOUR_CALM.
const TOO_MUCH: u32 = 11;

/// A client that was there before hears of a change, and everybody else is gone.
async fn goes_on(mut world: World, client: &Client) {
    world.publish(&gateway("green")).await;
    let green = |state: &State| leads_to(state, "table").as_deref() == Some("green");
    client.until("route to green", DEADLINE, green).await.unwrap();
    world.acknowledged(1).await;
    assert!(client.state().ended.is_none());
    let streams = "heliograph_distributor_streams{protocol=\"delta\"}";
    assert!(comes_true(|| connections(&world) == 1 && world.metric(streams) == 1).await);
    warm(&world.client(Protocol::StateOfTheWorld)).await;
}

#[tokio::test]
async fn streams_that_are_reset_at_once_end_their_connection() {
    let world = world(|_| {}).await;
    let client = world.client(Protocol::Delta);
    warm(&client).await;
    let mut number = 1;
    let rapid = || {
        let pair = [raw::open(number), raw::cancel(number)].concat();
        number += 2;
        pair
    };
    assert_eq!(hung_up_on(raw::connect(&world.server).await, rapid).await, Some(TOO_MUCH));
    goes_on(world, &client).await;
}

#[tokio::test]
async fn headers_without_an_end_end_their_connection() {
    let world = world(|_| {}).await;
    let client = world.client(Protocol::Delta);
    warm(&client).await;
    let mut stream = raw::connect(&world.server).await;
    stream.write_all(&raw::begin(1)).await.unwrap();
    assert_eq!(hung_up_on(stream, || raw::go_on(1)).await, Some(TOO_MUCH));
    goes_on(world, &client).await;
}

#[tokio::test]
async fn half_open_connections_are_bounded_and_closed() {
    let bound = 200;
    let world = world(|args| {
        args.max_unauthenticated = bound;
        args.first_request_timeout = Duration::from_secs(2);
    })
    .await;
    let client = world.client(Protocol::Delta);
    warm(&client).await;
    let mut halves = Vec::new();
    let mut most = 0;
    for number in 0..400 {
        let mut half = silent(&world).await;
        if number % 2 == 0 {
            // As if it were about to go on; it may have been closed already.
            let _ = half.write_all(&raw::PREFACE[..number % raw::PREFACE.len()]).await;
        }
        halves.push(half);
        most = most.max(connections(&world));
    }
    // And the one that is known.
    assert!(most <= bound as u64 + 1, "{most} connections at once");
    for half in &mut halves {
        closed(half).await;
    }
    let refused = rejected_clients(&world, "unauthenticated");
    let closed = ended(&world, "silence") + ended(&world, "unauthenticated");
    assert_eq!(refused + closed, 400, "{refused} were turned away");
    goes_on(world, &client).await;
}
