//! Ids of model values. They are structured: no code parses the name that a dialect makes of one.

use crate::{Keyed, NamedKind, ObjectName};
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

macro_rules! kinds {
    ($($(#[$meta:meta])* $kinds:ident { $($kind:ident: $name:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kinds { $($kind),* }

        impl $kinds {
            pub const ALL: &[Self] = &[$(Self::$kind),*];
        }

        impl NamedKind for $kinds {
            fn as_str(&self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }
        }
    )*};
}

kinds! {
    /// The kind of object that a route is.
    RouteKind {
        Http: "HTTPRoute",
        Grpc: "GRPCRoute",
        Tcp: "TCPRoute",
    }
    /// The kind of object that listeners are written in.
    ListenerOwnerKind {
        Gateway: "Gateway",
        ListenerSet: "ListenerSet",
    }
    /// The kind of object that an upstream is made from.
    UpstreamKind {
        Service: "Service",
    }
}

/// A route of any kind.
pub type RouteId = Keyed<RouteKind>;

/// A listener. There are many values that name one, so it is cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(Arc<ListenerName>);

/// Names of listeners are chosen by their owners, so two owners in a fleet may have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerName {
    pub owner: ListenerOwner,
    pub name: Arc<str>,
}

/// The object that contains a listener: a Gateway, or a ListenerSet.
pub type ListenerOwner = Keyed<ListenerOwnerKind>;

/// A certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SecretId(pub ObjectName);

/// Identifies an upstream: a port of an object, and the protocol towards it. Two kinds of routes may use different
/// protocols for one port, and then there are two upstreams.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UpstreamId {
    pub kind: UpstreamKind,
    pub name: ObjectName,
    pub port: u16,
    pub protocol: UpstreamProtocol,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    Http1,
    Http2,
    /// Whatever clients speak.
    Tcp,
}

impl ListenerId {
    pub fn new(owner: ListenerOwner, name: &str) -> Self {
        Self(Arc::new(ListenerName { owner, name: name.into() }))
    }
}

impl Deref for ListenerId {
    type Target = ListenerName;

    fn deref(&self) -> &ListenerName {
        &self.0
    }
}

/// `gateway/shop/web/secure`.
impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.kind.as_str().to_ascii_lowercase();
        write!(f, "{owner}/{}/{}", self.owner.name, self.name)
    }
}

/// `service/shop/cart/8080`, and `service/shop/cart/8080/http2` or `…/tcp` where that is spoken.
impl fmt::Display for UpstreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.kind.as_str().to_ascii_lowercase(), self.name, self.port)?;
        match self.protocol {
            UpstreamProtocol::Http1 => Ok(()),
            UpstreamProtocol::Http2 => f.write_str("/http2"),
            UpstreamProtocol::Tcp => f.write_str("/tcp"),
        }
    }
}

impl Serialize for ListenerId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for UpstreamId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
