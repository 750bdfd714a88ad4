use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Namespace and name, where the kind is known. The namespace of something that belongs to a whole cluster is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// A name together with what kind of thing has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keyed<K> {
    pub kind: K,
    pub name: ObjectName,
}

/// A kind of things that have names.
pub trait NamedKind {
    fn as_str(&self) -> &'static str;

    /// Whether names are unique in a namespace only.
    fn is_namespaced(&self) -> bool {
        true
    }
}

/// Something with a namespace and a name.
pub trait Named {
    fn name(&self) -> &ObjectName;
}

impl ObjectName {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of<K>(self, kind: K) -> Keyed<K> {
        Keyed { kind, name: self }
    }
}

impl Named for ObjectName {
    fn name(&self) -> &ObjectName {
        self
    }
}

impl<K> Named for Keyed<K> {
    fn name(&self) -> &ObjectName {
        &self.name
    }
}

impl<T: Named> Named for &T {
    fn name(&self) -> &ObjectName {
        (*self).name()
    }
}

/// `HTTPRoute shop/cart`.
impl<K: NamedKind> fmt::Display for Keyed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.is_namespaced() {
            true => write!(f, "{} {}", self.kind.as_str(), self.name),
            false => write!(f, "{} {}", self.kind.as_str(), self.name.name),
        }
    }
}

impl<K: NamedKind> Serialize for Keyed<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `shop/cart`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Serialize for ObjectName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
