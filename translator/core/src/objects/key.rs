use super::{Kind, Scope};
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Which object: its kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: Kind,
    pub name: ObjectName,
}

/// Namespace and name, where the kind is known. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectName {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(self, kind: Kind) -> ObjectKey {
        ObjectKey { kind, name: self }
    }
}

/// `HTTPRoute shop/cart`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.scope() {
            Scope::Cluster => write!(f, "{} {}", self.kind.as_str(), self.name.name),
            Scope::Namespaced => write!(f, "{} {}", self.kind.as_str(), self.name),
        }
    }
}

/// `shop/cart`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for ObjectKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for ObjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
