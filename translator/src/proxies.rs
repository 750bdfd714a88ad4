//! What the proxies of all replicas say to what was published, added up: how many have it, and what they reject.

use crate::publish::Answers;
use heliograph_gateway::objects::{ObjectKey, owner_object};
use heliograph_gateway::{Outcome, Source, World};
use heliograph_snapshot::{Change, FleetName, Head, ResourceType, Version};
use heliograph_store::{AckReport, FleetReport, RejectionReport};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the proxies of each fleet say.
pub type Proxies = BTreeMap<FleetName, FleetProxies>;

/// The objects that proxies reject something of, by fleet.
pub type Blamed = BTreeMap<FleetName, BTreeMap<ObjectKey, Vec<Blame>>>;

/// What the proxies of one fleet say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetProxies {
    /// Streams: one proxy may have several.
    pub connected: u64,
    /// How many have acknowledged all that they ask for, of which head at most.
    pub acknowledged: BTreeMap<Head, u64>,
    /// How many of them are different proxies, at most.
    pub(crate) voters: u64,
    /// The newest head that enough different proxies have acknowledged.
    pub(crate) confirmed: Option<Head>,
    pub(crate) rejections: BTreeMap<Subject, Rejection>,
}

/// A resource, as it was rejected.
pub(crate) type Subject = (ResourceType, Arc<str>, Version);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The proxy's own.
    pub words: Arc<str>,
    /// How many of the connected proxies reject it.
    pub rejected: u64,
    /// How many of them have it.
    pub accepted: u64,
    /// Whether it is counted: somebody connected rejects it, or it is kept from those that do not have it.
    pub is_counted: bool,
}

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

impl FleetProxies {
    /// What each fleet's proxies say, from what every replica says.
    /// `answers` has how many proxies reject or have what: one that is connected to several replicas is one.
    pub(crate) fn of(reports: &[AckReport], answers: &BTreeMap<FleetName, Answers>) -> Proxies {
        let mut proxies = Proxies::new();
        for (fleet, report) in reports.iter().flat_map(|report| &report.fleets) {
            proxies.entry(fleet.clone()).or_default().add(report);
        }
        for (fleet, said) in &mut proxies {
            let answers = answers.get(fleet);
            said.voters = answers.map_or(0, Answers::connected);
            said.confirmed = answers.and_then(Answers::confirmed);
            for (subject, rejection) in &mut said.rejections {
                let count = answers.and_then(|answers| answers.count(subject));
                if let Some((rejected, accepted)) = count {
                    (rejection.rejected, rejection.accepted) = (rejected, accepted);
                }
            }
            said.rejections.retain(|_, rejection| rejection.stands());
        }
        proxies
    }

    /// How many have acknowledged a head, or one after it.
    pub fn have(&self, head: Head) -> u64 {
        self.acknowledged.range(head..).map(|(_, count)| count).sum()
    }

    fn add(&mut self, report: &FleetReport) {
        self.connected = self.connected.saturating_add(report.connected);
        for (head, count) in &report.acknowledged {
            let sum = self.acknowledged.entry(*head).or_default();
            *sum = sum.saturating_add(*count);
        }
        for RejectionReport { kind, detail, resources, .. } in &report.rejections {
            for (name, version) in resources {
                // That something is not let go of is no fault of what there is.
                let Some(version) = version else { continue };
                let subject = (*kind, name.clone(), *version);
                self.rejections.entry(subject).or_default().words = detail.as_str().into();
            }
        }
        for dispute in &report.disputes {
            let subject = (dispute.kind, dispute.name.clone(), dispute.version);
            // Another replica may have the words.
            let rejection = self.rejections.entry(subject).or_default();
            rejection.rejected = rejection.rejected.saturating_add(dispute.rejected);
            rejection.accepted = rejection.accepted.saturating_add(dispute.accepted);
            rejection.is_counted = true;
        }
        // There may be more than are counted.
        if report.disputes.len() >= FleetReport::DISPUTES {
            self.rejections.values_mut().for_each(|rejection| rejection.is_counted = true);
        }
    }

    /// The objects that what is rejected was made from, as far as it is still what there is.
    fn blame(&self, fleet: &FleetName, world: &World) -> BTreeMap<ObjectKey, Vec<Blame>> {
        let mut blamed: BTreeMap<ObjectKey, Vec<Blame>> = BTreeMap::new();
        for ((kind, name, version), Rejection { words, rejected, .. }) in &self.rejections {
            for source in world.blamed(fleet, *kind, name, *version, words) {
                let (object, listener) = match source {
                    Source::Listener(id) => (owner_object(&id.owner), Some(id.name.clone())),
                    Source::Object(object) => (object, None),
                };
                let (fleet, words) = (fleet.clone(), words.clone());
                let blame = Blame { fleet, listener, words, rejected: *rejected };
                blamed.entry(object).or_default().push(blame);
            }
        }
        blamed
    }
}

impl Rejection {
    /// Whether a proxy that is connected rejects it, or nobody has it because of those that did. Words alone are of proxies that
    /// are gone.
    fn stands(&self) -> bool {
        let is_kept_back = self.is_counted && self.accepted == 0;
        !self.words.is_empty() && (self.rejected > 0 || is_kept_back)
    }
}

/// Which objects the fleets mean that reject something.
pub(crate) fn blamed(proxies: &Proxies, world: &World) -> Blamed {
    let rejecting = proxies.iter().filter(|(_, said)| !said.rejections.is_empty());
    rejecting.map(|(fleet, said)| (fleet.clone(), said.blame(fleet, world))).collect()
}

/// The same, of the fleets where what is rejected is another one now, or which are no more.
pub(crate) fn blamed_anew(proxies: &Proxies, world: &World, outcome: &Outcome) -> Blamed {
    let rejecting = outcome.changes.iter().filter_map(|(fleet, changes)| {
        let said = proxies.get(fleet).filter(|said| !said.rejections.is_empty())?;
        let is_rejected = |change: &Change| {
            let (kind, name) = match change {
                Change::Set(kind, resource) => (kind, &resource.name),
                Change::Remove(kind, name) => (kind, name),
                Change::SetInternal(..) | Change::RemoveInternal(..) => return false,
            };
            said.rejections.keys().any(|(of, rejected, _)| (of, rejected) == (kind, name))
        };
        changes.iter().any(is_rejected).then(|| (fleet.clone(), said.blame(fleet, world)))
    });
    let retired = outcome.retired.iter().map(|fleet| (fleet.clone(), BTreeMap::new()));
    rejecting.chain(retired).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_store::Dispute;

    fn head(sequence: u64) -> Head {
        Head { epoch: 0, fence: 7, sequence }
    }

    #[test]
    fn replicas_are_added_up() {
        let fleet = FleetName::new("shop", "web");
        let (kind, name, version) =
            (ResourceType::Route, Arc::from("http/80"), Version::of(b"bad"));
        let report = |replica: &str, at: u64| AckReport {
            replica: replica.to_owned(),
            fleets: BTreeMap::from([(
                fleet.clone(),
                FleetReport {
                    connected: 3,
                    acknowledged: BTreeMap::from([(head(at), 2)]),
                    rejections: vec![RejectionReport {
                        kind,
                        detail: "no".to_owned(),
                        resources: vec![(Arc::clone(&name), Some(version)), ("gone".into(), None)],
                        count: 9,
                    }],
                    disputes: vec![Dispute::new(kind, Arc::clone(&name), version, 1, 2)],
                    ..FleetReport::default()
                },
            )]),
            ..AckReport::default()
        };
        let reports = [report("one", 4), report("two", 6)];
        let proxies = FleetProxies::of(&reports, &Answers::of(&reports));
        let of_fleet = &proxies[&fleet];
        assert_eq!(of_fleet.connected, 6);
        assert_eq!([3, 4, 5, 6, 7].map(|at| of_fleet.have(head(at))), [4, 4, 2, 2, 0]);
        assert_eq!((of_fleet.voters, of_fleet.confirmed), (6, Some(head(6))));
        let rejection =
            Rejection { words: "no".into(), rejected: 2, accepted: 4, is_counted: true };
        assert_eq!(of_fleet.rejections, BTreeMap::from([((kind, name, version), rejection)]));
    }

    #[test]
    fn what_no_connected_proxy_rejects_is_no_ones_fault_any_more() {
        let rejected = |rejected, accepted, is_counted| Rejection {
            words: "no".into(),
            rejected,
            accepted,
            is_counted,
        };
        assert!(rejected(1, 5, true).stands());
        assert!(!rejected(0, 0, false).stands(), "whoever did is gone");
        assert!(!rejected(0, 5, true).stands(), "it is served to all again");
        assert!(rejected(0, 0, true).stands(), "it is kept from all");
    }
}
