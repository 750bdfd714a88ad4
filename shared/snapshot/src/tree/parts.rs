use super::{FANOUT, Node, Shape, Tree, same};
use crate::{Address, Resource};
use std::sync::Arc;

/// A node of a tree as a store keeps it: what it holds, and where the rest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Names in order, and where their bodies are.
    Leaf(Vec<(Arc<str>, Address)>),
    Branch(Box<[Option<Address>; FANOUT]>),
}

/// What a tree has and another has not.
#[derive(Debug, Default)]
pub struct Fresh<'a> {
    pub parts: Vec<(Address, Part)>,
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
        self.parts.push((found.address(), found.part()));
        match &found.shape {
            Shape::Leaf(resources) => {
                let held = |resource: &Arc<Resource>| {
                    base.get(&resource.name).is_some_and(|held| held.address == resource.address)
                };
                self.resources.extend(resources.iter().filter(|resource| !held(resource)));
            }
            Shape::Branch { children, .. } => {
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

impl Node {
    fn part(&self) -> Part {
        match &self.shape {
            Shape::Leaf(resources) => Part::Leaf(
                resources.iter().map(|found| (found.name.clone(), found.address)).collect(),
            ),
            Shape::Branch { children, .. } => Part::Branch(Box::new(std::array::from_fn(|slot| {
                children[slot].as_deref().map(Self::address)
            }))),
        }
    }
}
