//! Sentinels and a Cluster that make another server the master, while everything changes.

use crate::servers::{Cluster, Sentinels, ask};
use crate::world::{RedisLocation, World};
use redis::cmd;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_changes_goes_on_through_failovers_by_sentinels() {
    let mut sentinels = Sentinels::start().await;
    let mut world = World::at(directly(sentinels.url()), 0).await;
    world.churn(5);
    sentinels.fail_over().await;
    world.churn(5);
    world.settle().await;
    world.churn(5);
    sentinels.kill_master().await;
    world.churn(5);
    world.settle().await;
    ask::<()>(&cmd("FLUSHALL"), async || sentinels.master().await).await;
    world.churn(5);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_changes_goes_on_through_failovers_of_a_cluster() {
    let mut cluster = Cluster::start().await;
    let mut world = World::at(directly(cluster.url()), 0).await;
    world.churn(5);
    cluster.fail_over("heliograph:{index}:heads").await;
    world.churn(5);
    world.settle().await;
    world.churn(5);
    cluster.kill_master_of("heliograph:{shop/edge}:head").await;
    world.churn(5);
    world.settle().await;
    let (former, _) = world.succeed().await;
    world.churn(5);
    former.until_ended().await;
    world.settle().await;
    // Only the shard of one fleet forgets.
    let shard = async || cluster.master_of("heliograph:{shop/inner}:head").await;
    ask::<()>(&cmd("FLUSHALL"), shard).await;
    world.churn(5);
    world.end().await;
}

/// Everybody connects to the servers themselves.
fn directly(url: String) -> RedisLocation {
    RedisLocation { url, ports: Vec::new() }
}
