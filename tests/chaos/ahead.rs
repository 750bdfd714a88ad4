//! Proxies that know more than the replica they come to.

use crate::site::{Site, at_every_site};
use crate::world::comes_true;

at_every_site! {
    a_proxy_that_is_ahead_of_its_replica_is_not_sent_back,
}

/// The replica hears nothing of a change, and a proxy that has it connects there. It is not answered before the replica
/// has caught up, because that takes less than the time for which such a proxy is left alone.
async fn a_proxy_that_is_ahead_of_its_replica_is_not_sent_back(site: Site) {
    let mut world = site.world().await;
    let behind = world.replicas[1].server.clone();
    for _ in 0..3 {
        world.replicas[1].way.stall();
        let mark = world.mark();
        world.until_marked(&[0], mark).await;
        let movers: Vec<_> = world.envoys.iter_mut().filter(|envoy| envoy.at == 0).collect();
        for envoy in movers {
            envoy.reconnect(Some(&behind));
        }
        let streams = || world.replicas[1].metric("heliograph_distributor_streams");
        comes_true("they are connected", || streams() == 8.0).await;
        world.replicas[1].way.repair();
        world.settle().await;
        // Home again.
        let home = world.replicas[0].server.clone();
        for envoy in world.envoys.iter_mut().filter(|envoy| envoy.at == 0) {
            envoy.reconnect(Some(&home));
        }
        world.settle().await;
    }
    assert_eq!(world.replicas[1].metric("heliograph_distributor_stale_read_fallbacks_total"), 0.0);
    world.end().await;
}
