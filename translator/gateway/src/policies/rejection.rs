use crate::objects::policy::SpecFault;
use crate::status::Condition;
use crate::status::reasons::{Reason, backend_tls_policy, policy};
use heliograph_model::PolicyKind;
use std::fmt;

/// Why a policy cannot be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: &'static Reason,
    /// Where in the object: `spec.timeout.http.requestTimeout`. Empty where no field is the cause.
    pub(crate) field: String,
    /// A sentence that names the field.
    pub(crate) message: String,
}

/// How the conditions of a kind say what became of a policy.
pub(crate) struct PolicyReasons {
    pub(crate) accepted: &'static Reason,
    pub(crate) invalid: &'static Reason,
    pub(crate) conflicted: &'static Reason,
    pub(crate) target_not_found: &'static Reason,
}

const OF_BACKEND_TLS: PolicyReasons = PolicyReasons {
    accepted: backend_tls_policy::accepted::ACCEPTED,
    invalid: backend_tls_policy::accepted::NOT_UNDERSTOOD,
    conflicted: backend_tls_policy::accepted::CONFLICTED,
    target_not_found: backend_tls_policy::accepted::TARGET_NOT_FOUND,
};

const OF_OTHERS: PolicyReasons = PolicyReasons {
    accepted: policy::accepted::ACCEPTED,
    invalid: policy::accepted::INVALID,
    conflicted: policy::accepted::CONFLICTED,
    target_not_found: policy::accepted::TARGET_NOT_FOUND,
};

impl PolicyReasons {
    pub(crate) fn of(kind: PolicyKind) -> &'static Self {
        match kind {
            PolicyKind::BackendTls => &OF_BACKEND_TLS,
            PolicyKind::BackendTraffic | PolicyKind::Security => &OF_OTHERS,
        }
    }
}

impl Rejection {
    /// A field has a value that cannot be meant.
    pub(super) fn invalid(kind: PolicyKind, field: &str, why: impl fmt::Display) -> Self {
        let message = format!("{field}: {why}");
        Self { reason: PolicyReasons::of(kind).invalid, field: field.to_owned(), message }
    }

    /// The object is not understood.
    pub(super) fn of_fault(kind: PolicyKind, fault: &SpecFault) -> Self {
        Self::unenforceable(kind, &fault.field, &fault.message)
    }

    /// Nothing of the policy can be enforced, and this follows from it.
    pub(super) fn unenforceable(kind: PolicyKind, field: &str, why: &str) -> Self {
        let effect = match kind {
            PolicyKind::BackendTraffic => "",
            PolicyKind::BackendTls => ". Requests to its backends are answered with 500",
            PolicyKind::Security => {
                ". SecurityPolicies are not supported, so its targets are closed and answer with 500. Delete the policy, or move its targets to a \
                 Gateway of a controller that supports it"
            }
        };
        let message = format!("{why}{effect}");
        Self { reason: PolicyReasons::of(kind).invalid, field: field.to_owned(), message }
    }

    pub(crate) fn condition(&self) -> Condition {
        Condition::new(self.reason, &*self.message)
    }
}
