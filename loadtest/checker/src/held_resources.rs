use crate::event::{ResourceId, Sent};
use heliograph_snapshot::{ResourceType, Version};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The resources that a proxy has. A copy is cheap, and shares equal parts with the original: a crowd has a copy for
/// each state of its proxies.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldResources {
    kinds: BTreeMap<ResourceType, SharedMap<HeldVersion>>,
    /// How many of the held refer to a resource, held or not.
    referrers: BTreeMap<ResourceType, SharedMap<usize>>,
}

#[derive(Clone, Debug)]
pub(crate) struct HeldVersion {
    pub(crate) version: Version,
    pub(crate) references: Arc<[ResourceId]>,
}

/// A map by name in parts, of which a change copies one.
#[derive(Clone, Debug)]
struct SharedMap<V> {
    parts: Arc<Vec<Arc<Part<V>>>>,
    length: usize,
    /// Of all that is held, in any order: the sum of a hash of each.
    digest: u64,
}

/// In the order of their names.
type Part<V> = Vec<(Arc<str>, V)>;

/// With 6,000 resources a part has about a hundred.
const PARTS: usize = 64;

impl HeldResources {
    pub(crate) fn get(&self, id: &ResourceId) -> Option<&HeldVersion> {
        self.kinds.get(&id.kind)?.get(&id.name)
    }

    pub(crate) fn contains(&self, id: &ResourceId) -> bool {
        self.get(id).is_some()
    }

    /// In no order.
    pub(crate) fn of_kind(
        &self,
        kind: ResourceType,
    ) -> impl Iterator<Item = (&Arc<str>, &HeldVersion)> {
        self.kinds.get(&kind).into_iter().flat_map(SharedMap::iter)
    }

    /// All, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, &HeldVersion)> {
        self.kinds.iter().flat_map(|(kind, map)| {
            map.iter().map(|(name, held)| (ResourceId::new(*kind, name.clone()), held))
        })
    }

    pub(crate) fn is_referred_to(&self, id: &ResourceId) -> bool {
        self.referrers.get(&id.kind).is_some_and(|map| map.get(&id.name).is_some())
    }

    /// The first resource, by order, that refers to it.
    pub(crate) fn referrer(&self, id: &ResourceId) -> Option<ResourceId> {
        let referrers = self.iter().filter(|(_, held)| held.references.contains(id));
        referrers.map(|(referrer, _)| referrer).min()
    }

    pub(crate) fn set(&mut self, kind: ResourceType, sent: &Sent) {
        let Sent { name, version, references } = sent;
        let map = self.kinds.entry(kind).or_default();
        // The same again, as servers send it when they do not know what a proxy has.
        if map.get(name).is_some_and(|held| held.version == *version) {
            return;
        }
        let held = HeldVersion { version: *version, references: references.as_slice().into() };
        map.digest = map.digest.wrapping_add(hash(name, *version));
        let before = map.insert(name.clone(), held.clone());
        if let Some(before) = &before {
            map.digest = map.digest.wrapping_sub(hash(name, before.version));
        }
        for id in &*held.references {
            let map = self.referrers.entry(id.kind).or_default();
            let count = map.get(&id.name).copied().unwrap_or_default();
            map.insert(id.name.clone(), count + 1);
        }
        if let Some(before) = before {
            self.release(&before);
        }
        self.drop_if_unneeded(ResourceId::new(kind, name.clone()));
    }

    /// Whether it was held.
    pub(crate) fn remove(&mut self, id: &ResourceId) -> bool {
        let Some(map) = self.kinds.get_mut(&id.kind) else { return false };
        let Some(removed) = map.remove(&id.name) else { return false };
        map.digest = map.digest.wrapping_sub(hash(&id.name, removed.version));
        self.release(&removed);
        true
    }

    pub(crate) fn digest(&self, hasher: &mut impl Hasher) {
        for (kind, map) in self.kinds.iter().filter(|(_, map)| map.length > 0) {
            (kind, map.length, map.digest).hash(hasher);
        }
    }

    fn release(&mut self, gone: &HeldVersion) {
        for id in &*gone.references {
            let Some(map) = self.referrers.get_mut(&id.kind) else { continue };
            match map.get(&id.name).copied() {
                Some(count) if count > 1 => {
                    map.insert(id.name.clone(), count - 1);
                }
                _ => {
                    map.remove(&id.name);
                    self.drop_if_unneeded(id.clone());
                }
            }
        }
    }

    /// A proxy itself drops a resource that no cluster and no listener needs any more.
    fn drop_if_unneeded(&mut self, id: ResourceId) {
        if !id.kind.is_asked_whole() && !self.is_referred_to(&id) {
            self.remove(&id);
        }
    }
}

impl<V: Clone> SharedMap<V> {
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

impl<V> Default for SharedMap<V> {
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

    fn digest(held: &HeldResources) -> u64 {
        let mut hasher = DefaultHasher::new();
        held.digest(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn a_copy_shares_all_but_what_changes() {
        let mut one = HeldResources::default();
        for at in 0..1_000 {
            one.set(ResourceType::Cluster, &sent(&format!("app-{at}"), "first", &[]));
        }
        let mut other = one.clone();
        other.set(ResourceType::Cluster, &sent("app-7", "second", &[]));
        let parts = |held: &HeldResources| held.kinds[&ResourceType::Cluster].parts.clone();
        let (ours, theirs) = (parts(&one), parts(&other));
        let shared = ours.iter().zip(&*theirs).filter(|(one, other)| Arc::ptr_eq(one, other));
        assert_eq!(shared.count(), PARTS - 1);
        assert_ne!(digest(&one), digest(&other));
        other.set(ResourceType::Cluster, &sent("app-7", "first", &[]));
        assert_eq!(digest(&one), digest(&other), "whatever the way");
    }

    #[test]
    fn the_configuration_of_a_filter_goes_with_its_listener_and_what_it_needs_with_it() {
        let mut held = HeldResources::default();
        let empty = digest(&held);
        let filter = ResourceId::new(ResourceType::ExtensionConfig, "filter");
        let secret = ResourceId::new(ResourceType::Secret, "key");
        let cluster = ResourceId::new(ResourceType::Cluster, "authorizer");
        let needs = [secret.clone(), cluster.clone()];
        held.set(ResourceType::Listener, &sent("http", "1", std::slice::from_ref(&filter)));
        held.set(ResourceType::ExtensionConfig, &sent("filter", "1", &needs));
        held.set(ResourceType::Secret, &sent("key", "1", &[]));
        assert!(held.contains(&secret) && held.is_referred_to(&cluster));
        held.set(
            ResourceType::ExtensionConfig,
            &sent("filter", "2", std::slice::from_ref(&secret)),
        );
        assert!(!held.is_referred_to(&cluster));
        assert!(held.remove(&ResourceId::new(ResourceType::Listener, "http")));
        assert!(!held.contains(&filter) && !held.contains(&secret));
        assert_eq!(digest(&held), empty);
    }

    #[test]
    fn what_nothing_refers_to_is_dropped() {
        let mut held = HeldResources::default();
        let empty = digest(&held);
        let needs = |name: &str| [endpoints(name)];
        held.set(ResourceType::Endpoints, &sent("a", "endpoints", &[]));
        assert!(!held.contains(&endpoints("a")), "nobody asked for it");
        held.set(ResourceType::Cluster, &sent("one", "cluster", &needs("a")));
        held.set(ResourceType::Cluster, &sent("two", "cluster", &needs("a")));
        held.set(ResourceType::Endpoints, &sent("a", "endpoints", &[]));
        held.set(ResourceType::Cluster, &sent("one", "changed", &needs("b")));
        assert!(held.contains(&endpoints("a")), "one still needs it");
        assert!(held.is_referred_to(&endpoints("b")));
        assert!(held.remove(&ResourceId::new(ResourceType::Cluster, "two")));
        assert!(!held.contains(&endpoints("a")));
        assert!(held.remove(&ResourceId::new(ResourceType::Cluster, "one")));
        assert!(!held.is_referred_to(&endpoints("b")));
        assert_eq!(digest(&held), empty);
    }
}
