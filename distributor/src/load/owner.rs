use crate::identity::Identity;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The owner that a connection or a stream counts for. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// An identity, or an address.
    name: Arc<str>,
    /// Whether it has proven who it is. Otherwise it is its address, which has bounds of its own.
    is_known: bool,
    namespace: Option<Arc<str>>,
}

impl Owner {
    pub(crate) fn new(identity: &Identity, address: IpAddr) -> Self {
        match identity {
            Identity::Anybody => {
                let name = super::network(address).to_string().into();
                Self { name, is_known: false, namespace: None }
            }
            known => Self {
                name: known.to_string().into(),
                is_known: true,
                namespace: known.namespace().map(Arc::from),
            },
        }
    }

    /// The owner before authentication. All of these count together like one namespace, with a name that no namespace
    /// can have.
    pub(crate) fn unauthenticated(address: IpAddr) -> Self {
        let namespace = Some("(not authenticated)".into());
        Self { namespace, ..Self::new(&Identity::Anybody, address) }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The identity, if it has proven one.
    pub(super) fn identity(&self) -> Option<&Arc<str>> {
        self.is_known.then_some(&self.name)
    }

    pub(super) fn namespace(&self) -> Option<&Arc<str>> {
        self.namespace.as_ref()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
