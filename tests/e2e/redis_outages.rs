//! Redis is emptied, killed and away, and those who send requests notice nothing.

use crate::redis_site::{FLEET, LOADED, Program, Site, Versions};
use crate::servers::{Server, until};
use crate::traffic::Traffic;
use std::time::{Duration, Instant};

/// How soon an empty store is full again.
const REPAIR: Duration = Duration::from_secs(10);
const STALENESS: &str = "heliograph_store_staleness_seconds";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_is_filled_again_and_no_proxy_is_told_anything() {
    let mut redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let _translator = site.translator().await;
    let (one, two) = (site.distributor("one").await, site.distributor("two").await);
    let envoys = [site.envoy("envoy-one", &one).await, site.envoy("envoy-two", &two).await];
    for envoy in &envoys {
        envoy.until_live().await;
    }
    site.until_answered_by("blue").await;
    let versions = envoys[0].versions().await;
    envoys[1].until_versions(&versions).await;
    let traffic = Traffic::start(site.http);

    redis.query::<()>(&["FLUSHALL"]).await.unwrap();
    // They stay, as the connections of some requests may have become theirs.
    let _flushed = is_filled_again(&site, "after-flush", &versions).await;
    traffic.until_more().await;

    redis.restart().await;
    let _crashed = is_filled_again(&site, "after-crash", &versions).await;
    traffic.until_more().await;

    traffic.stop().await;
    for envoy in &envoys {
        envoy.assert_undisturbed().await;
        assert_eq!(envoy.versions().await, versions);
    }
    assert_eq!(site.ask_secure().await.unwrap(), "blue web.test /");
}

/// A distributor that knows nothing but what is in Redis serves a new Envoy what the others have.
async fn is_filled_again(site: &Site, name: &str, versions: &Versions) -> (Program, Program) {
    let started = Instant::now();
    let distributor = site.distributor(name).await;
    until("a new distributor has the fleet", async || {
        distributor.page("/fleets").await.contains(LOADED)
    })
    .await;
    let took = started.elapsed();
    assert!(took < REPAIR, "it took {took:?}");
    distributor.until_ready().await;
    let envoy = site.envoy(&format!("envoy-{name}"), &distributor).await;
    envoy.until_live().await;
    envoy.until_versions(versions).await;
    (distributor, envoy)
}

/// The distributor that finds it tells the translator, who believes all to be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_spoiled_in_redis_is_written_again() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let _translator = site.translator().await;
    let one = site.distributor("one").await;
    let first = site.envoy("envoy-one", &one).await;
    first.until_live().await;
    let versions = first.versions().await;

    let objects = format!("heliograph:{{{FLEET}}}:objects");
    let mut connection = redis.connect().await.unwrap();
    let addresses: Vec<Vec<u8>> =
        redis::cmd("HKEYS").arg(&objects).query_async(&mut connection).await.unwrap();
    assert!(!addresses.is_empty());
    let mut spoil = redis::cmd("HSET");
    spoil.arg(&objects);
    addresses.iter().for_each(|address| {
        spoil.arg(address).arg("spoiled");
    });
    spoil.query_async::<()>(&mut connection).await.unwrap();

    let two = site.distributor("two").await;
    until("a new distributor has the fleet", async || two.page("/fleets").await.contains(LOADED))
        .await;
    let second = site.envoy("envoy-two", &two).await;
    second.until_live().await;
    second.until_versions(&versions).await;
    first.assert_undisturbed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_proxies_are_served_and_a_change_waits() {
    let mut redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    let (one, two) = (site.distributor("one").await, site.distributor("two").await);
    let first = site.envoy("envoy-one", &one).await;
    first.until_live().await;
    two.until_ready().await;
    site.until_answered_by("blue").await;
    let versions = first.versions().await;
    let traffic = Traffic::start(site.http);

    redis.stop();
    for distributor in [&one, &two] {
        until("it is known that nothing is heard of Redis", async || {
            distributor.metric(STALENESS).await > 2.0
        })
        .await;
        assert!(distributor.is_ready().await, "it serves what it has");
    }
    let second = site.envoy("envoy-two", &two).await;
    second.until_live().await;
    second.until_versions(&versions).await;
    site.route_to("green");
    translator.until_logged("translated again").await;
    traffic.until_more().await;
    assert_eq!(first.versions().await, versions, "there is no way for the change yet");

    redis.restart().await;
    for envoy in [&first, &second] {
        envoy.until_other_routes(&versions).await;
    }
    site.until_answered_by("green").await;
    second.until_versions(&first.versions().await).await;
    for distributor in [&one, &two] {
        until("Redis is heard of again", async || distributor.metric(STALENESS).await < 2.0).await;
    }
    traffic.until_more().await;
    traffic.stop().await;
    for envoy in [&first, &second] {
        envoy.assert_undisturbed().await;
    }
}
