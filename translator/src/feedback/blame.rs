//! Finds the objects that a rejection means.

use super::{Feedback, FleetFeedback, Rejection};
use heliograph_gateway::objects::{ObjectKey, owner_object};
use heliograph_gateway::{Outcome, Source, World};
use heliograph_snapshot::{Change, FleetName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The objects that proxies reject something of, by fleet.
pub type Blamed = BTreeMap<FleetName, BTreeMap<ObjectKey, Vec<Blame>>>;

/// That proxies reject what was made from an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blame {
    /// Whose proxies.
    pub fleet: FleetName,
    /// The listener that is meant, of a Gateway.
    pub listener: Option<Arc<str>>,
    pub words: Arc<str>,
    /// How many of the connected proxies.
    pub rejected: u64,
}

/// Which objects the fleets mean that reject something.
pub(crate) fn blamed(feedback: &Feedback, world: &World) -> Blamed {
    let rejecting = feedback.fleets.iter().filter(|(_, fleet)| !fleet.rejections.is_empty());
    rejecting.map(|(name, fleet)| (name.clone(), blame(name, fleet, world))).collect()
}

/// The same, of the fleets where what is rejected is another one now, or which are no more.
pub(crate) fn blamed_anew(feedback: &Feedback, world: &World, outcome: &Outcome) -> Blamed {
    let rejecting = outcome.changes.iter().filter_map(|(name, changes)| {
        let fleet = feedback.fleets.get(name).filter(|fleet| !fleet.rejections.is_empty())?;
        let is_rejected = |change: &Change| {
            let (kind, name) = match change {
                Change::Set(kind, resource) => (kind, &resource.name),
                Change::Remove(kind, name) => (kind, name),
                Change::SetInternal(..) | Change::RemoveInternal(..) => return false,
            };
            fleet.rejections.keys().any(|(of, rejected, _)| (of, rejected) == (kind, name))
        };
        changes.iter().any(is_rejected).then(|| (name.clone(), blame(name, fleet, world)))
    });
    let retired = outcome.retired.iter().map(|fleet| (fleet.clone(), BTreeMap::new()));
    rejecting.chain(retired).collect()
}

/// The objects that what is rejected was made from, as far as it is still what there is.
fn blame(
    name: &FleetName,
    fleet: &FleetFeedback,
    world: &World,
) -> BTreeMap<ObjectKey, Vec<Blame>> {
    let mut blamed: BTreeMap<ObjectKey, Vec<Blame>> = BTreeMap::new();
    for ((kind, resource, version), Rejection { words, rejected, .. }) in &fleet.rejections {
        for source in world.blamed(name, *kind, resource, *version, words) {
            let (object, listener) = match source {
                Source::Listener(id) => (owner_object(&id.owner), Some(id.name.clone())),
                Source::Object(object) => (object, None),
            };
            let (fleet, words) = (name.clone(), words.clone());
            let blame = Blame { fleet, listener, words, rejected: *rejected };
            blamed.entry(object).or_default().push(blame);
        }
    }
    blamed
}
