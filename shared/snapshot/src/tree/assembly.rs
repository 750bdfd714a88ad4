use super::parts::{Content, Kept, Malformed, VerifiedPart};
use super::{DEEPEST, FANOUT, Node, Shape, Tree};
use crate::{Address, Resource};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A tree that is loaded part by part from a store: it lists the parts that it still needs, and verifies those that it
/// gets.
///
/// Parts that the previous tree has in the same place are reused and never requested, so the cost of an update is in
/// proportion to the change. There is no IO here: the caller reads [`Assembly::wanted`] from the store until it is
/// empty, and then [`Assembly::missing`].
#[derive(Debug)]
pub struct Assembly {
    /// The tree at hand.
    known: Tree,
    root: Child,
    /// The parts that came. A parent comes before its children.
    nodes: Vec<Arrived>,
    /// The parts that are asked for, and where they belong.
    wanted: BTreeMap<Address, WantedPart>,
    /// The resources whose bodies did not come with their leaves.
    missing: Vec<Missing>,
    /// How many of them have no body yet.
    gaps: usize,
}

/// A resource whose body is wanted.
#[derive(Clone, Debug)]
pub struct Missing {
    pub name: Arc<str>,
    pub address: Address,
    leaf: usize,
    entry: usize,
}

#[derive(Debug)]
enum Child {
    Nothing,
    Known(Arc<Node>),
    Wanted,
    Arrived(usize),
}

#[derive(Debug)]
enum Arrived {
    /// A resource that is not there is missing.
    Leaf(Address, Vec<Option<Arc<Resource>>>),
    Branch(Address, Box<[Child; FANOUT]>),
}

/// Where a part belongs, and what the tree at hand has there.
#[derive(Debug)]
struct WantedPart {
    /// A node and a slot of it. `None`: it is the root.
    parent: Option<(usize, usize)>,
    known: Option<Arc<Node>>,
    depth: usize,
}

impl Assembly {
    /// Of the tree at `root`, with `known` at hand.
    pub fn new(root: Option<Address>, known: Tree) -> Self {
        let mut assembly = Self {
            root: Child::Nothing,
            nodes: Vec::new(),
            wanted: BTreeMap::new(),
            missing: Vec::new(),
            gaps: 0,
            known,
        };
        if let Some(root) = root {
            let part = WantedPart { parent: None, known: assembly.known.root.clone(), depth: 0 };
            assembly.root = assembly.want(root, part);
        }
        assembly
    }

    /// The parts that are wanted next; when there are none, all have come.
    pub fn wanted(&self) -> impl Iterator<Item = Address> {
        self.wanted.keys().copied()
    }

    /// The resources whose bodies are wanted: all of them once no part is.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Takes a part, which leads to others or to bodies.
    pub fn part(
        &mut self,
        VerifiedPart { address, content }: VerifiedPart,
    ) -> Result<(), Malformed> {
        let part = self.wanted.remove(&address).ok_or(Malformed(address))?;
        let index = self.nodes.len();
        match content {
            Content::Leaf(entries) => {
                let entries = entries.into_iter().enumerate();
                let resources =
                    entries.map(|(at, entry)| self.resource(entry, (index, at))).collect();
                self.nodes.push(Arrived::Leaf(address, resources));
            }
            Content::Branch(_) if part.depth >= DEEPEST => return Err(Malformed(address)),
            Content::Branch(children) => {
                let empty = Box::new([const { Child::Nothing }; FANOUT]);
                self.nodes.push(Arrived::Branch(address, empty));
                for (slot, child) in children.into_iter().enumerate() {
                    let Some(child) = child else { continue };
                    let known = part.known.as_deref().and_then(|node| node.child(slot)).cloned();
                    let parent = Some((index, slot));
                    let child =
                        self.want(child, WantedPart { parent, known, depth: part.depth + 1 });
                    self.attach(parent, child);
                }
            }
        }
        self.attach(part.parent, Child::Arrived(index));
        Ok(())
    }

    /// Adds the body of a missing resource. The caller has verified that it matches its address.
    pub fn body(&mut self, missing: &Missing, body: Bytes, is_confidential: bool) {
        let resource = Resource::at(missing.address, missing.name.clone(), body);
        let resource = resource.confidential(is_confidential);
        if self.fill(missing, Arc::new(resource)) {
            self.gaps -= 1;
        }
    }

    /// Uses the resource of the previous tree under that name where a body cannot be loaded.
    pub fn keep(&mut self, missing: &Missing) {
        if let Some(known) = self.known.get(&missing.name).cloned() {
            self.fill(missing, known);
        }
    }

    /// The tree, without the parts that were not loaded, so that the rest can be used.
    pub fn finish(self) -> Tree {
        let tree = Tree { root: self.build(&self.root) };
        if self.wanted.is_empty() && self.gaps == 0 {
            return tree;
        }
        // With gaps it is another tree, with a shape and addresses of its own.
        tree.iter().cloned().collect()
    }

    fn want(&mut self, address: Address, part: WantedPart) -> Child {
        match &part.known {
            Some(known) if known.address() == address => Child::Known(known.clone()),
            _ => {
                self.wanted.insert(address, part);
                Child::Wanted
            }
        }
    }

    /// The resource of an entry, if it is at hand or came with the leaf.
    fn resource(&mut self, entry: Kept, (leaf, position): (usize, usize)) -> Option<Arc<Resource>> {
        let (name, address) = match &entry {
            Kept::Here(resource) => (&resource.name, resource.address),
            Kept::Elsewhere(name, address) => (name, *address),
        };
        // That at hand, so that it is in memory once.
        if let Some(known) = self.known.get(name).filter(|known| known.address == address) {
            return Some(known.clone());
        }
        match entry {
            Kept::Here(resource) => Some(resource),
            Kept::Elsewhere(name, address) => {
                self.missing.push(Missing { name, address, leaf, entry: position });
                self.gaps += 1;
                None
            }
        }
    }

    /// Whether it was missing.
    fn fill(&mut self, missing: &Missing, resource: Arc<Resource>) -> bool {
        match self.nodes.get_mut(missing.leaf) {
            Some(Arrived::Leaf(_, resources)) => match resources.get_mut(missing.entry) {
                Some(entry) => entry.replace(resource).is_none(),
                None => false,
            },
            _ => false,
        }
    }

    fn attach(&mut self, parent: Option<(usize, usize)>, child: Child) {
        match parent {
            None => self.root = child,
            Some((parent, slot)) => {
                if let Some(Arrived::Branch(_, children)) = self.nodes.get_mut(parent) {
                    children[slot] = child;
                }
            }
        }
    }

    fn build(&self, child: &Child) -> Option<Arc<Node>> {
        let (address, shape) = match child {
            Child::Nothing | Child::Wanted => return None,
            Child::Known(node) => return Some(node.clone()),
            Child::Arrived(index) => match self.nodes.get(*index)? {
                Arrived::Leaf(address, resources) => {
                    (address, Shape::Leaf(resources.iter().flatten().cloned().collect()))
                }
                Arrived::Branch(address, children) => {
                    let children: [_; FANOUT] =
                        std::array::from_fn(|slot| self.build(&children[slot]));
                    let length = children.iter().map(|child| super::length(child.as_ref())).sum();
                    (address, Shape::Branch { length, children: Box::new(children) })
                }
            },
        };
        Some(Arc::new(Node::new(OnceLock::from(*address), shape)))
    }
}

impl Node {
    fn child(&self, slot: usize) -> Option<&Arc<Node>> {
        match &self.shape {
            Shape::Leaf(_) => None,
            Shape::Branch { children, .. } => children[slot].as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Entry, Part};
    use super::*;
    use proptest::prelude::*;

    /// The content of a store: parts and bodies by address. Some bodies are in their leaves.
    #[derive(Default)]
    struct Shelf {
        parts: BTreeMap<Address, Part>,
        bodies: BTreeMap<Address, Bytes>,
    }

    impl Shelf {
        /// Puts away what `tree` has and `base` has not. Returns how much that was.
        fn add(&mut self, tree: &Tree, base: &Tree) -> usize {
            let additions = tree.additions_to(base);
            let count =
                additions.leaves.len() + additions.branches.len() + additions.resources.len();
            for (address, resources) in additions.leaves {
                let entry = |found: &Arc<Resource>| Entry {
                    name: found.name.clone(),
                    address: found.address,
                    body: inline(found).then(|| found.body.clone()),
                };
                self.parts.insert(address, Part::Leaf(resources.iter().map(entry).collect()));
            }
            for (address, children) in additions.branches {
                self.parts.insert(address, Part::Branch(children));
            }
            let apart = additions.resources.iter().filter(|found| !inline(found));
            self.bodies.extend(apart.map(|found| (found.address, found.body.clone())));
            count
        }

        /// Fetches what is wanted, until nothing is. Returns how much that was.
        fn serve(&self, assembly: &mut Assembly) -> Result<usize, Malformed> {
            let mut count = self.serve_parts(assembly)?;
            for missing in assembly.missing().to_vec() {
                if let Some(body) = self.bodies.get(&missing.address) {
                    assembly.body(&missing, body.clone(), false);
                    count += 1;
                }
            }
            Ok(count)
        }

        fn serve_parts(&self, assembly: &mut Assembly) -> Result<usize, Malformed> {
            let mut count = 0;
            loop {
                let wanted: Vec<_> = assembly.wanted().collect();
                if wanted.is_empty() {
                    return Ok(count);
                }
                for address in wanted {
                    assembly.part(self.parts[&address].clone().verified(address)?)?;
                    count += 1;
                }
            }
        }
    }

    /// Bodies of both kinds are wanted.
    fn inline(resource: &Resource) -> bool {
        resource.body[0] == 2
    }

    fn tree(content: &BTreeMap<u16, u8>) -> Tree {
        let resource = |(name, body): (&u16, &u8)| {
            Arc::new(Resource::new(format!("name-{name}"), Bytes::from(vec![*body])))
        };
        content.iter().map(resource).collect()
    }

    fn content() -> impl Strategy<Value = BTreeMap<u16, u8>> {
        prop::collection::btree_map(0..400u16, 0..3u8, 0..400)
    }

    proptest! {
        #[test]
        fn what_is_put_away_comes_back(before in content(), after in content()) {
            let (before, after) = (tree(&before), tree(&after));
            let mut shelf = Shelf::default();
            shelf.add(&before, &Tree::new());
            shelf.add(&after, &before);
            for known in [Tree::new(), before, after.clone()] {
                let mut assembly = Assembly::new(after.address(), known);
                shelf.serve(&mut assembly).unwrap();
                let built = assembly.finish();
                prop_assert_eq!(built.address(), after.address());
                prop_assert_eq!(built.len(), after.len());
                prop_assert!(built.iter().eq(after.iter()));
                // The addresses that came with the parts are those of what was built.
                let rebuilt: Tree = built.iter().cloned().collect();
                prop_assert_eq!(rebuilt.address(), after.address());
            }
        }

        #[test]
        fn gaps_leave_the_rest(all in content(), changed in content(), lost in 0..2u8) {
            let known = tree(&all);
            let mut all = all;
            all.extend(changed);
            let whole = tree(&all);
            let mut shelf = Shelf::default();
            shelf.add(&whole, &Tree::new());
            shelf.bodies.remove(&Address::of(&[lost]));
            let mut assembly = Assembly::new(whole.address(), known.clone());
            shelf.serve(&mut assembly).unwrap();
            let gone = |missing: &&Missing| missing.address == Address::of(&[lost]);
            let missing = assembly.missing().iter().filter(gone).count();
            let built = assembly.finish();
            prop_assert_eq!(built.len(), whole.len() - missing);
            for resource in built.iter() {
                prop_assert_eq!(whole.get(&resource.name), Some(resource));
            }
        }
    }

    #[test]
    fn a_change_asks_for_little() {
        let mut content: BTreeMap<u16, u8> = (0..10_000).map(|name| (name, 0)).collect();
        let before = tree(&content);
        content.insert(77, 1);
        let after = tree(&content);
        let mut shelf = Shelf::default();
        assert!(shelf.add(&before, &Tree::new()) > 10_000);
        let added = shelf.add(&after, &before);
        assert!(added <= 6, "one change put away {added} things");
        let mut assembly = Assembly::new(after.address(), before);
        let asked = shelf.serve(&mut assembly).unwrap();
        assert!(asked <= 6, "one change asked for {asked} things");
    }

    #[test]
    fn what_cannot_be_had_stays_as_it_was() {
        let known = tree(&BTreeMap::from([(1, 0), (2, 0)]));
        let next = tree(&BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
        let mut shelf = Shelf::default();
        shelf.add(&next, &Tree::new());
        let mut assembly = Assembly::new(next.address(), known.clone());
        shelf.serve_parts(&mut assembly).unwrap();
        for missing in assembly.missing().to_vec() {
            match &*missing.name {
                "name-2" => assembly.body(&missing, Bytes::from_static(&[1]), false),
                _ => assembly.keep(&missing),
            }
        }
        let built = assembly.finish();
        assert_eq!(built.get("name-1"), known.get("name-1"));
        assert_eq!(built.get("name-2"), next.get("name-2"));
        assert_eq!(built.len(), 2);
        assert_ne!(built.address(), next.address());
    }

    #[test]
    fn another_part_is_refused() {
        let content: BTreeMap<u16, u8> = (0..100).map(|name| (name, 0)).collect();
        let tree = tree(&content);
        let root = tree.address().unwrap();
        let mut assembly = Assembly::new(Some(root), Tree::new());
        let entry = |body| Entry { name: "name-1".into(), address: Address::of(b"other"), body };
        let other = Part::Leaf(vec![entry(None)]);
        assert_eq!(other.clone().verified(root).err(), Some(Malformed(root)));
        let mut shelf = Shelf::default();
        shelf.add(&tree, &Tree::new());
        let (at, unasked) = shelf.parts.iter().find(|(address, _)| **address != root).unwrap();
        let unasked = unasked.clone().verified(*at).unwrap();
        assert_eq!(assembly.part(unasked), Err(Malformed(*at)));

        // A leaf whose body is another's.
        let Part::Leaf(mut entries) = other else { unreachable!() };
        let address = super::super::address_of_leaf([("name-1", entries[0].address)].into_iter());
        entries[0].body = Some(Bytes::from_static(b"forged"));
        let forged = Part::Leaf(entries).verified(address);
        assert_eq!(forged.err(), Some(Malformed(Address::of(b"other"))));
    }
}
