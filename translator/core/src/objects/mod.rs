//! The Kubernetes objects that a translation starts from, as values.
//!
//! [`Object`] holds any of them; [`ObjectKey`] names one. A new kind is one line in [`kinds!`].

mod key;
mod manifest;

pub use key::{ObjectKey, ObjectName};
pub use manifest::{Document, Fault, parse};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

/// Gateway API's own types, under the names that the specification uses.
pub mod gateway {
    pub use gateway_api::experimental::gatewayclasses::GatewayClass;
    pub use gateway_api::experimental::gateways::{
        Gateway, GatewayListeners as Listener,
        GatewayListenersAllowedRoutesNamespaces as AllowedNamespaces,
        GatewayListenersAllowedRoutesNamespacesFrom as NamespacesFrom,
        GatewayListenersAllowedRoutesNamespacesSelector as NamespaceSelector,
        GatewayListenersTlsCertificateRefs as CertificateRef, GatewayListenersTlsMode as TlsMode,
        GatewayStatus, GatewayStatusListeners as ListenerStatus,
        GatewayStatusListenersSupportedKinds as RouteKind,
    };
    pub use gateway_api::experimental::httproutes::{
        HttpRoute, HttpRouteParentRefs as ParentRef, HttpRouteRules as HttpRule,
        HttpRouteRulesBackendRefs as HttpBackendRef, HttpRouteRulesFilters as HttpFilter,
        HttpRouteRulesFiltersRequestRedirect as RequestRedirect,
        HttpRouteRulesFiltersRequestRedirectPathType as RedirectPathType,
        HttpRouteRulesFiltersRequestRedirectScheme as RedirectScheme,
        HttpRouteRulesFiltersType as HttpFilterType, HttpRouteRulesFiltersUrlRewrite as UrlRewrite,
        HttpRouteRulesFiltersUrlRewritePathType as RewritePathType,
        HttpRouteRulesMatches as HttpMatch, HttpRouteRulesMatchesHeadersType as HeaderMatchType,
        HttpRouteRulesMatchesPath as PathMatch, HttpRouteRulesMatchesPathType as PathMatchType,
        HttpRouteRulesMatchesQueryParamsType as QueryMatchType, HttpRouteStatus,
        HttpRouteStatusParents as ParentStatus, HttpRouteStatusParentsParentRef as StatusParentRef,
    };
    pub use gateway_api::experimental::referencegrants::ReferenceGrant;

    pub const GROUP: &str = "gateway.networking.k8s.io";
}

/// Kubernetes' own types.
pub mod core {
    pub use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
    pub use k8s_openapi::api::discovery::v1::EndpointSlice;
}

/// A Rust type that [`Object`] can hold.
pub trait Typed: Sized {
    const KIND: Kind;

    fn of(object: &Object) -> Option<&Self>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

macro_rules! kinds {
    ($($kind:ident: $type:ty, $group:literal, $scope:ident;)*) => {
        /// The kinds of objects that are understood.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($kind),* }

        /// One object as it was given. Cheap to clone.
        #[derive(Clone, Debug)]
        pub enum Object { $($kind(Arc<$type>)),* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];

            /// The name as Kubernetes writes it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind)),* }
            }

            /// The API group; `core` has an empty one.
            pub fn group(self) -> &'static str {
                match self { $(Self::$kind => $group),* }
            }

            pub fn scope(self) -> Scope {
                match self { $(Self::$kind => Scope::$scope),* }
            }

            /// Decodes one manifest that is known to be of this kind.
            fn decode(self, text: &str) -> Result<Object, serde_saphyr::Error> {
                match self {
                    $(Self::$kind => manifest::decode(text).map(|object| Object::$kind(Arc::new(object)))),*
                }
            }
        }

        impl Object {
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind),* }
            }

            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(object) => &object.metadata),* }
            }

            /// To complete what a manifest may leave out.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut Arc::make_mut(object).metadata),* }
            }
        }

        /// Whether two objects say the same. Status is not compared by anyone: it is ours to write.
        impl PartialEq for Object {
            fn eq(&self, other: &Self) -> bool {
                match (self, other) {
                    $((Self::$kind(one), Self::$kind(other)) => one == other,)*
                    _ => false,
                }
            }
        }

        $(impl Typed for $type {
            const KIND: Kind = Kind::$kind;

            fn of(object: &Object) -> Option<&Self> {
                match object {
                    Object::$kind(object) => Some(object),
                    _ => None,
                }
            }
        })*
    };
}

kinds! {
    Namespace: core::Namespace, "", Cluster;
    GatewayClass: gateway::GatewayClass, "gateway.networking.k8s.io", Cluster;
    Gateway: gateway::Gateway, "gateway.networking.k8s.io", Namespaced;
    HTTPRoute: gateway::HttpRoute, "gateway.networking.k8s.io", Namespaced;
    ReferenceGrant: gateway::ReferenceGrant, "gateway.networking.k8s.io", Namespaced;
    Service: core::Service, "", Namespaced;
    EndpointSlice: core::EndpointSlice, "discovery.k8s.io", Namespaced;
    Secret: core::Secret, "", Namespaced;
}

impl Kind {
    pub fn find(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.as_str() == kind && known.group() == group)
    }
}

impl Object {
    pub fn key(&self) -> ObjectKey {
        let metadata = self.metadata();
        ObjectKey {
            kind: self.kind(),
            name: ObjectName::new(
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            ),
        }
    }
}
