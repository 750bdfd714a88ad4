use heliograph_snapshot::{FleetName, Head, Resource, ResourceType, Snapshot, Tree, Version};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A snapshot as one class of clients sees it. Immutable, and shared by all clients of the class.
#[derive(Debug)]
pub struct View {
    /// Every view of this process has another.
    id: u64,
    snapshot: Arc<Snapshot>,
    /// The resources of a type ordered by name, made for the first state-of-the-world client that needs them.
    ordered: [OnceLock<Box<[Arc<Resource>]>>; ResourceType::ALL.len()],
}

impl View {
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        static VIEWS: AtomicU64 = AtomicU64::new(0);
        let id = VIEWS.fetch_add(1, Ordering::Relaxed);
        Self { id, snapshot, ordered: Default::default() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub fn head(&self) -> Head {
        self.snapshot.head
    }

    /// What the class sees.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub fn fleet(&self) -> &FleetName {
        &self.snapshot.fleet
    }

    /// The version of a resource, if the view has it.
    pub fn version(&self, kind: ResourceType, name: &str) -> Option<Version> {
        self.get(kind, name).map(|resource| resource.version)
    }

    pub(crate) fn tree(&self, kind: ResourceType) -> &Tree {
        self.snapshot.tree(kind)
    }

    pub(crate) fn get(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        self.snapshot.get(kind, name)
    }

    pub(crate) fn ordered(&self, kind: ResourceType) -> &[Arc<Resource>] {
        self.ordered[kind as usize].get_or_init(|| {
            let mut resources: Box<[_]> = self.tree(kind).iter().cloned().collect();
            resources.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            resources
        })
    }

    /// The name as the snapshot holds it, so that a stream that asks for it needs no copy of its own.
    pub(crate) fn name(&self, kind: ResourceType, name: &str) -> Arc<str> {
        self.get(kind, name).map_or_else(|| name.into(), |resource| resource.name.clone())
    }
}
