//! Which new tokens Kubernetes is asked about, and when.

use super::cluster_keys::ClusterKeys;
use super::jwt::TokenRefused;
use super::metrics::{Review, SecurityMetrics};
use super::shares::{Precheck, Shares, Withheld};
use super::turns::{Turn, Turns};
use crate::load::network;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::timeout;

/// Lets in those tokens, of all that this replica has not seen, that Kubernetes is to be asked about: `keys` refuse what
/// is made up, `shares` say how many an address may bring, and `turns` how many are asked about at once.
pub(super) struct Admission {
    audience: String,
    keys: Arc<ClusterKeys>,
    shares: Mutex<Shares>,
    turns: Arc<Turns>,
    start: Instant,
    metrics: SecurityMetrics,
}

/// A token that Kubernetes is asked about now.
pub(super) struct Admitted<'a> {
    admission: &'a Admission,
    from: IpAddr,
    precheck: Precheck,
    _turn: Turn,
}

#[derive(Debug)]
pub(super) enum NotAdmitted {
    /// Its signature, its audience or its age is wrong.
    Refused(TokenRefused),
    /// It may be good.
    Later(&'static str),
}

const AT_ONCE: usize = 24;
/// How long a token waits for its turn.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const TOO_MANY: &str =
    "too many unknown tokens come at once (--xds-token-review-rate), try again after a pause";
const PENALTY: &str =
    "too many tokens from this address were refused, try again after some seconds";

impl Admission {
    /// `rate` is of questions per second.
    pub(super) fn new(
        audience: String,
        keys: Arc<ClusterKeys>,
        rate: u32,
        metrics: SecurityMetrics,
    ) -> Self {
        let (shares, turns) = (Mutex::new(Shares::new(rate)), Turns::new(AT_ONCE));
        Self { audience, keys, shares, turns, start: Instant::now(), metrics }
    }

    /// Waits until Kubernetes may be asked about this token, which is new.
    pub(super) async fn admit(
        &self,
        token: &str,
        from: IpAddr,
    ) -> Result<Admitted<'_>, NotAdmitted> {
        let precheck = self.precheck(token).map_err(|refused| {
            self.metrics.reviewed(Review::Offline);
            NotAdmitted::Refused(refused)
        })?;
        let taken = self.shares().take(from, precheck, self.start.elapsed());
        taken.map_err(|withheld| self.later(withheld))?;
        let lane = (network(from), precheck == Precheck::Signed);
        match timeout(LONGEST_WAIT, self.turns.wait(lane)).await {
            Ok(Ok(turn)) => Ok(Admitted { admission: self, from, precheck, _turn: turn }),
            Ok(Err(_)) | Err(_) => {
                self.shares().give_back(from, precheck);
                Err(self.later(Withheld::Share))
            }
        }
    }

    /// Somebody at this address has shown a good token.
    pub(super) fn accepted(&self, from: IpAddr) {
        self.shares().accepted(from);
    }

    fn precheck(&self, token: &str) -> Result<Precheck, TokenRefused> {
        let Some(keys) = self.keys.current() else { return Ok(Precheck::NoKeys) };
        if keys.screen(token, &self.audience, SystemTime::now())? {
            return Ok(Precheck::Signed);
        }
        self.keys.want();
        Ok(Precheck::UnknownKey)
    }

    fn later(&self, withheld: Withheld) -> NotAdmitted {
        let (review, words) = match withheld {
            Withheld::Share => (Review::Withheld, TOO_MANY),
            Withheld::Penalty => (Review::Delayed, PENALTY),
        };
        self.metrics.reviewed(review);
        NotAdmitted::Later(words)
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted<'_> {
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
