//! What Envoys reject leaves their traffic alone, and an Envoy that starts meanwhile serves with the last good.

use crate::harness::{route, write};
use crate::redis_site::{FLEET, Program, Site};
use crate::servers::{Server, until};
use crate::traffic::Traffic;
use serde_json::Value;

/// Such an Envoy takes no regular expression that is larger than a few characters, which no look at the objects can tell.
const PICKY: &str = "
layered_runtime:
  layers:
  - {name: picky, static_layer: {re2.max_program_size.error_level: 40}}
";

/// Leads to green, if an Envoy takes it.
fn rejected() -> String {
    let large = "
  - matches: [{path: {type: RegularExpression, value: '/[a-z]{20}/[0-9]{20}'}}]
    backendRefs: [{name: blue, port: 80}]
";
    route(&[("/", "green"), ("/other", "blue")]) + large
}

async fn fleet(distributor: &Program) -> Value {
    let page: Value = serde_json::from_str(&distributor.page("/fleets").await).unwrap();
    page[FLEET].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_envoy_that_starts_while_others_reject_serves_with_the_last_good() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    let (one, two) = (site.distributor("one").await, site.distributor("two").await);
    let mut first = site.envoy_with("envoy-one", &one, PICKY).await;
    first.until_live().await;
    site.until_answered_by("blue").await;
    until("it has it all", async || fleet(&one).await["acknowledged"] == 1).await;
    let good = first.versions().await;

    let traffic = Traffic::start(site.http);
    write(&site.manifests(), "route.yaml", &rejected());
    until("the tables are in quarantine, for all", async || {
        let fleets = [fleet(&one).await, fleet(&two).await];
        fleets.iter().all(|it| it["quarantine"].as_array().is_some_and(|all| all.len() == 2))
    })
    .await;
    translator.until_logged("proxies reject it").await;
    let told = fleet(&one).await;
    let rejection = &told["rejections"][0];
    assert_eq!((&rejection["kind"], &rejection["attributed"]), (&"route".into(), &true.into()));
    assert!(rejection["detail"].as_str().unwrap().contains("program size"), "{told}");
    assert_eq!(told["quarantine"][0]["name"], rejection["resources"][0][0]);

    let second = site.envoy_with("envoy-two", &two, PICKY).await;
    second.until_live().await;
    second.until_versions(&good).await;
    until("both have what they are to have", async || {
        fleet(&one).await["acknowledged"] == 1 && fleet(&two).await["acknowledged"] == 1
    })
    .await;
    traffic.until_more().await;
    traffic.stop().await;

    // The newcomer alone.
    assert!(first.end().await.success(), "{}", first.log());
    let traffic = Traffic::start(site.http);
    site.until_answered_by("blue").await;
    assert_eq!(site.ask_secure().await.unwrap(), "blue web.test /");
    site.route_to("green");
    second.until_other_routes(&good).await;
    site.until_answered_by("green").await;
    traffic.until_more().await;
    traffic.stop().await;
    second.assert_undisturbed().await;
    until("nothing is left of it", async || {
        let fleet = fleet(&two).await;
        fleet["acknowledged"] == 1 && fleet["quarantine"] == Value::Array(vec![])
    })
    .await;
    for mut program in [translator, one, two] {
        assert!(program.end().await.success(), "{}", program.log());
    }
}
