//! The inventory of the proxies that run for Gateways, from their pods and nodes.
//!
//! [`ProxyIndex`] updates the inventory by a pod or a node; the rest does IO.

mod proxy_index;

use super::Input;
use super::kubernetes::WATCH_SECONDS;
use futures::StreamExt;
use heliograph_gateway::infra::names;
use heliograph_shared::failure_log::FailureLog;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use proxy_index::ProxyIndex;
use std::pin::pin;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Sends every proxy that runs for a Gateway as an object.
pub struct ProxyInventory {
    client: Client,
}

impl ProxyInventory {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Sends all proxies, then every change, until it is stopped. It waits for an API that is unreachable.
    pub async fn run(self, inputs: mpsc::Sender<Input>, stop: CancellationToken) {
        let config = || watcher::Config::default().timeout(WATCH_SECONDS);
        let pods = Api::<Pod>::all(self.client.clone());
        let pods = watcher(pods, config().labels(&names::selector())).default_backoff();
        // Of nodes there is no use but for their labels.
        let nodes = Api::<PartialObjectMeta<Node>>::all(self.client);
        let nodes = watcher(nodes, config()).default_backoff();
        let (mut pods, mut nodes) = (pin!(pods), pin!(nodes));
        let mut index = ProxyIndex::default();
        let (mut of_pods, mut of_nodes) =
            (WatchFailureLog::of("pods"), WatchFailureLog::of("nodes"));
        loop {
            let events = tokio::select! {
                () = stop.cancelled() => return,
                Some(pod) = pods.next() => {
                    of_pods.record(&pod);
                    pod.map(|event| index.apply_pod(event)).unwrap_or_default()
                }
                Some(node) = nodes.next() => {
                    of_nodes.record(&node);
                    node.map(|event| index.apply_node(event)).unwrap_or_default()
                }
            };
            if !events.is_empty() && inputs.send(Input::Batch(events)).await.is_err() {
                // The receiver has ended, and reports why.
                return stop.cancelled().await;
            }
        }
    }
}

/// Logs once when a watch begins to fail, and once when it works again.
struct WatchFailureLog {
    of: &'static str,
    log: FailureLog<String>,
}

impl WatchFailureLog {
    fn of(of: &'static str) -> Self {
        Self { of, log: FailureLog::default() }
    }

    fn record<K>(&mut self, next: &watcher::Result<watcher::Event<K>>) {
        match next {
            // A list has begun, and is not complete yet.
            Ok(watcher::Event::Init) => {}
            Ok(_) => {
                if self.log.worked().is_some() {
                    tracing::info!("{} can be watched again", self.of);
                }
            }
            Err(error) => {
                let error = error.to_string();
                if self.log.failed(&error) {
                    tracing::warn!(
                        "{} cannot be watched, so the zones of proxies are unknown; grant this account list and watch on them: {error}",
                        self.of
                    );
                }
            }
        }
    }
}
