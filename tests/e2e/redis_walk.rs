//! From a directory through Redis to two Envoys at two distributors.

use crate::redis_site::{FLEET, Site};
use crate::servers::{Server, until};
use crate::traffic::Traffic;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_reaches_the_envoys_of_all_distributors() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    let (one, two) = (site.distributor("one").await, site.distributor("two").await);
    let first = site.envoy("envoy-one", &one).await;
    let second = site.envoy("envoy-two", &two).await;
    for program in [&translator, &one, &two] {
        program.until_ready().await;
    }
    for envoy in [&first, &second] {
        envoy.until_live().await;
    }
    site.until_answered_by("blue").await;
    assert_eq!(site.ask_secure().await.unwrap(), "blue web.test /");

    let before = first.versions().await;
    second.until_versions(&before).await;
    let traffic = Traffic::start(site.http);
    site.route_to("green");
    for envoy in [&first, &second] {
        envoy.until_other_routes(&before).await;
    }
    site.until_answered_by("green").await;
    until("HTTPS follows", async || site.ask_secure().await.unwrap() == "green web.test /").await;
    second.until_versions(&first.versions().await).await;
    traffic.until_more().await;
    traffic.stop().await;
    for envoy in [&first, &second] {
        envoy.assert_undisturbed().await;
    }

    // What both distributors' proxies said to it is known to the translator.
    until("the translator knows of two proxies that have it all", async || {
        let page =
            serde_json::from_str::<serde_json::Value>(&translator.page("/acks").await).unwrap();
        let fleet = &page["fleets"][FLEET];
        fleet["acknowledged"] == 2
            && fleet["replicas"].as_object().is_some_and(|all| all.len() == 2)
    })
    .await;

    for mut program in [translator, one, two] {
        assert!(program.end().await.success(), "{}", program.log());
    }
}
