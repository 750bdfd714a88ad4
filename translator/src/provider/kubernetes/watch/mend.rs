//! What to do when a kind cannot be listed or watched.

use super::super::trouble::{Reason, Trouble};
use super::{ANSWER, KindWatch, Next};
use crate::backoff;
use kube::api::{ListParams, WatchParams};
use kube::runtime::watcher;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How often to ask for a kind that is not served, or not to us.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// After so long a failure has nothing to do with the one before.
const LONG_AGO: Duration = Duration::from_secs(60);

const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How often in a row a kind that had objects must be found not to be served before they are gone. Who deletes a CRD
/// deletes its objects first, and the watch tells of it.
const ABSENT: u32 = 3;

/// What discovery reports of a kind.
enum Serving {
    /// In the version that is read here.
    AsRead,
    /// In these versions, and not in that one: there may be objects.
    InOtherVersions(Vec<String>),
    Not,
}

impl KindWatch {
    pub(super) async fn recover(&mut self, error: &watcher::Error) -> Next {
        let trouble = Trouble::of_watch(error);
        if trouble.reason == Reason::Expired {
            self.stale().await;
            self.told.board.note_hiccup(self.kind, &trouble);
            self.expired().await;
            // A watch that is refused with 410 would be begun at the same place for ever.
            return match error {
                watcher::Error::WatchStartFailed(_) => Next::ListAgain,
                _ => Next::GoOn,
            };
        }
        let is_first = self.failures == 0 || self.failed_at.elapsed() > LONG_AGO;
        self.failed_at = Instant::now();
        if is_first && matches!(trouble.reason, Reason::Failed | Reason::Unavailable) {
            // A watch that breaks off is begun again where it was, and nobody needs to know.
            self.failures = 1;
            self.told.board.note_hiccup(self.kind, &trouble);
            if matches!(error, watcher::Error::WatchFailed(_)) {
                // It has ended, and was current until then. Nothing was asked since.
                self.pause(trouble.reason).await;
                return Next::GoOn;
            }
            self.stale().await;
            self.pause(trouble.reason).await;
            return self.catch_up().await;
        }
        match self.mend(trouble).await {
            Next::GoOn => self.catch_up().await,
            Next::ListAgain => Next::ListAgain,
        }
    }

    /// Waits until the kind can be listed.
    pub(super) async fn mend(&mut self, mut trouble: Trouble) -> Next {
        let mut next = Next::GoOn;
        self.stale().await;
        loop {
            self.failures = self.failures.saturating_add(1);
            if matches!(trouble.reason, Reason::Absent | Reason::Forbidden) {
                trouble = self.discover(trouble).await;
            }
            self.told.board.note_trouble(self.kind, &self.resource.plural, &trouble);
            if trouble.reason == Reason::Absent {
                next = Next::ListAgain;
                self.be_without().await;
            } else {
                self.absent = 0;
                self.stale().await;
            }
            if trouble.reason == Reason::Forbidden {
                self.vouch().await;
            }
            self.pause(trouble.reason).await;
            match self.probe().await {
                Ok(()) => break,
                Err(other) => trouble = other,
            }
        }
        self.told.board.note_watched(self.kind);
        next
    }

    /// Whether the kind can be listed and watched. Who may do the one and not the other would be told so again and again.
    async fn probe(&self) -> Result<(), Trouble> {
        let list = answer(self.api.list_metadata(&ListParams::default().limit(1))).await?;
        let version = list.metadata.resource_version.unwrap_or_default();
        // Dropped when it has begun.
        answer(self.api.watch_metadata(&WatchParams::default(), &version)).await.map(drop)
    }

    /// What is known is all there is to be known, for as long as the kind may not be read: who has just been elected is not to
    /// wait for it, but to lead with what it has. Of a protecting kind, the one who led before may know of more.
    async fn vouch(&mut self) {
        let asked = *self.asked.borrow_and_update();
        if !self.kind.is_protecting() && self.fresh_for.is_some_and(|fresh| fresh < asked) {
            self.reach(asked).await;
        }
    }

    /// The kind is listed again at once, but not again and again.
    async fn expired(&mut self) {
        let before = self.expired_at.replace(Instant::now());
        let is_repeated = before.is_some_and(|before| before.elapsed() < LONG_AGO);
        self.relists = if is_repeated { self.relists.saturating_add(1) } else { 0 };
        if self.relists > 0 {
            sleep(backoff::after(self.relists, LONGEST_PAUSE, fastrand::f64())).await;
        }
    }

    /// Nothing serves the kind, so there is nothing of it.
    async fn be_without(&mut self) {
        self.absent = self.absent.saturating_add(1);
        if self.absent >= ABSENT || self.holdings.is_empty() {
            self.listing_for = *self.asked.borrow_and_update();
            // There is nothing of it in any namespace, whichever are chosen.
            self.choice = None;
            self.holdings.begin();
            self.listed().await;
        }
    }

    /// Asks what the API serves: a 404 alone may be of something in between, and whether one may read a kind is asked before
    /// whether it is there.
    async fn discover(&self, trouble: Trouble) -> Trouble {
        match (self.served().await, trouble.reason) {
            (Ok(Serving::Not), _) => Trouble { reason: Reason::Absent, ..trouble },
            (Ok(Serving::InOtherVersions(versions)), _) => Trouble::other_versions(&versions),
            (Ok(Serving::AsRead), Reason::Absent) => Trouble::failed(&trouble.cause),
            (Ok(Serving::AsRead), _) => trouble,
            // Discovery itself is missing, which shows nothing of the kind.
            (Err(other), _) if other.reason == Reason::Absent => Trouble::failed(&other.cause),
            (Err(other), _) => other,
        }
    }

    async fn served(&self) -> Result<Serving, Trouble> {
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

    async fn pause(&mut self, reason: Reason) {
        let random = fastrand::f64();
        let pause = match reason {
            Reason::Absent | Reason::Forbidden | Reason::OtherVersion => {
                LOOK_EVERY.mul_f64(0.5 + random / 2.0)
            }
            _ => backoff::after(self.failures, LONGEST_PAUSE, random),
        };
        let asked = *self.asked.borrow();
        tokio::select! {
            () = sleep(pause) => {}
            // Someone waits for it.
            _ = self.asked.wait_for(|now| *now > asked) => {}
        }
    }
}

pub(in super::super) async fn answer<T>(
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Trouble> {
    match timeout(ANSWER, answer).await {
        Ok(answer) => answer.map_err(|error| Trouble::of(&error)),
        Err(_) => Err(Trouble::unavailable("no answer")),
    }
}
