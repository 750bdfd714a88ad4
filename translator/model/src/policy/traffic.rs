use serde::Serialize;
use std::time::Duration;

/// How requests are sent to upstreams. One field, one section; what is not given is as without a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrafficPolicy {
    /// From the end of the request to the end of the response, over all attempts. Zero: no timeout. What a rule says itself
    /// comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_timeout: Option<Duration>,
}
