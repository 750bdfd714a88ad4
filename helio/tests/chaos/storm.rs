//! Everything at once, at random.

use crate::scene::GATEWAYS;
use crate::servers::Server;
use crate::world::World;
use fastrand::Rng;
use heliograph_loadtest::Protocol;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::time::timeout;

/// How long it storms, before it is seen whether everybody gets to the end.
const STORM: Duration = Duration::from_secs(25);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_is_weathered() {
    storm(4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_today_is_weathered() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    storm(u64::try_from(now.as_millis()).unwrap()).await;
}

async fn storm(seed: u64) {
    println!("the seed of this storm is {seed}");
    let mut random = Rng::with_seed(seed);
    let mut server = Server::start(&["enable-debug-command yes"]).await;
    let mut world = World::over_with_seed(&server, seed).await;
    for replica in 0..world.replicas.len() {
        world.add_envoys(replica);
    }
    let started = Instant::now();
    while started.elapsed() < STORM {
        let changes = random.usize(1..10);
        world.churn(changes);
        let fault = random.u8(0..13);
        println!("{:?}: {changes} changes, fault {fault}", started.elapsed());
        let replica = random.usize(0..world.replicas.len());
        let envoy = random.usize(0..world.envoys.len());
        match fault {
            0 => world.way().cut(),
            1 => world.way().stall(),
            2 => world.replicas[replica].way().cut(),
            3 => world.replicas[replica].way().stall(),
            4 => world.envoys[envoy].client.reconnect(),
            5 => server.restart().await,
            6 => server.query::<()>(&["FLUSHALL"]).await.unwrap(),
            7 => server.query::<()>(&["SAVE"]).await.unwrap(),
            8 => {
                // Back to what was last saved, or to nothing.
                let _ = server.query::<()>(&["DEBUG", "RELOAD", "NOSAVE"]).await;
            }
            9 => {
                let (former, way) = world.succeed().await;
                drop(way);
                drop(former);
            }
            10 => {
                drop(world.envoys.swap_remove(envoy));
                world.add_envoy(replica, GATEWAYS[envoy % 2], Protocol::Delta);
            }
            _ => mend(&world),
        }
        // Long enough for most faults to be noticed, sometimes for them to be mended.
        let mark = world.mark();
        let patience = Duration::from_millis(random.u64(20..1000));
        let _ = timeout(patience, world.replicas[replica].until_read(&world.fleets(), mark)).await;
    }
    mend(&world);
    world.end().await;
}

fn mend(world: &World) {
    world.way().mend();
    world.replicas.iter().for_each(|replica| replica.way().mend());
}
