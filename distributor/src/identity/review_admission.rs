//! Decides which new tokens the API server reviews, and when.

use super::cluster_keys::ClusterKeys;
use super::jwt::TokenRefused;
use super::metrics::{Review, SecurityMetrics};
use super::review_queue::{ReviewQueue, ReviewSlot};
use super::shares::{Precheck, ReviewShares, Withheld};
use crate::load::network;
use parking_lot::{Mutex, MutexGuard};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;

/// Decides which of the tokens that this replica has not seen Kubernetes is asked about: `keys` refuse what is made up,
/// `shares` limit how many an address may bring, and `queue` how many are asked about at once.
pub(super) struct ReviewAdmission {
    audience: String,
    keys: Arc<ClusterKeys>,
    shares: Mutex<ReviewShares>,
    queue: Arc<ReviewQueue>,
    start: Instant,
    metrics: SecurityMetrics,
}

/// The permission to ask Kubernetes about a token now.
pub(super) struct ReviewPermit<'a> {
    admission: &'a ReviewAdmission,
    from: IpAddr,
    precheck: Precheck,
    _slot: ReviewSlot,
}

/// Why Kubernetes is not asked about a token.
#[derive(Debug)]
pub(super) enum NotReviewed {
    /// Its signature, its audience or its age is wrong.
    Refused(TokenRefused),
    /// It may be good.
    Later(&'static str),
}

const MAX_CONCURRENT: usize = 24;
/// How long a token waits for its turn.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
const TOO_MANY: &str =
    "too many unknown tokens arrive at once (--xds-token-review-rate): try again after a pause";
const PENALTY: &str =
    "too many tokens from this address were rejected: try again after some seconds";

impl ReviewAdmission {
    /// `rate` is of questions per second.
    pub(super) fn new(
        audience: String,
        keys: Arc<ClusterKeys>,
        rate: u32,
        metrics: SecurityMetrics,
    ) -> Self {
        let (shares, queue) =
            (Mutex::new(ReviewShares::new(rate)), ReviewQueue::new(MAX_CONCURRENT));
        Self { audience, keys, shares, queue, start: Instant::now(), metrics }
    }

    /// Waits until Kubernetes may be asked about this token, which is new.
    pub(super) async fn admit(
        &self,
        token: &str,
        from: IpAddr,
    ) -> Result<ReviewPermit<'_>, NotReviewed> {
        let precheck = self.precheck(token).map_err(|refused| {
            self.metrics.reviewed(Review::Offline);
            NotReviewed::Refused(refused)
        })?;
        let taken = self.shares().acquire(from, precheck, self.start.elapsed());
        taken.map_err(|withheld| self.later(withheld))?;
        let lane = (network(from), precheck == Precheck::Signed);
        match timeout(QUEUE_TIMEOUT, self.queue.wait(lane)).await {
            Ok(Ok(slot)) => Ok(ReviewPermit { admission: self, from, precheck, _slot: slot }),
            Ok(Err(_)) | Err(_) => {
                self.shares().give_back(from, precheck);
                Err(self.later(Withheld::Share))
            }
        }
    }

    /// A client at this address has shown a good token.
    pub(super) fn accepted(&self, from: IpAddr) {
        self.shares().accepted(from);
    }

    fn precheck(&self, token: &str) -> Result<Precheck, TokenRefused> {
        let Some(keys) = self.keys.current() else { return Ok(Precheck::NoKeys) };
        if keys.screen(token, &self.audience, SystemTime::now())? {
            return Ok(Precheck::Signed);
        }
        self.keys.request_refresh();
        Ok(Precheck::UnknownKey)
    }

    fn later(&self, withheld: Withheld) -> NotReviewed {
        let (review, words) = match withheld {
            Withheld::Share => (Review::Withheld, TOO_MANY),
            Withheld::Penalty => (Review::Delayed, PENALTY),
        };
        self.metrics.reviewed(review);
        NotReviewed::Later(words)
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn shares(&self) -> MutexGuard<'_, ReviewShares> {
        self.shares.lock()
    }
}

impl ReviewPermit<'_> {
    /// Kubernetes need not be asked after all.
    pub(super) fn give_back(self) {
        self.admission.shares().give_back(self.from, self.precheck);
    }

    /// Kubernetes has refused the token.
    pub(super) fn refused(self) {
        let now = self.admission.start.elapsed();
        self.admission.shares().refused(self.from, self.precheck, now);
    }
}
