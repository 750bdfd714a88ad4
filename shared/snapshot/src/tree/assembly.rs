use super::{DEEPEST, FANOUT, Node, Part, Shape, Tree, address_of_branch, address_of_leaf};
use crate::{Address, Resource};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// A tree that comes part by part, from a store: it says what it still wants, and checks what it gets.
///
/// What a tree at hand has in the same place is taken from there and never asked for, so an update costs what
/// changed. There is no IO here: whoever has a store asks it for [`Assembly::wanted`] until nothing is.
#[derive(Debug)]
pub struct Assembly {
    /// The tree at hand.
    known: Tree,
    root: Child,
    /// The parts that came. A parent comes before its children.
    nodes: Vec<Arrived>,
    /// The parts that are asked for, and where they belong: in the root, or in a slot of a node.
    wanted: BTreeMap<Address, Place>,
    /// The names whose bodies are asked for, by the body's address: equal bodies are asked for once.
    bodies: BTreeMap<Address, Vec<Arc<str>>>,
    resources: BTreeMap<Arc<str>, Arc<Resource>>,
}

/// A part that is not what its address says, or that nobody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what is stored at {0:?} is not what its address says")]
pub struct Malformed(pub Address);

#[derive(Clone, Debug)]
enum Child {
    Nothing,
    Known(Arc<Node>),
    Wanted,
    Arrived(usize),
}

#[derive(Debug)]
enum Arrived {
    Leaf(Address, Vec<(Arc<str>, Address)>),
    Branch(Address, Box<[Child; FANOUT]>),
}

/// Where a part belongs, and what the tree at hand has there.
#[derive(Debug)]
struct Place {
    /// `None`: it is the root.
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
            bodies: BTreeMap::new(),
            resources: BTreeMap::new(),
            known,
        };
        if let Some(root) = root {
            let place = Place { parent: None, known: assembly.known.root.clone(), depth: 0 };
            assembly.root = assembly.want(root, place);
        }
        assembly
    }

    /// The parts that are wanted next; when there are none, all have come.
    pub fn wanted(&self) -> impl Iterator<Item = Address> {
        self.wanted.keys().copied()
    }

    /// The bodies that are wanted, each with the names that have it. All of them only once no part is wanted.
    pub fn bodies(&self) -> impl Iterator<Item = (Address, &[Arc<str>])> {
        self.bodies.iter().map(|(address, names)| (*address, &**names))
    }

    /// Takes a part, which leads to others or to bodies.
    pub fn part(&mut self, address: Address, part: Part) -> Result<(), Malformed> {
        let actual = match &part {
            Part::Leaf(entries) => {
                address_of_leaf(entries.iter().map(|(name, body)| (&**name, *body)))
            }
            Part::Branch(children) => address_of_branch(children.iter().copied()),
        };
        if actual != address {
            return Err(Malformed(address));
        }
        let place = self.wanted.remove(&address).ok_or(Malformed(address))?;
        if matches!(part, Part::Branch(_)) && place.depth >= DEEPEST {
            return Err(Malformed(address));
        }
        let index = self.nodes.len();
        match part {
            Part::Leaf(entries) => {
                for (name, body) in &entries {
                    self.want_body(name, *body);
                }
                self.nodes.push(Arrived::Leaf(address, entries));
            }
            Part::Branch(children) => {
                self.nodes
                    .push(Arrived::Branch(address, Box::new([const { Child::Nothing }; FANOUT])));
                for (slot, child) in children.into_iter().enumerate() {
                    let Some(child) = child else { continue };
                    let known = place.known.as_deref().and_then(|node| node.child(slot)).cloned();
                    let child = self.want(
                        child,
                        Place { parent: Some((index, slot)), known, depth: place.depth + 1 },
                    );
                    self.place(Some((index, slot)), child);
                }
            }
        }
        self.place(place.parent, Child::Arrived(index));
        Ok(())
    }

    /// Takes a body. Whoever calls has made sure that it is the one of that address.
    pub fn body(&mut self, resource: Resource) {
        let Some(names) = self.bodies.get_mut(&resource.address) else { return };
        names.retain(|name| *name != resource.name);
        if names.is_empty() {
            self.bodies.remove(&resource.address);
        }
        self.resources.insert(resource.name.clone(), Arc::new(resource));
    }

    /// Where a body cannot be had, what the tree at hand has under that name stands in for it.
    pub fn keep(&mut self, name: &str) {
        if let Some(known) = self.known.get(name) {
            self.resources.insert(known.name.clone(), known.clone());
        }
    }

    /// The tree. What has not come is left out, so that the rest can be used.
    pub fn finish(self) -> Tree {
        let tree = Tree { root: self.build(&self.root) };
        if self.wanted.is_empty() && self.bodies.is_empty() {
            return tree;
        }
        // With gaps it is another tree, with a shape and addresses of its own.
        tree.iter().cloned().collect()
    }

    fn want(&mut self, address: Address, place: Place) -> Child {
        match &place.known {
            Some(known) if known.address() == address => Child::Known(known.clone()),
            _ => {
                self.wanted.insert(address, place);
                Child::Wanted
            }
        }
    }

    fn want_body(&mut self, name: &Arc<str>, address: Address) {
        match self.known.get(name) {
            Some(known) if known.address == address => {
                self.resources.insert(known.name.clone(), known.clone());
            }
            _ => self.bodies.entry(address).or_default().push(name.clone()),
        }
    }

    fn place(&mut self, parent: Option<(usize, usize)>, child: Child) {
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
                Arrived::Leaf(address, entries) => {
                    let resources = entries.iter().filter_map(|(name, _)| self.resources.get(name));
                    (address, Shape::Leaf(resources.cloned().collect()))
                }
                Arrived::Branch(address, children) => {
                    let children: [_; FANOUT] =
                        std::array::from_fn(|slot| self.build(&children[slot]));
                    let length = children.iter().map(|child| super::length(child.as_ref())).sum();
                    (address, Shape::Branch { length, children: Box::new(children) })
                }
            },
        };
        Some(Arc::new(Node { address: OnceLock::from(*address), shape }))
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
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;

    /// What a store holds: parts and bodies by address.
    #[derive(Default)]
    struct Shelf {
        parts: BTreeMap<Address, Part>,
        bodies: BTreeMap<Address, Bytes>,
    }

    impl Shelf {
        /// Puts away what `tree` has and `base` has not. Returns how much that was.
        fn add(&mut self, tree: &Tree, base: &Tree) -> usize {
            let fresh = tree.beyond(base);
            let count = fresh.parts.len() + fresh.resources.len();
            self.parts.extend(fresh.parts);
            let bodies = fresh.resources.iter();
            self.bodies.extend(bodies.map(|found| (found.address, found.body.clone())));
            count
        }

        /// Fetches what is wanted, until nothing is. Returns how much that was.
        fn serve(&self, assembly: &mut Assembly) -> Result<usize, Malformed> {
            let mut count = 0;
            loop {
                let wanted: Vec<_> = assembly.wanted().collect();
                if wanted.is_empty() {
                    break;
                }
                for address in wanted {
                    assembly.part(address, self.parts[&address].clone())?;
                    count += 1;
                }
            }
            let bodies: Vec<_> =
                assembly.bodies().map(|(address, names)| (address, names.to_vec())).collect();
            for (address, names) in bodies {
                count += 1;
                for name in names {
                    assembly.body(Resource::at(address, name, self.bodies[&address].clone()));
                }
            }
            Ok(count)
        }
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
        fn gaps_leave_the_rest(all in content(), changed in content(), lost in 0..3u8) {
            let known = tree(&all);
            let mut all = all;
            all.extend(changed);
            let whole = tree(&all);
            let mut shelf = Shelf::default();
            shelf.add(&whole, &Tree::new());
            shelf.bodies.remove(&Address::of(&[lost]));
            let mut assembly = Assembly::new(whole.address(), known.clone());
            loop {
                let wanted: Vec<_> = assembly.wanted().collect();
                if wanted.is_empty() {
                    break;
                }
                for address in wanted {
                    assembly.part(address, shelf.parts[&address].clone()).unwrap();
                }
            }
            let bodies: Vec<_> =
                assembly.bodies().map(|(address, names)| (address, names.to_vec())).collect();
            let mut missing = 0;
            for (address, names) in bodies {
                match shelf.bodies.get(&address) {
                    Some(body) => for name in names {
                        assembly.body(Resource::at(address, name, body.clone()));
                    },
                    None => missing += names.len(),
                }
            }
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
        let mut assembly = Assembly::new(next.address(), known.clone());
        for (address, part) in next.beyond(&Tree::new()).parts {
            assembly.part(address, part).unwrap();
        }
        assembly.body(Resource::new("name-2", Bytes::from_static(&[1])));
        ["name-1", "name-3"].into_iter().for_each(|name| assembly.keep(name));
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
        let other = Part::Leaf(vec![("name-1".into(), Address::of(b"other"))]);
        assert_eq!(assembly.part(root, other), Err(Malformed(root)));
        let unasked = tree.beyond(&Tree::new()).parts.pop().unwrap();
        assert_eq!(assembly.part(unasked.0, unasked.1), Err(Malformed(unasked.0)));
    }
}
