//! Redis loses or spoils what it has.

use crate::scene::{GATEWAYS, marked};
use crate::site::{Site, at_every_site};
use crate::world::{DEADLINE, World, comes_true};
use heliograph_snapshot::{Head, ResourceType};
use heliograph_testing::Stopwatch;
use std::time::Duration;

const OBJECTS: &str = "heliograph:{shop/edge}:objects";
const OLDER: &str = "heliograph_store_refused_records_total{reason=\"older\"}";
const DAMAGED: &str = "heliograph_store_damaged_objects_total";

at_every_site! {
    an_emptied_redis_is_filled_again_and_nobody_notices,
    a_redis_that_went_back_takes_nobody_with_it,
    spoiled_objects_are_refused_and_counted_and_the_old_snapshot_stays,
}

async fn an_emptied_redis_is_filled_again_and_nobody_notices(site: Site) {
    let mut world = site.world().await;
    for _ in 0..2 {
        let before = newest(&world);
        let responses = world.log.responses(None);
        let emptied = Stopwatch::start();
        site.empty().await;
        comes_true("all is published again", || {
            let now = newest(&world);
            now.iter().zip(&before).all(|(now, before)| now > before)
        })
        .await;
        assert!(emptied.elapsed() < Duration::from_secs(10), "{:?}", emptied.elapsed());
        assert_eq!(world.log.responses(None), responses, "no Envoy is sent anything");
        world.churn(3);
        world.settle().await;
    }
    assert!(world.leader.metric("heliograph_translator_repairs_total") >= 4.0);
    world.end().await;
}

/// As after a failover to a replica that had not heard of the last writes.
async fn a_redis_that_went_back_takes_nobody_with_it(site: Site) {
    let mut world = site.world().await;
    let old = newest(&world);
    site.remember().await;
    for _ in 0..3 {
        world.settle().await;
    }
    let lost = newest(&world);
    assert!(lost.iter().zip(&old).all(|(lost, old)| lost > old));
    let responses = world.log.responses(None);
    // Not repaired before everybody has looked. The shards of a Cluster go back one after the other, and who looked before
    // a fleet's shard did has no reason to look again: a late doorbell makes them.
    world.way.cut();
    site.go_back().await;
    let refused = || world.replicas.iter().all(|replica| replica.metric(OLDER) >= 4.0);
    let mut pause = tokio::time::interval(Duration::from_secs(1));
    let ringing = async {
        // Who follows a failover is deaf for a moment.
        while !refused() {
            for (gateway, old) in GATEWAYS.iter().zip(&old) {
                site.ring(gateway, old.unwrap()).await;
            }
            pause.tick().await;
        }
    };
    let all = tokio::time::timeout(DEADLINE, ringing).await;
    assert!(all.is_ok(), "not in time: every replica and its reader refuse to go back");
    world.way.repair();
    comes_true("the leader repairs it", || {
        let now = newest(&world);
        now.iter().zip(&lost).all(|(now, lost)| now > lost)
    })
    .await;
    assert_eq!(world.log.responses(None), responses, "no Envoy is sent anything");
    world.churn(3);
    world.end().await;
}

/// Of each fleet.
fn newest(world: &World) -> Vec<Option<Head>> {
    world.fleets().iter().map(|fleet| world.log.newest(fleet)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Harm {
    Garbage,
    Truncated,
    Missing,
}

async fn spoiled_objects_are_refused_and_counted_and_the_old_snapshot_stays(site: Site) {
    let mut world = site.world().await;
    for harm in [Harm::Garbage, Harm::Truncated, Harm::Missing] {
        spoil(&site, &mut world, harm).await;
    }
    world.end().await;
}

/// While one replica is cut off, a change is published and then spoiled, so that this replica finds only that.
async fn spoil(site: &Site, world: &mut World, harm: Harm) {
    let keys = async || site.ask::<Vec<Vec<u8>>>(OBJECTS, redis::cmd("HKEYS").arg(OBJECTS)).await;
    world.replicas[0].way.cut();
    let known = keys().await;
    let mark = world.mark();
    world.until_marked(&[1, 2], mark).await;
    // The leader would write again what replicas report as spoiled, sooner or later than anybody looks.
    world.way.cut();
    let fresh: Vec<_> = keys().await.into_iter().filter(|key| !known.contains(key)).collect();
    assert!(!fresh.is_empty());
    let mut whole = Vec::new();
    for key in &fresh {
        let value: Vec<u8> = site.ask(OBJECTS, redis::cmd("HGET").arg(OBJECTS).arg(key)).await;
        let mut command = redis::cmd(if harm == Harm::Missing { "HDEL" } else { "HSET" });
        command.arg(OBJECTS).arg(key);
        match harm {
            Harm::Garbage => command.arg(vec![7_u8; value.len()]),
            Harm::Truncated => command.arg(&value[..value.len() - 1]),
            Harm::Missing => &mut command,
        };
        site.ask::<()>(OBJECTS, &command).await;
        whole.push((key.clone(), value));
    }

    let before = world.replicas[0].metric(DAMAGED);
    world.replicas[0].way.repair();
    comes_true("it is counted", || world.replicas[0].metric(DAMAGED) >= before + 2.0).await;
    world.add_envoys(0);
    let own = world.envoys.split_off(world.envoys.len() - 4);
    for envoy in &own {
        envoy.until_warm().await;
    }
    // Old proxies and new ones.
    let served = own.iter().chain(&world.envoys).filter(|it| it.at == 0);
    for envoy in served.filter(|envoy| envoy.name.contains("edge")) {
        let state = envoy.client.state();
        let mut tables = state.held[&ResourceType::Route].values();
        assert!(tables.all(|table| !marked(&table.body, mark)), "{} has it", envoy.name);
    }
    drop(own);
    world.way.repair();

    if harm == Harm::Garbage {
        // The next master has the same.
        site.fail_over().await;
    }
    for (key, value) in whole {
        site.ask::<()>(OBJECTS, redis::cmd("HSET").arg(OBJECTS).arg(key).arg(value)).await;
    }
    world.until_marked(&[0], mark).await;
}
