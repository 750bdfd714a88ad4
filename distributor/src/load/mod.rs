//! Limits of a replica: how much clients may request, and how long they stay connected. `server` enforces these
//! decisions.

mod admission;
mod args;
mod files;
mod metrics;
mod owner;
mod quota;
mod rate;
mod receive;
mod request_limiter;
mod shares;
mod shed;
mod spread;
mod unauthenticated;
mod usage;

pub(crate) use admission::{Admission, Refusal, network};
pub use args::LoadArgs;
pub use files::allow_open_files;
pub(crate) use metrics::LoadMetrics;
pub(crate) use owner::Owner;
pub(crate) use quota::{Cause, QuotaKey, SubscriptionPermit, SubscriptionQuota};
pub(crate) use receive::{ReceivePermit, ReceiveQuota};
pub(crate) use request_limiter::{NextRead, RequestLimiter};
pub(crate) use shed::{OtherReplicas, shed};
pub(crate) use spread::{age, spread_delay};
pub(crate) use unauthenticated::Unauthenticated;
pub(crate) use usage::Usage;

/// Why a connection ends that its client would have kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was open for long enough.
    Age,
    /// The replica shuts down.
    Drain,
    /// It asked for nothing in time.
    Silence,
    /// It was not authenticated yet, and was closed for another.
    Unauthenticated,
    /// It did not read what was sent to it.
    SlowReader,
    /// Other replicas have fewer streams.
    Excess,
}

impl Ending {
    const ALL: [Self; 6] = [
        Self::Age,
        Self::Drain,
        Self::Silence,
        Self::Unauthenticated,
        Self::SlowReader,
        Self::Excess,
    ];

    /// For metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Drain => "drain",
            Self::Silence => "silence",
            Self::Unauthenticated => "unauthenticated",
            Self::SlowReader => "slow_reader",
            Self::Excess => "excess",
        }
    }

    /// For the streams of the connection.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Age => {
                "this connection has reached its maximum age (--connection-age): connect again"
            }
            Self::Drain => "this replica is shutting down: connect again",
            Self::Silence => "no request came in time (--first-request-timeout)",
            Self::Unauthenticated => {
                "too many connections are not authenticated (--max-unauthenticated): connect again"
            }
            Self::SlowReader => "the client has not read for too long (--send-timeout)",
            Self::Excess => "other replicas have fewer streams (--rebalance-rate): connect again",
        }
    }
}
