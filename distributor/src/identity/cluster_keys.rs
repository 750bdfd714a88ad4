use super::api::{Api, ApiError};
use super::jwt::KeySet;
use super::metrics::SecurityMetrics;
use http::StatusCode;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The public keys with which the cluster signs tokens of ServiceAccounts, as the API server publishes them. With them tokens
/// that are made up are refused without a question. That there are none, or old ones, refuses no good token: a token names its
/// key, and what does not fit the key of that name was not signed with it.
pub(super) struct ClusterKeys {
    api: Arc<Api>,
    current: Mutex<Option<Arc<KeySet>>>,
    /// Notified when a token names a key that is not there.
    refresh_requested: Notify,
    metrics: SecurityMetrics,
}

/// The result of reading the keys.
#[derive(Debug, PartialEq, Eq)]
enum Fetched {
    Keys(usize),
    /// This API server does not let us read them. An operator may allow it.
    Denied(String),
    Failed(String),
}

const PATH: &str = "/openid/v1/jwks";
/// How often the keys are read while no refresh is requested, or the API server denies them.
const EVERY: Duration = Duration::from_secs(300);
/// How often at most, however many tokens name unknown keys.
const PAUSE: Duration = Duration::from_secs(10);

impl ClusterKeys {
    pub(super) fn new(api: Arc<Api>, metrics: SecurityMetrics) -> Self {
        Self { api, current: Mutex::default(), refresh_requested: Notify::new(), metrics }
    }

    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        self.current.lock().clone()
    }

    /// A token names a key that is not there: the cluster may have a new one.
    pub(super) fn request_refresh(&self) {
        self.refresh_requested.notify_one();
    }

    /// Keeps them up to date.
    pub(super) async fn follow(&self) -> Infallible {
        let mut last = None;
        loop {
            let fetched = self.fetch().await;
            if last.as_ref() != Some(&fetched) {
                fetched.log(self.current().is_some());
            }
            let wait = fetched.wait();
            last = Some(fetched);
            sleep(PAUSE).await;
            // A refresh that was requested meanwhile begins now.
            let _ = timeout(wait, self.refresh_requested.notified()).await;
        }
    }

    async fn fetch(&self) -> Fetched {
        let answer = match self.api.get(PATH).await {
            Ok(answer) => answer,
            Err(error @ (ApiError::Forbidden(_) | ApiError::Status(StatusCode::NOT_FOUND))) => {
                return Fetched::Denied(match error {
                    ApiError::Forbidden(status) => format!("it answers {status}"),
                    other => other.to_string(),
                });
            }
            Err(error) => return Fetched::Failed(error.to_string()),
        };
        match KeySet::parse(&answer) {
            Ok(keys) => {
                let count = keys.len();
                *self.current.lock() = Some(keys.into());
                self.metrics.cluster_keys(count);
                Fetched::Keys(count)
            }
            Err(error) => Fetched::Denied(error.to_string()),
        }
    }
}

impl Fetched {
    /// The time until they are read again, beyond the pause, unless a refresh is requested.
    fn wait(&self) -> Duration {
        match self {
            Self::Keys(_) | Self::Denied(_) => EVERY,
            Self::Failed(_) => Duration::ZERO,
        }
    }

    fn log(&self, has_keys: bool) {
        match self {
            Self::Keys(keys) => {
                tracing::info!(
                    keys,
                    "tokens are verified with the cluster's keys before a TokenReview"
                );
            }
            Self::Denied(reason) | Self::Failed(reason) if has_keys => {
                tracing::warn!(
                    reason,
                    "the Kubernetes API does not return its keys for tokens ({PATH}); the previous keys stay in use"
                );
            }
            Self::Denied(reason) | Self::Failed(reason) => {
                tracing::warn!(
                    reason,
                    "the Kubernetes API does not return its keys for tokens ({PATH}, ClusterRole system:service-account-issuer-discovery): invalid \
                     tokens need a TokenReview too, and the number for each address is limited"
                );
            }
        }
    }
}
