//! The table of resource types: one row for each type, with its properties. Protocol, store and views read the table, so
//! that no other code has a list of types.
//!
//! The rules of xDS that the columns implement:
//! <https://www.envoyproxy.io/docs/envoy/latest/api-docs/xds_protocol>.

use crate::Resource;
use serde::{Serialize, Serializer};
use std::fmt;

/// The columns of the table.
#[derive(Debug)]
pub struct TypeProperties {
    pub dialect: Dialect,
    pub type_url: &'static str,
    /// The short name in logs, metrics, pages, and in the names of stored rules: it never changes.
    pub name: &'static str,
    /// The number in stored bytes: it never changes, and none is used again. Those of [`crate::Internal`] are from the same
    /// range.
    pub number: u32,
    /// The types whose resources must have arrived before one of this type is sent. In the table they stand before it.
    pub after: &'static [ResourceType],
    /// The types whose resources may refer to one of this type. A resource that a proxy no longer needs is removed once
    /// these no longer refer to it.
    pub referrers: &'static [ResourceType],
    /// What a proxy asks for, unless it names something: with [`Interest::All`], state of the world has all in every response.
    pub interest: Interest,
    /// The type whose resources of the same names a proxy needs again after one of this type: until they come that one is
    /// warming, and the proxy keeps back its acknowledgement.
    pub warmed_by: Option<ResourceType>,
    /// Whether it goes to the newest snapshot at once, in the middle of a transition: it refers to nothing.
    pub is_immediate: bool,
    pub removal: Removal,
    /// Whether a response has one resource at most. A proxy that stops at a bad one leaves out those behind it, and its
    /// answer does not show which those are.
    pub is_sent_alone: bool,
    pub sealing: Sealing,
    /// Whether an earlier version is worth going back to.
    pub lasts: bool,
    /// Whether proxies may be served the version before one that others rejected.
    pub has_quarantine: bool,
}

/// The kind of proxy that a fleet has, by the protocol that it speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    #[default]
    Envoy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// "For Listener and Cluster resource types, there is also a wildcard subscription", which for historical reasons an
    /// empty list of names means too.
    All,
    /// Only what it names. An empty list means nothing: a proxy that happens to know no endpoints, routes or secrets when it
    /// connects must not be sent all there are.
    Named,
}

/// How a proxy learns, in delta, that a resource that it asked for by name is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    Sent,
    /// It drops what nothing refers to by itself. A removal does harm: Envoy rejects that of a secret, and drops an extension
    /// configuration at once, whose filter then answers 500 on connections that still drain, and keeps a listener warming
    /// for ever that waits for it.
    LeftToProxy,
}

/// Which resources of a type a store seals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sealing {
    /// All of them, even one that is not marked as confidential.
    Always,
    /// Those that are marked as confidential.
    Marked,
}

/// Makes the types and the table from one list, so that there is a row for each type and all of it is filled in.
macro_rules! resource_types {
    ($($(#[$about:meta])* $kind:ident { $($column:ident: $value:expr,)+ })+) => {
        /// The types that are served, in the order in which a proxy must receive them: a referenced type comes before
        /// the types that refer to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ResourceType {
            $($(#[$about])* $kind,)+
        }

        static TABLE: &[TypeProperties] = &[$(TypeProperties { $($column: $value,)+ },)+];

        impl ResourceType {
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];
        }
    };
}

resource_types! {
    Secret {
        dialect: Dialect::Envoy,
        type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        name: "secret",
        number: 1,
        after: &[],
        referrers: &[ResourceType::Cluster, ResourceType::ExtensionConfig, ResourceType::Listener],
        interest: Interest::Named,
        warmed_by: None,
        is_immediate: false,
        removal: Removal::LeftToProxy,
        is_sent_alone: true,
        sealing: Sealing::Always,
        lasts: true,
        // An old key may have been replaced because it leaked.
        has_quarantine: false,
    }
    Cluster {
        dialect: Dialect::Envoy,
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        name: "cluster",
        number: 2,
        after: &[],
        referrers: &[ResourceType::ExtensionConfig, ResourceType::Listener, ResourceType::Route],
        interest: Interest::All,
        warmed_by: Some(ResourceType::Endpoints),
        is_immediate: false,
        removal: Removal::Sent,
        is_sent_alone: false,
        sealing: Sealing::Marked,
        lasts: true,
        has_quarantine: true,
    }
    Endpoints {
        dialect: Dialect::Envoy,
        type_url: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        name: "endpoints",
        number: 3,
        after: &[],
        referrers: &[ResourceType::Cluster],
        interest: Interest::Named,
        warmed_by: None,
        is_immediate: true,
        removal: Removal::Sent,
        is_sent_alone: false,
        sealing: Sealing::Marked,
        // The addresses of old endpoints are dead.
        lasts: false,
        has_quarantine: false,
    }
    /// The configuration of a filter that listeners refer to by `config_discovery`, so that it changes without them.
    ExtensionConfig {
        dialect: Dialect::Envoy,
        type_url: "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
        name: "extension-config",
        number: 9,
        // A filter may call a cluster, as one for external authorization does.
        after: &[ResourceType::Cluster],
        // Not routes: their `typed_per_filter_config` has no `config_discovery`. Clusters may have filters by
        // `config_discovery` too, which would have to come after what they refer to: no cluster of ours has one.
        referrers: &[ResourceType::Listener],
        interest: Interest::Named,
        warmed_by: None,
        is_immediate: false,
        removal: Removal::LeftToProxy,
        is_sent_alone: true,
        sealing: Sealing::Marked,
        lasts: true,
        has_quarantine: true,
    }
    Listener {
        dialect: Dialect::Envoy,
        type_url: "type.googleapis.com/envoy.config.listener.v3.Listener",
        name: "listener",
        number: 4,
        after: &[ResourceType::Cluster, ResourceType::ExtensionConfig],
        referrers: &[],
        interest: Interest::All,
        warmed_by: None,
        is_immediate: false,
        removal: Removal::Sent,
        is_sent_alone: false,
        sealing: Sealing::Marked,
        lasts: true,
        has_quarantine: true,
    }
    Route {
        dialect: Dialect::Envoy,
        type_url: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        name: "route",
        number: 5,
        // What a route overrides of a filter presumes the filter's own configuration.
        after: &[ResourceType::Cluster, ResourceType::ExtensionConfig, ResourceType::Listener],
        referrers: &[ResourceType::Listener],
        interest: Interest::Named,
        warmed_by: None,
        is_immediate: false,
        removal: Removal::Sent,
        is_sent_alone: true,
        sealing: Sealing::Marked,
        lasts: true,
        has_quarantine: true,
    }
}

impl Dialect {
    /// The types that its proxies are served, in the order in which they must receive them.
    pub fn types(self) -> impl Iterator<Item = ResourceType> {
        ResourceType::ALL.into_iter().filter(move |kind| kind.properties().dialect == self)
    }
}

impl ResourceType {
    pub fn properties(self) -> &'static TypeProperties {
        &TABLE[self as usize]
    }

    pub fn type_url(self) -> &'static str {
        self.properties().type_url
    }

    pub fn from_type_url(type_url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.type_url() == type_url)
    }

    /// The short name for logs, metrics and people.
    pub fn as_str(self) -> &'static str {
        self.properties().name
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether a proxy that names nothing asks for all, and a response in state of the world has all.
    pub fn is_asked_whole(self) -> bool {
        self.properties().interest == Interest::All
    }

    /// Whether the content of a resource may be printed, once the fields that its dialect marks as sensitive are blotted out:
    /// in a type that is always sealed all such fields are marked, in any other type it is not known which field has the
    /// secret.
    pub fn may_be_shown(self, resource: &Resource) -> bool {
        !resource.is_confidential || self.properties().sealing == Sealing::Always
    }

    /// The type that this one warms, if it does: see [`TypeProperties::warmed_by`].
    pub fn warmed(self) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.properties().warmed_by == Some(self))
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ResourceType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_type_is_one_of_its_dialect() {
        for kind in ResourceType::ALL {
            assert!(kind.properties().dialect.types().any(|it| it == kind), "{kind}");
        }
    }

    #[test]
    fn type_urls_and_names_lead_back_to_their_types() {
        for kind in ResourceType::ALL {
            assert_eq!(ResourceType::from_type_url(kind.type_url()), Some(kind));
            assert_eq!(ResourceType::from_name(kind.as_str()), Some(kind));
        }
        assert_eq!(ResourceType::from_type_url("type.googleapis.com/unheard.Of"), None);
        assert_eq!(ResourceType::from_name("unheard"), None);
    }

    /// The protocol relies on this: it sends types in the order of the table, and follows referrers to their ends.
    #[test]
    fn rows_stand_in_the_order_of_updates() {
        for kind in ResourceType::ALL {
            let row = kind.properties();
            for earlier in row.after {
                assert!(*earlier < kind, "{kind} comes after {earlier}");
                assert_eq!(earlier.properties().dialect, row.dialect, "{kind}, {earlier}");
            }
            let (mut reached, mut next) = (BTreeSet::new(), vec![kind]);
            while let Some(from) = next.pop() {
                for referrer in from.properties().referrers {
                    assert!(*referrer != kind, "{kind} refers to itself by way of {from}");
                    if reached.insert(*referrer) {
                        next.push(*referrer);
                    }
                }
            }
        }
    }

    /// The protocol keeps one set of names for which something must follow.
    #[test]
    fn a_dialect_has_at_most_one_type_that_is_warmed() {
        let warmed =
            ResourceType::ALL.into_iter().filter(|kind| kind.properties().warmed_by.is_some());
        let dialects: Vec<_> = warmed.map(|kind| kind.properties().dialect).collect();
        assert_eq!(dialects, [Dialect::Envoy]);
    }

    #[test]
    fn what_warms_is_asked_by_name_and_referred_to() {
        for kind in ResourceType::ALL {
            let Some(warmer) = kind.properties().warmed_by else { continue };
            assert_eq!(warmer.warmed(), Some(kind));
            assert!(!warmer.is_asked_whole(), "{warmer}");
            assert!(warmer.properties().referrers.contains(&kind), "{warmer}");
        }
    }
}
