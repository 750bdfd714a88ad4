use super::*;
use heliograph_client::{Options, Protocol};
use tokio::net::TcpSocket;

#[tokio::test]
async fn who_comes_too_fast_is_told_to_come_again_and_gets_in() {
    let world = world(|args| args.admission_rate = 2).await;
    let mut clients: Vec<_> = (0..10).map(|n| world.client(BOTH[n % 2])).collect();
    let mut refused = 0;
    for client in &mut clients {
        let settled = |state: &State| state.is_warm() || state.ended.is_some();
        while let Some((code, message)) =
            client.until("word", DEADLINE, settled).await.unwrap().ended
        {
            assert_eq!(code, Code::Unavailable);
            assert!(message.contains("--admission-rate"), "{message}");
            refused += 1;
            *client = world.client(Protocol::Delta);
        }
    }
    assert!(refused > 0, "ten at once at two per second");
    assert_eq!(rejected_clients(&world, "rate"), refused);
    world.acknowledged(10).await;
}

#[tokio::test]
async fn a_full_replica_sends_clients_elsewhere() {
    let world = world(|args| args.max_streams = 1).await;
    let first = world.client(Protocol::Delta);
    warm(&first).await;
    let mut second = world.client(Protocol::StateOfTheWorld);
    let (code, message) = end(&second).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("--max-streams"), "{message}");
    // On the same connection it would be refused for ever.
    assert!(comes_true(|| connections(&world) == 1).await);
    assert!(first.state().ended.is_none());
    assert_eq!(rejected_clients(&world, "streams"), 1);
    drop(first);
    assert!(comes_true(|| connections(&world) == 0).await);
    second = world.client(Protocol::StateOfTheWorld);
    warm(&second).await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_at_once() {
    for reason in ["connections", "address"] {
        let world = world(|args| {
            args.first_request_timeout = DEADLINE;
            match reason {
                "address" => args.max_connections_per_address = 3,
                _ => args.max_connections = 3,
            }
        })
        .await;
        let client = world.client(Protocol::Delta);
        let mut others = vec![world.client(Protocol::Delta), world.client(Protocol::Delta)];
        warm(&client).await;
        for other in &others {
            warm(other).await;
        }
        assert_eq!(connections(&world), 3);
        closed(&mut silent(&world).await).await;
        assert_eq!(rejected_clients(&world, reason), 1);
        assert_eq!(connections(&world), 3);
        // A place that is free again can be taken.
        others.pop();
        assert!(comes_true(|| connections(&world) == 2).await);
        warm(&world.client(Protocol::Delta)).await;
        assert!(client.state().ended.is_none());
    }
}

#[tokio::test]
async fn one_setup_at_a_time_is_enough_for_all() {
    let world = world(|args| args.max_setups = 1).await;
    // Clients that wait for a fleet that does not exist do not delay others.
    let waiting: Vec<_> = (0..3)
        .map(|_| Options::new(world.server.clone(), Protocol::Delta, "not/published"))
        .map(|options| Client::connect(options).unwrap())
        .collect();
    assert!(
        comes_true(|| world.metric("heliograph_distributor_streams{protocol=\"delta\"}") == 3)
            .await
    );
    let _clients: Vec<_> = (0..20).map(|n| world.client(BOTH[n % 2])).collect();
    world.acknowledged(20).await;
    assert!(waiting.iter().all(|client| client.state().ended.is_none()));
}

/// Connections that say nothing, from many addresses, and ever new ones: they make room for each other, and not for those who
/// say who they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_of_many_addresses_keep_nobody_out() {
    const BOUND: usize = 50;
    let world = world(|args| {
        args.max_unauthenticated = BOUND;
        args.first_request_timeout = 10 * DEADLINE;
    })
    .await;
    let before = world.client(Protocol::Delta);
    warm(&before).await;
    let mut halves = Vec::new();
    for last in 2..2 + BOUND {
        halves.push(silent_from(&world, last as u8).await);
    }
    let waiting = || world.metric("heliograph_distributor_unauthenticated_connections");
    assert!(comes_true(|| waiting() == BOUND as u64).await);
    // The oldest has a second. Until then who comes is to come again, and each that comes after closes one.
    for number in 0..20 {
        let mut client = world.client(BOTH[number % 2]);
        let settled = |state: &State| state.is_warm() || state.ended.is_some();
        while client.until("word", DEADLINE, settled).await.unwrap().ended.is_some() {
            client = world.client(Protocol::Delta);
        }
    }
    closed(&mut halves[0]).await;
    assert!(ended(&world, "unauthenticated") >= 1);
    assert!(waiting() <= BOUND as u64);
    assert!(before.state().ended.is_none());
}

async fn silent_from(world: &World, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(world.server.strip_prefix("http://").unwrap().parse().unwrap()).await.unwrap()
}
