//! Edits of a route while requests flow: they take effect at once, and no request fails.

use crate::harness::{
    Answer, Asked, Client, Helio, backend, free_port, gateway, get, is_alive, service, until, write,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How to write the route, its rules, what to ask then, and the answer.
type Edit<'a> = (Write, &'a [(&'a str, &'a str)], &'a str, &'a str);

type Write = fn(&Path, &str, &str);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_take_effect_within_a_second_and_no_request_fails() {
    let (blue, green) = (backend("blue").await, backend("green").await);
    let port = free_port();
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
        (rename, &[("/", "green")], "/", "green web.test /"),
        (write, &[("/", "blue")], "/", "blue web.test /"),
        (write, &[("/", "green")], "/", "green web.test /"),
        (rename, &[("/", "green"), ("/new", "blue")], "/new", "blue web.test /new"),
        (write, &[("/", "blue"), ("/new", "green")], "/new", "green web.test /new"),
        (rename, &[("/", "blue")], "/new", "blue web.test /new"),
        (rename, &[("/", "green")], "/", "green web.test /"),
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
    until("the file is mended", || async { answer(port, "/").await == "green web.test /" })
        .await
        .unwrap();

    let answers = traffic.stop().await;
    let failed: Vec<_> = answers.iter().filter(|answer| !is_good(answer)).collect();
    assert!(failed.is_empty(), "{} of {} failed: {failed:?}", failed.len(), answers.len());
    took.sort();
    println!("{} requests, edits took {took:?}", answers.len());
    let median = took[took.len() / 2];
    assert!(median < Duration::from_secs(1), "edits took {took:?}");

    assert!(helio.end("INT").await.success(), "{}", helio.log());
    for envoy in envoys {
        assert!(!is_alive(envoy), "Envoy {envoy} was left behind");
    }
    assert_eq!(helio.temporary_files(), [""; 0], "temporary files were left behind");
}

const fn ask_for(path: &str) -> Asked<'_> {
    Asked { method: "GET", host: "web.test", path, headers: &[] }
}

async fn answer(port: u16, path: &str) -> String {
    ask_for(path).ask(port).await.unwrap().body
}

/// Clients that send one request after the other, on connections that they keep.
struct Traffic {
    stop: watch::Sender<bool>,
    answered: Arc<AtomicUsize>,
    clients: JoinSet<Vec<Result<Answer, String>>>,
}

impl Traffic {
    fn start(port: u16) -> Self {
        let stop = watch::Sender::new(false);
        let answered = Arc::new(AtomicUsize::new(0));
        let mut clients = JoinSet::new();
        for _ in 0..2 {
            let (stop, answered) = (stop.subscribe(), answered.clone());
            clients.spawn(async move {
                let mut answers = Vec::new();
                let mut client = Client::new(port);
                while !*stop.borrow() {
                    answers.push(client.ask(&ask_for("/")).await);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                answers
            });
        }
        Self { stop, answered, clients }
    }

    /// Waits until some more requests have been answered.
    async fn until_more(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        until("requests are answered", || async {
            self.answered.load(Ordering::Relaxed) >= before + 50
        })
        .await
        .unwrap();
    }

    async fn stop(self) -> Vec<Result<Answer, String>> {
        self.stop.send_replace(true);
        self.clients.join_all().await.concat()
    }
}

fn is_good(answer: &Result<Answer, String>) -> bool {
    let Ok(Answer { status: 200, body, .. }) = answer else { return false };
    body == "blue web.test /" || body == "green web.test /"
}

/// A new file over the old one, as a careful editor does; [`write()`] is a careless one.
fn rename(directory: &Path, name: &str, text: &str) {
    let new = directory.join(format!(".{name}.new"));
    fs::write(&new, text).unwrap();
    fs::rename(new, directory.join(name)).unwrap();
}

/// Rules of a path prefix and a backend.
fn route(rules: &[(&str, &str)]) -> String {
    let mut text = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules:
"
    .to_owned();
    for (path, backend) in rules {
        text += &format!(
            "
  - matches: [{{path: {{type: PathPrefix, value: {path}}}}}]
    backendRefs: [{{name: {backend}, port: 80}}]
"
        );
    }
    text
}
