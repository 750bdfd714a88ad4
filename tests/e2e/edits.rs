//! Edits of a route while requests flow: they take effect at once, and no request fails.

use crate::harness::{
    Helio, backend, gateway, get, is_alive, replace, route, service, until, write,
};
use crate::traffic::{Traffic, answer};
use heliograph_testing::Port;
use std::path::Path;
use std::time::{Duration, Instant};

/// How to write the route, its rules, what to ask then, and the answer.
type Edit<'a> = (Write, &'a [(&'a str, &'a str)], &'a str, &'a str);

type Write = fn(&Path, &str, &str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_take_effect_within_a_second_and_no_request_fails() {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &gateway("web", port));
        write(directory, "backends.yaml", &(service("blue", blue) + &service("green", green)));
        write(directory, "route.yaml", &route(&[("/", "blue")]));
    });
    helio.until_ready().await;
    assert_eq!(answer(port, "/").await, "blue web.test /");
    let envoys = helio.children();
    assert_eq!(envoys.len(), 1, "one Envoy for one Gateway");

    let traffic = Traffic::start(port);
    let edits: &[Edit] = &[
        (replace, &[("/", "green")], "/", "green web.test /"),
        (write, &[("/", "blue")], "/", "blue web.test /"),
        (write, &[("/", "green")], "/", "green web.test /"),
        (replace, &[("/", "green"), ("/new", "blue")], "/new", "blue web.test /new"),
        (write, &[("/", "blue"), ("/new", "green")], "/new", "green web.test /new"),
        (replace, &[("/", "blue")], "/new", "blue web.test /new"),
        (replace, &[("/", "green")], "/", "green web.test /"),
        (write, &[("/", "blue")], "/", "blue web.test /"),
    ];
    let mut took = Vec::new();
    for (how, rules, path, expected) in edits.repeat(3) {
        assert_ne!(answer(port, path).await, expected, "the edit must make a difference");
        let started = Instant::now();
        how(&helio.directory(), "route.yaml", &route(rules));
        until("the edit takes effect", || async { answer(port, path).await == expected })
            .await
            .unwrap();
        took.push(started.elapsed());
        traffic.until_more().await;
    }

    // A broken file is said, and what it held goes on.
    write(&helio.directory(), "route.yaml", "apiVersion: [");
    until("the fault is told", || async {
        get(helio.admin, "/status").await.is_ok_and(|(_, body)| body.contains("route.yaml"))
    })
    .await
    .unwrap();
    assert_eq!(answer(port, "/").await, "blue web.test /");
    write(&helio.directory(), "route.yaml", &route(&[("/", "green")]));
    until("the file is repaired", || async { answer(port, "/").await == "green web.test /" })
        .await
        .unwrap();

    let requests = traffic.stop().await;
    took.sort();
    println!("{requests} requests, edits took {took:?}");
    let median = took[took.len() / 2];
    assert!(median < Duration::from_secs(1), "edits took {took:?}");

    assert!(helio.end("INT").await.success(), "{}", helio.log());
    for envoy in envoys {
        assert!(!is_alive(envoy), "Envoy {envoy} was left behind");
    }
    assert_eq!(helio.temporary_files(), [""; 0], "temporary files were left behind");
}
