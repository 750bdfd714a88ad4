//! Programs of two versions, one after the other and side by side.

use crate::scene::fleet;
use crate::site::{Site, at_every_site};
use crate::world::{World, comes_true};
use heliograph_snapshot::Head;

const HEAD: &str = "heliograph:{shop/edge}:head";
/// Before the format of a record: what it is at, as a line, and two bytes of magic.
const BEFORE_FORMAT: usize = 2;

at_every_site! {
    an_upgrade_and_the_way_back_take_nobody_back,
}

/// Everything changes while distributors are replaced one by one. The translator is replaced by one whose records they cannot
/// read, and then by one of before.
async fn an_upgrade_and_the_way_back_take_nobody_back(site: Site) {
    let mut world = site.world().await;
    for at in 0..world.replicas.len() {
        world.churn(3);
        replace(&mut world, at).await;
        world.churn(3);
        world.settle().await;
    }
    site.fail_over().await;
    world.settle().await;

    let newest = world.log.newest(&fleet("edge")).unwrap();
    let newer = Head { sequence: newest.sequence + 1000, ..newest };
    let responses = world.log.responses(None);
    let undecodable = "heliograph_store_refused_records_total{reason=\"undecodable\"}";
    let refused =
        |world: &World| world.replicas.iter().map(|it| it.metric(undecodable)).collect::<Vec<_>>();
    let before = refused(&world);
    // The one of before has no say meanwhile.
    world.way.stall();
    let mut value: Vec<u8> = site.ask(HEAD, redis::cmd("GET").arg(HEAD)).await;
    let end = value.iter().position(|byte| *byte == b'\n').unwrap();
    value[end + 1 + BEFORE_FORMAT] += 1;
    let value = [newer.to_string().as_bytes(), &value[end..]].concat();
    site.ask::<()>(HEAD, redis::cmd("SET").arg(HEAD).arg(value)).await;
    site.ring("edge", newer).await;
    comes_true("every replica says that it cannot read it", || {
        refused(&world).iter().zip(&before).all(|(now, before)| now > before)
    })
    .await;
    assert_eq!(world.log.responses(None), responses, "all keep what they have");

    let (former, former_way) = world.succeed().await;
    former_way.repair();
    let reason = former.until_ended().await;
    assert!(reason.contains("a newer term has begun"), "{reason}");
    world.churn(5);
    world.settle().await;
    assert!(world.log.newest(&fleet("edge")).unwrap() > newer, "it goes on above the newer one's");
    for at in 0..world.replicas.len() {
        world.churn(3);
        replace(&mut world, at).await;
        world.settle().await;
    }
    world.end().await;
}

/// Its proxies go to the one that takes its place, with what they hold.
async fn replace(world: &mut World, at: usize) {
    world.add_replica().await;
    let replica = world.replicas.swap_remove(at);
    let server = world.replicas[at].server.clone();
    replica.end().await;
    for envoy in world.envoys.iter_mut().filter(|envoy| envoy.at == at) {
        envoy.reconnect(Some(&server));
    }
}
