//! The identity of a client, and the fleets that it may read.
//!
//! The stages of a call: `authenticator` reads the credential of the client, a certificate or a token, and turns it into
//! an [`Identity`] (`certificate`, `jwt`, `review`); `rules` decide which fleets that identity may read, before the
//! client's node is read; the resulting [`Caller`] stays with the call, and decides when the client names its fleet.
//! `expiring_body` authenticates again while the stream is open.

mod api;
mod args;
mod authenticator;
mod caller;
mod certificate;
mod cluster_keys;
mod expiring_body;
mod jwt;
mod metrics;
mod pattern;
mod review;
mod review_admission;
mod review_queue;
mod reviews;
mod rules;
mod shares;
mod voter;

pub(crate) use args::Security;
pub use args::{SecurityArgs, SecurityError};
pub(crate) use authenticator::Authenticator;
pub(crate) use caller::Caller;
pub(crate) use certificate::{Peer, expiry};

use std::fmt;
use std::sync::Arc;

/// The identity of a client, by its verified credential and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Without authentication: plaintext on loopback, or because an operator wanted it so.
    Anybody,
    /// `spiffe://TRUST-DOMAIN/PATH`, of a certificate or a token.
    Spiffe(String),
    /// The DNS names of a certificate, which has at least one.
    Dns(Vec<String>),
    ServiceAccount {
        namespace: String,
        name: String,
    },
    /// The subject of a token that is none of the above.
    Subject(String),
}

/// An identity whose credential is valid and, where that is bound to one, the UID of its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proven {
    identity: Identity,
    pod: Option<Arc<str>>,
}

/// As long as a SPIFFE id may be. Identities go into logs.
const LONGEST: usize = 2048;

impl Identity {
    /// The identity in a token's subject, whose form shows its kind.
    pub(crate) fn of_subject(subject: &str) -> Option<Self> {
        if subject.is_empty() || subject.len() > LONGEST || subject.contains(char::is_control) {
            return None;
        }
        if subject.starts_with("spiffe:") {
            return Self::of_spiffe(subject);
        }
        match subject.strip_prefix("system:serviceaccount:").map(|rest| rest.split_once(':')) {
            Some(Some((namespace, name)))
                if !namespace.is_empty() && !name.is_empty() && !name.contains(':') =>
            {
                Some(Self::ServiceAccount { namespace: namespace.into(), name: name.into() })
            }
            Some(_) => None,
            None => Some(Self::Subject(subject.to_owned())),
        }
    }

    /// Only what the SPIFFE standard allows, so that no rule has to think of `..`, escapes or queries.
    pub(crate) fn of_spiffe(uri: &str) -> Option<Self> {
        let (domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
        let is_word = |word: &str, upper: bool| {
            !word.is_empty()
                && word.bytes().all(|byte| match byte {
                    b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' => true,
                    b'A'..=b'Z' => upper,
                    _ => false,
                })
        };
        let is_segment =
            |segment: &str| is_word(segment, true) && segment != "." && segment != "..";
        let valid =
            uri.len() <= LONGEST && is_word(domain, false) && path.split('/').all(is_segment);
        valid.then(|| Self::Spiffe(uri.to_owned()))
    }
}

impl Identity {
    /// The namespace of a workload, which it has proven with the rest.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match self {
            Self::ServiceAccount { namespace, .. } => Some(namespace),
            Self::Spiffe(id) => {
                let path = id.strip_prefix("spiffe://")?.split_once('/')?.1;
                let (namespace, account) = path.strip_prefix("ns/")?.split_once('/')?;
                account.starts_with("sa/").then_some(namespace)
            }
            Self::Anybody | Self::Dns(_) | Self::Subject(_) => None,
        }
    }
}

impl From<Identity> for Proven {
    fn from(identity: Identity) -> Self {
        Self { identity, pod: None }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anybody => f.write_str("anybody"),
            Self::Spiffe(id) => f.write_str(id),
            Self::Dns(names) => write!(f, "dns:{}", names.join(",")),
            Self::ServiceAccount { namespace, name } => {
                write!(f, "system:serviceaccount:{namespace}:{name}")
            }
            Self::Subject(subject) => f.write_str(subject),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_has_proven_its_namespace() {
        let namespace = |subject: &str| {
            Identity::of_subject(subject).and_then(|it| it.namespace().map(str::to_owned))
        };
        let edge = Some("edge".to_owned());
        assert_eq!(namespace("system:serviceaccount:edge:envoy"), edge);
        assert_eq!(namespace("spiffe://cluster.local/ns/edge/sa/envoy"), edge);
        assert_eq!(namespace("spiffe://cluster.local/ns/edge"), None);
        assert_eq!(namespace("spiffe://cluster.local/workload/ns/edge/sa/envoy"), None);
        assert_eq!(namespace("somebody"), None);
    }

    #[test]
    fn a_subject_is_known_by_its_form() {
        let account =
            Identity::ServiceAccount { namespace: "edge".into(), name: "envoy.one".into() };
        assert_eq!(Identity::of_subject("system:serviceaccount:edge:envoy.one"), Some(account));
        let spiffe = "spiffe://example.org/ns/edge/sa/envoy";
        assert_eq!(Identity::of_subject(spiffe), Some(Identity::Spiffe(spiffe.into())));
        assert_eq!(Identity::of_subject("proxy 7"), Some(Identity::Subject("proxy 7".into())));
        let long = "x".repeat(LONGEST + 1);
        for wrong in [
            "",
            "a\nb",
            &long,
            "system:serviceaccount:edge",
            "system:serviceaccount::envoy",
            "system:serviceaccount:edge:",
            "system:serviceaccount:edge:envoy:more",
            "spiffe:example.org/x",
        ] {
            assert_eq!(Identity::of_subject(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_spiffe_id_is_as_the_standard_says() {
        for right in ["spiffe://example.org/x", "spiffe://a_b-c.d/Ns/e.f/sa/g_h"] {
            assert!(Identity::of_spiffe(right).is_some(), "{right}");
        }
        let long = format!("spiffe://example.org/{}", "x".repeat(LONGEST));
        for wrong in [
            "https://example.org/x",
            "SPIFFE://example.org/x",
            "spiffe://example.org",
            "spiffe://example.org/",
            "spiffe:///x",
            "spiffe://Example.org/x",
            "spiffe://example.org:443/x",
            "spiffe://user@example.org/x",
            "spiffe://example.org/a//b",
            "spiffe://example.org/a/../b",
            "spiffe://example.org/a/./b",
            "spiffe://example.org/a/b/",
            "spiffe://example.org/a%2fb",
            "spiffe://example.org/a?b",
            "spiffe://example.org/a#b",
            &long,
        ] {
            assert_eq!(Identity::of_spiffe(wrong), None, "{wrong}");
        }
    }
}
