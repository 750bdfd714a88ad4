use super::{FANOUT, Node, Shape, Tree, address_of_branch, address_of_leaf, same};
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

/// A part whose address was checked, and those of the bodies in it.
///
/// To find that out is nearly all the work of a large load, and can be done for many parts side by side.
#[derive(Debug)]
pub struct VerifiedPart {
    pub(super) address: Address,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Leaf(Vec<Kept>),
    Branch(Box<[Option<Address>; FANOUT]>),
}

/// A resource that came with its leaf, or whose body is elsewhere.
#[derive(Debug)]
pub(super) enum Kept {
    Here(Arc<Resource>),
    Elsewhere(Arc<str>, Address),
}

/// A part whose content does not match its address, or that was not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is stored at {0:?} is not what its address says")]
pub struct Malformed(pub Address);

/// The parts of a tree that another one does not have.
#[derive(Debug, Default)]
pub struct Additions<'a> {
    pub leaves: Vec<(Address, &'a [Arc<Resource>])>,
    pub branches: Vec<(Address, Box<[Option<Address>; FANOUT]>)>,
    /// The resources in those leaves that the other has not.
    pub resources: Vec<&'a Arc<Resource>>,
}

impl Part {
    /// Makes sure that it is what is to be found at `address`.
    pub fn verified(self, address: Address) -> Result<VerifiedPart, Malformed> {
        if self.address() != address {
            return Err(Malformed(address));
        }
        let content = match self {
            Self::Branch(children) => Content::Branch(children),
            Self::Leaf(entries) => {
                Content::Leaf(entries.into_iter().map(Entry::verified).collect::<Result<_, _>>()?)
            }
        };
        Ok(VerifiedPart { address, content })
    }

    /// Where it is kept, if it is what it should be.
    pub fn address(&self) -> Address {
        match self {
            Self::Leaf(entries) => {
                address_of_leaf(entries.iter().map(|entry| (&*entry.name, entry.address)))
            }
            Self::Branch(children) => address_of_branch(children.iter().copied()),
        }
    }
}

impl Entry {
    fn verified(self) -> Result<Kept, Malformed> {
        let Self { name, address, body } = self;
        match body {
            Some(body) if Address::of(&body) == address => {
                // A copy, because it would keep the whole leaf in memory.
                let body = Bytes::copy_from_slice(&body);
                Ok(Kept::Here(Arc::new(Resource::at(address, name, body))))
            }
            Some(_) => Err(Malformed(address)),
            None => Ok(Kept::Elsewhere(name, address)),
        }
    }
}

impl Tree {
    /// The parts that a store with `base` needs in order to have this tree, too, at a cost in proportion to their
    /// number.
    pub fn additions_to<'a>(&'a self, base: &Tree) -> Additions<'a> {
        let mut additions = Additions::default();
        additions.collect(self.root.as_ref(), base.root.as_ref(), base);
        additions
    }
}

impl<'a> Additions<'a> {
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
