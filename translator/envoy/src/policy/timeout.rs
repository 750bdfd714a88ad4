use crate::duration;
use heliograph_envoy::envoy::config::route::v3::{Route, route};
use heliograph_model::HttpRule;
use std::time::Duration;

/// A duration of less than 100,000 hours in milliseconds.
pub(super) const MOST_BYTES: u64 = 16;

/// The rule's own timeout has precedence.
pub(super) fn build(rule: &HttpRule, timeout: Option<Duration>, route: &mut Route) {
    let timeout = timeout.filter(|_| rule.timeouts.request.is_none());
    if let (Some(timeout), Some(route::Action::Route(action))) = (timeout, &mut route.action) {
        action.timeout = Some(duration(timeout));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::Message;

    #[test]
    fn a_timeout_is_as_small_as_is_said() {
        let most = Duration::from_millis(100_000 * 3_600_000 - 1);
        assert!(duration(most).encoded_len() as u64 <= MOST_BYTES);
    }
}
