use crate::event::Content;
use crate::publishes::Publishes;
use crate::violation::Violation;
use heliograph_snapshot::{FleetName, Head};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A reader of the store, and where it is in each fleet.
#[derive(Debug)]
pub(crate) struct Reader {
    name: Arc<str>,
    places: BTreeMap<FleetName, Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    head: Head,
    is_live: bool,
}

impl Reader {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { name, places: BTreeMap::new() }
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
        let place = Place { head, is_live: content.is_some() };
        let before = self.places.insert(fleet.clone(), place);
        if let Some(before) = before.filter(|before| head < before.head) {
            let (what, from) = ("snapshots".to_owned(), before.head);
            let (who, fleet) = (who.clone(), fleet.clone());
            violations.push(Violation::WentBack { who, fleet, what, from, to: head });
        }
        violations.extend(match publishes.get(fleet, head) {
            None => Some(Violation::Unheard { who, fleet: fleet_name, head }),
            Some(publish) if publish.is_refused() => {
                Some(Violation::Refused { who, fleet: fleet_name, head })
            }
            Some(publish) => match (content, publish.content.as_deref()) {
                (Some(given), Some(published)) => self.compare(fleet, head, given, published),
                (None, None) => None,
                _ => Some(Violation::NotLive { who, fleet: fleet_name, head }),
            },
        });
    }

    pub(crate) fn end(&self, publishes: &Publishes, violations: &mut Vec<Violation>) {
        for fleet in publishes.fleets() {
            let place = self.places.get(fleet);
            let (at, newest) = (place.map(|place| place.head), publishes.newest(fleet));
            let Some(newest) = newest.filter(|newest| at < Some(*newest)) else { continue };
            let retired = publishes.get(fleet, newest).is_some_and(|it| it.content.is_none());
            // Who has nothing of a fleet need not hear that it is gone.
            if !retired || place.is_some_and(|place| place.is_live) {
                let (who, fleet) = (self.name.clone(), fleet.clone());
                violations.push(Violation::Behind { who, fleet, at, newest, difference: None });
            }
        }
    }

    fn compare(
        &self,
        fleet: &FleetName,
        head: Head,
        given: &Content,
        published: &Content,
    ) -> Option<Violation> {
        let resource = given.difference(published)?.clone();
        let (who, fleet) = (self.name.clone(), fleet.clone());
        let published = published.0.get(&resource).copied();
        Some(match given.0.get(&resource).copied() {
            Some(version) => Violation::Foreign { who, fleet, head, resource, version, published },
            None => Violation::Half { who, fleet, head, resource },
        })
    }
}
