use super::reports::WorkerReports;
use super::watch::Watch;
use heliograph_report::{Figures, LiveStatus, ProgressLine, RunMetrics, Sample, total};
use parking_lot::Mutex;
use std::io::{self, IsTerminal, Stderr};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The progress of a run, for users.
#[derive(Debug)]
pub(super) struct Stage {
    now: Mutex<Scene>,
    /// None if progress is not shown.
    progress: Option<Mutex<ProgressLine<Stderr>>>,
}

/// The current step of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Scene {
    pub(super) phase: String,
    /// How many clients there shall be.
    pub(super) wanted: usize,
    /// The figures when the phase began.
    pub(super) begun: Figures,
}

const POLL_INTERVAL: Duration = Duration::from_millis(500);

impl Stage {
    pub(super) fn new(shown: bool) -> Self {
        let progress = || Mutex::new(ProgressLine::new(io::stderr(), io::stderr().is_terminal()));
        Self { now: Mutex::default(), progress: shown.then(progress) }
    }

    /// The last line stays.
    pub(super) fn end(&self) {
        if let Some(progress) = &self.progress {
            // A terminal that is gone is no reason to complain.
            let _ = progress.lock().finish();
        }
    }

    pub(super) fn set(&self, change: impl FnOnce(&mut Scene)) {
        change(&mut self.now.lock());
    }

    pub(super) fn scene(&self) -> Scene {
        self.now.lock().clone()
    }
}

/// Looks at servers, and tells people and Prometheus how it goes, until it is dropped.
pub(super) async fn follow(
    reports: Arc<WorkerReports>,
    watch: Arc<Watch>,
    stage: Arc<Stage>,
    metrics: Option<RunMetrics>,
) {
    let started = Instant::now();
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = (Figures::default(), started);
    loop {
        ticks.tick().await;
        // A server that is gone is reported elsewhere.
        let _ = watch.sample().await;
        let samples = total(&watch.servers());
        let (figures, now) = (reports.figures(), Instant::now());
        if let Some(metrics) = &metrics {
            metrics.set(&figures);
            samples.last().into_iter().for_each(|sample| metrics.set_servers(sample));
        }
        let scene = stage.scene();
        if let Some(progress) = stage.progress.as_ref().filter(|_| scene.wanted > 0) {
            let apart = now.duration_since(before.1);
            let mut live = LiveStatus::between(&before.0, &figures, &scene.begun, apart);
            if let [.., earlier, latest] = recent(&samples) {
                live = live.with_servers(earlier, latest);
            }
            live.streams = reports.totals().up as u64;
            (live.elapsed, live.phase) = (now.duration_since(started), scene.phase);
            live.wanted = scene.wanted as u64;
            let _ = progress.lock().show(&live);
        }
        before = (figures, now);
    }
}

fn recent(samples: &[Sample]) -> &[Sample] {
    samples.get(samples.len().saturating_sub(2)..).unwrap_or_default()
}
