//! SecurityPolicies: none of their sections is supported, so their targets are closed.

use super::{Accepted, Policy, Rejection};
use crate::objects::Kind;
use crate::objects::security_policy::SecurityPolicySpec;
use crate::world::Reader;
use heliograph_model::{PolicyId, PolicyKind};

impl Policy for SecurityPolicySpec {
    const TARGET_KINDS: &'static [Kind] =
        &[Kind::Gateway, Kind::ListenerSet, Kind::HTTPRoute, Kind::GRPCRoute, Kind::TCPRoute];

    fn accept(&self, _reader: &Reader<'_>, _id: &PolicyId) -> Accepted {
        let Self {} = self;
        Accepted::rejected(Rejection::unenforceable(
            PolicyKind::Security,
            "spec",
            "The policy has no settings",
        ))
    }
}
