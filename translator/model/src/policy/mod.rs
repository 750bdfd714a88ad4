//! Policies: as they are attached, and as they are in force at one place.
//!
//! A dialect whose proxies merge policies themselves reads the attached ones. One whose proxies do not merge them reads
//! the effective ones: of each kind, the policy of the most specific level replaces those of less specific ones.

mod traffic;

pub use traffic::TrafficPolicy;

use crate::{
    Keyed, ListenerId, ListenerOwner, NamedKind, RouteId, Seniority, UpstreamKind, UpstreamTls,
};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// A policy of any kind.
pub type PolicyId = Keyed<PolicyKind>;

/// How old a policy is.
pub type PolicyAge = Seniority<PolicyId>;

/// The object that upstreams are made from: a Service, with all of its ports.
pub type UpstreamObject = Keyed<UpstreamKind>;

/// The sections of the policies of one kind, as a type.
pub trait OfPolicyKind: Sized {
    const KIND: PolicyKind;

    fn of(sections: &PolicySections) -> Option<&Self>;
}

macro_rules! policy_kinds {
    ($($(#[$meta:meta])* $kind:ident: $sections:ty, $name:literal, protects: $protects:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PolicyKind {$(
            $(#[$meta])*
            $kind,
        )*}

        /// The sections of a policy, by its kind.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub enum PolicySections { $($kind($sections)),* }

        impl PolicyKind {
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Whether traffic flows without a policy of the kind that its author forbids. Where one cannot be enforced,
            /// nothing is served; one of another kind has no effect then.
            pub fn is_protecting(self) -> bool {
                match self { $(Self::$kind => $protects),* }
            }
        }

        impl NamedKind for PolicyKind {
            fn as_str(&self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }

        $(impl OfPolicyKind for $sections {
            const KIND: PolicyKind = PolicyKind::$kind;

            fn of(sections: &PolicySections) -> Option<&Self> {
                if let PolicySections::$kind(sections) = sections { Some(sections) } else { None }
            }
        })*
    };
}

policy_kinds! {
    /// How TLS is spoken to an upstream.
    BackendTls: UpstreamTls, "BackendTLSPolicy", protects: true;
    /// How requests are sent to upstreams.
    BackendTraffic: TrafficPolicy, "BackendTrafficPolicy", protects: false;
    /// Which requests are served.
    Security: SecurityPolicy, "SecurityPolicy", protects: true;
}

/// The target of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyTarget {
    pub scope: PolicyScope,
    /// A rule of a route, or a port of an upstream's object, by its name.
    pub section: Option<Arc<str>>,
}

/// The scope by which policies are looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyScope {
    /// All listeners of a Gateway, also those that are added to it; or all of a set of listeners.
    Owner(ListenerOwner),
    Listener(ListenerId),
    Route(RouteId),
    Upstream(UpstreamObject),
}

/// Conditions that requests must meet before they are served. No section is supported, so the type has no value: where a
/// policy of this kind is attached, nothing is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum SecurityPolicy {}

/// The policy of one kind that is in force at one place.
///
/// A policy that protects and cannot be enforced is not the same as none: code that reads this has to handle
/// [`Effective::Closed`], and finds no policy in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effective<T> {
    /// No policy is attached at any level.
    Absent,
    InForce(T),
    /// This policy protects the place and cannot be enforced: nothing is served there.
    Closed(PolicyId),
}

/// The policies in force for the requests of a rule at a listener. A rule that a policy closes has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HttpPolicy {
    pub security: Option<SecurityPolicy>,
    pub traffic: TrafficPolicy,
}

impl PolicyTarget {
    /// All of a scope.
    pub fn all(scope: PolicyScope) -> Self {
        Self { scope, section: None }
    }
}

impl<T> Effective<T> {
    /// The policy to apply, if any; or the policy that closes the target.
    pub fn open(self) -> Result<Option<T>, PolicyId> {
        match self {
            Self::Absent => Ok(None),
            Self::InForce(sections) => Ok(Some(sections)),
            Self::Closed(policy) => Err(policy),
        }
    }
}

/// `Gateway shop/web`, `HTTPRoute shop/cart rule checkout`.
impl fmt::Display for PolicyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match &self.scope {
            PolicyScope::Owner(owner) => return owner.fmt(f),
            PolicyScope::Listener(id) => return write!(f, "{} listener {}", id.owner, id.name),
            PolicyScope::Route(route) => route.fmt(f).map(|()| "rule"),
            PolicyScope::Upstream(object) => object.fmt(f).map(|()| "port"),
        }?;
        self.section.iter().try_for_each(|name| write!(f, " {part} {name}"))
    }
}

impl Serialize for PolicyTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
