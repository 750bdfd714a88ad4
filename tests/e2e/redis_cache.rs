//! Distributors and Envoys start again while there is no Redis.

use crate::redis_site::{Program, Site};
use crate::servers::{Server, until};

const CACHED: &str = "heliograph_store_cache_fleets";
const UNCONFIRMED: &str = "heliograph_store_cache_unconfirmed_fleets";
const STREAMS: &str = "heliograph_distributor_streams";

/// Kills a distributor without a word, and starts it again. It serves what it has on its disk, and says so.
async fn restart_without_redis(site: &Site, distributor: &mut Program) {
    until("the fleet is on its disk", async || distributor.metric(CACHED).await == 1.0).await;
    distributor.kill().await;
    let (name, xds) = (distributor.name.clone(), distributor.xds);
    *distributor = site.distributor_with_cache(&name, xds).await;
    distributor.until_ready().await;
    let ready = distributor.page("/readyz").await;
    assert!(ready.starts_with("ready\nserving 1 fleet from the snapshot cache"), "{ready}");
    assert_eq!(distributor.metric(UNCONFIRMED).await, 1.0);
}

/// An Envoy that is started again has nothing, and gets all: listeners, routes, clusters, endpoints, and a private key.
async fn restart_envoy(site: &Site, envoy: &mut Program, distributor: &Program, protocol: &str) {
    let versions = envoy.versions().await;
    envoy.kill().await;
    let name = format!("{}-again", envoy.name);
    let at = std::slice::from_ref(distributor);
    *envoy = site.envoy_of(&name, at, protocol, "").await;
    envoy.until_live().await;
    envoy.until_versions(&versions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_and_its_distributor_start_again_without_redis() {
    let mut redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let _translator = site.translator().await;
    let mut one = site.distributor_with_cache("one", 0).await;
    let two = site.distributor_with_cache("two", 0).await;
    let mut first = site.envoy("envoy-one", &one).await;
    let second = site.envoy("envoy-two", &two).await;
    for envoy in [&first, &second] {
        envoy.until_live().await;
    }
    site.until_answered_by("blue").await;
    let versions = second.versions().await;
    first.until_versions(&versions).await;

    redis.stop();
    restart_without_redis(&site, &mut one).await;
    restart_envoy(&site, &mut first, &one, "DELTA_GRPC").await;
    site.until_answered_by("blue").await;
    assert_eq!(site.ask_secure().await.unwrap(), "blue web.test /");
    let status = site.helio(&["status", "--admin", &format!("127.0.0.1:{}", one.admin)]);
    let printed = String::from_utf8(status.stdout).unwrap();
    assert!(printed.contains("serves 1 of its fleets from its snapshot cache"), "{printed}");

    redis.restart().await;
    site.route_to("green");
    for envoy in [&first, &second] {
        envoy.until_other_routes(&versions).await;
    }
    site.until_answered_by("green").await;
    until("Redis has confirmed it", async || one.metric(UNCONFIRMED).await == 0.0).await;
    assert_eq!(one.page("/readyz").await, "ready\n");
    for envoy in [&first, &second] {
        envoy.assert_undisturbed().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_distributors_and_an_envoy_start_again_without_redis() {
    for protocol in ["DELTA_GRPC", "GRPC"] {
        let mut redis = Server::start(&[]).await;
        let site = Site::new(&redis.url()).await;
        let _translator = site.translator().await;
        let mut replicas = [
            site.distributor_with_cache("one", 0).await,
            site.distributor_with_cache("two", 0).await,
        ];
        let envoy = async |name: &str, at: &Program| {
            site.envoy_of(name, std::slice::from_ref(at), protocol, "").await
        };
        let mut restarted = envoy("envoy-one", &replicas[0]).await;
        let stays = envoy("envoy-two", &replicas[1]).await;
        for envoy in [&restarted, &stays] {
            envoy.until_live().await;
        }
        site.until_answered_by("blue").await;
        let versions = stays.versions().await;

        redis.stop();
        for replica in &mut replicas {
            restart_without_redis(&site, replica).await;
        }
        restart_envoy(&site, &mut restarted, &replicas[0], protocol).await;
        let is_back = async || replicas[1].metric(STREAMS).await > 0.0;
        until("the other one is connected again", is_back).await;
        assert_eq!(stays.versions().await, versions, "{protocol}");
        assert_eq!(site.ask_secure().await.unwrap(), "blue web.test /");

        redis.restart().await;
        site.route_to("green");
        for envoy in [&restarted, &stays] {
            envoy.until_other_routes(&versions).await;
            envoy.assert_undisturbed().await;
        }
        for replica in &replicas {
            until("Redis has confirmed it", async || replica.metric(UNCONFIRMED).await == 0.0)
                .await;
        }
    }
}
