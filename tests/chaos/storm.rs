//! Everything at once, at random.

// A storm that did damage is repeated by its seed.
#![allow(clippy::print_stdout)]

use crate::scene::GATEWAYS;
use crate::servers::Server;
use crate::world::{RedisLocation, World};
use fastrand::Rng;
use heliograph_client::Protocol;
use heliograph_testing::stress;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// How long it storms, before it is seen whether everybody gets to the end.
const STORM: Duration = Duration::from_secs(25);

#[derive(Clone, Copy, Debug)]
enum Fault {
    CutLeader,
    StallLeader,
    CutReplica,
    StallReplica,
    /// The server dies and comes back empty.
    Restart,
    Empty,
    Save,
    /// Back to what was last saved.
    Back,
    /// Another leader, of which the one before hears nothing.
    Succession,
    EnvoyReconnects,
    EnvoyIsReplaced,
    Repair,
}

/// Mending is as likely as all that needs it, and so it storms and clears.
const FAULTS: [Fault; 15] = [
    Fault::CutLeader,
    Fault::StallLeader,
    Fault::CutReplica,
    Fault::StallReplica,
    Fault::Restart,
    Fault::Empty,
    Fault::Save,
    Fault::Back,
    Fault::Succession,
    Fault::EnvoyReconnects,
    Fault::EnvoyIsReplaced,
    Fault::Repair,
    Fault::Repair,
    Fault::Repair,
    Fault::Repair,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_weathered() {
    storm(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_today_is_weathered() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let today = || u64::try_from(now.as_millis()).unwrap();
    storm(stress::seed().unwrap_or_else(today)).await;
}

async fn storm(seed: u64) {
    println!("the seed of this storm is {seed}");
    let mut random = Rng::with_seed(seed);
    let mut server = Server::start(&["enable-debug-command yes"]).await;
    let location = RedisLocation { url: server.url(), ports: vec![server.port()] };
    let mut world = World::at(location, seed).await;
    for replica in 0..world.replicas.len() {
        world.add_envoys(replica);
    }
    let started = Instant::now();
    while started.elapsed() < STORM {
        let changes = random.usize(1..10);
        let fault = FAULTS[random.usize(0..FAULTS.len())];
        println!("{:?}: {changes} changes, {fault:?}", started.elapsed());
        world.churn(changes);
        strike(fault, &mut world, &mut server, &mut random).await;
        // Sometimes long enough for a fault to be noticed, sometimes for it to be repaired.
        let mark = world.mark();
        let replica = &world.replicas[random.usize(0..world.replicas.len())];
        let limit = Duration::from_millis(random.u64(20..1000));
        let _ = timeout(limit, replica.until_read(&world.fleets(), mark)).await;
    }
    repair(&world);
    world.end().await;
}

async fn strike(fault: Fault, world: &mut World, server: &mut Server, random: &mut Rng) {
    let replica = random.usize(0..world.replicas.len());
    let envoy = random.usize(0..world.envoys.len());
    match fault {
        Fault::CutLeader => world.way.cut(),
        Fault::StallLeader => world.way.stall(),
        Fault::CutReplica => world.replicas[replica].way.cut(),
        Fault::StallReplica => world.replicas[replica].way.stall(),
        Fault::Restart => server.restart().await,
        Fault::Empty => server.query::<()>(&["FLUSHALL"]).await.unwrap(),
        Fault::Save => server.query::<()>(&["SAVE"]).await.unwrap(),
        // Nothing may have been saved.
        Fault::Back => drop(server.query::<()>(&["DEBUG", "RELOAD", "NOSAVE"]).await),
        Fault::Succession => drop(world.succeed().await),
        // To the same replica: what another knows is another test's.
        Fault::EnvoyReconnects => world.envoys[envoy].reconnect(None),
        Fault::EnvoyIsReplaced => {
            drop(world.envoys.swap_remove(envoy));
            let protocol = [Protocol::Delta, Protocol::StateOfTheWorld][envoy / 2 % 2];
            world.add_envoy(replica, GATEWAYS[envoy % 2], protocol);
        }
        Fault::Repair => repair(world),
    }
}

fn repair(world: &World) {
    world.way.repair();
    world.replicas.iter().for_each(|replica| replica.way.repair());
}
