//! Writes the `status` of objects: only entries that differ, only for the generation that they were computed from, and
//! never an entry of another controller.
//!
//! [`desired_status`] computes the status that an object is to have, [`plan`] the write that leads there, [`queue`] the
//! order of objects; all three do no IO. [`write`] calls the API server.

mod desired_status;
mod event_recorder;
mod metrics;
mod plan;
mod queue;
mod write;

pub use metrics::StatusMetrics;

use super::Observed;
use crate::report::Report;
use event_recorder::StatusEvents;
use heliograph_gateway::objects::{Kind, ObjectKey};
use heliograph_shared::backoff::Backoff;
use heliograph_shared::token_bucket::TokenBucket;
use jiff::Timestamp;
use kube::Client;
use plan::Write;
use queue::{StatusQueue, write_rate_limit};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use write::{WriteOutcome, WriteResult};

/// How many writes are under way at a time.
const AT_ONCE: usize = 16;

/// How long the status of an object is left alone if only the number of its proxies is another: they come and go.
const COUNTS_EVERY: Duration = Duration::from_secs(30);

/// How long a new term waits for what proxies answered, so that it takes nothing back that they will answer again.
const FEEDBACK_WAIT: Duration = Duration::from_secs(5);

/// Between two tries of what fails.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// How long there is nothing to do at most.
const IDLE: Duration = Duration::from_secs(3600);

/// Writes statuses, for as long as its term lasts.
pub struct StatusWriter {
    client: Client,
    report: watch::Receiver<Report>,
    observed: Observed,
    metrics: StatusMetrics,
    event_recorder: StatusEvents,
    queue: StatusQueue,
    rate_limit: TokenBucket<Instant>,
    jobs: JoinSet<WriteResult>,
    wait_for_feedback_until: Instant,
    /// How many changes of the report are known; `None` before the first look.
    read: Option<u64>,
    /// The Gateways, classes and policies that have something of ours, as far as this term knows.
    known: BTreeSet<ObjectKey>,
    /// When objects were last written.
    written: BTreeMap<ObjectKey, Instant>,
    /// The kinds that cannot be written, so that each is one line.
    failing: BTreeSet<Kind>,
    /// The kinds that may not be written, and when to try the next object of theirs.
    forbidden: BTreeMap<Kind, Instant>,
}

impl StatusWriter {
    /// `observed` is what the provider saw of the objects.
    pub fn new(
        client: Client,
        report: watch::Receiver<Report>,
        observed: Observed,
        metrics: StatusMetrics,
    ) -> Self {
        Self {
            event_recorder: StatusEvents::new(client.clone(), metrics.clone()),
            client,
            report,
            observed,
            metrics,
            queue: StatusQueue::default(),
            rate_limit: write_rate_limit(Instant::now()),
            jobs: JoinSet::new(),
            wait_for_feedback_until: Instant::now() + FEEDBACK_WAIT,
            read: None,
            known: BTreeSet::new(),
            written: BTreeMap::new(),
            failing: BTreeSet::new(),
            forbidden: BTreeMap::new(),
        }
    }

    /// Writes until it is stopped. Writes that are under way then are abandoned: the next leader checks all statuses.
    pub async fn run(mut self, stop: CancellationToken) {
        self.report.mark_changed();
        loop {
            let wake = self.begin_writes(Instant::now());
            self.metrics.waiting(self.queue.len());
            let observed = self.observed.clone();
            tokio::select! {
                () = stop.cancelled() => return,
                changed = self.report.changed() => match changed {
                    Ok(()) => self.mark_changed_objects(),
                    // The task of the world has ended: the term is about to end.
                    Err(_) => return stop.cancelled().await,
                },
                changed = observed.changed() => self.mark(changed),
                Some(done) = self.jobs.join_next() => {
                    if let Ok(answer) = done {
                        self.receive(answer, Instant::now());
                    }
                }
                () = sleep_until(wake) => {}
            }
        }
    }

    /// Marks the objects whose status may differ after a translation, a publication or an answer.
    fn mark_changed_objects(&mut self) {
        let report = self.report.borrow_and_update();
        if !report.complete {
            // What comes next is counted anew.
            drop(report);
            self.read = None;
            return;
        }
        let changed: Vec<ObjectKey> = match self.read.and_then(|read| report.changed.since(read)) {
            Some(changed) => changed.cloned().collect(),
            None => report.statuses.keys().cloned().chain(self.observed.keys()).collect(),
        };
        self.read = Some(report.changed.count());
        drop(report);
        self.mark(changed);
    }

    fn mark(&mut self, keys: impl IntoIterator<Item = ObjectKey>) {
        let now = Instant::now();
        let report = self.report.borrow();
        for key in keys.into_iter().filter(|key| write::resource(key.kind).is_some()) {
            // A rejection follows a change by a user, who is waiting for the status.
            let is_urgent = report.blame(&key).next().is_some();
            self.queue.mark(key, is_urgent, now);
        }
    }

    /// Plans for those that have their turn, and begins their writes. Returns when to look again.
    fn begin_writes(&mut self, now: Instant) -> Instant {
        // Before everything is translated, an object without a status is one that is not known yet.
        if self.read.is_none() {
            return now + IDLE;
        }
        if now < self.wait_for_feedback_until && self.report.borrow().feedback.is_none() {
            return self.wait_for_feedback_until;
        }
        while self.jobs.len() < AT_ONCE {
            let Some(key) = self.queue.next(now) else { break };
            let Some((write, uid)) = self.plan(&key) else {
                self.queue.done(key, now);
                continue;
            };
            let last = self.written.get(&key).filter(|_| write.is_minor);
            if let Some(due) = last.map(|at| *at + COUNTS_EVERY).filter(|due| *due > now) {
                self.queue.retry_at(key, due);
                continue;
            }
            if let Some(due) = self.forbidden.get(&key.kind).filter(|due| **due > now) {
                self.queue.retry_at(key, *due);
                continue;
            }
            if let Err(wait) = self.rate_limit.acquire(now) {
                self.queue.retry_at(key, now);
                return now + wait;
            }
            // One object is tried, to find out whether the others may be written.
            if let Some(due) = self.forbidden.get_mut(&key.kind) {
                *due = now + BACKOFF.longest;
            }
            self.jobs.spawn(write::write(self.client.clone(), key, uid, write));
        }
        match self.queue.next_at() {
            // Something ends first.
            Some(at) if self.jobs.len() < AT_ONCE => at,
            _ => now + IDLE,
        }
    }

    /// Plans the write to an object. Returns it with the object's UID.
    fn plan(&mut self, key: &ObjectKey) -> Option<(Write, String)> {
        let Some(seen) = self.observed.get(key) else {
            self.known.remove(key);
            self.written.remove(key);
            return None;
        };
        let report = self.report.borrow();
        // The term is over: nothing that is missing here is missing.
        if !report.complete {
            return None;
        }
        if let Some(reason) = &seen.unreadable {
            let (generation, written) = (seen.generation, &seen.status);
            let desired = desired_status::of_unreadable(key, reason, generation, &report, written)?;
            let write = plan::plan(key, Some(desired), &seen, true, Timestamp::now())?;
            return Some((write, seen.uid));
        }
        let generation = report.statuses.get(key).and_then(|status| status.generation());
        // The one that is behind marks the object again when it has caught up.
        if !plan::is_current(generation, &seen) {
            return None;
        }
        let desired = desired_status::of(key, &report, &seen.status);
        drop(report);
        let is_known = self.known.contains(key);
        // It is known until our entries have been removed.
        if desired.is_some() && !plan::is_signed(key.kind) {
            self.known.insert(key.clone());
        }
        let write = plan::plan(key, desired, &seen, is_known, Timestamp::now())?;
        Some((write, seen.uid))
    }

    fn receive(&mut self, answer: WriteResult, now: Instant) {
        let WriteResult { key, uid, events, removes_all, outcome } = answer;
        self.metrics.wrote(key.kind, &outcome);
        match outcome {
            WriteOutcome::Written(seen) => {
                self.observed.record_write(&key, seen);
                self.written.insert(key.clone(), now);
                if removes_all {
                    self.known.remove(&key);
                }
                self.forbidden.remove(&key.kind);
                if self.failing.remove(&key.kind) {
                    tracing::info!("statuses of {} can be written again", key.kind.as_str());
                }
                self.event_recorder.send(&key, &uid, events, now);
                self.queue.done(key, now);
            }
            WriteOutcome::Gone => self.queue.done(key, now),
            WriteOutcome::Conflict(seen) => {
                if let Some(seen) = seen {
                    self.observed.record_write(&key, seen);
                }
                self.retry(key, now);
            }
            WriteOutcome::Forbidden(why) => {
                if self.failing.insert(key.kind) {
                    let kind = key.kind.as_str();
                    tracing::warn!(
                        "no permission to write the status of a {kind}, retrying: {why}"
                    );
                }
                let due = now + BACKOFF.longest;
                self.forbidden.insert(key.kind, due);
                self.queue.retry_at(key, due);
            }
            WriteOutcome::Failed(why) => {
                if self.failing.insert(key.kind) {
                    tracing::warn!("the status of {key} cannot be written, retrying: {why}");
                }
                self.retry(key, now);
            }
        }
    }

    fn retry(&mut self, key: ObjectKey, now: Instant) {
        let attempts = self.queue.failed(&key);
        self.queue.retry_at(key, now + BACKOFF.jittered(attempts, fastrand::f64()));
    }
}
