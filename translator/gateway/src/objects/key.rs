use super::{Kind, Scope};
use heliograph_model::{
    Keyed, ListenerOwner, ListenerOwnerKind, NamedKind, PolicyId, PolicyKind, RouteId, RouteKind,
    UpstreamKind, UpstreamObject,
};

/// Which object: its kind, namespace and name.
pub type ObjectKey = Keyed<Kind>;

impl NamedKind for Kind {
    fn as_str(&self) -> &'static str {
        (*self).as_str()
    }

    fn is_namespaced(&self) -> bool {
        self.scope() == Scope::Namespaced
    }
}

impl From<RouteKind> for Kind {
    fn from(kind: RouteKind) -> Self {
        match kind {
            RouteKind::Http => Self::HTTPRoute,
            RouteKind::Grpc => Self::GRPCRoute,
            RouteKind::Tcp => Self::TCPRoute,
        }
    }
}

impl From<ListenerOwnerKind> for Kind {
    fn from(kind: ListenerOwnerKind) -> Self {
        match kind {
            ListenerOwnerKind::Gateway => Self::Gateway,
            ListenerOwnerKind::ListenerSet => Self::ListenerSet,
        }
    }
}

impl From<PolicyKind> for Kind {
    fn from(kind: PolicyKind) -> Self {
        match kind {
            PolicyKind::BackendTls => Self::BackendTLSPolicy,
            PolicyKind::BackendTraffic => Self::BackendTrafficPolicy,
            PolicyKind::Security => Self::SecurityPolicy,
        }
    }
}

impl From<UpstreamKind> for Kind {
    fn from(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Service => Self::Service,
        }
    }
}

impl Kind {
    /// `None`: objects of this kind are no policies that are attached to what they target.
    pub fn policy_kind(self) -> Option<PolicyKind> {
        PolicyKind::ALL.iter().copied().find(|kind| Self::from(*kind) == self)
    }

    /// `None`: objects of this kind are no routes.
    pub fn route_kind(self) -> Option<RouteKind> {
        RouteKind::ALL.iter().copied().find(|kind| Self::from(*kind) == self)
    }

    /// `None`: objects of this kind have no listeners.
    pub(crate) fn listener_owner_kind(self) -> Option<ListenerOwnerKind> {
        ListenerOwnerKind::ALL.iter().copied().find(|kind| Self::from(*kind) == self)
    }

    /// `None`: objects of this kind are no backends.
    pub(crate) fn upstream_kind(self) -> Option<UpstreamKind> {
        UpstreamKind::ALL.iter().copied().find(|kind| Self::from(*kind) == self)
    }
}

/// The object that a route is.
pub fn route_object(route: &RouteId) -> ObjectKey {
    route.name.clone().of(route.kind.into())
}

/// The route that an object is, if it is one.
pub(crate) fn route_id(key: &ObjectKey) -> Option<RouteId> {
    Some(key.name.clone().of(key.kind.route_kind()?))
}

/// The policy that an object is, if it is one.
pub(crate) fn policy_id(key: &ObjectKey) -> Option<PolicyId> {
    Some(key.name.clone().of(key.kind.policy_kind()?))
}

/// The object that upstreams are made from.
pub fn upstream_object(object: &UpstreamObject) -> ObjectKey {
    object.name.clone().of(object.kind.into())
}

/// The object that listeners are written in.
pub fn owner_object(owner: &ListenerOwner) -> ObjectKey {
    owner.name.clone().of(owner.kind.into())
}
