//! Objects from a Kubernetes API: one watch for each kind of the core's list.
//!
//! [`ObjectCache`](object_cache::ObjectCache) turns lists and events into changes of objects,
//! [`Barrier`](barrier::Barrier) when everything is listed, [`Protection`](protection::Protection) which objects wait
//! while the policies are unknown, [`Contents`](contents::Contents) which Secrets and ConfigMaps are fetched and which
//! objects wait for them, [`ApiFailure`](api_failure::ApiFailure) what an error means. The rest does IO.

mod api_failure;
mod barrier;
mod contents;
mod fetch;
mod object_cache;
mod protection;
mod selection;
mod served;
mod watch;
mod watch_health;

pub(crate) use watch::WATCH_SECONDS;
pub use watch_health::{ApiRemark, WatchHealth};

use crate::kubernetes::{Deployed, Observed};
use crate::metrics::KubernetesMetrics;
use crate::provider::Input;
use barrier::Barrier;
use fetch::Fetcher;
use heliograph_gateway::Limits;
use heliograph_gateway::objects::Kind;
use kube::Client;
use parking_lot::Mutex;
use protection::Protection;
use selection::Selection;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{mpsc, watch as latest};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use watch::{KindWatch, WatchOutputs};

/// How many batches may wait between the watches and what fetches the contents that they name.
const WAITING_BATCHES: usize = 16;

/// Which objects are watched.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Labels of the namespaces whose objects count; all do without it.
    pub namespace_selector: Option<String>,
    /// Kinds that are left out.
    pub ignored: BTreeSet<Kind>,
}

/// A provider that sends the objects of an API, all and then every change.
pub struct Kubernetes {
    client: Client,
    scope: Scope,
    observed: Observed,
    deployed: Deployed,
    health: WatchHealth,
    refresh: Refresh,
    content_bytes: u64,
}

/// Asks the provider to make sure that it has sent everything there is.
#[derive(Clone, Debug, Default)]
pub struct Refresh {
    asked: latest::Sender<u64>,
    barrier: Arc<Mutex<Barrier>>,
}

#[derive(Debug, thiserror::Error)]
#[error("a watch failed: {0}")]
pub struct WatchError(#[from] JoinError);

impl Scope {
    /// The kinds that are watched.
    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let is_watched = |kind: &Kind| kind.api_version().is_some() && !self.ignored.contains(kind);
        Kind::ALL.iter().copied().filter(is_watched)
    }
}

impl Kubernetes {
    pub fn new(
        client: Client,
        scope: Scope,
        observed: Observed,
        metrics: KubernetesMetrics,
    ) -> Self {
        let health = WatchHealth::new(metrics);
        let content_bytes = Limits::default().content_bytes;
        let deployed = Deployed::of(scope.kinds());
        let refresh = Refresh::default();
        Self { client, scope, observed, deployed, health, refresh, content_bytes }
    }

    #[must_use]
    pub fn with_limits(mut self, limits: &Limits) -> Self {
        self.content_bytes = limits.content_bytes;
        self
    }

    /// The health of the watches, for pages and metrics.
    pub fn health(&self) -> WatchHealth {
        self.health.clone()
    }

    /// Which of the watched objects run for Gateways.
    pub fn deployed(&self) -> Deployed {
        self.deployed.clone()
    }

    pub fn refresh(&self) -> Refresh {
        self.refresh.clone()
    }

    /// Sends everything, then every change, until it is stopped. It waits for an API that is unreachable.
    pub async fn run(
        self,
        inputs: mpsc::Sender<Input>,
        stop: CancellationToken,
    ) -> Result<(), WatchError> {
        let kinds: Vec<Kind> = self.scope.kinds().collect();
        let selection = Selection::new(self.scope.namespace_selector.as_deref());
        let (watched, received) = mpsc::channel(WAITING_BATCHES);
        let outputs = WatchOutputs {
            messages: watched,
            health: self.health.clone(),
            observed: self.observed.clone(),
            deployed: self.deployed.clone(),
            barrier: self.refresh.barrier.clone(),
        };
        *outputs.barrier() = Barrier::new(kinds.iter().copied());
        let mut watches = JoinSet::new();
        let barrier = self.refresh.barrier.clone();
        let fetcher = Fetcher::new(
            self.client.clone(),
            inputs,
            self.health.clone(),
            barrier,
            Protection::new(kinds.iter().copied()),
            self.content_bytes,
        );
        let stopped = stop.clone();
        watches.spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = fetcher.run(received) => {}
            }
        });
        for kind in kinds {
            let asked = self.refresh.asked();
            let watch =
                KindWatch::new(kind, &self.client, selection.clone(), asked, outputs.clone());
            if let Some(watch) = watch {
                let stop = stop.clone();
                watches.spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = watch.run() => {}
                    }
                });
            }
        }
        drop(outputs);
        while let Some(ended) = watches.join_next().await {
            ended?;
        }
        Ok(())
    }
}

impl Refresh {
    /// The answer is [`Input::Fresh`] with this number, or a higher one.
    pub fn ask(&self) -> u64 {
        let mut asking = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            asking = *asked;
        });
        asking
    }

    /// For who is to answer: how often it was asked.
    pub fn asked(&self) -> latest::Receiver<u64> {
        self.asked.subscribe()
    }

    /// The kinds that an asking waits for.
    pub fn awaited(&self, asking: u64) -> Vec<&'static str> {
        let barrier = self.barrier.lock();
        barrier.awaited(asking).map(Kind::as_str).collect()
    }
}
