//! What an operator reads at the admin ports of the programs, while a real Envoy is served.

use crate::harness::HttpRequest;
use crate::redis_site::{FLEET, Program, Site};
use crate::servers::{Server, until};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_admin_ports_tell_of_an_envoy_and_what_it_is_told() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let translator = site.translator().await;
    let distributor = site.distributor("one").await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    envoy.until_live().await;
    until("it is synced", async || {
        distributor.page("/clients?state=synced").await.contains(" envoy-one ")
    })
    .await;
    let page = json(&distributor, &format!("/clients?format=json&fleet={FLEET}")).await;
    let client = &page["clients"][0];
    assert_eq!(client["node"], "envoy-one", "{client}");
    assert!(client["envoy"].as_str().unwrap().starts_with("1."), "{client}");
    let types = client["types"].as_array().unwrap();
    let asked: Vec<_> = types.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(asked, ["secret", "cluster", "endpoints", "listener", "route"], "{client}");

    let page = json(&distributor, &format!("/snapshot/{FLEET}")).await;
    assert_eq!(page["head"], client["acknowledged"]);
    let shown = page["resources"].as_array().unwrap();
    assert!(shown.iter().all(|it| it["resource"].is_object()), "all can be read: {page}");
    let versions: Vec<_> = shown.iter().filter(|it| it["type"] == "route").collect();
    let held = &envoy.versions().await["dynamic_route_configs"];
    assert_eq!(versions.len(), held.len());
    assert!(versions.iter().all(|it| held.iter().any(|version| it["version"] == *version)));

    for program in [&translator, &distributor] {
        assert!(program.page("/").await.contains("/logging "), "{}", program.name);
        assert_eq!(program.page("/logging").await, "info\n");
        let set = put(program, "/logging?level=trace&for=10m").await;
        assert_eq!(set, "trace for another 600s, then info\n");
        until("it logs more", async || !program.lines(" TRACE ").is_empty()).await;
        assert_eq!(put(program, "/logging?level=info").await, "info\n");
    }
}

async fn json(program: &Program, path: &str) -> Value {
    serde_json::from_str(&program.page(path).await).unwrap()
}

async fn put(program: &Program, path: &str) -> String {
    let request = HttpRequest { method: "PUT", host: "localhost", path, headers: &[] };
    request.ask(program.admin).await.unwrap().body
}
