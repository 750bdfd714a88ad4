//! Which of the policies that are attached is in force: of each kind the one of the most specific level, and the oldest
//! there.

use super::AcceptedPolicy;
use crate::backends;
use crate::world::Reader;
use heliograph_model::{
    Effective, OfPolicyKind, PolicyScope, PolicyTarget, UpstreamId, UpstreamTls,
};
use std::sync::Arc;

/// A policy at one of its targets.
#[derive(Clone, Copy)]
struct Attached<'a> {
    section: Option<&'a Arc<str>>,
    policy: &'a AcceptedPolicy,
}

/// How TLS is to be spoken to an upstream. Gateway API: the policy for the port comes before the one for all of the Service.
pub(crate) fn upstream_tls<'a>(
    reader: &Reader<'a>,
    upstream: &UpstreamId,
) -> Effective<&'a UpstreamTls> {
    let object = upstream.name.clone().of(upstream.kind);
    let attached = attached(reader, &PolicyScope::Upstream(object));
    if attached.is_empty() {
        return Effective::Absent;
    }
    let port = backends::port_name(reader, upstream);
    let of_port = port.and_then(|port| in_force(&attached, Some(port)));
    of_port.or_else(|| in_force(&attached, None)).unwrap_or(Effective::Absent)
}

/// The policy because of which one has no effect at a target: it is of the same kind, and older.
pub(crate) fn rival<'a>(
    reader: &Reader<'a>,
    policy: &AcceptedPolicy,
    target: &PolicyTarget,
) -> Option<&'a AcceptedPolicy> {
    let others = attached(reader, &target.scope).into_iter();
    let mut others = others.filter(|other| {
        other.section == target.section.as_ref()
            && other.policy.id().kind == policy.id().kind
            && other.policy.counts()
    });
    others.next().map(|first| first.policy).filter(|first| first.age < policy.age)
}

/// The oldest first.
fn attached<'a>(reader: &Reader<'a>, scope: &PolicyScope) -> Vec<Attached<'a>> {
    let found = reader.policies_at(scope);
    found.map(|(section, policy)| Attached { section, policy }).collect()
}

/// What the policies of a kind come to at one level. `None`: they leave it to the next one.
fn in_force<'a, T: OfPolicyKind>(
    level: &[Attached<'a>],
    section: Option<&str>,
) -> Option<Effective<&'a T>> {
    let mut policies = level.iter().filter(|attached| {
        attached.section.map(|it| &**it) == section
            && attached.policy.id().kind == T::KIND
            && attached.policy.counts()
    });
    let AcceptedPolicy { sections, age, .. } = policies.next()?.policy;
    Some(match sections.as_ref().ok().and_then(T::of) {
        Some(sections) => Effective::InForce(sections),
        None => Effective::Closed(age.of().clone()),
    })
}
