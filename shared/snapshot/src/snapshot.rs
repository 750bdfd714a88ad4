use crate::{Address, FleetName, Head, Resource, ResourceType, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All resources of a fleet at one version. Replaced whole, never seen half.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub fleet: FleetName,
    pub head: Head,
    trees: BTreeMap<ResourceType, Tree>,
}

/// One step from a snapshot to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set(ResourceType, Arc<Resource>),
    Remove(ResourceType, Arc<str>),
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
                Change::Set(kind, resource) => next.trees.entry(kind).or_default().insert(resource),
                Change::Remove(kind, name) => {
                    if let Some(tree) = next.trees.get_mut(&kind) {
                        tree.remove(&name);
                    }
                }
            }
        }
        next
    }

    /// The snapshot of these trees.
    pub fn assembled(fleet: FleetName, head: Head, trees: BTreeMap<ResourceType, Tree>) -> Self {
        Self { fleet, head, trees }
    }

    /// The same content at another head.
    pub fn at(&self, head: Head) -> Self {
        Self { head, ..self.clone() }
    }

    /// Where a store keeps each type that has resources. Equal roots mean equal content.
    pub fn roots(&self) -> BTreeMap<ResourceType, Address> {
        let roots = self.trees.iter().map(|(kind, tree)| Some((*kind, tree.address()?)));
        roots.flatten().collect()
    }

    pub fn tree(&self, kind: ResourceType) -> &Tree {
        static EMPTY: Tree = Tree::new();
        self.trees.get(&kind).unwrap_or(&EMPTY)
    }

    pub fn get(&self, kind: ResourceType, name: &str) -> Option<&Arc<Resource>> {
        self.tree(kind).get(name)
    }

    /// Whether both hold the same resources, whatever their heads say.
    pub fn same_content(&self, other: &Self) -> bool {
        ResourceType::ALL
            .into_iter()
            .all(|kind| self.tree(kind).address() == other.tree(kind).address())
    }
}
