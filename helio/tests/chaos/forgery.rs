//! Somebody else writes to Redis; and the keys that keep him from being believed.

use crate::scene::fleet;
use crate::servers::Server;
use crate::world::{World, comes_true};
use heliograph_snapshot::{Head, ResourceType};
use heliograph_store::keys::KeyRing;
use redis::aio::MultiplexedConnection;
use std::fs;

const HEAD: &str = "heliograph:{shop/edge}:head";
const OTHER_HEAD: &str = "heliograph:{shop/inner}:head";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_and_replayed_heads_are_refused_and_replaced() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    let mut redis = server.connect().await.unwrap();
    let replayed = get(&mut redis, HEAD).await;
    world.settle().await;

    // A signature of ours under a head of his.
    let newest = world.log.newest(&fleet("edge")).unwrap();
    let above = Head { sequence: newest.sequence + 1000, ..newest };
    let value = get(&mut redis, HEAD).await;
    let end = value.iter().position(|byte| *byte == b'\n').unwrap();
    let forged = [above.to_string().as_bytes(), &value[end..]].concat();
    plant(&mut world, &mut redis, &forged, above, "forged").await;

    // A record of ours that belongs to another fleet.
    let moved = get(&mut redis, OTHER_HEAD).await;
    plant(&mut world, &mut redis, &moved, above, "forged").await;

    // A record of ours that was the newest once.
    let at = std::str::from_utf8(replayed.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    plant(&mut world, &mut redis, &replayed, at.parse().unwrap(), "older").await;
    world.end().await;
}

/// Puts a value where the head is, and tells everybody. It is refused, counted, and replaced by the leader's.
async fn plant(
    world: &mut World,
    redis: &mut MultiplexedConnection,
    value: &[u8],
    head: Head,
    reason: &str,
) {
    let name = format!("heliograph_store_refused_records_total{{reason=\"{reason}\"}}");
    let refused = |world: &World| -> Vec<f64> {
        world.replicas.iter().map(|replica| replica.metric(&name)).collect()
    };
    let (before, newest) = (refused(world), world.log.newest(&fleet("edge")));
    let responses = world.log.responses(None);
    redis::pipe()
        .atomic()
        .cmd("SET")
        .arg(HEAD)
        .arg(value)
        .cmd("HSET")
        .arg("heliograph:{index}:heads")
        .arg("shop/edge")
        .arg(head.to_string())
        .cmd("SET")
        .arg("heliograph:{index}:clock")
        .arg(format!("forged {reason}"))
        .cmd("PUBLISH")
        .arg("heliograph:{index}:bell")
        .arg(format!("shop/edge {head}"))
        .exec_async(redis)
        .await
        .unwrap();
    comes_true("every replica refuses it", || {
        refused(world).iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    comes_true("the leader replaces it", || world.log.newest(&fleet("edge")) > newest).await;
    assert_eq!(world.log.responses(None), responses, "no Envoy is sent anything");
    world.settle().await;
}

async fn get(redis: &mut MultiplexedConnection, key: &str) -> Vec<u8> {
    redis::cmd("GET").arg(key).query_async(redis).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotated_key_changes_no_version_and_is_told_to_nobody() {
    let server = Server::start(&[]).await;
    let mut world = World::over(&server).await;
    let secrets = world.log.responses(Some(ResourceType::Secret));
    assert!(secrets > 0);
    let file = world.key_file();
    let ring = fs::read_to_string(&file).unwrap();
    let rotated = KeyRing::rotate(&ring, "second").unwrap();
    fs::write(&file, &rotated).unwrap();
    let keys = |world: &World| {
        let replicas = world.replicas.iter().map(|it| it.metric("heliograph_store_sealing_keys"));
        replicas.chain([world.leader.metric("heliograph_store_sealing_keys")]).collect::<Vec<_>>()
    };
    comes_true("everybody has both keys", || keys(&world).iter().all(|keys| *keys == 2.0)).await;
    // A fleet is looked after when it has changed.
    world.settle().await;
    comes_true("the secret of each fleet is sealed again", || {
        world.leader.metric("heliograph_store_resealed_total") >= 2.0
    })
    .await;

    fs::write(&file, KeyRing::forget(&rotated, "first").unwrap()).unwrap();
    comes_true("everybody has the new key", || keys(&world).iter().all(|keys| *keys == 1.0)).await;
    world.settle().await;
    assert_eq!(world.log.responses(Some(ResourceType::Secret)), secrets, "nobody is told");
    // Who begins now reads all secrets from Redis, with the new key alone.
    world.add_replica().await;
    world.add_envoys(3);
    for envoy in &world.envoys {
        envoy.until_warm().await;
    }
    world.end().await;
}
