use super::{FANOUT, Node, Shape, Tree, same};
use crate::{Address, Resource};
use bytes::Bytes;
use std::sync::Arc;

/// A node of a tree as a store gives it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Ordered by name.
    Leaf(Vec<Entry>),
    Branch(Box<[Option<Address>; FANOUT]>),
}

/// A resource in a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: Arc<str>,
    pub address: Address,
    /// The body, where the store keeps it in the leaf: otherwise it is elsewhere, at its address.
    pub body: Option<Bytes>,
}

/// What a tree has and another has not.
#[derive(Debug, Default)]
pub struct Fresh<'a> {
    pub leaves: Vec<(Address, &'a [Arc<Resource>])>,
    pub branches: Vec<(Address, Box<[Option<Address>; FANOUT]>)>,
    /// The resources in those leaves that the other has not.
    pub resources: Vec<&'a Arc<Resource>>,
}

impl Tree {
    /// What a store that holds `base` needs to hold this tree too, at a cost in proportion to that.
    pub fn beyond<'a>(&'a self, base: &Tree) -> Fresh<'a> {
        let mut fresh = Fresh::default();
        fresh.collect(self.root.as_ref(), base.root.as_ref(), base);
        fresh
    }
}

impl<'a> Fresh<'a> {
    fn collect(&mut self, node: Option<&'a Arc<Node>>, before: Option<&Arc<Node>>, base: &Tree) {
        let Some(found) = node else { return };
        if same(node, before) {
            return;
        }
        match &found.shape {
            Shape::Leaf(resources) => {
                self.leaves.push((found.address(), resources));
                let held = |resource: &Arc<Resource>| {
                    base.get(&resource.name).is_some_and(|held| held.address == resource.address)
                };
                self.resources.extend(resources.iter().filter(|resource| !held(resource)));
            }
            Shape::Branch { children, .. } => {
                let addresses =
                    std::array::from_fn(|slot| children[slot].as_deref().map(Node::address));
                self.branches.push((found.address(), Box::new(addresses)));
                let before = before.map(|node| &node.shape);
                for (slot, child) in children.iter().enumerate() {
                    let before = match before {
                        Some(Shape::Branch { children, .. }) => children[slot].as_ref(),
                        _ => None,
                    };
                    self.collect(child.as_ref(), before, base);
                }
            }
        }
    }
}
