//! What an operator runs against the programs: the history of a fleet, and a new epoch.

use crate::harness::{route, write};
use crate::redis_site::{FLEET, Site, printed};
use crate::servers::Server;
use crate::traffic::answer;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_goes_back_stays_there_and_goes_on() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let _translator = site.translator().await;
    let distributor = site.distributor("one").await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    envoy.until_live().await;
    site.until_answered_by("blue").await;
    let (blue, versions) = (newest(&site), envoy.versions().await);
    site.route_to("green");
    site.until_answered_by("green").await;
    let green = newest(&site);
    assert_ne!(blue, green);
    let differences = done(&site, &["snapshot", "diff", FLEET, &blue, &green]);
    // One table for each listener.
    let routes = differences.lines().filter(|line| line.starts_with("~ route "));
    assert_eq!((routes.count(), differences.lines().count()), (2, 2), "{differences}");

    let differences: Value =
        serde_json::from_str(&done(&site, &["snapshot", "diff", FLEET, &blue, &green, "-o=json"]))
            .unwrap();
    assert_eq!(
        (&differences[1]["type"], differences.as_array().unwrap().len()),
        (&"route".into(), 2)
    );
    let then = shown(&site, &[&blue, "--type=route"]);
    let now = shown(&site, &["--type=route"]);
    assert_eq!((&then["head"], &now["head"]), (&blue.as_str().into(), &green.as_str().into()));
    for (before, after) in rows(&then).iter().zip(rows(&now)) {
        assert_eq!(before["name"], after["name"]);
        assert_ne!(
            (&before["version"], &before["resource"]),
            (&after["version"], &after["resource"])
        );
    }
    let whole = shown(&site, &[]).to_string();
    assert!(
        whole.contains("private_key") && !whole.contains("LS0tLS1CRUdJTiBQUklWQVRF"),
        "{whole}"
    );
    assert!(done(&site, &["snapshot", "show", FLEET, "--type=rules"]).starts_with("TYPE "));
    let odd = site.helio(&["snapshot", "show", FLEET, "--type=odd"]);
    assert!(!odd.status.success() && printed(&odd).contains("is not a type: use secret, "));

    let rollback = ["snapshot", "rollback", FLEET, &blue, "--reason", "green is broken"];
    let asked = site.helio(&rollback);
    let said = printed(&asked);
    assert!(!asked.status.success() && said.contains("nothing was changed"), "{said}");
    assert!(said.contains("goes back to") && said.contains("~ route "), "{said}");
    assert_eq!(listing(&site)["pinnedTo"], Value::Null);

    let said = done(&site, &[&rollback[..], &["--yes"]].concat());
    assert!(said.contains(&format!("{FLEET} is pinned to {blue}, published as ")), "{said}");
    envoy.until_versions(&versions).await;
    site.until_answered_by("blue").await;
    assert_eq!(listing(&site)["pinnedTo"], *blue);
    let fleets = done(&site, &["snapshot", "list"]);
    let row: Vec<_> = fleets.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[3]), (FLEET, &*blue), "{fleets}");

    // Routes wait; endpoints do not.
    let rules = [("/", "green"), ("/other", "blue"), ("/late", "blue")];
    write(&site.manifests(), "route.yaml", &route(&rules));
    site.point_services_at("green", "blue");
    site.until_answered_by("green").await;
    assert_eq!(envoy.versions().await, versions);

    let said = done(&site, &["snapshot", "release", FLEET]);
    assert!(said.contains(&format!("{FLEET} is released, published as ")), "{said}");
    site.until_answered_by("blue").await;
    assert_eq!(answer(site.http, "/late").await, "green web.test /late");
    assert_eq!(listing(&site)["pinnedTo"], Value::Null);
    let again = site.helio(&["snapshot", "release", FLEET]);
    assert!(!again.status.success() && printed(&again).contains("is not pinned"));
    envoy.assert_undisturbed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_epoch_ends_the_translator_that_runs_and_lets_the_next_one_go_on() {
    let redis = Server::start(&[]).await;
    let site = Site::new(&redis.url()).await;
    let mut translator = site.translator().await;
    let distributor = site.distributor("one").await;
    let envoy = site.envoy("envoy-one", &distributor).await;
    envoy.until_live().await;
    site.until_answered_by("blue").await;
    let versions = envoy.versions().await;

    let asked = site.helio(&["store", "adopt"]);
    let said = printed(&asked);
    assert!(!asked.status.success() && said.contains("nothing was changed"), "{said}");
    assert!(said.contains("a translator that runs now is stopped"), "{said}");
    let said = done(&site, &["store", "adopt", "--yes"]);
    assert!(said.contains("the epoch is "), "{said}");

    assert!(!translator.ended().await.success());
    let last = translator.log().lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("error: ") && last.contains("`helio store adopt`"), "{last}");
    assert_eq!(envoy.versions().await, versions);

    let translator = site.translator().await;
    translator.until_ready().await;
    assert_eq!(envoy.versions().await, versions, "a new epoch alone changes nothing");
    site.route_to("green");
    site.until_answered_by("green").await;
    envoy.assert_undisturbed().await;
    assert!(!newest(&site).starts_with("0."), "the epoch is the first one still");
}

/// A snapshot with its content, as JSON.
fn shown(site: &Site, args: &[&str]) -> Value {
    let args = [&["snapshot", "show", FLEET, "-o", "json"], args].concat();
    serde_json::from_str(&done(site, &args)).unwrap()
}

fn rows(shown: &Value) -> Vec<Value> {
    shown["resources"].as_array().unwrap().clone()
}

/// What a command that succeeds says.
fn done(site: &Site, args: &[&str]) -> String {
    let output = site.helio(args);
    let said = printed(&output);
    assert!(output.status.success(), "{args:?}: {said}");
    said
}

fn listing(site: &Site) -> Value {
    let output = site.helio(&["snapshot", "list", FLEET, "--output", "json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The newest head of the history.
fn newest(site: &Site) -> String {
    listing(site)["history"][0]["head"].as_str().unwrap().to_owned()
}
