//! Tenant B, who does its work: requests, and one change after the other.

use crate::harness::{HttpRequest, replace, until};
use heliograph_testing::Stopwatch;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) const HOST: &str = "b.test";

/// Edits its route, switches its endpoints and replaces a route by a new one, again and again, until it is stopped.
pub(crate) struct Neighbour {
    /// How long each change of a round took.
    rounds: watch::Receiver<Vec<Round>>,
    /// How many of them were returned.
    returned: usize,
    task: JoinHandle<u64>,
}

/// How long a change of each kind took until an answer showed it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) route: Duration,
    pub(crate) endpoints: Duration,
    /// A route that was not there before, for a host of its own.
    pub(crate) new_route: Duration,
}

struct Work {
    directory: PathBuf,
    /// The ports of blue and green.
    backends: [u16; 2],
    /// That of the listener.
    port: u16,
    /// The number of the route's version, and of the endpoints'.
    versions: [usize; 2],
    /// How many routes were new.
    new_routes: usize,
    /// The errors of hosts that new routes are for, before those were served: by then, routes of A for every host answer.
    unserved: u64,
}

impl Neighbour {
    /// Returns when its first version is served. `port` is that of the listener.
    pub(crate) async fn start(directory: PathBuf, port: u16, backends: [u16; 2]) -> Self {
        let (told, rounds) = watch::channel(Vec::new());
        let mut work =
            Work { directory, backends, port, versions: [0; 2], new_routes: 0, unserved: 0 };
        work.apply();
        let expected = &work.expected();
        let served = until("B is served", move || async move {
            REQUEST.ask(port).await.is_ok_and(|answer| answer.body == *expected)
        });
        served.await.unwrap();
        let task = tokio::spawn(async move {
            while !told.is_closed() {
                let (route, endpoints) = (work.change(0).await, work.change(1).await);
                let round = Round { route, endpoints, new_route: work.add_route().await };
                told.send_modify(|rounds| rounds.push(round));
            }
            work.unserved
        });
        Self { rounds, returned: 0, task }
    }

    /// Waits until the last change has arrived. Returns how many errors hosts of new routes had before they were B's.
    pub(crate) async fn stop(self) -> u64 {
        drop(self.rounds);
        self.task.await.unwrap()
    }

    /// Waits until changes of both kinds have arrived that began after this call. Returns the longest times since the
    /// last call.
    pub(crate) async fn until_more(&mut self) -> Round {
        // The round under way has begun before.
        let enough = self.rounds.borrow().len() + 2;
        let rounds = self.rounds.wait_for(|rounds| rounds.len() >= enough).await;
        let rounds = rounds.expect("a change of B, or a request of it, has failed");
        let new = rounds[self.returned..].iter();
        self.returned = rounds.len();
        new.fold(Round::default(), |longest, round| Round {
            route: longest.route.max(round.route),
            endpoints: longest.endpoints.max(round.endpoints),
            new_route: longest.new_route.max(round.new_route),
        })
    }
}

const REQUEST: HttpRequest<'_> = HttpRequest { method: "GET", host: HOST, path: "/", headers: &[] };

impl Work {
    /// Makes a change, and returns how long it took to arrive. Fails if a request fails meanwhile.
    async fn change(&mut self, kind: usize) -> Duration {
        self.versions[kind] += 1;
        self.apply();
        let (stopwatch, expected, port) = (Stopwatch::start(), &self.expected(), self.port);
        let arrives = until(expected, move || async move {
            let answer = REQUEST.ask(port).await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.body == *expected
        });
        arrives.await.unwrap();
        stopwatch.elapsed()
    }

    /// Replaces one route by another, and returns how long it took until that was served.
    async fn add_route(&mut self) -> Duration {
        self.new_routes += 1;
        let host = &format!("new-{}.{HOST}", self.new_routes);
        let route = format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: new-{}, namespace: b}}
spec:
  parentRefs: [{{name: web, namespace: default, sectionName: http}}]
  hostnames: [{host}]
  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]
",
            self.new_routes
        );
        replace(&self.directory, "b-new-route.yaml", &route);
        let (stopwatch, port) = (Stopwatch::start(), self.port);
        let unserved = &AtomicU64::new(0);
        let served = until(host, move || async move {
            let status = HttpRequest { host, ..REQUEST }.ask(port).await.unwrap().status;
            unserved.fetch_add(u64::from(status >= 500), Relaxed);
            status == 200
        });
        served.await.unwrap();
        self.unserved += unserved.load(Relaxed);
        stopwatch.elapsed()
    }

    fn backend(&self) -> usize {
        self.versions[1] % 2
    }

    fn expected(&self) -> String {
        let backend = ["blue", "green"][self.backend()];
        format!("{backend} {HOST} / x-version={}", self.versions[0])
    }

    fn apply(&self) {
        let (version, port) = (self.versions[0], self.backends[self.backend()]);
        let route = format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web, namespace: b}}
spec:
  parentRefs: [{{name: web, namespace: default, sectionName: http}}]
  hostnames: [{HOST}]
  rules:
  - filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: x-version, value: '{version}'}}]}}}}]
    backendRefs: [{{name: web, port: 80}}]
"
        );
        let service = format!(
            "
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: b}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: b, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"
        );
        replace(&self.directory, "b-route.yaml", &route);
        replace(&self.directory, "b-service.yaml", &service);
    }
}
