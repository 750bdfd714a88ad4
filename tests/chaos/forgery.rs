//! Somebody else writes to Redis; and the keys that keep him from being believed.

use crate::scene::fleet;
use crate::site::{Site, at_every_site};
use crate::world::{World, comes_true};
use heliograph_snapshot::{Head, ResourceType};
use heliograph_store::keys::KeyRing;
use std::fs;

const HEAD: &str = "heliograph:{shop/edge}:head";
const OTHER_HEAD: &str = "heliograph:{shop/inner}:head";

at_every_site! {
    forged_and_replayed_heads_are_refused_and_replaced,
    a_rotated_key_changes_no_version_and_is_told_to_nobody,
}

async fn forged_and_replayed_heads_are_refused_and_replaced(site: Site) {
    let mut world = site.world().await;
    let replayed = get(&site, HEAD).await;
    world.settle().await;

    // A signature of ours under a head of his.
    let newest = world.log.newest(&fleet("edge")).unwrap();
    let above = Head { sequence: newest.sequence + 1000, ..newest };
    let value = get(&site, HEAD).await;
    let end = value.iter().position(|byte| *byte == b'\n').unwrap();
    let forged = [above.to_string().as_bytes(), &value[end..]].concat();
    plant(&site, &mut world, &forged, above, "forged").await;

    site.fail_over().await;

    // A record of ours that belongs to another fleet.
    let moved = get(&site, OTHER_HEAD).await;
    plant(&site, &mut world, &moved, above, "forged").await;

    // A record of ours that was the newest once.
    let at = std::str::from_utf8(replayed.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    plant(&site, &mut world, &replayed, at.parse().unwrap(), "older").await;
    world.end().await;
}

/// Puts a value where the head is, and tells everybody. It is refused, counted, and replaced by the leader's.
async fn plant(site: &Site, world: &mut World, value: &[u8], head: Head, reason: &str) {
    let name = format!("heliograph_store_refused_records_total{{reason=\"{reason}\"}}");
    let refused = |world: &World| -> Vec<f64> {
        world.replicas.iter().map(|replica| replica.metric(&name)).collect()
    };
    let (before, newest) = (refused(world), world.log.newest(&fleet("edge")));
    let responses = world.log.responses(None);
    // Not replaced before everybody has looked.
    world.way.stall();
    site.ask::<()>(HEAD, redis::cmd("SET").arg(HEAD).arg(value)).await;
    site.ring("edge", head).await;
    comes_true("every replica refuses it", || {
        refused(world).iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    world.way.repair();
    comes_true("the leader replaces it", || world.log.newest(&fleet("edge")) > newest).await;
    assert_eq!(world.log.responses(None), responses, "no Envoy is sent anything");
    world.settle().await;
}

async fn get(site: &Site, key: &str) -> Vec<u8> {
    site.ask(key, redis::cmd("GET").arg(key)).await
}

async fn a_rotated_key_changes_no_version_and_is_told_to_nobody(site: Site) {
    let mut world = site.world().await;
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

    site.fail_over().await;
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
