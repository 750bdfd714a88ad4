//! Applies the Kubernetes objects that the translation renders for each Gateway, while this translator leads.
//!
//! [`ReconcileState`](reconcile_state::ReconcileState) has the wanted and the existing objects, and decides which fleet
//! is next; the rest does IO.

mod api;
mod args;
mod ca;
mod event_recorder;
mod metrics;
mod parts;
mod reconcile_state;

pub use args::ProxyArgs;
pub use metrics::InfraMetrics;

use crate::kubernetes::Deployed;
use crate::report::Report;
use ca::CaFile;
use event_recorder::GatewayEvents;
use futures::FutureExt;
use futures::stream::StreamExt;
use heliograph_gateway::infra::{Part, ProxySettings, Step};
use heliograph_snapshot::FleetName;
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use reconcile_state::ReconcileState;
use std::collections::BTreeSet;
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The task that keeps the infrastructure of Gateways as it is wanted.
pub struct Infra {
    client: Client,
    report: watch::Receiver<Report>,
    deployed: Deployed,
    state: ReconcileState,
    metrics: InfraMetrics,
    event_recorder: GatewayEvents,
    /// The file of the CA bundle of the distributors, if there is one.
    ca_file: Option<CaFile>,
    /// The parts whose watch fails, so that each is logged once.
    unwatched: BTreeSet<Part>,
}

/// How many Gateways are worked on at once.
const AT_ONCE: usize = 8;

/// How often files are read again.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(2);

type StepsOutcome = (FleetName, Result<usize, String>);

impl Infra {
    /// `deployed` has the objects that the provider's watches find; other kinds are watched here.
    pub fn new(
        client: Client,
        report: watch::Receiver<Report>,
        deployed: Deployed,
        settings: ProxySettings,
        metrics: InfraMetrics,
    ) -> Self {
        Self {
            event_recorder: GatewayEvents::new(client.clone()),
            client,
            report,
            deployed,
            ca_file: settings.ca_file.clone().map(CaFile::new),
            state: ReconcileState::new(settings),
            metrics,
            unwatched: BTreeSet::new(),
        }
    }

    /// Keeps what there is as it should be, until it is stopped.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), JoinError> {
        let mut events = parts::events(&self.client, &self.deployed);
        let mut work: JoinSet<StepsOutcome> = JoinSet::new();
        let mut file_polls = interval(FILE_POLL_INTERVAL);
        file_polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What was read when the program started may be of an earlier term.
        self.follow_ca_file();
        self.state.update_wanted(&self.report.borrow_and_update());
        loop {
            while work.len() < AT_ONCE
                && let Some((fleet, steps)) = self.state.next(Instant::now())
            {
                work.spawn(self.attempt(fleet, steps));
            }
            let retry = self.state.next_retry();
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = self.report.changed() => {
                    self.state.update_wanted(&self.report.borrow_and_update());
                }
                Some((part, event)) = events.next() => self.update(part, event),
                Some(done) = work.join_next() => self.finish(done?),
                _ = file_polls.tick() => self.follow_ca_file(),
                () = at(retry) => {}
            }
        }
        // The API server may have received a call that has begun: nothing is lost by not waiting for its answer.
        work.shutdown().await;
        Ok(())
    }

    /// Executes the steps for a Gateway. A failure that differs from that of the last attempt also becomes an event of the Gateway.
    fn attempt(
        &self,
        fleet: FleetName,
        steps: Vec<Step>,
    ) -> impl Future<Output = StepsOutcome> + Send + use<> {
        let (client, recorder) = (self.client.clone(), self.event_recorder.clone());
        let reported = self.state.failure(&fleet).map(str::to_owned);
        let about = self.state.proxies(&fleet).map(event_recorder::about);
        let obstacle = self.state.obstacle(&fleet, &steps);
        async move {
            let outcome = match obstacle {
                Some(why) => Err(why),
                None => {
                    // A fault of ours with one Gateway is not to end the work for all.
                    let executed =
                        AssertUnwindSafe(api::execute(&client, steps)).catch_unwind().await;
                    executed.unwrap_or_else(|_| Err("a fault of the translator".to_owned()))
                }
            };
            if let (Err(why), Some(about)) = (&outcome, about)
                && reported.as_ref() != Some(why)
            {
                recorder.send(&about, why).await;
            }
            (fleet, outcome)
        }
    }

    fn follow_ca_file(&mut self) {
        let Some(ca_file) = &mut self.ca_file else { return };
        if let Some(found) = ca_file.read_if_changed(self.state.ca_bundle()) {
            tracing::info!("the CA bundle of the distributors changed; updating all Envoys");
            self.state.set_ca_bundle(found);
        }
    }

    fn update(&mut self, part: Part, event: Result<Event<DynamicObject>, String>) {
        match event {
            Ok(event) => {
                // A list that begins is not yet answered.
                if !matches!(event, Event::Init) && self.unwatched.remove(&part) {
                    tracing::info!("{}s can be watched again", part.kind());
                }
                self.state.apply_event(part, event);
            }
            // Logged once: it is tried again and again.
            Err(error) => {
                if self.unwatched.insert(part) {
                    tracing::warn!(
                        "{}s of Gateways cannot be watched and stay unchanged: {error}",
                        part.kind()
                    );
                }
            }
        }
    }

    fn finish(&mut self, (fleet, outcome): StepsOutcome) {
        match &outcome {
            Ok(steps) => {
                self.metrics.calls.inc_by(*steps as u64);
                tracing::info!("the Envoys of {fleet} are up to date after {steps} changes");
            }
            Err(why) => {
                self.metrics.failures.inc();
                tracing::warn!("the Envoys of {fleet} cannot be updated: {why}; retrying");
            }
        }
        self.state.done(&fleet, outcome.map(|_| ()), Instant::now());
        self.metrics.failing.set(self.state.failing());
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => pending().await,
    }
}

/// The time limit of one call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
