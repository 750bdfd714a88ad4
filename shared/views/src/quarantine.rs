use crate::message::{About, treatment_name};
use bytes::Bytes;
use heliograph_snapshot::{Change, Internal, Resource, ResourceType, Snapshot, Tree};
use prost::Message;
use std::sync::Arc;

/// A resource that proxies rejected at the version that the snapshot has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub kind: ResourceType,
    /// As the snapshot has it. Who took it keeps it.
    pub rejected: Arc<Resource>,
    /// As a proxy of the fleet last accepted it: what all others are served.
    pub good: Arc<Resource>,
    /// More took it than reject it, so all are served it. It stays on record, so that all replicas go on counting.
    pub lifted: bool,
}

/// An entry as it is stored, under the rules of [`crate::message`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Entry {
    /// The version that was rejected. The entry is void once the resource is another.
    #[prost(string, tag = "1")]
    rejected: String,
    #[prost(bytes = "bytes", tag = "2")]
    good: Bytes,
    #[prost(bool, tag = "3")]
    lifted: bool,
}

impl Quarantined {
    /// Whether `good` may be served where `rejected` was published. Never where one of them is confidential: an old
    /// password may have been replaced because it leaked, and entries are not sealed.
    pub fn is_possible(kind: ResourceType, rejected: &Resource, good: &Resource) -> bool {
        kind.properties().has_quarantine && !rejected.is_confidential && !good.is_confidential
    }

    /// The resources of a snapshot that are in quarantine. Entries of a newer translator, which cannot be decoded, are
    /// skipped.
    pub fn all(snapshot: &Snapshot) -> Vec<Self> {
        Self::of(snapshot.internal(Internal::Quarantine), snapshot)
    }

    /// The same for content that the entries were not stored with.
    pub fn of(entries: &Tree, content: &Snapshot) -> Vec<Self> {
        entries.iter().filter_map(|entry| Self::read(entry, content)).collect()
    }

    /// As it travels in a snapshot.
    pub fn resource(&self) -> Resource {
        let entry = Entry {
            rejected: self.rejected.version.to_string(),
            good: self.good.body.clone(),
            lifted: self.lifted,
        };
        let name = treatment_name(self.kind, &self.rejected.name);
        Resource::new(name, entry.encode_to_vec().into())
    }

    fn read(stored: &Resource, content: &Snapshot) -> Option<Self> {
        let Some(About::Treatment(kind, name)) = About::of(&stored.name) else { return None };
        let entry = Entry::decode(stored.body.clone()).ok()?;
        let rejected =
            content.get(kind, name).filter(|it| it.version.as_str() == entry.rejected)?;
        let good = Arc::new(Resource::new(rejected.name.clone(), entry.good));
        let lifted = entry.lifted;
        let is_possible = Self::is_possible(kind, rejected, &good);
        is_possible.then(|| Self { kind, rejected: rejected.clone(), good, lifted })
    }
}

/// The snapshot as it is served to who holds nothing of what is in quarantine.
pub fn served(snapshot: &Arc<Snapshot>, quarantined: &[Quarantined]) -> Arc<Snapshot> {
    let changes: Vec<_> = quarantined
        .iter()
        .filter(|it| !it.lifted)
        .map(|it| Change::Set(it.kind, it.good.clone()))
        .collect();
    if changes.is_empty() {
        return snapshot.clone();
    }
    Arc::new(snapshot.with(snapshot.head, changes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::{FleetName, Head};

    fn resource(name: &str, body: &'static str) -> Arc<Resource> {
        Arc::new(Resource::new(name, body.into()))
    }

    fn entry(kind: ResourceType, lifted: bool) -> Quarantined {
        let (rejected, good) =
            (resource("default/web:80", "bad"), resource("default/web:80", "good"));
        Quarantined { kind, rejected, good, lifted }
    }

    fn snapshot(kind: ResourceType, body: &'static str, entry: &Quarantined) -> Arc<Snapshot> {
        let changes = [
            Change::Set(kind, resource("default/web:80", body)),
            Change::SetInternal(Internal::Quarantine, Arc::new(entry.resource())),
        ];
        let empty = Snapshot::empty(FleetName::new("default", "gateway"));
        Arc::new(empty.with(Head::default(), changes))
    }

    #[test]
    fn an_entry_counts_while_the_resource_is_what_was_rejected() {
        let kind = ResourceType::Listener;
        let entry = entry(kind, false);
        let current = snapshot(kind, "bad", &entry);
        assert_eq!(Quarantined::all(&current), std::slice::from_ref(&entry));
        let served = served(&current, &Quarantined::all(&current));
        assert_eq!(served.get(kind, "default/web:80").unwrap().body, "good");
        assert_eq!(Quarantined::all(&snapshot(kind, "repaired", &entry)), []);
    }

    #[test]
    fn what_is_lifted_is_served_as_it_is() {
        let kind = ResourceType::Cluster;
        let entry = entry(kind, true);
        let current = snapshot(kind, "bad", &entry);
        assert_eq!(Quarantined::all(&current), [entry]);
        assert!(Arc::ptr_eq(&served(&current, &Quarantined::all(&current)), &current));
    }

    #[test]
    fn what_is_confidential_is_never_what_it_was() {
        let kind = ResourceType::Cluster;
        let entry = entry(kind, false);
        let marked = |it: &Resource| Arc::new(it.clone().confidential(true));
        let current = snapshot(kind, "bad", &entry);
        let now = Change::Set(kind, marked(&entry.rejected));
        assert_eq!(Quarantined::all(&current.with(Head::default(), [now])), []);
        assert!(Quarantined::is_possible(kind, &entry.rejected, &entry.good));
        assert!(!Quarantined::is_possible(kind, &marked(&entry.rejected), &entry.good));
        assert!(!Quarantined::is_possible(kind, &entry.rejected, &marked(&entry.good)));
    }

    #[test]
    fn endpoints_and_secrets_are_never_what_they_were() {
        for kind in [ResourceType::Endpoints, ResourceType::Secret] {
            assert_eq!(Quarantined::all(&snapshot(kind, "bad", &entry(kind, false))), []);
        }
    }
}
