use heliograph_snapshot::{FleetName, Head, Resource, ResourceType, Snapshot, Tree, Version};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A snapshot as one class of clients sees it. Immutable, and shared by all clients of the class.
#[derive(Debug)]
pub struct View {
    /// Every view of this process has another.
    id: u64,
    snapshot: Arc<Snapshot>,
    /// By type and name.
    substitutes: Arc<[Substitute]>,
    /// The resources of a type ordered by name, made for the first state-of-the-world client that needs them.
    ordered: [OnceLock<Box<[Arc<Resource>]>>; ResourceType::ALL.len()],
}

/// A resource that is served at an older version, because clients rejected the newest. A client that accepted the newest
/// keeps it: no client goes back.
#[derive(Clone, Debug)]
pub struct Substitute {
    pub kind: ResourceType,
    /// What is not served.
    pub rejected: Arc<Resource>,
    /// What is in its place.
    pub good: Version,
}

impl View {
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        Self::with(snapshot, Arc::default())
    }

    /// A view of a snapshot that has substitutes in it. They are to be in the order of type and name.
    pub fn with(snapshot: Arc<Snapshot>, substitutes: Arc<[Substitute]>) -> Self {
        static VIEWS: AtomicU64 = AtomicU64::new(0);
        let id = VIEWS.fetch_add(1, Ordering::Relaxed);
        Self { id, snapshot, substitutes, ordered: Default::default() }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub fn head(&self) -> Head {
        self.snapshot.head
    }

    /// The snapshot that the class sees.
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

    /// Whether a client that holds this is not to be sent another: the view has it, or has a substitute for it.
    pub fn has(&self, kind: ResourceType, name: &str, version: Option<Version>) -> bool {
        let held_back = self.held_back(kind, name).map(|resource| resource.version);
        self.version(kind, name) == version || version.is_some() && held_back == version
    }

    pub(crate) fn tree(&self, kind: ResourceType) -> &Tree {
        self.snapshot.tree(kind)
    }

    pub(crate) fn get(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        self.snapshot.get(kind, name)
    }

    /// The newest version of a resource, if it is not served because clients rejected it.
    pub(crate) fn held_back(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        let place = |it: &Substitute| (it.kind, &*it.rejected.name).cmp(&(kind, name));
        let at = self.substitutes.binary_search_by(place).ok()?;
        let substitute = self.substitutes.get(at).filter(|it| self.shows(it))?;
        Some(&substitute.rejected)
    }

    /// All of a type that is not served because clients rejected it.
    pub(crate) fn all_held_back(&self, kind: ResourceType) -> impl Iterator<Item = &Arc<Resource>> {
        let shown = self.substitutes.iter().filter(move |it| it.kind == kind && self.shows(it));
        shown.map(|it| &it.rejected)
    }

    pub(crate) fn ordered(&self, kind: ResourceType) -> &[Arc<Resource>] {
        self.ordered[kind as usize].get_or_init(|| {
            let mut resources: Box<[_]> = self.tree(kind).iter().cloned().collect();
            resources.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            resources
        })
    }

    /// Some classes see a variant of the resource, or nothing, and no substitute.
    fn shows(&self, substitute: &Substitute) -> bool {
        self.version(substitute.kind, &substitute.rejected.name) == Some(substitute.good)
    }
}
