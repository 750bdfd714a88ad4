use crate::{Address, Dialect, FleetName, Head, Internal, Resource, ResourceType, Section, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All resources of a fleet at one version. Replaced whole, never seen half.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub fleet: FleetName,
    pub head: Head,
    trees: BTreeMap<Section, Tree>,
}

/// One step from a snapshot to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set(ResourceType, Arc<Resource>),
    Remove(ResourceType, Arc<str>),
    /// The same for what proxies are never served.
    SetInternal(Internal, Arc<Resource>),
    RemoveInternal(Internal, Arc<str>),
}

impl Snapshot {
    pub fn empty(fleet: FleetName) -> Self {
        Self { fleet, head: Head::default(), trees: BTreeMap::new() }
    }

    /// The snapshot after `changes`, sharing with this one all that did not change.
    pub fn with(&self, head: Head, changes: impl IntoIterator<Item = Change>) -> Self {
        let mut next = self.clone();
        next.head = head;
        for change in changes {
            match change {
                Change::Set(kind, resource) => next.set(kind.into(), resource),
                Change::Remove(kind, name) => next.remove(kind.into(), &name),
                Change::SetInternal(internal, resource) => next.set(internal.into(), resource),
                Change::RemoveInternal(internal, name) => next.remove(internal.into(), &name),
            }
        }
        next
    }

    /// The snapshot of these trees.
    pub fn assembled(
        fleet: FleetName,
        head: Head,
        trees: impl IntoIterator<Item = (impl Into<Section>, Tree)>,
    ) -> Self {
        let trees = trees.into_iter().map(|(section, tree)| (section.into(), tree)).collect();
        Self { fleet, head, trees }
    }

    /// The same content at another head.
    pub fn at(&self, head: Head) -> Self {
        Self { head, ..self.clone() }
    }

    /// The dialect of its fleet, which follows from what it serves: a store keeps no other record of it. One that serves
    /// nothing has nothing of another dialect either.
    pub fn dialect(&self) -> Dialect {
        let served = self.trees.iter().filter(|(_, tree)| !tree.is_empty());
        let mut dialects = served.filter_map(|(section, _)| match section {
            Section::Served(kind) => Some(kind.properties().dialect),
            Section::Internal(_) => None,
        });
        dialects.next().unwrap_or_default()
    }

    /// Where a store keeps each section that has resources. Equal roots mean equal content.
    pub fn roots(&self) -> BTreeMap<Section, Address> {
        let roots = self.trees.iter().map(|(section, tree)| Some((*section, tree.address()?)));
        roots.flatten().collect()
    }

    pub fn tree(&self, kind: ResourceType) -> &Tree {
        self.section(kind.into())
    }

    pub fn internal(&self, internal: Internal) -> &Tree {
        self.section(internal.into())
    }

    pub fn section(&self, section: Section) -> &Tree {
        static EMPTY: Tree = Tree::new();
        self.trees.get(&section).unwrap_or(&EMPTY)
    }

    pub fn get(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        self.tree(kind).get(name)
    }

    /// About how much memory the resources take. It costs what changed since a snapshot that shares with this one was
    /// asked.
    pub fn bytes(&self) -> usize {
        self.trees.values().map(Tree::bytes).sum()
    }

    /// The sections that have something confidential, and of which the store does not seal all anyway.
    pub fn confidential_sections(&self) -> impl Iterator<Item = Section> {
        let trees = self.trees.iter().filter(|(section, _)| !section.is_always_sealed());
        trees.filter(|(_, tree)| tree.has_confidential()).map(|(section, _)| *section)
    }

    /// Whether both hold the same resources, whatever their heads say.
    pub fn same_content(&self, other: &Self) -> bool {
        Section::all()
            .all(|section| self.section(section).address() == other.section(section).address())
    }

    fn set(&mut self, section: Section, resource: Arc<Resource>) {
        self.trees.entry(section).or_default().insert(resource);
    }

    fn remove(&mut self, section: Section, name: &str) {
        if let Some(tree) = self.trees.get_mut(&section) {
            tree.remove(name);
        }
    }
}
