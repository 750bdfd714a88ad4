//! The proxies that run for Gateways, as their pods and nodes tell: the directory.
//!
//! [`Roll`] decides what follows from a pod or a node; the rest waits for them.

mod roll;

use super::Input;
use super::kubernetes::WATCH_SECONDS;
use futures::StreamExt;
use heliograph_gateway::infra::names;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use roll::Roll;
use std::pin::pin;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Tells of every proxy that runs for a Gateway.
pub struct Directory {
    client: Client,
}

impl Directory {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Tells all proxies, then every change, until it is stopped. An API that is away is waited for.
    pub async fn run(self, inputs: mpsc::Sender<Input>, stop: CancellationToken) {
        let config = || watcher::Config::default().timeout(WATCH_SECONDS);
        let pods = Api::<Pod>::all(self.client.clone());
        let pods = watcher(pods, config().labels(&names::selector())).default_backoff();
        // Of nodes there is no use but for their labels.
        let nodes = Api::<PartialObjectMeta<Node>>::all(self.client);
        let nodes = watcher(nodes, config()).default_backoff();
        let (mut pods, mut nodes) = (pin!(pods), pin!(nodes));
        let mut roll = Roll::default();
        let (mut of_pods, mut of_nodes) = (Trouble::of("pods"), Trouble::of("nodes"));
        loop {
            let events = tokio::select! {
                () = stop.cancelled() => return,
                Some(pod) = pods.next() => {
                    of_pods.note(&pod);
                    pod.map(|event| roll.hear_of_pod(event)).unwrap_or_default()
                }
                Some(node) = nodes.next() => {
                    of_nodes.note(&node);
                    node.map(|event| roll.hear_of_node(event)).unwrap_or_default()
                }
            };
            if !events.is_empty() && inputs.send(Input::Batch(events)).await.is_err() {
                // Whoever listened has ended, and it is for them to say why.
                return stop.cancelled().await;
            }
        }
    }
}

/// What was said of a watch that fails, so that it is said once.
struct Trouble {
    of: &'static str,
    told: Option<String>,
}

impl Trouble {
    fn of(of: &'static str) -> Self {
        Self { of, told: None }
    }

    fn note<K>(&mut self, next: &watcher::Result<watcher::Event<K>>) {
        match next {
            // Somebody begins to ask, and is not answered yet.
            Ok(watcher::Event::Init) => {}
            Ok(_) => {
                if self.told.take().is_some() {
                    tracing::info!("{} are watched again", self.of);
                }
            }
            Err(error) => {
                let error = error.to_string();
                if self.told.as_ref() != Some(&error) {
                    tracing::warn!(
                        "{} cannot be watched, so that the zones of proxies are not known; allow this account to list \
                         and watch them: {error}",
                        self.of
                    );
                    self.told = Some(error);
                }
            }
        }
    }
}
