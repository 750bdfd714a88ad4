//! SecurityPolicies: none of their sections is supported, so their targets are closed.

use super::{Accepted, Policy, Rejection, TargetKind};
use crate::objects::security_policy::SecurityPolicySpec;
use crate::world::Reader;
use heliograph_model::{PolicyId, PolicyKind};

impl Policy for SecurityPolicySpec {
    fn can_target(kind: TargetKind) -> bool {
        match kind {
            TargetKind::ListenerOwner(_) | TargetKind::Route(_) => true,
            TargetKind::Upstream(_) => false,
        }
    }

    fn accept(&self, _reader: &Reader<'_>, _id: &PolicyId) -> Accepted {
        let Self {} = self;
        Accepted::rejected(Rejection::unenforceable(
            PolicyKind::Security,
            "spec",
            "The policy has no settings",
        ))
    }
}
