//! SecurityPolicies of Envoy Gateway's API. Only the fields that name targets are supported.

use super::policy::{PolicyObject, PolicySpec, TargetFields};
use serde::Deserialize;

pub type SecurityPolicy = PolicyObject<SecurityPolicySpec>;

/// Which requests are served.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SecurityPolicySpec {}

impl PolicySpec for SecurityPolicySpec {
    const TARGETS: TargetFields = TargetFields::All;
}
