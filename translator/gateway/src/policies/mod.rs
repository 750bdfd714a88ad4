//! Policies: one file per kind. A policy is accepted once (`accept`), looked up by its targets ([`PolicyScope`]), and
//! read where it is in force (`effective`). A new kind is a file here and an arm in [`accept`]; a new section is a field
//! of the kind's spec, a file beside those of the others, and a field in the model.

mod backend_tls;
mod backend_traffic;
mod effective;
mod rejection;
mod security;
mod targets;

pub(crate) use effective::{Levels, conflicting_policy, upstream_tls};
pub(crate) use rejection::{PolicyReasons, Rejection};

use crate::objects::backend_tls_policy::BackendTlsPolicySpec;
use crate::objects::backend_traffic_policy::BackendTrafficPolicySpec;
use crate::objects::policy::{PolicyObject, PolicySpec};
use crate::objects::security_policy::SecurityPolicySpec;
use crate::objects::{Typed, created};
use crate::status::Condition;
use crate::world::Reader;
use heliograph_model::{PolicyAge, PolicyId, PolicyKind, PolicySections, PolicyTarget};
use targets::TargetKind;

/// A policy as it is attached.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcceptedPolicy {
    pub(crate) generation: i64,
    pub(crate) age: PolicyAge,
    /// Whether they exist or not. In order, each once.
    pub(crate) targets: Vec<PolicyTarget>,
    /// What it asks for, or why that cannot be enforced.
    pub(crate) sections: Result<PolicySections, Rejection>,
    /// Whether its references lead somewhere, of kinds that have references.
    pub(crate) resolved: Option<Condition>,
}

/// The result of accepting a spec.
struct Accepted {
    sections: Result<PolicySections, Rejection>,
    resolved: Option<Condition>,
}

/// The spec of a kind of policies.
trait Policy: PolicySpec {
    /// Whether a target of another kind is left to other controllers. Otherwise the policy is rejected.
    const IGNORES_OTHER_TARGETS: bool = false;

    /// Whether policies of the kind can target objects of this one. It matches by name, so that a new kind of routes, of
    /// owners of listeners or of backends cannot be forgotten here: of a kind that protects, its objects would be open.
    fn can_target(kind: TargetKind) -> bool;

    /// Validates the spec. It destructures all of the spec, so that a new field cannot be forgotten here.
    fn accept(&self, reader: &Reader<'_>, id: &PolicyId) -> Accepted;
}

/// Which policy is it, what does it target, and can it be enforced?
pub(crate) fn accept(reader: &Reader<'_>, id: &PolicyId) -> Option<AcceptedPolicy> {
    match id.kind {
        PolicyKind::BackendTls => accept_spec::<BackendTlsPolicySpec>(reader, id),
        PolicyKind::BackendTraffic => accept_spec::<BackendTrafficPolicySpec>(reader, id),
        PolicyKind::Security => accept_spec::<SecurityPolicySpec>(reader, id),
    }
}

fn accept_spec<S: Policy>(reader: &Reader<'_>, id: &PolicyId) -> Option<AcceptedPolicy>
where
    PolicyObject<S>: Typed,
{
    let object = reader.object::<PolicyObject<S>>(&id.name)?;
    let (targets, rejection) = targets::resolve(reader, id, object);
    let accepted = match &object.spec {
        Ok(spec) => spec.accept(reader, id),
        Err(fault) => Accepted::rejected(Rejection::of_fault(id.kind, fault)),
    };
    let resolved = accepted.resolved;
    let sections = match (accepted.sections, rejection) {
        (Ok(_), Some(rejection)) => Err(rejection),
        (sections, _) => sections,
    };
    Some(AcceptedPolicy {
        generation: object.metadata.generation.unwrap_or_default(),
        age: PolicyAge::new(created(&object.metadata), id.clone()),
        targets,
        sections,
        resolved,
    })
}

impl AcceptedPolicy {
    pub(crate) fn id(&self) -> &PolicyId {
        self.age.of()
    }

    /// Whether it counts where it is attached. One that is rejected and does not protect has no effect.
    pub(crate) fn counts(&self) -> bool {
        self.sections.is_ok() || self.id().kind.is_protecting()
    }

    /// Whether the policy in force differs.
    pub(crate) fn differs_in_force(&self, other: &Self) -> bool {
        self.age != other.age || self.sections.as_ref().ok() != other.sections.as_ref().ok()
    }
}

impl Accepted {
    fn rejected(rejection: Rejection) -> Self {
        Self { sections: Err(rejection), resolved: None }
    }
}
