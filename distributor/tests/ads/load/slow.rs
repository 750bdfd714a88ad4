use super::*;
use crate::errors::request;
use heliograph_client::Protocol;
use heliograph_snapshot::{Resource, ResourceType};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;

/// Larger than the windows of a client, or than what a kernel keeps for it.
fn large(size: usize) -> Vec<(ResourceType, Resource)> {
    let name = |number| format!("{number}-{}", "x".repeat(900));
    (0..size / 1000).map(|number| cluster(&name(number), 1)).collect()
}

async fn large_world(size: usize) -> World {
    let mut world = world(|args| args.send_timeout = Duration::from_secs(1)).await;
    world.publish(&large(size)).await;
    world
}

/// Sends the first request of a client, which does not read the answer by itself.
async fn ask(world: &World) -> TcpStream {
    let mut stream = raw::connect(&world.server).await;
    let first = raw::message_frame(1, &request(fleet().as_str()));
    stream.write_all(&[raw::open(1), first].concat()).await.unwrap();
    stream
}

fn streams(world: &World) -> u64 {
    world.metric("heliograph_distributor_streams{protocol=\"delta\"}")
}

#[tokio::test]
async fn a_client_whose_window_stays_shut_is_given_up() {
    let world = large_world(1 << 20).await;
    let client = world.client(Protocol::StateOfTheWorld);
    world.acknowledged(1).await;
    // It takes all that comes from the socket, and never says that there is room for more.
    let mut shut = ask(&world).await;
    closed(&mut shut).await;
    assert_eq!(ended(&world, "slow_reader"), 1);
    assert!(comes_true(|| streams(&world) == 0).await, "its stream is gone as well");
    assert!(client.state().ended.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_given_up() {
    let world = large_world(8 << 20).await;
    let socket = TcpSocket::new_v4().unwrap();
    // Otherwise the kernel reads for it.
    socket.set_recv_buffer_size(4096).unwrap();
    let address = world.server.strip_prefix("http://").unwrap().parse().unwrap();
    let mut deaf = socket.connect(address).await.unwrap();
    deaf.write_all(raw::PREFACE).await.unwrap();
    // Its windows are as wide as they can be, so that only its socket is full.
    let settings = [&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4][..], &0x7fff_ffff_u32.to_be_bytes()];
    let update = [&[0, 0, 4, 8, 0, 0, 0, 0, 0][..], &0x7fff_0000_u32.to_be_bytes()];
    let first = raw::message_frame(1, &request(fleet().as_str()));
    let all = [settings.concat(), update.concat(), raw::open(1), first].concat();
    deaf.write_all(&all).await.unwrap();
    assert!(comes_true(|| ended(&world, "slow_reader") == 1).await);
    assert!(comes_true(|| connections(&world) == 0 && streams(&world) == 0).await);
    let client = world.client(Protocol::Delta);
    world.acknowledged(1).await;
    assert!(client.state().ended.is_none());
}
