use crate::transition_cache::Position;
use crate::watch::Watch;
use heliograph_snapshot::{Resource, ResourceType, Version};
use std::sync::Arc;

/// The versions that a client has accepted and rejected, for counting clients. Clients in the same state share it.
#[derive(Clone, Debug)]
pub struct ClientState(pub(crate) Arc<Position>);

impl ClientState {
    /// Every position has another.
    pub fn id(&self) -> u64 {
        self.0.id()
    }

    /// The resources that the client rejected last and of which it has not accepted another version since; cut to a
    /// bounded number.
    pub fn rejections(&self) -> &[(ResourceType, Arc<Resource>)] {
        self.0.rejections()
    }

    /// Whether the client has accepted this, as far as is known, and nothing else since.
    pub fn holds(&self, kind: ResourceType, name: &str, version: Version) -> bool {
        self.held(kind, name) == Some(version)
    }

    /// Which version the client has accepted last of a resource that it asks for, as far as is known.
    pub fn held(&self, kind: ResourceType, name: &str) -> Option<Version> {
        self.watch(kind)?.held(name)
    }

    /// Whether the client stays at what it has because it rejected what it is to have.
    pub fn rejects(&self, kind: ResourceType, name: &str) -> bool {
        self.watch(kind).is_some_and(|watch| watch.rejects(name))
    }

    fn watch(&self, kind: ResourceType) -> Option<&Watch> {
        self.0.state().watch(kind)
    }
}
