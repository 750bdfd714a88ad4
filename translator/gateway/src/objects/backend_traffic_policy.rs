//! BackendTrafficPolicies of Envoy Gateway's API, with the fields that are supported. Every other field is a fault of the
//! object, which names it by its path.

use super::policy::{PolicyObject, PolicySpec, TargetFields};
use serde::Deserialize;

pub type BackendTrafficPolicy = PolicyObject<BackendTrafficPolicySpec>;

/// How requests are sent to backends.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTrafficPolicySpec {
    /// How long things may take.
    pub timeout: Option<Timeout>,
}

/// How long things may take.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Timeout {
    /// Of requests.
    pub http: Option<HttpTimeout>,
}

/// How long requests may take.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpTimeout {
    /// From the end of a request to the end of its response, over all attempts; what takes longer is answered with 504. A
    /// duration of Gateway API; `0s` disables it. `timeouts.request` of a route's rule comes first.
    pub request_timeout: Option<String>,
}

impl PolicySpec for BackendTrafficPolicySpec {
    const TARGETS: TargetFields = TargetFields::All;
}
