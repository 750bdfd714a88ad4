//! BackendTLSPolicies of Gateway API.

use super::gateway::BackendTlsValidation;
use super::policy::{PolicyObject, PolicySpec, TargetFields};
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
