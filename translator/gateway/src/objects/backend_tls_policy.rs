//! BackendTLSPolicies of Gateway API.

use super::gateway::BackendTlsValidation;
use super::policy::{PolicyObject, PolicySpec, TargetFields};
use super::{Kind, ObjectKey, ObjectName};
use serde::Deserialize;
use std::collections::BTreeMap;

pub type BackendTlsPolicy = PolicyObject<BackendTlsPolicySpec>;

/// How TLS is spoken to backends.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BackendTlsPolicySpec {
    /// Settings of an implementation, by their names.
    pub options: Option<BTreeMap<String, String>>,
    /// How the certificate of a backend is verified.
    pub validation: BackendTlsValidation,
}

impl PolicySpec for BackendTlsPolicySpec {
    const TARGETS: TargetFields = TargetFields::References;
}

/// The Services that a policy is about, and the name of a port if it is about that only.
pub(crate) fn targets(
    policy: &BackendTlsPolicy,
) -> impl Iterator<Item = (ObjectKey, Option<&str>)> {
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    let services = policy
        .targets
        .iter()
        .filter(|target| Kind::find(&target.group, &target.kind) == Some(Kind::Service));
    services.map(move |target| {
        let service = ObjectName::new(namespace, &target.name).of(Kind::Service);
        (service, target.section_name.as_deref())
    })
}
