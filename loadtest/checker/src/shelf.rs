use crate::event::{ResourceId, Sent};
use heliograph_snapshot::{ResourceType, Version};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// What a proxy holds. A copy costs nothing, and shares with the original all that stays the same: a crowd has a copy for
/// each place that one of its proxies is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    kinds: BTreeMap<ResourceType, Shelf<Held>>,
    /// How many of the held refer to a resource, held or not.
    referrers: BTreeMap<ResourceType, Shelf<usize>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) version: Version,
    pub(crate) references: Arc<[ResourceId]>,
}

/// A map by name in parts, of which a change copies one.
#[derive(Clone, Debug)]
struct Shelf<V> {
    parts: Arc<Vec<Arc<Part<V>>>>,
    length: usize,
    /// Of all that is held, in any order: the sum of a hash of each.
    digest: u64,
}

/// In the order of their names.
type Part<V> = Vec<(Arc<str>, V)>;

/// With 6,000 resources a part has about a hundred.
const PARTS: usize = 64;

impl Holding {
    pub(crate) fn get(&self, id: &ResourceId) -> Option<&Held> {
        self.kinds.get(&id.kind)?.get(&id.name)
    }

    pub(crate) fn contains(&self, id: &ResourceId) -> bool {
        self.get(id).is_some()
    }

    /// In no order.
    pub(crate) fn of_kind(&self, kind: ResourceType) -> impl Iterator<Item = (&Arc<str>, &Held)> {
        self.kinds.get(&kind).into_iter().flat_map(Shelf::iter)
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, &Held)> {
        self.kinds.iter().flat_map(|(kind, shelf)| {
            shelf.iter().map(|(name, held)| (ResourceId::new(*kind, name.clone()), held))
        })
    }

    pub(crate) fn is_referred_to(&self, id: &ResourceId) -> bool {
        self.referrers.get(&id.kind).is_some_and(|shelf| shelf.get(&id.name).is_some())
    }

    /// Who refers to it, the first in order.
    pub(crate) fn referrer(&self, id: &ResourceId) -> Option<ResourceId> {
        let referrers = self.iter().filter(|(_, held)| held.references.contains(id));
        referrers.map(|(referrer, _)| referrer).min()
    }

    pub(crate) fn set(&mut self, kind: ResourceType, sent: &Sent) {
        let Sent { name, version, references } = sent;
        let shelf = self.kinds.entry(kind).or_default();
        // The same again, as servers send it when they do not know what a proxy has.
        if shelf.get(name).is_some_and(|held| held.version == *version) {
            return;
        }
        let held = Held { version: *version, references: references.as_slice().into() };
        shelf.digest = shelf.digest.wrapping_add(hash(name, *version));
        let before = shelf.insert(name.clone(), held.clone());
        if let Some(before) = &before {
            shelf.digest = shelf.digest.wrapping_sub(hash(name, before.version));
        }
        for id in &*held.references {
            let shelf = self.referrers.entry(id.kind).or_default();
            let count = shelf.get(&id.name).copied().unwrap_or_default();
            shelf.insert(id.name.clone(), count + 1);
        }
        if let Some(before) = before {
            self.release(&before);
        }
        self.drop_if_unneeded(ResourceId::new(kind, name.clone()));
    }

    /// Whether it was held.
    pub(crate) fn remove(&mut self, id: &ResourceId) -> bool {
        let Some(shelf) = self.kinds.get_mut(&id.kind) else { return false };
        let Some(removed) = shelf.remove(&id.name) else { return false };
        shelf.digest = shelf.digest.wrapping_sub(hash(&id.name, removed.version));
        self.release(&removed);
        true
    }

    pub(crate) fn digest(&self, hasher: &mut impl Hasher) {
        for (kind, shelf) in self.kinds.iter().filter(|(_, shelf)| shelf.length > 0) {
            (kind, shelf.length, shelf.digest).hash(hasher);
        }
    }

    fn release(&mut self, gone: &Held) {
        for id in &*gone.references {
            let Some(shelf) = self.referrers.get_mut(&id.kind) else { continue };
            match shelf.get(&id.name).copied() {
                Some(count) if count > 1 => {
                    shelf.insert(id.name.clone(), count - 1);
                }
                _ => {
                    shelf.remove(&id.name);
                    self.drop_if_unneeded(id.clone());
                }
            }
        }
    }

    /// What no cluster and no listener needs any more, a proxy drops by itself.
    fn drop_if_unneeded(&mut self, id: ResourceId) {
        if !id.kind.is_asked_whole() && !self.is_referred_to(&id) {
            self.remove(&id);
        }
    }
}

impl<V: Clone> Shelf<V> {
    fn get(&self, name: &str) -> Option<&V> {
        let part = self.parts.get(part_of(name))?;
        let at = position(part, name).ok()?;
        part.get(at).map(|(_, value)| value)
    }

    fn insert(&mut self, name: Arc<str>, value: V) -> Option<V> {
        let part = Arc::make_mut(&mut self.parts).get_mut(part_of(&name)).map(Arc::make_mut)?;
        match position(part, &name) {
            Ok(at) => part.get_mut(at).map(|(_, held)| std::mem::replace(held, value)),
            Err(at) => {
                part.insert(at, (name, value));
                self.length += 1;
                None
            }
        }
    }

    fn remove(&mut self, name: &str) -> Option<V> {
        // Without the look first, a remove that finds nothing would copy.
        self.get(name)?;
        let part = Arc::make_mut(&mut self.parts).get_mut(part_of(name)).map(Arc::make_mut)?;
        let at = position(part, name).ok()?;
        self.length -= 1;
        Some(part.remove(at).1)
    }

    fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &V)> {
        self.parts.iter().flat_map(|part| part.iter()).map(|(name, value)| (name, value))
    }
}

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Self { parts: Arc::new(vec![Arc::default(); PARTS]), length: 0, digest: 0 }
    }
}

fn position<V>(part: &Part<V>, name: &str) -> Result<usize, usize> {
    part.binary_search_by(|(found, _)| (**found).cmp(name))
}

fn part_of(name: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    // Fewer than there are parts.
    (hasher.finish() % PARTS as u64) as usize
}

fn hash(name: &str, version: Version) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, version).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: &str, content: &str, references: &[ResourceId]) -> Sent {
        let version = Version::of(content.as_bytes());
        Sent { name: name.into(), version, references: references.to_vec() }
    }

    fn endpoints(name: &str) -> ResourceId {
        ResourceId::new(ResourceType::Endpoints, name)
    }

    fn digest(holding: &Holding) -> u64 {
        let mut hasher = DefaultHasher::new();
        holding.digest(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_copy_shares_all_but_what_changes() {
        let mut one = Holding::default();
        for at in 0..1_000 {
            one.set(ResourceType::Cluster, &sent(&format!("app-{at}"), "first", &[]));
        }
        let mut other = one.clone();
        other.set(ResourceType::Cluster, &sent("app-7", "second", &[]));
        let parts = |holding: &Holding| holding.kinds[&ResourceType::Cluster].parts.clone();
        let (ours, theirs) = (parts(&one), parts(&other));
        let shared = ours.iter().zip(&*theirs).filter(|(one, other)| Arc::ptr_eq(one, other));
        assert_eq!(shared.count(), PARTS - 1);
        assert_ne!(digest(&one), digest(&other));
        other.set(ResourceType::Cluster, &sent("app-7", "first", &[]));
        assert_eq!(digest(&one), digest(&other), "whatever the way");
    }

    #[test]
    fn the_configuration_of_a_filter_goes_with_its_listener_and_what_it_needs_with_it() {
        let mut holding = Holding::default();
        let empty = digest(&holding);
        let filter = ResourceId::new(ResourceType::ExtensionConfig, "filter");
        let secret = ResourceId::new(ResourceType::Secret, "key");
        let cluster = ResourceId::new(ResourceType::Cluster, "authorizer");
        let needs = [secret.clone(), cluster.clone()];
        holding.set(ResourceType::Listener, &sent("http", "1", std::slice::from_ref(&filter)));
        holding.set(ResourceType::ExtensionConfig, &sent("filter", "1", &needs));
        holding.set(ResourceType::Secret, &sent("key", "1", &[]));
        assert!(holding.contains(&secret) && holding.is_referred_to(&cluster));
        holding.set(
            ResourceType::ExtensionConfig,
            &sent("filter", "2", std::slice::from_ref(&secret)),
        );
        assert!(!holding.is_referred_to(&cluster));
        assert!(holding.remove(&ResourceId::new(ResourceType::Listener, "http")));
        assert!(!holding.contains(&filter) && !holding.contains(&secret));
        assert_eq!(digest(&holding), empty);
    }

    #[test]
    fn what_nothing_refers_to_is_dropped() {
        let mut holding = Holding::default();
        let empty = digest(&holding);
        let needs = |name: &str| [endpoints(name)];
        holding.set(ResourceType::Endpoints, &sent("a", "endpoints", &[]));
        assert!(!holding.contains(&endpoints("a")), "nobody asked for it");
        holding.set(ResourceType::Cluster, &sent("one", "cluster", &needs("a")));
        holding.set(ResourceType::Cluster, &sent("two", "cluster", &needs("a")));
        holding.set(ResourceType::Endpoints, &sent("a", "endpoints", &[]));
        holding.set(ResourceType::Cluster, &sent("one", "changed", &needs("b")));
        assert!(holding.contains(&endpoints("a")), "one still needs it");
        assert!(holding.is_referred_to(&endpoints("b")));
        assert!(holding.remove(&ResourceId::new(ResourceType::Cluster, "two")));
        assert!(!holding.contains(&endpoints("a")));
        assert!(holding.remove(&ResourceId::new(ResourceType::Cluster, "one")));
        assert!(!holding.is_referred_to(&endpoints("b")));
        assert_eq!(digest(&holding), empty);
    }
}
