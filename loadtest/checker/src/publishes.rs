use crate::event::ResourceId;
use crate::history::FleetHistory;
use heliograph_snapshot::{FleetName, Head, ResourceType, Snapshot, Version};
use std::collections::BTreeMap;

/// All publications, with which responses are compared. It grows during a run, in proportion to changes.
#[derive(Debug, Default)]
pub struct Publishes(BTreeMap<FleetName, Published>);

#[derive(Debug, Default)]
struct Published {
    history: FleetHistory,
    last: Option<Snapshot>,
}

/// A fleet only moves forward, also in a log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{fleet}: {head} is not newer than {last}, which is published already")]
pub struct NotNewer {
    pub fleet: FleetName,
    pub head: Head,
    pub last: Head,
}

impl Publishes {
    /// Adds a snapshot that the store confirmed as published. It must be added before a proxy receives a part of it.
    pub fn publish(&mut self, snapshot: &Snapshot) -> Result<(), NotNewer> {
        let (fleet, head) = (&snapshot.fleet, snapshot.head);
        let published = self.0.entry(fleet.clone()).or_default();
        if let Some(last) = published.history.last().filter(|last| head <= *last) {
            return Err(NotNewer { fleet: fleet.clone(), head, last });
        }
        let empty = Snapshot::empty(fleet.clone());
        let before = published.last.as_ref().unwrap_or(&empty);
        published.history.append(head, true, true, changes(before, snapshot));
        published.last = Some(snapshot.clone());
        Ok(())
    }

    pub(crate) fn fleets(&self) -> impl Iterator<Item = (&FleetName, &FleetHistory)> {
        self.0.iter().map(|(fleet, published)| (fleet, &published.history))
    }

    pub(crate) fn get(&self, fleet: &FleetName) -> Option<&FleetHistory> {
        self.0.get(fleet).map(|published| &published.history)
    }

    /// For a log that is written all at once.
    pub(crate) fn of(&mut self, fleet: &FleetName) -> &mut FleetHistory {
        &mut self.0.entry(fleet.clone()).or_default().history
    }
}

fn changes<'a>(
    before: &'a Snapshot,
    after: &'a Snapshot,
) -> impl Iterator<Item = (ResourceId, Option<Version>)> {
    ResourceType::ALL.into_iter().flat_map(|kind| {
        let differences = after.tree(kind).differences(before.tree(kind));
        differences.into_iter().filter_map(move |difference| {
            let name = &difference.after.or(difference.before)?.name;
            let version = difference.after.map(|resource| resource.version);
            Some((ResourceId::new(kind, name.clone()), version))
        })
    })
}
