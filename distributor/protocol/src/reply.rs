use heliograph_snapshot::{Resource, ResourceType};
use std::sync::Arc;

/// One response to one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub kind: ResourceType,
    pub nonce: String,
    /// State of the world: the version of all that the client holds once it accepts this. Delta: the head.
    pub version: String,
    pub resources: Vec<Arc<Resource>>,
    /// Delta only.
    pub removed: Vec<Arc<str>>,
}
