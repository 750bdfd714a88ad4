use crate::recent::Recent;
use heliograph_gateway::infra::{Part, names};
use heliograph_gateway::objects::{Kind, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// The Services and ConfigMaps with the labels of objects that run for Gateways. The provider watches all objects of
/// both kinds and records these, so that the leader can keep them up to date without a second watch. Leaders and
/// standbys keep names and versions only.
#[derive(Clone, Debug, Default)]
pub struct Deployed(Arc<BTreeMap<Part, DeployedPart>>);

/// The objects of one kind.
#[derive(Clone, Debug)]
pub(crate) struct DeployedPart(watch::Sender<DeployedVersions>);

#[derive(Debug, Default)]
pub(crate) struct DeployedVersions {
    versions: BTreeMap<ObjectName, Box<str>>,
    /// What a list that has begun has not named yet.
    unlisted: Option<BTreeSet<ObjectName>>,
    /// How many lists were complete.
    lists: u64,
    changed: Recent<ObjectName>,
}

impl Deployed {
    /// Those of the kinds that the provider watches.
    pub(crate) fn of(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let parts = kinds.into_iter().filter_map(part_of);
        Self(Arc::new(parts.map(|part| (part, DeployedPart(watch::Sender::default()))).collect()))
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> Option<&DeployedPart> {
        self.of_part(part_of(kind)?)
    }

    /// None if the provider does not watch that kind.
    pub(crate) fn of_part(&self, part: Part) -> Option<&DeployedPart> {
        self.0.get(&part)
    }
}

fn part_of(kind: Kind) -> Option<Part> {
    match kind {
        Kind::Service => Some(Part::Service),
        Kind::ConfigMap => Some(Part::ConfigMap),
        _ => None,
    }
}

impl DeployedPart {
    /// A list begins: what it does not name is gone when it is complete.
    pub(crate) fn begin_list(&self) {
        self.0.send_if_modified(|versions| {
            versions.unlisted = Some(versions.versions.keys().cloned().collect());
            false
        });
    }

    /// An object is in the list, or has changed.
    pub(crate) fn record(
        &self,
        name: &ObjectName,
        version: &str,
        labels: Option<&BTreeMap<String, String>>,
    ) {
        let is_deployed = labels.is_some_and(names::selects);
        self.0.send_if_modified(|versions| match is_deployed {
            true => versions.set(name, version),
            false => versions.remove(name),
        });
    }

    pub(crate) fn remove(&self, name: &ObjectName) {
        self.0.send_if_modified(|versions| versions.remove(name));
    }

    /// The list is complete.
    pub(crate) fn complete_list(&self) {
        self.0.send_modify(|versions| {
            for name in versions.unlisted.take().unwrap_or_default() {
                versions.remove(&name);
            }
            versions.lists += 1;
        });
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<DeployedVersions> {
        self.0.subscribe()
    }
}

impl DeployedVersions {
    pub(crate) fn get(&self, name: &ObjectName) -> Option<&str> {
        self.versions.get(name).map(|version| &**version)
    }

    /// How many lists of the provider were complete. Objects that were deleted and created again in between may be
    /// missing among the changes.
    pub(crate) fn lists(&self) -> u64 {
        self.lists
    }

    pub(crate) fn changed(&self) -> &Recent<ObjectName> {
        &self.changed
    }

    fn set(&mut self, name: &ObjectName, version: &str) -> bool {
        if let Some(unlisted) = &mut self.unlisted {
            unlisted.remove(name);
        }
        if self.get(name) == Some(version) {
            return false;
        }
        self.versions.insert(name.clone(), version.into());
        self.changed.push(name.clone());
        true
    }

    fn remove(&mut self, name: &ObjectName) -> bool {
        let is_known = self.versions.remove(name).is_some();
        if is_known {
            self.changed.push(name.clone());
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_model::FleetOwner;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("shop", name)
    }

    #[test]
    fn what_has_our_labels_is_recorded_by_name_and_version() {
        let deployed = Deployed::of([Kind::Service, Kind::HTTPRoute]);
        assert!(deployed.of_part(Part::ConfigMap).is_none(), "it is not watched");
        let services = deployed.of_kind(Kind::Service).unwrap();
        let ours = names::labels(&FleetOwner::Gateway(name("web")));
        let theirs = BTreeMap::from([("app".to_owned(), "shop".to_owned())]);
        let reader = services.subscribe();
        let known = || {
            let versions = reader.borrow();
            let known: Vec<_> =
                versions.versions.iter().map(|(name, it)| format!("{}:{it}", name.name)).collect();
            (known.join(" "), versions.changed.count(), versions.lists)
        };

        services.begin_list();
        services.record(&name("a"), "1", Some(&ours));
        services.record(&name("b"), "2", Some(&ours));
        services.record(&name("c"), "3", Some(&theirs));
        services.record(&name("d"), "4", None);
        services.complete_list();
        assert_eq!(known(), ("a:1 b:2".to_owned(), 2, 1));
        services.record(&name("a"), "1", Some(&ours));
        services.remove(&name("c"));
        assert_eq!(known(), ("a:1 b:2".to_owned(), 2, 1), "nothing changed");
        services.record(&name("a"), "5", Some(&ours));
        services.record(&name("b"), "6", Some(&theirs));
        assert_eq!(known(), ("a:5".to_owned(), 4, 1), "one has lost its labels");

        // A list that breaks off changes nothing.
        services.begin_list();
        services.begin_list();
        services.record(&name("b"), "7", Some(&ours));
        assert_eq!(known(), ("a:5 b:7".to_owned(), 5, 1));
        services.complete_list();
        assert_eq!(known(), ("b:7".to_owned(), 6, 2));
        services.remove(&name("b"));
        assert_eq!(known(), (String::new(), 7, 2));
    }
}
