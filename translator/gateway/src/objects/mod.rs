//! The Kubernetes objects that a translation starts from, as values.
//!
//! [`Object`] holds any of them; [`ObjectKey`] names one. A new kind is one line in [`kinds!`].

pub mod backend_tls_policy;
pub mod backend_traffic_policy;
pub(crate) mod content;
pub mod heliograph;
mod key;
pub(crate) mod listener_set;
mod manifest;
pub mod policy;
pub mod proxy_config;
mod secret;
pub mod security_policy;
mod seniority;
mod served;
pub mod view_policy;

pub use heliograph_model::{ObjectName, Seniority};
pub use key::{ObjectKey, owner_object, route_object, upstream_object};
pub(crate) use key::{policy_id, route_id};
pub use manifest::{Document, Fault, parse};
pub(crate) use seniority::created;
pub use served::Unreadable;

use heliograph_model::PolicyKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Gateway API's own types, under the names that the specification uses.
pub mod gateway {
    pub use gateway_api::backendtlspolicies::{
        BackendTlsPolicyValidation as BackendTlsValidation,
        BackendTlsPolicyValidationSubjectAltNames as SubjectAltName,
        BackendTlsPolicyValidationSubjectAltNamesType as SubjectAltNameType,
    };
    pub use gateway_api::experimental::gatewayclasses::GatewayClass;
    pub use gateway_api::experimental::gateways::{
        Gateway, GatewayAllowedListenersNamespacesFrom as ListenersFrom,
        GatewayAllowedListenersNamespacesSelector as ListenersSelector,
        GatewayListeners as Listener,
        GatewayListenersAllowedRoutesNamespacesFrom as NamespacesFrom,
        GatewayListenersAllowedRoutesNamespacesSelector as NamespaceSelector,
        GatewayListenersTls as ListenerTls, GatewayListenersTlsCertificateRefs as CertificateRef,
        GatewayListenersTlsMode as TlsMode, GatewaySpec, GatewayTls,
        GatewayTlsBackendClientCertificateRef as ClientCertificateRef,
        GatewayTlsFrontendDefaultValidation as Validation,
        GatewayTlsFrontendDefaultValidationCaCertificateRefs as FrontendCaRef,
        GatewayTlsFrontendDefaultValidationMode as ValidationMode,
        GatewayTlsFrontendPerPortTlsValidation as PortValidation,
        GatewayTlsFrontendPerPortTlsValidationCaCertificateRefs as PortAuthorityRef,
        GatewayTlsFrontendPerPortTlsValidationMode as PortValidationMode,
    };
    pub use gateway_api::experimental::grpcroutes::{
        GrpcRoute, GrpcRouteParentRefs as GrpcParentRef, GrpcRouteRules as GrpcRule,
        GrpcRouteRulesBackendRefs as GrpcBackendRef, GrpcRouteRulesMatches as GrpcMatch,
        GrpcRouteRulesMatchesHeadersType as GrpcHeaderMatchType,
        GrpcRouteRulesMatchesMethod as RpcMatch, GrpcRouteRulesMatchesMethodType as RpcMatchType,
        GrpcRouteSpec,
    };
    pub use gateway_api::experimental::httproutes::{
        HttpRoute, HttpRouteParentRefs as ParentRef, HttpRouteRules as HttpRule,
        HttpRouteRulesBackendRefs as HttpBackendRef, HttpRouteRulesFilters as HttpFilter,
        HttpRouteRulesFiltersCors as Cors, HttpRouteRulesFiltersRequestMirror as RequestMirror,
        HttpRouteRulesFiltersRequestRedirect as RequestRedirect,
        HttpRouteRulesFiltersRequestRedirectPathType as RedirectPathType,
        HttpRouteRulesFiltersRequestRedirectScheme as RedirectScheme,
        HttpRouteRulesFiltersType as HttpFilterType, HttpRouteRulesFiltersUrlRewrite as UrlRewrite,
        HttpRouteRulesFiltersUrlRewritePathType as RewritePathType,
        HttpRouteRulesMatches as HttpMatch, HttpRouteRulesMatchesHeadersType as HeaderMatchType,
        HttpRouteRulesMatchesPath as PathMatch, HttpRouteRulesMatchesPathType as PathMatchType,
        HttpRouteRulesMatchesQueryParamsType as QueryMatchType, HttpRouteRulesRetry as Retry,
        HttpRouteSpec,
    };
    pub use gateway_api::experimental::listenersets::{
        ListenerSet, ListenerSetListeners as SetListener,
    };
    pub use gateway_api::experimental::referencegrants::ReferenceGrant;
    // Of v1alpha2 by its name, which has the fields of v1.
    pub use gateway_api::experimental::tcproutes::{
        TcpRoute, TcpRouteParentRefs as TcpParentRef, TcpRouteRules as TcpRule,
        TcpRouteRulesBackendRefs as TcpBackendRef, TcpRouteSpec,
    };

    pub const GROUP: &str = "gateway.networking.k8s.io";
}

/// Kubernetes' own types.
pub mod core {
    pub use super::secret::Secret;
    pub use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
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
    ($($kind:ident: $type:ty, $group:literal $(/ $version:ident)?, $scope:ident $(, $status:ident)?;)*) => {
        /// The kinds of objects that are understood.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind { $($kind),* }

        /// One object as it was given. Cheap to clone.
        #[derive(Clone, PartialEq)]
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

            /// The version of the API that is read here. None for a kind that no API serves.
            pub fn api_version(self) -> Option<&'static str> {
                match self {
                    $(Self::$kind => {
                        let version: &[&'static str] = &[$(stringify!($version))?];
                        version.first().copied()
                    })*
                }
            }

            pub fn has_status(self) -> bool {
                match self {
                    $(Self::$kind => {
                        let status: &[&'static str] = &[$(stringify!($status))?];
                        !status.is_empty()
                    })*
                }
            }

            /// Decodes an object of this kind as the API serves it. Its metadata may be left out of the value, since who
            /// watches has it apart.
            pub fn read(
                self,
                metadata: ObjectMeta,
                value: &mut serde_json::Value,
            ) -> Result<Object, served::Unreadable> {
                match self {
                    $(Self::$kind => {
                        let mut object: $type = served::decode(self, value)?;
                        object.metadata = metadata;
                        Ok(Object::$kind(Arc::new(object)))
                    })*
                }
            }

            /// Decodes one manifest that is known to be of this kind.
            fn decode(self, text: &str) -> Result<Object, manifest::ManifestProblem> {
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

            /// Drops what says nothing about what the author wants, so that a write of status is no change.
            pub fn forget_bookkeeping(&mut self) {
                let metadata = self.metadata();
                let kept = metadata.managed_fields.is_some() || metadata.resource_version.is_some();
                match self {
                    $(Self::$kind(object) => {
                        if kept $(|| object.$status.is_some())? {
                            let object = Arc::make_mut(object);
                            object.metadata.managed_fields = None;
                            object.metadata.resource_version = None;
                            $(object.$status = None;)?
                        }
                    })*
                }
            }

            /// To complete what a manifest may leave out.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self { $(Self::$kind(object) => &mut Arc::make_mut(object).metadata),* }
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

// The kind, its type, its group, the version that the API serves it in if any does, its scope, and whether it has a
// status that is no fact to translate from.
kinds! {
    Namespace: core::Namespace, "" / v1, Cluster, status;
    GatewayClass: gateway::GatewayClass, "gateway.networking.k8s.io" / v1, Cluster, status;
    Gateway: gateway::Gateway, "gateway.networking.k8s.io" / v1, Namespaced, status;
    ListenerSet: gateway::ListenerSet, "gateway.networking.k8s.io" / v1, Namespaced, status;
    HTTPRoute: gateway::HttpRoute, "gateway.networking.k8s.io" / v1, Namespaced, status;
    GRPCRoute: gateway::GrpcRoute, "gateway.networking.k8s.io" / v1, Namespaced, status;
    TCPRoute: gateway::TcpRoute, "gateway.networking.k8s.io" / v1, Namespaced, status;
    BackendTLSPolicy: backend_tls_policy::BackendTlsPolicy, "gateway.networking.k8s.io" / v1, Namespaced, status;
    BackendTrafficPolicy: backend_traffic_policy::BackendTrafficPolicy, "gateway.envoyproxy.io" / v1alpha1, Namespaced, status;
    SecurityPolicy: security_policy::SecurityPolicy, "gateway.envoyproxy.io" / v1alpha1, Namespaced, status;
    ReferenceGrant: gateway::ReferenceGrant, "gateway.networking.k8s.io" / v1, Namespaced;
    // Its status has the addresses of a Gateway.
    Service: core::Service, "" / v1, Namespaced;
    EndpointSlice: core::EndpointSlice, "discovery.k8s.io" / v1, Namespaced;
    Secret: core::Secret, "" / v1, Namespaced;
    ConfigMap: core::ConfigMap, "" / v1, Namespaced;
    ViewPolicy: view_policy::ViewPolicyObject, "heliograph.dev" / v1alpha1, Namespaced, status;
    ProxyConfig: proxy_config::ProxyConfig, "heliograph.dev" / v1alpha1, Namespaced;
    Proxy: heliograph::Proxy, "heliograph.dev", Namespaced;
}

impl Kind {
    pub fn find(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.as_str() == kind && known.group() == group)
    }

    /// Whether a cluster need not serve this kind: it is of Envoy Gateway's API, which is supported where it is installed.
    pub fn is_optional(self) -> bool {
        self.group() == "gateway.envoyproxy.io"
    }

    /// Whether objects of this kind protect what they target: without one that exists, traffic would flow that its author
    /// forbids. So nothing may be served as if there were none while that is not known.
    pub fn is_protecting(self) -> bool {
        self.policy_kind().is_some_and(PolicyKind::is_protecting)
    }

    /// Whether a new or changed object of this kind can open something: a listener, a route, or what these need to be served. It
    /// waits while it is not known what a [protecting](Self::is_protecting) kind forbids. The kinds that do not wait are those
    /// that only name addresses and certificates of what is open already.
    pub fn may_open(self) -> bool {
        !matches!(self, Self::EndpointSlice | Self::Secret | Self::ConfigMap)
            && !self.is_protecting()
    }
}

/// Objects may hold secrets, so only their names are printed.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key())
    }
}

impl Object {
    /// The objects that this one belongs to, each once, and that look it up: a Service its EndpointSlices, a namespace the
    /// ReferenceGrants for it.
    pub(crate) fn indexed_under(&self) -> Vec<ObjectKey> {
        match self {
            Self::EndpointSlice(slice) => {
                let labels = slice.metadata.labels.as_ref();
                let service = labels.and_then(|labels| labels.get("kubernetes.io/service-name"));
                let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
                let key = |service: &String| ObjectName::new(namespace, service).of(Kind::Service);
                service.map(key).into_iter().collect()
            }
            Self::ListenerSet(set) => listener_set::parent(set).into_iter().collect(),
            Self::ReferenceGrant(grant) => {
                let from: BTreeSet<&str> =
                    grant.spec.from.iter().map(|it| &*it.namespace).collect();
                from.into_iter().map(|name| ObjectName::new("", name).of(Kind::Namespace)).collect()
            }
            _ => Vec::new(),
        }
    }

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
