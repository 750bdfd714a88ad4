//! Tokens of Kubernetes ServiceAccounts, verified by their issuer: a TokenReview by the API server.

use super::api::{Api, ApiError};
use super::jwt::{TokenRefused, Unproven};
use super::metrics::{Review, SecurityMetrics};
use super::review_admission::{NotReviewed, ReviewAdmission};
use super::reviews::{CachedReview, Reviews};
use super::{Identity, Proven};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

/// Asks the API server about tokens, and caches the results.
pub(super) struct Reviewer {
    api: Arc<Api>,
    audience: String,
    reviews: Mutex<Reviews>,
    /// Decides which new tokens are reviewed: they may be made up.
    admission: ReviewAdmission,
    /// Permits for reviews of known tokens. So they do not wait for new tokens when their stream is authenticated again.
    known: Semaphore,
    /// When it last did not answer, if it has not since.
    failed: Mutex<Option<(Instant, Arc<str>)>>,
    metrics: SecurityMetrics,
}

/// A caller that the API server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reviewed {
    pub(super) proven: Proven,
    /// When it has to be asked again, at the latest.
    pub(super) valid_until: SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReviewRefused {
    #[error("Kubernetes rejects the token: {0}")]
    Refused(String),
    /// By what Kubernetes says of all tokens.
    #[error(transparent)]
    Offline(#[from] TokenRefused),
    /// Nothing is known of the token, which may be good.
    #[error("the token cannot be verified now: {0}")]
    Away(String),
}

#[derive(Deserialize)]
struct TokenReview {
    status: Status,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    user: User,
    #[serde(default)]
    error: String,
}

#[derive(Default, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    /// What the credential says beside that.
    extra: Option<Extra>,
}

#[derive(Default, Deserialize)]
struct Extra {
    /// Of a token that is bound to a pod.
    #[serde(default, rename = "authentication.kubernetes.io/pod-uid")]
    pod: Vec<Arc<str>>,
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const KNOWN_AT_ONCE: usize = 8;
/// The pause after a failure. Otherwise all streams would wait, one after the other, for a server that hangs.
const PAUSE: Duration = Duration::from_secs(2);

impl Reviewer {
    /// `fresh`: how long an answer is used without another request.
    pub(super) fn new(
        api: Arc<Api>,
        audience: String,
        fresh: Duration,
        admission: ReviewAdmission,
        metrics: SecurityMetrics,
    ) -> Self {
        Self {
            api,
            audience,
            reviews: Mutex::new(Reviews::new(fresh)),
            admission,
            known: Semaphore::new(KNOWN_AT_ONCE),
            failed: Mutex::new(None),
            metrics,
        }
    }

    /// The identity of a token from this address. A recent answer is used without a request; an older one while the API
    /// server is unreachable.
    pub(super) async fn review(
        &self,
        token: &str,
        from: IpAddr,
    ) -> Result<Reviewed, ReviewRefused> {
        let reviewed = self.reviewed(token, from).await;
        if reviewed.is_ok() {
            self.admission.accepted(from);
        }
        reviewed
    }

    async fn reviewed(&self, token: &str, from: IpAddr) -> Result<Reviewed, ReviewRefused> {
        let key = blake3::hash(token.as_bytes());
        if let Some(outcome) = self.cached_outcome(&key) {
            return outcome;
        }
        // Text that does not look like a token is rejected without a review.
        let unproven = Unproven::read(token)
            .ok_or_else(|| ReviewRefused::Refused("it is no JSON Web Token".to_owned()))?;
        if self.cached_review(&key, Reviews::trusted).is_some() {
            // It is never closed.
            let _turn = self.known.acquire().await;
            // Another may have asked the same meanwhile, or in vain.
            return match self.cached_outcome(&key) {
                Some(outcome) => outcome,
                None => self.ask_and_cache(token, key, &unproven).await,
            };
        }
        let permit = self.admission.admit(token, from).await?;
        if let Some(outcome) = self.cached_outcome(&key) {
            permit.give_back();
            return outcome;
        }
        let outcome = self.ask_and_cache(token, key, &unproven).await;
        if matches!(outcome, Err(ReviewRefused::Refused(_))) {
            permit.refused();
        }
        outcome
    }

    async fn ask_and_cache(
        &self,
        token: &str,
        key: blake3::Hash,
        unproven: &Unproven,
    ) -> Result<Reviewed, ReviewRefused> {
        let asked = self.ask(token).await;
        self.metrics.reviewed(match &asked {
            Ok(Ok(_)) => Review::Known,
            Ok(Err(_)) => Review::Refused,
            Err(_) => Review::Failed,
        });
        let mut failed = self.failed.lock();
        match asked {
            Ok(result) => {
                *failed = None;
                drop(failed);
                let expires = unproven.expires;
                let cached = CachedReview { result, at: SystemTime::now(), expires };
                let mut reviews = self.reviews.lock();
                reviews.insert(key, cached.clone());
                cached.into_outcome()
            }
            Err(error) => {
                let words: Arc<str> = error.to_string().into();
                *failed = Some((Instant::now(), words.clone()));
                drop(failed);
                self.without_asking(&key, &words)
            }
        }
    }

    /// The outcome without a question: of a recent review, or just after a failure, of a review that is still trusted.
    fn cached_outcome(&self, key: &blake3::Hash) -> Option<Result<Reviewed, ReviewRefused>> {
        if let Some(cached) = self.cached_review(key, Reviews::fresh) {
            return Some(cached.into_outcome());
        }
        let failed = self.failed.lock().clone();
        let (_, words) = failed.filter(|(at, _)| at.elapsed() < PAUSE)?;
        Some(self.without_asking(key, &words))
    }

    fn without_asking(&self, key: &blake3::Hash, failure: &str) -> Result<Reviewed, ReviewRefused> {
        match self.cached_review(key, Reviews::trusted) {
            Some(cached) => cached.into_outcome(),
            None => Err(ReviewRefused::Away(failure.to_owned())),
        }
    }

    fn cached_review(
        &self,
        key: &blake3::Hash,
        which: fn(&Reviews, &blake3::Hash, SystemTime) -> Option<CachedReview>,
    ) -> Option<CachedReview> {
        let reviews = self.reviews.lock();
        which(&reviews, key, SystemTime::now())
    }

    async fn ask(&self, token: &str) -> Result<Result<Proven, String>, ApiError> {
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token, "audiences": [self.audience] },
        });
        let answer: TokenReview = self.api.post(PATH, &question).await?;
        Ok(evaluate(answer.status, &self.audience))
    }
}

impl From<NotReviewed> for ReviewRefused {
    fn from(not_reviewed: NotReviewed) -> Self {
        match not_reviewed {
            NotReviewed::Refused(refused) => Self::Offline(refused),
            NotReviewed::Later(why) => Self::Away(why.to_owned()),
        }
    }
}

fn evaluate(status: Status, audience: &str) -> Result<Proven, String> {
    let Status { authenticated, audiences, user, error } = status;
    if !authenticated {
        // Its words are about the token and do not hold it; they are a client's to read, so they are short.
        let words: String = error.chars().filter(|c| !c.is_control()).take(200).collect();
        return Err(if words.is_empty() { "it is not valid".to_owned() } else { words });
    }
    // A server that does not know of audiences leaves them out, and then the token may be for any audience.
    if !audiences.iter().any(|found| found == audience) {
        return Err(format!("it is not for the audience {audience:?}"));
    }
    match Identity::of_subject(&user.username) {
        Some(identity @ Identity::ServiceAccount { .. }) => {
            Ok(Proven { identity, pod: user.extra.and_then(|extra| extra.pod.into_iter().next()) })
        }
        _ => Err("it is not of a ServiceAccount".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluated(status: serde_json::Value) -> Result<Proven, String> {
        evaluate(serde_json::from_value(status).unwrap(), "heliograph")
    }

    #[test]
    fn only_a_service_account_for_our_audience_is_known() {
        let good = json!({
            "authenticated": true, "audiences": ["heliograph"],
            "user": { "username": "system:serviceaccount:edge:envoy", "groups": ["x"] },
        });
        let account = Identity::ServiceAccount { namespace: "edge".into(), name: "envoy".into() };
        assert_eq!(evaluated(good.clone()), Ok(account.clone().into()));
        let mut in_pod = good.clone();
        in_pod["user"]["extra"] = json!({ "authentication.kubernetes.io/pod-uid": ["f3c2"] });
        let expected = Proven { identity: account, pod: Some("f3c2".into()) };
        assert_eq!(evaluated(in_pod), Ok(expected));
        for (field, value, expected) in [
            ("authenticated", json!(false), "not valid"),
            ("audiences", json!([]), "audience"),
            ("audiences", json!(["kubernetes"]), "audience"),
            ("user", json!({ "username": "admin" }), "not of a ServiceAccount"),
            ("user", json!({}), "not of a ServiceAccount"),
        ] {
            let mut status = good.clone();
            status[field] = value;
            let refused = evaluated(status).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        }
        assert_eq!(
            evaluated(json!({ "error": "token\nhas expired" })),
            Err("tokenhas expired".into())
        );
        assert_eq!(evaluated(json!({})), Err("it is not valid".into()));
    }
}
