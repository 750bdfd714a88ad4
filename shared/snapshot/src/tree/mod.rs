mod assembly;
mod parts;

pub use assembly::{Assembly, Missing};
pub use parts::{Additions, Entry, Malformed, Part, VerifiedPart};

use crate::{Address, Resource};
use std::sync::{Arc, LazyLock, OnceLock};

/// The resources of one type, by name, as a persistent trie over the hash of the name.
///
/// Copies share equal parts, so that keeping the old snapshot beside the new one costs memory in proportion to the
/// change, and [`Tree::differences`] reads only parts that differ. The shape depends on the content alone, never on the
/// order of edits: two leaders build the same tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    root: Option<Arc<Node>>,
}

/// A name whose resource is not the same in two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference<'a> {
    pub before: Option<&'a Arc<Resource>>,
    pub after: Option<&'a Arc<Resource>>,
}

#[derive(Clone, Debug)]
struct Node {
    address: OnceLock<Address>,
    bytes: OnceLock<usize>,
    has_confidential: OnceLock<bool>,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    /// At most [`LEAF_LIMIT`] resources, ordered by name.
    Leaf(Vec<Arc<Resource>>),
    /// More than that, by the next four bits of the name's hash.
    Branch { length: usize, children: Box<[Option<Arc<Node>>; FANOUT]> },
}

const FANOUT: usize = 16;
const LEAF_LIMIT: usize = 32;

impl Tree {
    pub const fn new() -> Self {
        Self { root: None }
    }

    pub fn len(&self) -> usize {
        length(self.root.as_ref())
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        let mut node = self.root.as_ref()?;
        let path = path_of(name);
        let mut depth = 0;
        loop {
            match &node.shape {
                Shape::Leaf(resources) => {
                    let at = position(resources, name).ok()?;
                    return resources.get(at);
                }
                Shape::Branch { children, .. } => {
                    node = children[slot(&path, depth)].as_ref()?;
                    depth += 1;
                }
            }
        }
    }

    pub fn insert(&mut self, resource: Arc<Resource>) {
        let path = path_of(&resource.name);
        insert(&mut self.root, resource, &path, 0);
    }

    /// Whether there was such a resource.
    pub fn remove(&mut self, name: &str) -> bool {
        // Without the look first, a remove that finds nothing would copy the path to where it looked.
        self.get(name).is_some() && remove(&mut self.root, name, &path_of(name), 0)
    }

    /// Every resource once, in an order that depends on the content alone.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let mut pending: Vec<&Node> = self.root.as_deref().into_iter().collect();
        let mut leaf = [].iter();
        std::iter::from_fn(move || {
            loop {
                if let Some(resource) = leaf.next() {
                    return Some(resource);
                }
                match &pending.pop()?.shape {
                    Shape::Leaf(resources) => leaf = resources.iter(),
                    Shape::Branch { children, .. } => {
                        pending.extend(children.iter().rev().filter_map(Option::as_deref));
                    }
                }
            }
        })
    }

    /// Where a store keeps the tree; `None` if it is empty. Equal addresses mean equal content.
    pub fn address(&self) -> Option<Address> {
        self.root.as_deref().map(Node::address)
    }

    /// About how much memory the resources take. After a change only what is new is counted.
    pub fn bytes(&self) -> usize {
        self.root.as_deref().map_or(0, Node::bytes)
    }

    /// Whether it has a resource that is confidential. After a change only new parts are read.
    pub fn has_confidential(&self) -> bool {
        self.root.as_deref().is_some_and(Node::has_confidential)
    }

    /// The changes from `before` to this tree, at a cost in proportion to their number.
    pub fn differences<'a>(&'a self, before: &'a Tree) -> Vec<Difference<'a>> {
        let mut found = Vec::new();
        differences(before.root.as_ref(), self.root.as_ref(), &mut found);
        found
    }
}

impl FromIterator<Arc<Resource>> for Tree {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        let mut tree = Self::new();
        resources.into_iter().for_each(|resource| tree.insert(resource));
        tree
    }
}

impl Node {
    fn leaf(resources: Vec<Arc<Resource>>) -> Arc<Self> {
        Arc::new(Self::new(OnceLock::new(), Shape::Leaf(resources)))
    }

    fn new(address: OnceLock<Address>, shape: Shape) -> Self {
        Self { address, bytes: OnceLock::new(), has_confidential: OnceLock::new(), shape }
    }

    fn has_confidential(&self) -> bool {
        *self.has_confidential.get_or_init(|| match &self.shape {
            Shape::Leaf(resources) => resources.iter().any(|found| found.is_confidential),
            Shape::Branch { children, .. } => {
                children.iter().flatten().any(|child| child.has_confidential())
            }
        })
    }

    fn bytes(&self) -> usize {
        *self.bytes.get_or_init(|| match &self.shape {
            Shape::Leaf(resources) => resources.iter().map(|found| found.bytes()).sum(),
            Shape::Branch { children, .. } => {
                children.iter().flatten().map(|child| child.bytes()).sum()
            }
        })
    }

    /// To be called before the shape changes.
    fn forget_sums(&mut self) {
        self.address = OnceLock::new();
        self.bytes = OnceLock::new();
        self.has_confidential = OnceLock::new();
    }

    fn address(&self) -> Address {
        *self.address.get_or_init(|| match &self.shape {
            Shape::Leaf(resources) => {
                address_of_leaf(resources.iter().map(|found| (&*found.name, found.address)))
            }
            Shape::Branch { children, .. } => {
                address_of_branch(children.iter().map(|child| child.as_deref().map(Node::address)))
            }
        })
    }
}

fn length(node: Option<&Arc<Node>>) -> usize {
    match node.map(|node| &node.shape) {
        None => 0,
        Some(Shape::Leaf(resources)) => resources.len(),
        Some(Shape::Branch { length, .. }) => *length,
    }
}

/// The hash of a name, which leads to its leaf.
type Path = [u8; 32];

fn path_of(name: &str) -> Path {
    *blake3::hash(name.as_bytes()).as_bytes()
}

/// The child for the `depth`th four bits. Past the end of the hash, where names would have to collide in 256 bits,
/// leaves just grow.
fn slot(path: &Path, depth: usize) -> usize {
    let byte = path[depth / 2];
    usize::from(if depth.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
}

const DEEPEST: usize = 2 * size_of::<Path>();

fn position(resources: &[Arc<Resource>], name: &str) -> Result<usize, usize> {
    resources.binary_search_by(|resource| (*resource.name).cmp(name))
}

/// Returns by how many resources the subtree grew: 0 where the name was there already.
fn insert(
    node: &mut Option<Arc<Node>>,
    resource: Arc<Resource>,
    path: &Path,
    depth: usize,
) -> usize {
    let Some(existing) = node else {
        *node = Some(Node::leaf(vec![resource]));
        return 1;
    };
    let inner = Arc::make_mut(existing);
    inner.forget_sums();
    match &mut inner.shape {
        Shape::Branch { length, children } => {
            let grown = insert(&mut children[slot(path, depth)], resource, path, depth + 1);
            *length += grown;
            grown
        }
        Shape::Leaf(resources) => match position(resources, &resource.name) {
            Ok(at) => {
                resources[at] = resource;
                0
            }
            Err(at) => {
                resources.insert(at, resource);
                if resources.len() > LEAF_LIMIT && depth < DEEPEST {
                    inner.shape = split(std::mem::take(resources), depth);
                }
                1
            }
        },
    }
}

fn split(resources: Vec<Arc<Resource>>, depth: usize) -> Shape {
    let mut children: Box<[Option<Arc<Node>>; FANOUT]> = Box::default();
    let length = resources.len();
    for resource in resources {
        let path = path_of(&resource.name);
        insert(&mut children[slot(&path, depth)], resource, &path, depth + 1);
    }
    Shape::Branch { length, children }
}

fn remove(node: &mut Option<Arc<Node>>, name: &str, path: &Path, depth: usize) -> bool {
    let Some(existing) = node else { return false };
    let inner = Arc::make_mut(existing);
    inner.forget_sums();
    let emptied = match &mut inner.shape {
        Shape::Leaf(resources) => {
            let Ok(at) = position(resources, name) else { return false };
            resources.remove(at);
            resources.is_empty()
        }
        Shape::Branch { length, children } => {
            if !remove(&mut children[slot(path, depth)], name, path, depth + 1) {
                return false;
            }
            *length -= 1;
            if *length <= LEAF_LIMIT {
                let mut resources: Vec<_> = Tree { root: node.clone() }.iter().cloned().collect();
                resources.sort_by(|one, other| one.name.cmp(&other.name));
                *node = Some(Node::leaf(resources));
            }
            false
        }
    };
    if emptied {
        *node = None;
    }
    true
}

fn address_of_leaf<'a>(entries: impl Iterator<Item = (&'a str, Address)>) -> Address {
    let mut hasher = NODES.clone();
    hasher.update(b"leaf");
    for (name, address) in entries {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&address.0);
    }
    Address(*hasher.finalize().as_bytes())
}

fn address_of_branch(children: impl Iterator<Item = Option<Address>>) -> Address {
    let mut hasher = NODES.clone();
    hasher.update(b"branch");
    for child in children {
        hasher.update(&child.unwrap_or(Address([0; 32])).0);
    }
    Address(*hasher.finalize().as_bytes())
}

/// A context of their own, so that no resource's body can be written that has a node's address.
static NODES: LazyLock<blake3::Hasher> =
    LazyLock::new(|| blake3::Hasher::new_derive_key("heliograph snapshot tree node 1"));

fn differences<'a>(
    before: Option<&'a Arc<Node>>,
    after: Option<&'a Arc<Node>>,
    found: &mut Vec<Difference<'a>>,
) {
    if same(before, after) {
        return;
    }
    match (before.map(|node| &node.shape), after.map(|node| &node.shape)) {
        (Some(Shape::Branch { children: old, .. }), Some(Shape::Branch { children: new, .. })) => {
            for (old, new) in old.iter().zip(new.iter()) {
                differences(old.as_ref(), new.as_ref(), found);
            }
        }
        // One side is a leaf or nothing: there the other side is small too, or all of it is new or gone.
        _ => merge(&ordered(before), &ordered(after), found),
    }
}

fn same(one: Option<&Arc<Node>>, other: Option<&Arc<Node>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other) || one.address() == other.address(),
        (None, None) => true,
        _ => false,
    }
}

fn ordered(node: Option<&Arc<Node>>) -> Vec<&Arc<Resource>> {
    fn collect<'a>(node: &'a Node, into: &mut Vec<&'a Arc<Resource>>) {
        match &node.shape {
            Shape::Leaf(resources) => into.extend(resources),
            Shape::Branch { children, .. } => {
                children.iter().flatten().for_each(|child| collect(child, into));
            }
        }
    }
    let mut resources = Vec::with_capacity(length(node));
    if let Some(node) = node {
        collect(node, &mut resources);
    }
    resources.sort_by(|one, other| one.name.cmp(&other.name));
    resources
}

fn merge<'a>(
    before: &[&'a Arc<Resource>],
    after: &[&'a Arc<Resource>],
    found: &mut Vec<Difference<'a>>,
) {
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(&new.name),
        };
        let before = if order.is_le() { old.next().copied() } else { None };
        let after = if order.is_ge() { new.next().copied() } else { None };
        let unchanged =
            matches!((before, after), (Some(old), Some(new)) if old.address == new.address);
        if !unchanged {
            found.push(Difference { before, after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn resource(name: u16, content: u8) -> Arc<Resource> {
        Arc::new(Resource::new(format!("name-{name}"), Bytes::from(vec![content])))
    }

    fn edits() -> impl Strategy<Value = Vec<(u16, Option<u8>)>> {
        prop::collection::vec((0..200u16, prop::option::weighted(0.7, 0..3u8)), 0..400)
    }

    fn apply(tree: &mut Tree, edits: &[(u16, Option<u8>)]) {
        for (name, content) in edits {
            match content {
                Some(content) => tree.insert(resource(*name, *content)),
                None => {
                    tree.remove(&format!("name-{name}"));
                }
            }
        }
    }

    fn content(tree: &Tree) -> BTreeMap<String, Arc<Resource>> {
        tree.iter().map(|resource| (resource.name.to_string(), resource.clone())).collect()
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(edits in edits()) {
            let mut tree = Tree::new();
            apply(&mut tree, &edits);
            // Asked for on the way too: an old sum must not stay.
            let half = edits.len() / 2;
            let mut tree_on_the_way = Tree::new();
            apply(&mut tree_on_the_way, &edits[..half]);
            tree_on_the_way.bytes();
            apply(&mut tree_on_the_way, &edits[half..]);
            prop_assert_eq!(tree_on_the_way.bytes(), tree.bytes());
            let mut model = BTreeMap::new();
            for (name, content) in &edits {
                match content {
                    Some(content) => { model.insert(format!("name-{name}"), resource(*name, *content)); }
                    None => { model.remove(&format!("name-{name}")); }
                }
            }
            prop_assert_eq!(tree.len(), model.len());
            let bytes: usize = model.values().map(|resource| resource.bytes()).sum();
            prop_assert_eq!(tree.bytes(), bytes);
            prop_assert_eq!(tree.is_empty(), model.is_empty());
            for (name, resource) in &model {
                prop_assert_eq!(tree.get(name), Some(resource));
            }
            prop_assert_eq!(content(&tree), model);
        }

        #[test]
        fn the_way_there_leaves_no_trace(edits in edits()) {
            let mut edited = Tree::new();
            apply(&mut edited, &edits);
            let rebuilt: Tree = content(&edited).into_values().rev().collect();
            prop_assert_eq!(edited.address(), rebuilt.address());
            prop_assert!(edited.differences(&rebuilt).is_empty());
        }

        #[test]
        fn differences_lead_from_one_to_the_other(first in edits(), second in edits()) {
            let mut before = Tree::new();
            apply(&mut before, &first);
            let mut after = before.clone();
            apply(&mut after, &second);
            let mut walked = before.clone();
            for difference in after.differences(&before) {
                prop_assert_ne!(
                    difference.before.map(|resource| resource.version),
                    difference.after.map(|resource| resource.version)
                );
                match (difference.before, difference.after) {
                    (_, Some(new)) => walked.insert(new.clone()),
                    (Some(old), None) => { walked.remove(&old.name); }
                    (None, None) => prop_assert!(false, "a difference of nothing"),
                }
            }
            prop_assert_eq!(walked.address(), after.address());
        }
    }
}
