//! The settings of routes that policies ask for: one file per section.

mod timeout;

use heliograph_envoy::envoy::config::route::v3::Route;
use heliograph_model::{HttpPolicy, HttpRule, TrafficPolicy};

/// How many bytes policies add to a route at most.
pub(crate) const MOST_BYTES: u64 = timeout::MOST_BYTES;

/// Adds to a route what policies ask for its requests.
pub(crate) fn build(rule: &HttpRule, policy: &HttpPolicy, route: &mut Route) {
    // All sections by name, so that a new one cannot be forgotten.
    let HttpPolicy { security, traffic: TrafficPolicy { request_timeout } } = policy;
    match security {
        None => {}
        Some(sections) => match *sections {},
    }
    timeout::build(rule, *request_timeout, route);
}
