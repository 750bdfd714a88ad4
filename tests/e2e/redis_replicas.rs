//! A distributor is killed, and those who send requests notice nothing.

use crate::redis_site::{Program, Site};
use crate::servers::{Server, until};
use crate::traffic::Traffic;

const RESPONSES: &str = "heliograph_distributor_responses_total";
const STREAMS: &str = "heliograph_distributor_streams";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_whose_replica_is_killed_goes_on_with_another_and_is_sent_nothing_again() {
    for protocol in ["DELTA_GRPC", "GRPC"] {
        let redis = Server::start(&[]).await;
        let site = Site::new(&redis.url()).await;
        let _translator = site.translator().await;
        let mut replicas = vec![site.distributor("one").await, site.distributor("two").await];
        for replica in &replicas {
            replica.until_ready().await;
        }
        let envoy = site.envoy_of("envoy", &replicas, protocol, "").await;
        envoy.until_live().await;
        site.until_answered_by("blue").await;
        let is_served = async |replica: &Program| replica.metric(STREAMS).await > 0.0;
        let first = usize::from(!is_served(&replicas[0]).await);
        let mut killed = replicas.remove(first);
        let survivor = &replicas[0];
        assert!(is_served(&killed).await && !is_served(survivor).await, "it is at one of them");
        let (versions, updates) = (envoy.versions().await, envoy.counted("update_success").await);
        let traffic = Traffic::start(site.http);
        traffic.until_more().await;

        killed.kill().await;
        until("it is at the other", async || is_served(survivor).await).await;
        // It has shown what it holds, and found to have all of it.
        until("it has all of it", async || {
            let page = survivor.page("/clients?format=json&state=synced").await;
            page.contains("\"node\": \"envoy\"") && page.matches("\"type\"").count() == 5
        })
        .await;
        traffic.until_more().await;
        assert_eq!(survivor.metric(RESPONSES).await, 0.0, "{protocol}: nothing is sent again");
        assert_eq!(envoy.versions().await, versions);
        assert_eq!(envoy.counted("update_success").await, updates, "{protocol}");

        site.route_to("green");
        site.until_answered_by("green").await;
        traffic.until_more().await;
        traffic.stop().await;
        let page = survivor.page("/metrics").await;
        let sent = page.lines().filter(|line| line.starts_with(RESPONSES) && !line.ends_with(" 0"));
        let sent: Vec<_> = sent.collect();
        let only_routes = !sent.is_empty() && sent.iter().all(|line| line.contains("\"route\""));
        assert!(only_routes, "{protocol}: only what changed: {sent:?}");
        envoy.assert_undisturbed().await;
        assert!(!killed.is_alive());
    }
}
