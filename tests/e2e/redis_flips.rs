//! A backend that is replaced a thousand times while requests flow: from the directory through Redis to Envoy.

use crate::harness::{replace, route};
use crate::redis_site::{HOST, Program, Site};
use crate::servers::{Server, until};
use crate::traffic::{Traffic, answer};
use std::time::{Duration, Instant};

const FLIPS: usize = 1000;
/// A machine with nothing else to do takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_flips_of_a_backend_fail_no_request() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    let distributor = site.distributor("one").await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    translator.until_ready().await;
    envoy.until_live().await;
    // Only this Service has a route, so the other's cluster is removed.
    route_only_to(&site, "blue");
    site.until_answered_by("blue").await;
    until("the other cluster goes", async || removed(&envoy).await == 1).await;

    let traffic = Traffic::start(site.http);
    let started = Instant::now();
    let (mut service, mut blue, mut green) = ("blue", "blue", "green");
    for flip in 0..FLIPS {
        if flip % 2 == 0 {
            // Another cluster, with its endpoints, and then a table that leads there; at last the old cluster goes.
            service = if service == "blue" { "green" } else { "blue" };
            route_only_to(&site, service);
        } else {
            // The same cluster, with other endpoints.
            std::mem::swap(&mut blue, &mut green);
            site.point_services_at(blue, green);
        }
        let expected = format!("{} {HOST} /", if service == "blue" { blue } else { green });
        until("the flip takes effect", async || answer(site.http, "/").await == expected).await;
    }
    let took = started.elapsed();
    let requests = traffic.stop().await;
    println!("{FLIPS} flips in {took:?}, {requests} requests");
    assert!(took < LIMIT, "{FLIPS} flips took {took:?}");

    // What Envoy itself saw: no error, also none that a second try would have hidden.
    assert_eq!(envoy.failures().await, 0);
    for part in ["upstream_rq_retry", "upstream_cx_connect_fail"] {
        assert_eq!(envoy.counted(part).await, 0, "{part}");
    }
    assert_eq!(envoy.counted("update_rejected").await, 0);
    let clusters = async || removed(&envoy).await == FLIPS as u64 / 2 + 1;
    until("every cluster that a flip left is removed", clusters).await;
    let measured = distributor.metric("heliograph_apply_to_ack_seconds_count").await;
    assert!(measured >= 0.9 * FLIPS as f64, "{measured} changes were timed");
}

fn route_only_to(site: &Site, service: &str) {
    replace(&site.manifests(), "route.yaml", &route(&[("/", service)]));
}

async fn removed(envoy: &Program) -> u64 {
    envoy.counted("cluster_removed").await
}
