//! Chooses the policy in force among the attached ones: of each kind the one at the most specific level, and the oldest
//! there.

use super::AcceptedPolicy;
use crate::accept;
use crate::backends;
use crate::world::Reader;
use heliograph_model::{
    Effective, HttpPolicy, ListenerId, ListenerOwnerKind, OfPolicyKind, PolicyId, PolicyScope,
    PolicyTarget, RouteId, TrafficPolicy, UpstreamId, UpstreamTls,
};
use std::sync::Arc;

/// The policies for the requests of a route at a listener, the most specific level first: the route and its rules, the
/// listener, the set of listeners that it is of, the Gateway.
pub(crate) struct Levels<'a>(Vec<Vec<Attached<'a>>>);

/// A policy at one of its targets.
#[derive(Clone, Copy)]
struct Attached<'a> {
    section: Option<&'a Arc<str>>,
    policy: &'a AcceptedPolicy,
}

impl<'a> Levels<'a> {
    pub(crate) fn of(reader: &Reader<'a>, route: &RouteId, listener: &ListenerId) -> Self {
        let owner = &listener.owner;
        let mut scopes = vec![
            PolicyScope::Route(route.clone()),
            PolicyScope::Listener(listener.clone()),
            PolicyScope::Owner(owner.clone()),
        ];
        if owner.kind == ListenerOwnerKind::ListenerSet {
            let gateway = accept::gateway_of(reader, &owner.name);
            let gateway = gateway.map(|name| name.of(ListenerOwnerKind::Gateway));
            scopes.extend(gateway.map(PolicyScope::Owner));
        }
        Self(scopes.iter().map(|scope| attached(reader, scope)).collect())
    }

    /// The policies in force for the requests of a rule, by its name; or the policy that closes it.
    pub(crate) fn http(&self, rule: Option<&str>) -> Result<HttpPolicy, PolicyId> {
        // Everything by name: a kind that is forgotten here is not in force anywhere.
        Ok(HttpPolicy {
            security: self.effective(rule).open()?.cloned(),
            traffic: self.effective::<TrafficPolicy>(rule).open()?.cloned().unwrap_or_default(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Vec::is_empty)
    }

    fn effective<T: OfPolicyKind>(&self, rule: Option<&str>) -> Effective<&'a T> {
        let of_rule = rule.and_then(|rule| in_force(self.0.first()?, Some(rule)));
        let of_level = || self.0.iter().find_map(|level| in_force(level, None));
        of_rule.or_else(of_level).unwrap_or(Effective::Absent)
    }
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
pub(crate) fn conflicting_policy<'a>(
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

/// The result of the policies of a kind at one level. `None`: the next level decides.
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
