//! What some clients reject and others have.

use heliograph_distributor_protocol::Standing;
use heliograph_snapshot::{Resource, ResourceType, Version};
use heliograph_store::{Dispute, FleetReport};
use heliograph_views::Quarantined;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Where the clients of a fleet stand. There are many clients, and they stand in few places: so it can be asked at any
/// time how many have something, without asking each.
#[derive(Debug, Default)]
pub(super) struct Places {
    counts: HashMap<u64, (Standing, usize)>,
}

impl Places {
    /// One client more stands there. Whether it rejects something.
    pub(super) fn enter(&mut self, standing: Standing) -> bool {
        let is_one = is_one(&standing);
        self.counts.entry(standing.id()).or_insert((standing, 0)).1 += 1;
        is_one
    }

    /// One client less. Returns the place if it was the last.
    pub(super) fn leave(&mut self, place: Option<u64>) -> Option<Standing> {
        let place = place?;
        let (_, count) = self.counts.get_mut(&place)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        let (standing, _) = self.counts.remove(&place)?;
        if self.counts.capacity() > 64.max(8 * self.counts.len()) {
            self.counts.shrink_to_fit();
        }
        Some(standing)
    }

    /// What clients reject, and what is on record of that in the snapshot: the translator counts the clients of all
    /// replicas.
    pub(super) fn disputes(&self, on_record: &[Quarantined]) -> Vec<Dispute> {
        type Subject = (ResourceType, Arc<str>, Version);
        let recorded = on_record
            .iter()
            .map(|it| (it.kind, it.rejected.name.clone(), it.rejected.version))
            .take(FleetReport::DISPUTES);
        let mut subjects: BTreeSet<Subject> = recorded.collect();
        let rejected = self.counts.values().flat_map(|(standing, _)| standing.rejections());
        for (kind, resource) in rejected {
            if subjects.len() == FleetReport::DISPUTES {
                break;
            }
            subjects.insert((*kind, resource.name.clone(), resource.version));
        }
        let dispute = |(kind, name, version): Subject| {
            let (rejected, accepted) = self.count(kind, &name, version);
            Dispute { kind, name, version, rejected, accepted }
        };
        subjects.into_iter().map(dispute).collect()
    }

    /// How many reject this, and how many have it.
    fn count(&self, kind: ResourceType, name: &str, version: Version) -> (u64, u64) {
        let (mut rejected, mut accepted) = (0, 0);
        for (standing, count) in self.counts.values() {
            let mut rejections = standing.rejections().iter();
            let is_it = |(of, it): &(ResourceType, Arc<Resource>)| {
                *of == kind && &*it.name == name && it.version == version
            };
            if rejections.any(is_it) {
                rejected += *count as u64;
            } else if standing.holds(kind, name, version) {
                accepted += *count as u64;
            }
        }
        (rejected, accepted)
    }
}

/// Whether a client that stands there rejects something.
pub(super) fn is_one(standing: &Standing) -> bool {
    !standing.rejections().is_empty()
}
