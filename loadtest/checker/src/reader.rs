use crate::event::{Content, ResourceId};
use crate::history::FleetHistory;
use crate::publishes::Publishes;
use crate::violation::Violation;
use heliograph_snapshot::{FleetName, Head, ResourceType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A reader of the store, and where it is in each fleet.
#[derive(Debug)]
pub(crate) struct StoreReader {
    name: Arc<str>,
    positions: BTreeMap<FleetName, ReadPosition>,
}

#[derive(Clone, Copy, Debug)]
struct ReadPosition {
    head: Head,
    is_live: bool,
}

impl StoreReader {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, positions: BTreeMap::new() }
    }

    pub(crate) fn read(
        &mut self,
        fleet: &FleetName,
        head: Head,
        content: Option<&Content>,
        publishes: &Publishes,
        violations: &mut Vec<Violation>,
    ) {
        let (who, fleet_name) = (self.name.clone(), fleet.clone());
        let last = ReadPosition { head, is_live: content.is_some() };
        let before = self.positions.insert(fleet.clone(), last);
        if let Some(before) = before.filter(|before| head < before.head) {
            let (what, from) = ("snapshots".to_owned(), before.head);
            let (who, fleet) = (who.clone(), fleet.clone());
            violations.push(Violation::WentBack { who, fleet, what, from, to: head });
        }
        let Some(history) = publishes.get(fleet) else {
            return violations.push(Violation::NeverPublished { who, fleet: fleet_name, head });
        };
        violations.extend(match (history.position(head), content) {
            (None, _) if history.is_refused(head) => {
                Some(Violation::Refused { who, fleet: fleet_name, head })
            }
            (None, _) => Some(Violation::NeverPublished { who, fleet: fleet_name, head }),
            (Some(at), Some(given)) if history.is_live(at) => {
                self.compare(fleet, given, history, at)
            }
            (Some(at), None) if !history.is_live(at) => None,
            _ => Some(Violation::NotLive { who, fleet: fleet_name, head }),
        });
    }

    /// A reader need not have a fleet that is not wanted any more, whatever was published last: the store may have lost
    /// that before anything read it.
    pub(crate) fn end(
        &self,
        publishes: &Publishes,
        unwanted: &BTreeSet<FleetName>,
        violations: &mut Vec<Violation>,
    ) {
        for (fleet, history) in publishes.fleets() {
            let last = self.positions.get(fleet);
            if unwanted.contains(fleet) {
                let kept = last.filter(|last| last.is_live).map(|last| last.head);
                let (who, fleet) = (self.name.clone(), fleet.clone());
                violations.extend(kept.map(|head| Violation::Kept { who, fleet, head }));
                continue;
            }
            let Some(position) = history.newest() else { continue };
            let (at, newest) = (last.map(|last| last.head), history.head(position));
            // A reader without the fleet need not learn that it is gone.
            let is_owed = history.is_live(position) || last.is_some_and(|last| last.is_live);
            if at < Some(newest) && is_owed {
                let (who, fleet) = (self.name.clone(), fleet.clone());
                violations.push(Violation::Behind { who, fleet, at, newest, difference: None });
            }
        }
    }

    fn compare(
        &self,
        fleet: &FleetName,
        given: &Content,
        history: &FleetHistory,
        at: usize,
    ) -> Option<Violation> {
        let (who, fleet, head) = (self.name.clone(), fleet.clone(), history.head(at));
        let foreign = given.0.iter().find_map(|(id, version)| {
            let published = history.version(id.kind, &id.name, at);
            (published != Some(*version)).then(|| (id.clone(), *version, published))
        });
        if let Some((resource, version, published)) = foreign {
            return Some(Violation::Foreign { who, fleet, head, resource, version, published });
        }
        let published = ResourceType::ALL.into_iter().flat_map(|kind| {
            let resources = history.resources(kind, at);
            resources.map(move |(name, _)| ResourceId::new(kind, name.clone()))
        });
        let mut missing = published.into_iter().filter(|id| !given.0.contains_key(id));
        missing.next().map(|resource| Violation::Half { who, fleet, head, resource })
    }
}
