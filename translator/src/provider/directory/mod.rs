//! The proxies that run for Gateways, as their pods and nodes tell: the directory.
//!
//! [`Roll`] decides what follows from a pod or a node; the rest waits for them.

mod roll;

use super::Input;
use futures::StreamExt;
use heliograph_translator_core::Event;
use heliograph_translator_core::infra::names;
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
        let ours = watcher::Config::default().labels(&names::selector());
        let pods = watcher(Api::<Pod>::all(self.client.clone()), ours).default_backoff();
        // Of nodes there is no use but for their labels.
        let nodes = Api::<PartialObjectMeta<Node>>::all(self.client);
        let nodes = watcher(nodes, watcher::Config::default()).default_backoff();
        let (mut pods, mut nodes) = (pin!(pods), pin!(nodes));
        let (mut roll, mut trouble) = (Roll::default(), Trouble::default());
        loop {
            let events = tokio::select! {
                () = stop.cancelled() => return,
                Some(pod) = pods.next() => match pod {
                    Ok(event) => roll.hear_of_pod(event),
                    Err(error) => trouble.tell("pods", &error),
                },
                Some(node) = nodes.next() => match node {
                    Ok(event) => roll.hear_of_node(event),
                    Err(error) => trouble.tell("nodes", &error),
                },
            };
            if !events.is_empty() && inputs.send(Input::Batch(events)).await.is_err() {
                // Whoever listened has ended, and it is for them to say why.
                return stop.cancelled().await;
            }
        }
    }
}

/// What was said of failing watches, so that it is said once.
#[derive(Default)]
struct Trouble(Option<String>);

impl Trouble {
    fn tell(&mut self, what: &str, error: &watcher::Error) -> Vec<Event> {
        let said = format!(
            "{what} cannot be watched, so that the zones of proxies are not known: {error}"
        );
        if self.0.as_ref() != Some(&said) {
            tracing::warn!("{said}");
            self.0 = Some(said);
        }
        Vec::new()
    }
}
