//! A listener that Envoy rejects leaves the others and their traffic alone, and heals with the next good version.

use crate::redis_site::Site;
use crate::servers::{Server, until};
use crate::traffic::{Traffic, answer};
use heliograph_testing::Port;
use std::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_listener_fails_no_request_and_heals() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let _translator = site.translator().await;
    let distributor = site.distributor("one").await;
    let envoy = site.envoy("envoy", &distributor).await;
    envoy.until_live().await;
    site.until_answered_by("blue").await;
    let traffic = Traffic::start(site.http);

    // Taken where Envoy would bind it, which no look at the objects can tell.
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    site.listen_also_on(taken.local_addr().unwrap().port());
    let rejecting = async || distributor.page("/clients?state=rejecting").await;
    until("the rejection shows", async || rejecting().await.contains("Address already in use"))
        .await;
    // What else changes goes on.
    site.point_services_at("green", "blue");
    site.until_answered_by("green").await;
    traffic.until_more().await;

    let third = Port::reserve().unwrap().number();
    site.listen_also_on(third);
    until("the next version is taken", async || {
        distributor.page("/clients?state=synced").await.contains(" envoy ")
    })
    .await;
    assert_eq!(answer(third, "/").await, "green web.test /");
    traffic.until_more().await;
    traffic.stop().await;
    assert_eq!(envoy.failures().await, 0);
    assert_eq!(envoy.counted("listener_removed").await, 0);
}
