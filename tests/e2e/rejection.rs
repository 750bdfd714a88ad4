//! A rejection does not affect traffic, is reported with Envoy's error, and ends with the next good version.

use crate::harness::{Helio, gateway, get, until, write};
use heliograph_testing::Port;
use hyper::StatusCode;
use serde_json::Value;
use std::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_envoy_rejects_is_told_in_its_words_and_heals() {
    let port = Port::reserve().unwrap().number();
    // Taken where Envoy would bind it, which no look at the objects can tell.
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let second = taken.local_addr().unwrap().port();
    let mut helio = Helio::start(|directory| write(directory, "web.yaml", &gateway("web", port)));
    helio.until_ready().await;
    let admin = helio.admin;
    let fleet = || async move {
        let (_, fleets) = get(admin, "/fleets").await.unwrap();
        let fleets: Value = serde_json::from_str(&fleets).unwrap();
        fleets["default/web"].clone()
    };
    until("the proxy has acknowledged all", || async { fleet().await["acknowledged"] == 1 })
        .await
        .unwrap();

    let two =
        format!("{}  - {{name: second, protocol: HTTP, port: {second}}}\n", gateway("web", port));
    write(&helio.directory(), "web.yaml", &two);
    until("the rejection is told", || async {
        fleet().await["rejections"] != Value::Array(vec![])
    })
    .await
    .unwrap();
    let told = fleet().await;
    let rejection = &told["rejections"][0];
    assert_eq!(rejection["kind"], "listener");
    assert_eq!(rejection["resources"][0][0], format!("port/{second}"));
    assert!(rejection["detail"].as_str().unwrap().contains("Address already in use"), "{told}");
    assert_eq!((&told["connected"], &told["acknowledged"]), (&1.into(), &0.into()), "{told}");
    helio.until_logged("rejected").await;
    assert_eq!(
        get(port, "/").await.unwrap().0,
        StatusCode::NOT_FOUND,
        "the first listener answers"
    );

    let third = Port::reserve().unwrap().number();
    write(&helio.directory(), "web.yaml", &two.replace(&second.to_string(), &third.to_string()));
    until("the next version is taken", || async { fleet().await["acknowledged"] == 1 })
        .await
        .unwrap();
    assert_eq!(get(third, "/").await.unwrap().0, StatusCode::NOT_FOUND);
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}
