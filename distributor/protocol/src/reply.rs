use crate::encode::Encoded;
use heliograph_snapshot::{Head, Resource, ResourceType};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// One response to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub nonce: String,
    pub(crate) response: Arc<Response>,
}

/// The content of a reply. Streams at the same position receive the same, and share it.
#[derive(Debug)]
pub struct Response {
    pub kind: ResourceType,
    /// What it was built from.
    pub head: Head,
    /// State of the world: the version of all that the client holds once it accepts this. Delta: the head.
    pub version: String,
    pub resources: Vec<Arc<Resource>>,
    /// Delta only.
    pub removed: Vec<Arc<str>>,
    /// The encoded form, once it was needed.
    pub(crate) encoded: OnceLock<Encoded>,
}

impl Response {
    pub(crate) fn new(
        kind: ResourceType,
        head: Head,
        version: String,
        resources: Vec<Arc<Resource>>,
        removed: Vec<Arc<str>>,
    ) -> Self {
        Self { kind, head, version, resources, removed, encoded: OnceLock::new() }
    }

    /// How much memory it keeps, in hundreds of bytes.
    pub(crate) fn size(&self) -> usize {
        let bodies: usize = self.resources.iter().map(|resource| resource.body.len()).sum();
        self.resources.len() + self.removed.len() + bodies / 100
    }
}

impl Reply {
    /// Whether both are the same decision.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.response, &other.response)
    }
}

impl Deref for Reply {
    type Target = Response;

    fn deref(&self) -> &Response {
        &self.response
    }
}

impl PartialEq for Response {
    fn eq(&self, other: &Self) -> bool {
        let identity = |it: &Self| (it.kind, it.head);
        identity(self) == identity(other)
            && self.version == other.version
            && self.resources == other.resources
            && self.removed == other.removed
    }
}

impl Eq for Response {}
