//! Has run on the API server what the core says is to run for each Gateway, for as long as this translator leads.
//!
//! [`Desk`](desk::Desk) holds what is wanted and what there is, and decides what is next; the rest asks and waits.

mod api;
mod args;
mod desk;
mod metrics;

pub use args::ProxyArgs;
pub use metrics::InfraMetrics;

use crate::report::Report;
use desk::Desk;
use futures::stream::{self, BoxStream, StreamExt};
use heliograph_snapshot::FleetName;
use heliograph_translator_core::infra::{Part, ProxySettings, names};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use std::collections::BTreeSet;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// What runs for Gateways.
pub struct Infra {
    client: Client,
    report: watch::Receiver<Report>,
    desk: Desk,
    metrics: InfraMetrics,
    /// The parts whose watch fails, so that it is told once.
    unwatched: BTreeSet<Part>,
}

/// How many Gateways are worked on at once.
const AT_ONCE: usize = 8;

type Events = BoxStream<'static, (Part, watcher::Result<watcher::Event<DynamicObject>>)>;
type Outcome = (FleetName, Result<usize, String>);

impl Infra {
    pub fn new(
        client: Client,
        report: watch::Receiver<Report>,
        settings: ProxySettings,
        metrics: InfraMetrics,
    ) -> Self {
        let desk = Desk::new(settings);
        Self { client, report, desk, metrics, unwatched: BTreeSet::new() }
    }

    /// Keeps what there is as it should be, until it is stopped.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), JoinError> {
        let mut events = self.events();
        let mut work: JoinSet<Outcome> = JoinSet::new();
        self.desk.hear(&self.report.borrow_and_update());
        loop {
            while work.len() < AT_ONCE
                && let Some((fleet, steps)) = self.desk.next(Instant::now())
            {
                let client = self.client.clone();
                work.spawn(async move { (fleet, api::take(&client, steps).await) });
            }
            let retry = self.desk.next_retry();
            tokio::select! {
                () = stop.cancelled() => break,
                Ok(()) = self.report.changed() => {
                    self.desk.hear(&self.report.borrow_and_update());
                }
                Some((part, event)) = events.next() => self.note(part, event),
                Some(done) = work.join_next() => self.finish(done?),
                () = at(retry) => {}
            }
        }
        // A call that has begun may have been heard: nothing is lost by not waiting for its answer.
        work.shutdown().await;
        Ok(())
    }

    /// Everything that has our labels, of every part.
    fn events(&self) -> Events {
        let streams = Part::ALL.map(|part| {
            let config = watcher::Config::default().labels(&names::selector());
            let stream = watcher(api::all(&self.client, part), config).default_backoff();
            stream.map(move |event| (part, event)).boxed()
        });
        stream::select_all(streams).boxed()
    }

    fn note(&mut self, part: Part, event: watcher::Result<watcher::Event<DynamicObject>>) {
        match event {
            Ok(event) => {
                if self.unwatched.remove(&part) {
                    tracing::info!("{}s are watched again", part.kind());
                }
                self.desk.note(part, event);
            }
            // Told once: it is tried again and again.
            Err(error) => {
                if self.unwatched.insert(part) {
                    tracing::warn!(
                        "{}s of Gateways cannot be watched, and are left as they are: {error}",
                        part.kind()
                    );
                }
            }
        }
    }

    fn finish(&mut self, (fleet, outcome): Outcome) {
        match &outcome {
            Ok(steps) => {
                self.metrics.calls.inc_by(*steps as u64);
                tracing::info!("what runs for Gateway {fleet} is up to date: {steps} changes");
            }
            Err(why) => {
                self.metrics.failures.inc();
                tracing::warn!("what runs for Gateway {fleet}: {why}; trying again");
            }
        }
        self.desk.done(&fleet, outcome.is_ok(), Instant::now());
        self.metrics.failing.set(self.desk.failing());
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => pending().await,
    }
}

/// The longest that one call may take.
const PATIENCE: Duration = Duration::from_secs(30);
