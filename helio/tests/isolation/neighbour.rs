//! Tenant B, who does its work: requests, and one change after the other.

use crate::harness::{Asked, replace, until};
use heliograph_testing::Stopwatch;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(crate) const HOST: &str = "b.test";

/// Edits its route and switches its endpoints again and again, until it is stopped.
pub(crate) struct Neighbour {
    /// In each round the route and the endpoints change, and this is how long that took.
    rounds: watch::Receiver<Vec<Round>>,
    /// How many of them were returned.
    returned: usize,
    task: JoinHandle<()>,
}

/// How long a change of each kind took until an answer showed it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    pub(crate) route: Duration,
    pub(crate) endpoints: Duration,
}

struct Work {
    directory: PathBuf,
    /// The ports of blue and green.
    backends: [u16; 2],
    /// That of the listener.
    port: u16,
    /// The number of the route's version, and of the endpoints'.
    versions: [usize; 2],
}

impl Neighbour {
    /// Returns when its first version is served. `port` is that of the listener.
    pub(crate) async fn start(directory: PathBuf, port: u16, backends: [u16; 2]) -> Self {
        let (told, rounds) = watch::channel(Vec::new());
        let mut work = Work { directory, backends, port, versions: [0; 2] };
        work.apply();
        let expected = &work.expected();
        let served = until("B is served", move || async move {
            ASKED.ask(port).await.is_ok_and(|answer| answer.body == *expected)
        });
        served.await.unwrap();
        let task = tokio::spawn(async move {
            while !told.is_closed() {
                let round = Round { route: work.change(0).await, endpoints: work.change(1).await };
                told.send_modify(|rounds| rounds.push(round));
            }
        });
        Self { rounds, returned: 0, task }
    }

    /// Waits until the last change has arrived.
    pub(crate) async fn stop(self) {
        drop(self.rounds);
        self.task.await.unwrap();
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
        })
    }
}

const ASKED: Asked<'_> = Asked { method: "GET", host: HOST, path: "/", headers: &[] };

impl Work {
    /// Makes a change, and returns how long it took to arrive. Fails if a request fails meanwhile.
    async fn change(&mut self, kind: usize) -> Duration {
        self.versions[kind] += 1;
        self.apply();
        let (stopwatch, expected, port) = (Stopwatch::start(), &self.expected(), self.port);
        let arrives = until(expected, move || async move {
            let answer = ASKED.ask(port).await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
            answer.body == *expected
        });
        arrives.await.unwrap();
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
