//! How much clients may ask of a replica, and how long they stay at it.

mod admission;
mod floods;
mod life;
mod many;
mod requests;
mod slow;

use crate::faulty::Faulty;
use crate::wire::raw;
use crate::world::*;
use heliograph_client::{Client, State};
use heliograph_distributor::LoadArgs;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tonic::Code;

async fn world(change: impl FnOnce(&mut LoadArgs)) -> World {
    let mut load = LoadArgs::default();
    change(&mut load);
    let mut world = World::with(Faulty::default(), load).await;
    world.publish(&gateway("blue")).await;
    world
}

async fn warm(client: &Client) -> State {
    client.until("warm client", DEADLINE, State::is_warm).await.unwrap()
}

/// The end of a client's stream.
async fn end(client: &Client) -> (Code, String) {
    let ended = |state: &State| state.ended.is_some();
    client.until("end", DEADLINE, ended).await.unwrap().ended.unwrap()
}

/// A connection on which nothing is said.
async fn silent(world: &World) -> TcpStream {
    TcpStream::connect(world.server.strip_prefix("http://").unwrap()).await.unwrap()
}

/// Waits until the server has closed a connection.
async fn closed(stream: &mut TcpStream) {
    let mut all = Vec::new();
    // A reset is an end as well.
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut all)).await.unwrap();
}

fn rejected_clients(world: &World, reason: &str) -> u64 {
    world.metric(&format!("heliograph_distributor_rejected_clients_total{{reason=\"{reason}\"}}"))
}

fn ended(world: &World, reason: &str) -> u64 {
    world.metric(&format!("heliograph_distributor_ended_connections_total{{reason=\"{reason}\"}}"))
}

/// What is kept for names that no fleet has, and for requests that wait for one.
fn kept(world: &World) -> u64 {
    world.metric("heliograph_distributor_subscription_bytes")
}

fn connections(world: &World) -> u64 {
    world.metric("heliograph_distributor_connections")
}
