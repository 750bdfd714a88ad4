//! The Envoys that helio runs: one for each Gateway, and none longer than helio.

use crate::harness::{Helio, gateway, is_alive, send, until, write};
use heliograph_testing::Port;
use std::fs;
use std::net::TcpListener;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envoys_follow_the_gateways_and_never_outlive_helio() {
    let (one, two) = (Port::reserve().unwrap().number(), Port::reserve().unwrap().number());
    let mut helio = Helio::start(|directory| {
        write(directory, "one.yaml", &gateway("one", one));
        write(directory, "two.yaml", &gateway("two", two));
    });
    helio.until_ready().await;
    assert_eq!(helio.children().len(), 2);

    fs::remove_file(helio.directory().join("two.yaml")).unwrap();
    until("the Envoy of the Gateway that went stops", || async { helio.children().len() == 1 })
        .await
        .unwrap();

    let before = helio.children();
    send("KILL", before[0]);
    until("another Envoy takes its place", || async {
        let now = helio.children();
        now.len() == 1 && now != before
    })
    .await
    .unwrap();
    assert!(helio.log().contains("restarts in"), "{}", helio.log());

    let envoys = helio.children();
    // Nothing of helio runs after this.
    helio.end("KILL").await;
    until("the kernel ends the Envoys", || async { !envoys.iter().any(|envoy| is_alive(*envoy)) })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_gateway_whose_port_is_taken_is_one_line_and_a_failure() {
    let taken = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut helio = Helio::start(|directory| write(directory, "one.yaml", &gateway("one", port)));
    assert_eq!(helio.ended().await.code(), Some(1));
    let log = helio.log();
    let errors: Vec<&str> = log.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{log}");
    assert!(errors[0].contains(&format!("port {port} of default/one is in use")), "{log}");
}

#[tokio::test]
async fn a_port_that_is_taken_later_is_told_and_the_others_go_on() {
    let (one, two) = (Port::reserve().unwrap().number(), Port::reserve().unwrap().number());
    let mut helio = Helio::start(|directory| write(directory, "one.yaml", &gateway("one", one)));
    helio.until_ready().await;
    let listens = format!("Gateway default/one listens on 127.0.0.1:{one}\n");
    until("it says where it listens", || async { helio.log().contains(&listens) }).await.unwrap();

    let taken = TcpListener::bind(("0.0.0.0", two)).unwrap();
    let text = gateway("one", one) + &format!("  - {{name: more, protocol: HTTP, port: {two}}}\n");
    write(&helio.directory(), "one.yaml", &text);
    let error = format!("port {two} of default/one is in use by another program: ");
    until("the port is told", || async { helio.log().contains(&error) }).await.unwrap();
    until("the other port is told", || async { helio.log().matches(&listens).count() == 2 })
        .await
        .unwrap();
    assert!(!helio.log().contains(&format!("127.0.0.1:{two}")), "{}", helio.log());
    drop(taken);
    assert!(helio.end("HUP").await.success(), "{}", helio.log());
}
