use crate::digest::Digester;
use bytes::Bytes;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// The resources of one type that a client holds, by name. A copy costs nothing until it is changed.
#[derive(Clone, Default)]
pub struct Resources {
    by_name: Arc<BTreeMap<Arc<str>, HeldResource>>,
    /// The sum over all resources, so that a change costs no more than what changed.
    digest: u128,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldResource {
    /// Its own in delta, that of its type in state of the world.
    pub version: Arc<str>,
    pub body: Bytes,
}

impl Resources {
    /// Whether it was held just so before.
    pub(crate) fn insert(&mut self, name: &str, held: HeldResource) -> bool {
        if self.by_name.get(name) == Some(&held) {
            return true;
        }
        self.remove(name);
        let name: Arc<str> = name.into();
        self.digest = self.digest.wrapping_add(digest(&name, &held));
        Arc::make_mut(&mut self.by_name).insert(name, held);
        false
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if self.by_name.contains_key(name)
            && let Some(held) = Arc::make_mut(&mut self.by_name).remove(name)
        {
            self.digest = self.digest.wrapping_sub(digest(name, &held));
        }
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        let leaving: Vec<_> = self.by_name.keys().filter(|name| !stays(name)).cloned().collect();
        leaving.iter().for_each(|name| self.remove(name));
    }
}

impl Deref for Resources {
    type Target = BTreeMap<Arc<str>, HeldResource>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

impl<'a> IntoIterator for &'a Resources {
    type Item = (&'a Arc<str>, &'a HeldResource);
    type IntoIter = btree_map::Iter<'a, Arc<str>, HeldResource>;

    fn into_iter(self) -> Self::IntoIter {
        self.by_name.iter()
    }
}

impl Hash for Resources {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.digest.hash(hasher);
    }
}

impl PartialEq for Resources {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.by_name == other.by_name
    }
}

impl Eq for Resources {}

/// Bodies may hold secrets, so they are not printed.
impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, held)| (name, &held.version))).finish()
    }
}

fn digest(name: &str, held: &HeldResource) -> u128 {
    let mut digester = Digester::default();
    (name, &held.version, &held.body).hash(&mut digester);
    u128::from_le_bytes(digester.digest())
}
