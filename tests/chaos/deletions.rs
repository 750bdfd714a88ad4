//! A Gateway is deleted, and who knows of it is lost before everybody does.

use crate::scene::fleet;
use crate::site::{Site, at_every_site};

at_every_site! {
    a_deletion_that_is_lost_with_redis_and_the_leader_is_written_again,
}

async fn a_deletion_that_is_lost_with_redis_and_the_leader_is_written_again(site: Site) {
    let mut world = site.world().await;
    let guest = fleet("guest");
    world.change(|scene| scene.toggle_guest());
    for replica in &world.replicas {
        replica.until_knows(&guest, true).await;
    }
    world.settle().await;
    let responses = world.log.responses(None);

    world.replicas[0].way.cut();
    world.change(|scene| scene.toggle_guest());
    for replica in &world.replicas[1..] {
        replica.until_knows(&guest, false).await;
    }
    world.way.cut();
    site.empty().await;
    drop(world.succeed().await);
    world.replicas[0].way.repair();
    world.replicas[0].until_knows(&guest, false).await;
    assert_eq!(world.log.responses(None), responses, "no Envoy is sent anything");
    world.churn(3);
    world.end().await;
}
