//! A route that only Envoy rejects is left out, and every other one of its table is served, by Envoys that run and by those
//! that start.

use crate::harness::write;
use crate::redis_site::{FLEET, Program, Site, bootstrap};
use crate::servers::{Server, until};
use crate::traffic::{Traffic, ask};
use heliograph_testing::{Stopwatch, stress};
use serde_json::Value;
use std::time::Duration;

/// Within which time what only Envoys reject is left out, from when its version is first reported. A busy machine, on which this
/// is one of many tests, promises nothing.
const BOUND: Duration = Duration::from_secs(5);

/// Such an Envoy takes no regular expression that is larger than a few characters, which no look at the objects can tell.
const PICKY: &str = "
layered_runtime:
  layers:
  - {name: picky, static_layer: {re2.max_program_size.error_level: 40}}
";

/// A route of another tenant at the same listeners.
fn tenant(name: &str, path: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{name: web}}]
  rules:
  - matches: [{{path: {path}}}]
    backendRefs: [{{name: green, port: 80}}]
  - matches: [{{path: {{value: /{name}}}}}]
    backendRefs: [{{name: green, port: 80}}]
"
    )
}

fn pattern(large: bool) -> &'static str {
    match large {
        true => "{type: RegularExpression, value: '/[a-z]{20}/[0-9]{20}'}",
        false => "{type: RegularExpression, value: '/[a-z]+'}",
    }
}

async fn fleet(distributor: &Program) -> Value {
    let page: Value = serde_json::from_str(&distributor.page("/fleets").await).unwrap();
    page[FLEET].clone()
}

/// Why a route is not served as it is, as its status says.
async fn problem(translator: &Program, route: &str) -> Option<String> {
    let page: Value = serde_json::from_str(&translator.page("/status?format=json").await).unwrap();
    let object = page["objects"].as_array()?.iter().find(|object| object["name"] == route)?;
    let conditions = object["status"]["parents"][0]["conditions"].as_array()?;
    let left_out = conditions.iter().find(|condition| condition["reason"] == "LeftOut")?;
    Some(left_out["message"].as_str()?.to_owned())
}

async fn until_served(site: &Site, path: &str) {
    let expected = format!("green web.test {path}");
    until(&format!("{path} is served"), async || {
        ask(site.http, path).await.is_ok_and(|answer| answer.body == expected)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_only_envoy_rejects_is_left_out_and_all_others_are_served() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let mut translator = site.translator().await;
    let (one, two) = (site.distributor("one").await, site.distributor("two").await);
    let mut first = site.envoy_with("envoy-one", &one, PICKY).await;
    first.until_live().await;
    site.until_answered_by("blue").await;
    write(&site.manifests(), "early.yaml", &tenant("early", "{value: /early/path}"));
    until_served(&site, "/early").await;
    until("it has it all", async || fleet(&one).await["acknowledged"] == 1).await;

    // All of it at once: one whose table was never accepted must not harm others either.
    let traffic = Traffic::start(site.http);
    write(&site.manifests(), "bad.yaml", &tenant("bad", pattern(true)));
    write(&site.manifests(), "late.yaml", &tenant("late", "{value: /late/path}"));
    // A rejection is gone when what is rejected is.
    until("the rejection is reported", async || {
        let rejections = fleet(&one).await["rejections"].to_string();
        rejections.contains("program size") || problem(&translator, "bad").await.is_some()
    })
    .await;
    let stopwatch = Stopwatch::start();
    until("it is left out", async || problem(&translator, "bad").await.is_some()).await;
    let took = stopwatch.elapsed();
    assert!(stress::seed().is_none() || took < BOUND, "it was left out after {took:?}");
    let is_certain = |message: String| message.contains("because proxies reject it");
    until("that is certain", async || problem(&translator, "bad").await.is_some_and(is_certain))
        .await;
    let message = problem(&translator, "bad").await.unwrap();
    assert!(message.contains("match 0 of rule 0 is dropped"), "{message}");
    assert!(message.contains("program size"), "{message}");
    for path in ["/early", "/late", "/bad"] {
        until_served(&site, path).await;
    }
    write(&site.manifests(), "later.yaml", &tenant("later", "{value: /later/path}"));
    until_served(&site, "/later").await;

    // One that starts now knows nothing but this.
    let second = site.envoy_with("envoy-two", &two, PICKY).await;
    second.until_live().await;
    until("the second has it all", async || fleet(&two).await["acknowledged"] == 1).await;
    traffic.until_more().await;
    traffic.stop().await;
    assert!(first.end().await.success(), "{}", first.log());
    for path in ["/early", "/late", "/bad", "/later"] {
        until_served(&site, path).await;
    }

    // Another translator does not publish it again.
    assert!(translator.end().await.success(), "{}", translator.log());
    translator = site.translator().await;
    write(&site.manifests(), "last.yaml", &tenant("last", "{value: /last/path}"));
    until_served(&site, "/last").await;
    assert!(problem(&translator, "bad").await.is_some(), "{}", translator.log());
    assert_eq!(fleet(&two).await["rejections"], Value::Array(vec![]));

    // Fixed, it is served again.
    write(&site.manifests(), "bad.yaml", &tenant("bad", pattern(false)));
    until_served(&site, "/anything").await;
    assert_eq!(problem(&translator, "bad").await, None);
    second.assert_undisturbed().await;
    for mut program in [translator, one, two] {
        assert!(program.end().await.success(), "{}", program.log());
    }
}

/// Heliograph raises Envoy's limit for regular expressions in its bootstraps. An Envoy that was started before has the default,
/// and rejects ordinary ones.
fn old_bootstrap(name: &str, distributor: &Program) -> String {
    let new = bootstrap(name, std::slice::from_ref(distributor), "DELTA_GRPC", "");
    let (raised, default) = ("error_level: 32768", "error_level: 100");
    assert!(new.contains(raised), "{new}");
    new.replace(raised, default)
}

/// Only the route itself has this: what is left of it where it is left out does not.
const EXPRESSION: &str = "[0-9a-z-]{36}/clone$";

async fn has_route(envoy: &Program, path: &str) -> bool {
    envoy.page("/config_dump?resource=dynamic_route_configs").await.contains(path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoys_that_still_have_the_old_bootstrap_hold_up_no_route_of_others() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let mut translator = site.translator().await;
    let mut distributor = site.distributor("one").await;
    let mut old = site.envoy_from("old", &old_bootstrap("old", &distributor)).await;
    old.until_live().await;
    site.until_answered_by("blue").await;
    let ordinary = "{type: RegularExpression, value: '^/v4/advisory/[0-9a-z-]{36}/clone$'}";
    write(&site.manifests(), "ordinary.yaml", &tenant("ordinary", ordinary));
    until("it is left out", async || problem(&translator, "ordinary").await.is_some()).await;
    write(&site.manifests(), "late.yaml", &tenant("late", "{value: /late/path}"));
    until_served(&site, "/late").await;

    // Most Envoys are new ones, and the route is tried again.
    let new = [site.envoy("new-1", &distributor).await, site.envoy("new-2", &distributor).await];
    for envoy in &new {
        envoy.until_live().await;
    }
    let again = tenant("ordinary", ordinary)
        .replace("{name: ordinary}", "{name: ordinary, annotations: {heliograph.dev/retry: '1'}}");
    write(&site.manifests(), "ordinary.yaml", &again);
    write(&site.manifests(), "later.yaml", &tenant("later", "{value: /later/path}"));
    for path in [EXPRESSION, "/late/path", "/later/path"] {
        for envoy in &new {
            let what = format!("{} has {path}", envoy.name);
            until(&what, async || has_route(envoy, path).await).await;
        }
    }
    until("it is served", async || problem(&translator, "ordinary").await.is_none()).await;
    // The old one keeps what it accepted.
    assert!(has_route(&old, "/late/path").await && !has_route(&old, EXPRESSION).await);

    // The last one is replaced.
    assert!(old.end().await.success(), "{}", old.log());
    for path in ["/v4/advisory/0123456789-abcdefghijklmnopqrstuvwxy/clone", "/late", "/later"] {
        until_served(&site, path).await;
    }
    assert_eq!(problem(&translator, "ordinary").await, None);
    for envoy in &new {
        envoy.assert_undisturbed().await;
    }
    for program in [&mut translator, &mut distributor] {
        assert!(program.end().await.success(), "{}", program.log());
    }
}
