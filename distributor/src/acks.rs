//! What the clients of a fleet answered, in sum.

use crate::feed::{Fleet, Fleets};
use crate::view::Class;
use heliograph_distributor_protocol::Rejection;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How the fleets take their snapshots, as far as this replica's clients tell.
#[derive(Clone, Debug)]
pub struct Acks {
    fleets: Fleets,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AcksSummary {
    /// The newest snapshot; `None` while the fleet is retired.
    #[serde(serialize_with = "as_text")]
    pub head: Option<Head>,
    pub connected: usize,
    /// How many have acknowledged all that they ask for of that snapshot.
    pub acknowledged: usize,
    /// The last few different ones, oldest first.
    pub rejections: Vec<RejectionSummary>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectionSummary {
    pub kind: ResourceType,
    /// The client's own words.
    pub detail: String,
    /// What was rejected; without a version, a removal.
    pub resources: Vec<(Arc<str>, Option<Version>)>,
    /// How many times clients said so.
    pub count: u64,
}

/// The sums of one fleet.
#[derive(Debug, Default)]
pub(crate) struct FleetAcks {
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    connected: usize,
    /// How many streams have acknowledged all of which head.
    acknowledged: BTreeMap<Head, usize>,
    rejections: VecDeque<RejectionSummary>,
}

/// One stream's part in the sums, taken back when it ends.
#[derive(Debug)]
pub(crate) struct Participant {
    fleet: Arc<Fleet>,
    acknowledged: Option<Head>,
}

/// Different rejections that are kept per fleet.
const REJECTIONS_LIMIT: usize = 16;

impl Acks {
    pub(crate) fn new(fleets: Fleets) -> Self {
        Self { fleets }
    }

    /// `None`: the fleet has never been published.
    pub fn of(&self, fleet: &FleetName) -> Option<AcksSummary> {
        self.fleets.get(fleet).map(|fleet| AcksSummary::of(&fleet))
    }

    /// Every fleet that has been published.
    pub fn all(&self) -> BTreeMap<FleetName, AcksSummary> {
        let fleets = self.fleets.all();
        fleets.iter().map(|(name, fleet)| (name.clone(), AcksSummary::of(fleet))).collect()
    }
}

impl AcksSummary {
    fn of(fleet: &Fleet) -> Self {
        let head = fleet.current().map(|views| views.of(Class).head());
        let sums = fleet.acks.sums();
        let acknowledged = head.and_then(|head| sums.acknowledged.get(&head)).copied();
        Self {
            head,
            connected: sums.connected,
            acknowledged: acknowledged.unwrap_or_default(),
            rejections: sums.rejections.iter().cloned().collect(),
        }
    }
}

impl FleetAcks {
    fn sums(&self) -> MutexGuard<'_, Sums> {
        // Sums are whole after every statement, so a panic elsewhere leaves them usable.
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Participant {
    pub(crate) fn join(fleet: Arc<Fleet>) -> Self {
        fleet.acks.sums().connected += 1;
        Self { fleet, acknowledged: None }
    }

    /// Where the stream's client is now.
    pub(crate) fn at(&mut self, acknowledged: Option<Head>) {
        if self.acknowledged == acknowledged {
            return;
        }
        let mut sums = self.fleet.acks.sums();
        sums.leave(self.acknowledged);
        if let Some(head) = acknowledged {
            *sums.acknowledged.entry(head).or_default() += 1;
        }
        self.acknowledged = acknowledged;
    }

    pub(crate) fn rejected(&self, rejection: &Rejection) {
        self.fleet.acks.sums().rejected(rejection);
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        let mut sums = self.fleet.acks.sums();
        sums.connected -= 1;
        sums.leave(self.acknowledged);
    }
}

impl Sums {
    fn leave(&mut self, acknowledged: Option<Head>) {
        let Some(head) = acknowledged else { return };
        if let Some(count) = self.acknowledged.get_mut(&head) {
            *count -= 1;
            if *count == 0 {
                self.acknowledged.remove(&head);
            }
        }
    }

    /// Ten thousand proxies that reject the same are one entry.
    fn rejected(&mut self, rejection: &Rejection) {
        let Rejection { kind, nonce: _, detail, resources } = rejection;
        let same = |known: &&mut RejectionSummary| {
            known.kind == *kind && known.resources == *resources && known.detail == *detail
        };
        if let Some(known) = self.rejections.iter_mut().find(same) {
            known.count += 1;
            return;
        }
        if self.rejections.len() == REJECTIONS_LIMIT {
            self.rejections.pop_front();
        }
        self.rejections.push_back(RejectionSummary {
            kind: *kind,
            detail: detail.clone(),
            resources: resources.clone(),
            count: 1,
        });
    }
}

fn as_text<S: Serializer>(head: &Option<Head>, serializer: S) -> Result<S::Ok, S::Error> {
    match head {
        Some(head) => serializer.collect_str(head),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_summed_up_and_bounded() {
        let mut sums = Sums::default();
        let rejection = |detail: usize| Rejection {
            kind: ResourceType::Cluster,
            nonce: String::new(),
            detail: detail.to_string(),
            resources: vec![],
        };
        for _ in 0..3 {
            sums.rejected(&rejection(0));
        }
        assert_eq!(sums.rejections[0].count, 3);
        for detail in 0..100 {
            sums.rejected(&rejection(detail));
        }
        assert_eq!(sums.rejections.len(), REJECTIONS_LIMIT);
        assert_eq!(sums.rejections.back().unwrap().detail, "99");
    }
}
