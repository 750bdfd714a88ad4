//! BackendTrafficPolicies: how requests are sent to backends. One file per section.

mod timeout;

use super::{Accepted, Policy, Rejection, TargetKind};
use crate::objects::backend_traffic_policy::BackendTrafficPolicySpec;
use crate::world::Reader;
use heliograph_model::{PolicyId, PolicyKind, PolicySections, RouteKind, TrafficPolicy};
use std::fmt;

impl Policy for BackendTrafficPolicySpec {
    fn can_target(kind: TargetKind) -> bool {
        match kind {
            TargetKind::ListenerOwner(_) | TargetKind::Route(RouteKind::Http | RouteKind::Grpc) => {
                true
            }
            TargetKind::Route(RouteKind::Tcp) | TargetKind::Upstream(_) => false,
        }
    }

    fn accept(&self, _reader: &Reader<'_>, _id: &PolicyId) -> Accepted {
        let sections = sections(self).map(PolicySections::BackendTraffic);
        Accepted { sections, resolved: None }
    }
}

fn sections(spec: &BackendTrafficPolicySpec) -> Result<TrafficPolicy, Rejection> {
    let BackendTrafficPolicySpec { timeout } = spec;
    let mut policy = TrafficPolicy::default();
    timeout.iter().try_for_each(|it| timeout::accept(it, &mut policy))?;
    Ok(policy)
}

/// A field, by its path, has a value that cannot be meant.
fn invalid(field: &str, why: impl fmt::Display) -> Rejection {
    Rejection::invalid(PolicyKind::BackendTraffic, field, why)
}
