//! What to do when a kind cannot be listed or watched.

use super::super::api_failure::{ApiFailure, FailureReason};
use super::{ANSWER_TIMEOUT, KindWatch, Next};
use heliograph_shared::backoff::{Backoff, upper_half};
use kube::api::{ListParams, WatchParams};
use kube::runtime::watcher;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How often to probe a kind that is not served, or not to us.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// After so long a failure has nothing to do with the one before.
const FAILURE_MEMORY: Duration = Duration::from_secs(60);

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));

/// How often in a row a kind that had objects must be found not to be served before they are gone. When a CRD is
/// deleted, its objects are deleted first, which the watch reports.
const ABSENT: u32 = 3;

/// The result of discovery for a kind.
enum Serving {
    /// In the version that is read here.
    AsRead,
    /// In these versions, and not in that one: there may be objects.
    InOtherVersions(Vec<String>),
    Not,
}

impl KindWatch {
    pub(super) async fn recover(&mut self, error: &watcher::Error) -> Next {
        let failure = ApiFailure::of_watch(error);
        if failure.reason == FailureReason::Expired {
            self.stale().await;
            self.outputs.health.record_interruption(self.kind, &failure);
            self.expired().await;
            // A watch that is refused with 410 would be begun at the same place for ever.
            return match error {
                watcher::Error::WatchStartFailed(_) => Next::ListAgain,
                _ => Next::GoOn,
            };
        }
        let is_first = self.failures == 0 || self.failed_at.elapsed() > FAILURE_MEMORY;
        self.failed_at = Instant::now();
        if is_first && matches!(failure.reason, FailureReason::Failed | FailureReason::Unavailable)
        {
            // A watch that breaks off is begun again where it was, which is not worth a log line.
            self.failures = 1;
            self.outputs.health.record_interruption(self.kind, &failure);
            if matches!(error, watcher::Error::WatchFailed(_)) {
                // It has ended, and was current until then. Nothing was asked since.
                self.pause(failure.reason).await;
                return Next::GoOn;
            }
            self.stale().await;
            self.pause(failure.reason).await;
            return self.catch_up().await;
        }
        match self.wait_until_listable(failure).await {
            Next::GoOn => self.catch_up().await,
            Next::ListAgain => Next::ListAgain,
        }
    }

    /// Waits until the kind can be listed.
    pub(super) async fn wait_until_listable(&mut self, mut failure: ApiFailure) -> Next {
        let mut next = Next::GoOn;
        self.stale().await;
        loop {
            self.failures = self.failures.saturating_add(1);
            if matches!(failure.reason, FailureReason::Absent | FailureReason::Forbidden) {
                failure = self.discover(failure).await;
            }
            self.outputs.health.record_failure(self.kind, &self.resource.plural, &failure);
            if failure.reason == FailureReason::Absent {
                next = Next::ListAgain;
                self.treat_as_absent().await;
            } else {
                self.absent = 0;
                self.stale().await;
            }
            if failure.reason == FailureReason::Forbidden {
                self.report_known().await;
            }
            self.pause(failure.reason).await;
            match self.probe().await {
                Ok(()) => break,
                Err(other) => failure = other,
            }
        }
        self.outputs.health.record_watched(self.kind);
        next
    }

    /// Whether the kind can be listed and watched. Otherwise an account that may do only one of them would cause a log
    /// line again and again.
    async fn probe(&self) -> Result<(), ApiFailure> {
        let list = answer(self.api.list_metadata(&ListParams::default().limit(1))).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        // Dropped when it has begun.
        answer(self.api.watch_metadata(&WatchParams::default(), &version)).await.map(drop)
    }

    /// No more can be known while the kind may not be read: a new leader must not wait for it, but lead with the objects
    /// that it has. Of a protecting kind, the previous leader may have known more.
    async fn report_known(&mut self) {
        let asked = *self.asked.borrow_and_update();
        if !self.kind.is_protecting() && self.fresh_for.is_some_and(|fresh| fresh < asked) {
            self.reach(asked).await;
        }
    }

    /// The kind is listed again at once, but not again and again.
    async fn expired(&mut self) {
        let before = self.expired_at.replace(Instant::now());
        let is_repeated = before.is_some_and(|before| before.elapsed() < FAILURE_MEMORY);
        self.relists = if is_repeated { self.relists.saturating_add(1) } else { 0 };
        if self.relists > 0 {
            sleep(BACKOFF.jittered(self.relists, fastrand::f64())).await;
        }
    }

    /// Nothing serves the kind, so there is nothing of it.
    async fn treat_as_absent(&mut self) {
        self.absent = self.absent.saturating_add(1);
        if self.absent >= ABSENT || self.cache.is_empty() {
            self.listing_for = *self.asked.borrow_and_update();
            // There is nothing of it in any namespace, whichever are chosen.
            self.choice = None;
            self.cache.begin();
            self.listed().await;
        }
    }

    /// Asks what the API serves: a 404 alone may be of something in between, and whether one may read a kind is asked before
    /// whether it is there.
    async fn discover(&self, failure: ApiFailure) -> ApiFailure {
        match (self.served().await, failure.reason) {
            (Ok(Serving::Not), _) => ApiFailure { reason: FailureReason::Absent, ..failure },
            (Ok(Serving::InOtherVersions(versions)), _) => ApiFailure::other_versions(&versions),
            (Ok(Serving::AsRead), FailureReason::Absent) => ApiFailure::failed(&failure.cause),
            (Ok(Serving::AsRead), _) => failure,
            // Discovery itself is missing, which shows nothing of the kind.
            (Err(other), _) if other.reason == FailureReason::Absent => {
                ApiFailure::failed(&other.cause)
            }
            (Err(other), _) => other,
        }
    }

    async fn served(&self) -> Result<Serving, ApiFailure> {
        let (group, version) = (self.kind.group(), self.kind.api_version().unwrap_or_default());
        if group.is_empty() {
            return Ok(Serving::AsRead);
        }
        let groups = answer(self.client.list_api_groups()).await?;
        let versions = groups.groups.iter().filter(|found| found.name == group);
        let mut others = Vec::new();
        for found in versions.flat_map(|found| &found.versions) {
            // Of a kind that protects nothing, objects of other versions are as good as not there.
            if found.version != version && !self.kind.is_protecting() {
                continue;
            }
            let served = answer(self.client.list_api_group_resources(&found.group_version)).await?;
            if !served.resources.iter().any(|found| found.name == self.resource.plural) {
                continue;
            }
            if found.version == version {
                return Ok(Serving::AsRead);
            }
            others.push(found.version.clone());
        }
        Ok(if others.is_empty() { Serving::Not } else { Serving::InOtherVersions(others) })
    }

    async fn pause(&mut self, reason: FailureReason) {
        let jitter = fastrand::f64();
        let pause = match reason {
            FailureReason::Absent | FailureReason::Forbidden | FailureReason::OtherVersion => {
                upper_half(PROBE_INTERVAL, jitter)
            }
            _ => BACKOFF.jittered(self.failures, jitter),
        };
        let asked = *self.asked.borrow();
        tokio::select! {
            () = sleep(pause) => {}
            // A new leader waits for it.
            _ = self.asked.wait_for(|now| *now > asked) => {}
        }
    }
}

pub(in super::super) async fn answer<T>(
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiFailure> {
    match timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer.map_err(|error| ApiFailure::of(&error)),
        Err(_) => Err(ApiFailure::unavailable("no answer")),
    }
}
