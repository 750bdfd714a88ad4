//! The answers of proxies at all replicas: one walk over the reports of the replicas makes one value for each fleet.
//! Quarantine, statuses, `leave_out`, metrics and the page read this value, and none of them reads a report.

mod blame;
mod votes;

pub use blame::{Blame, Blamed};
pub(crate) use blame::{blamed, blamed_anew};
pub(crate) use votes::{Backing, DisputeCount, Votes};

use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use heliograph_store::{AckReport, FleetReport, Record, RejectionReport};
use std::collections::BTreeMap;
use std::sync::Arc;
use votes::Tally;

/// The latest reports of all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    pub fleets: BTreeMap<FleetName, Arc<FleetFeedback>>,
    /// The fleets that a replica cannot load, and the newest head that this is said of.
    pub(crate) damaged: BTreeMap<FleetName, Head>,
    /// What replicas read of fleets that the store has lost since.
    pub(crate) remembered: Vec<Arc<Record>>,
}

/// The answers of one fleet's proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetFeedback {
    /// Streams: one proxy may have several.
    pub connected: u64,
    /// How many have acknowledged all that they ask for, of which head at most.
    pub acknowledged: BTreeMap<Head, u64>,
    /// The same with one vote for each proxy.
    pub(crate) votes: Votes,
    pub(crate) rejections: BTreeMap<RejectedVersion, Rejection>,
    /// Replica by replica.
    pub(crate) replicas: Vec<ReplicaFeedback>,
}

/// The answers of one fleet's proxies at one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplicaFeedback {
    pub(crate) replica: Arc<str>,
    pub(crate) report: FleetReport,
}

/// A resource, as it was rejected.
pub(crate) type RejectedVersion = (ResourceType, Arc<str>, Version);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejection {
    /// The proxy's own.
    pub words: Arc<str>,
    /// How many of the connected proxies reject it.
    pub rejected: u64,
    /// How many of them have it.
    pub accepted: u64,
    /// Whether it is counted: a connected proxy rejects it, or it is in quarantine.
    pub is_counted: bool,
}

/// A fleet, while the reports are walked.
#[derive(Default)]
struct Aggregation {
    feedback: FleetFeedback,
    tally: Tally,
}

impl Feedback {
    pub(crate) fn of(reports: Vec<AckReport>) -> Self {
        let mut fleets: BTreeMap<FleetName, Aggregation> = BTreeMap::new();
        let mut all = Self::default();
        for report in reports {
            let AckReport { replica, fleets: reported, damaged, remembered, start: _, sequence: _ } =
                report;
            let replica: Arc<str> = replica.into();
            for (fleet, report) in reported {
                fleets.entry(fleet).or_default().add(&replica, report);
            }
            for (fleet, head) in damaged {
                let newest = all.damaged.entry(fleet).or_insert(head);
                *newest = (*newest).max(head);
            }
            all.remembered.extend(remembered);
        }
        let fleets = fleets.into_iter().map(|(name, fleet)| (name, Arc::new(fleet.finish())));
        Self { fleets: fleets.collect(), ..all }
    }

    /// Whether quarantine has something else to decide by than `before`.
    pub(crate) fn has_other_votes(&self, before: &Self) -> bool {
        self.differs(before, |one, other| one.votes == other.votes)
    }

    /// Whether there is something else to say of proxies than `before`, other than at which replica.
    pub(crate) fn has_other_sums(&self, before: &Self) -> bool {
        self.differs(before, FleetFeedback::has_same_sums)
    }

    fn differs(
        &self,
        before: &Self,
        is_same: impl Fn(&FleetFeedback, &FleetFeedback) -> bool,
    ) -> bool {
        let mut pairs = self.fleets.iter().zip(&before.fleets);
        self.fleets.len() != before.fleets.len()
            || pairs.any(|((name, one), (of, other))| name != of || !is_same(one, other))
    }
}

impl FleetFeedback {
    /// How many have acknowledged a head, or one after it.
    pub fn have(&self, head: Head) -> u64 {
        self.acknowledged.range(head..).map(|(_, count)| count).sum()
    }

    /// Whether there is nothing else to say than of `other`, but for who acknowledged what and at which replica.
    pub(crate) fn has_same_sums(&self, other: &Self) -> bool {
        let Self { connected, acknowledged, votes, rejections, replicas: _ } = self;
        (connected, acknowledged, rejections)
            == (&other.connected, &other.acknowledged, &other.rejections)
            && (votes.connected, votes.confirmed) == (other.votes.connected, other.votes.confirmed)
    }
}

impl Aggregation {
    fn add(&mut self, replica: &Arc<str>, report: FleetReport) {
        self.tally.add(&report);
        let FleetFeedback { connected, acknowledged, rejections, replicas, votes: _ } =
            &mut self.feedback;
        *connected = connected.saturating_add(report.connected);
        for (head, count) in &report.acknowledged {
            let sum = acknowledged.entry(*head).or_default();
            *sum = sum.saturating_add(*count);
        }
        for RejectionReport { kind, detail, resources, .. } in &report.rejections {
            for (name, version) in resources {
                // A rejected removal is no fault of an existing resource.
                let Some(version) = version else { continue };
                let rejected = (*kind, name.clone(), *version);
                rejections.entry(rejected).or_default().words = detail.as_str().into();
            }
        }
        for dispute in &report.disputes {
            let rejected = (dispute.kind, dispute.name.clone(), dispute.version);
            // Another replica may have the words.
            rejections.entry(rejected).or_default().is_counted = true;
        }
        // There may be more than are counted.
        if report.disputes.len() >= FleetReport::DISPUTES {
            rejections.values_mut().for_each(|rejection| rejection.is_counted = true);
        }
        replicas.push(ReplicaFeedback { replica: replica.clone(), report });
    }

    fn finish(self) -> FleetFeedback {
        let Self { feedback, tally } = self;
        let (votes, mut rejections) = (tally.votes(), feedback.rejections);
        for (rejected, rejection) in &mut rejections {
            if let Some(count) = votes.disputes.get(rejected) {
                (rejection.rejected, rejection.accepted) = (count.rejected, count.accepted);
            }
        }
        rejections.retain(|_, rejection| rejection.is_active());
        FleetFeedback { votes, rejections, ..feedback }
    }
}

impl Rejection {
    /// Whether a connected proxy rejects it, or no proxy has it because of earlier rejections. An error text alone is
    /// from a proxy that is gone.
    fn is_active(&self) -> bool {
        let is_kept_back = self.is_counted && self.accepted == 0;
        !self.words.is_empty() && (self.rejected > 0 || is_kept_back)
    }
}

#[cfg(test)]
impl<const N: usize> From<[(FleetName, FleetFeedback); N]> for Feedback {
    fn from(fleets: [(FleetName, FleetFeedback); N]) -> Self {
        let fleets = fleets.map(|(name, fleet)| (name, Arc::new(fleet)));
        Self { fleets: fleets.into(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_store::Dispute;

    fn head(sequence: u64) -> Head {
        Head { epoch: 0, fence: 7, sequence }
    }

    /// Of a replica with three streams that reject a resource.
    fn report(replica: &str, at: u64) -> AckReport {
        let (kind, name, version) =
            (ResourceType::Route, Arc::from("http/80"), Version::of(b"bad"));
        AckReport {
            replica: replica.to_owned(),
            fleets: BTreeMap::from([(
                FleetName::new("shop", "web"),
                FleetReport {
                    connected: 3,
                    acknowledged: BTreeMap::from([(head(at), 2)]),
                    rejections: vec![RejectionReport {
                        kind,
                        detail: "no".to_owned(),
                        resources: vec![(Arc::clone(&name), Some(version)), ("gone".into(), None)],
                        count: 9,
                    }],
                    disputes: vec![Dispute::new(kind, name, version, 1, 2)],
                    ..FleetReport::default()
                },
            )]),
            ..AckReport::default()
        }
    }

    #[test]
    fn replicas_are_added_up() {
        let feedback = Feedback::of(vec![report("one", 4), report("two", 6)]);
        let of_fleet = &feedback.fleets[&FleetName::new("shop", "web")];
        assert_eq!(of_fleet.connected, 6);
        assert_eq!([3, 4, 5, 6, 7].map(|at| of_fleet.have(head(at))), [4, 4, 2, 2, 0]);
        assert_eq!((of_fleet.votes.connected, of_fleet.votes.confirmed), (6, Some(head(6))));
        let rejection =
            Rejection { words: "no".into(), rejected: 2, accepted: 4, is_counted: true };
        let rejected = (ResourceType::Route, "http/80".into(), Version::of(b"bad"));
        assert_eq!(of_fleet.rejections, BTreeMap::from([(rejected, rejection)]));
        let replicas: Vec<_> = of_fleet.replicas.iter().map(|it| &*it.replica).collect();
        assert_eq!(replicas, ["one", "two"]);
    }

    #[test]
    fn of_what_replicas_cannot_load_the_newest_counts() {
        let [one, two] = ["one", "two"].map(|name| FleetName::new("shop", name));
        let damaged = |replica: &str, fleets: &[(&FleetName, u64)]| AckReport {
            damaged: fleets.iter().map(|(fleet, at)| ((*fleet).clone(), head(*at))).collect(),
            ..report(replica, 1)
        };
        let reports = vec![damaged("a", &[(&one, 5)]), damaged("b", &[(&one, 4), (&two, 1)])];
        assert_eq!(Feedback::of(reports).damaged, [(one, head(5)), (two, head(1))].into());
    }

    #[test]
    fn who_reads_only_sums_is_not_concerned_by_how_they_come_about() {
        let before = Feedback::of(vec![report("one", 4), report("two", 6)]);
        let moved = Feedback::of(vec![report("one", 6), report("two", 4)]);
        assert_ne!(before, moved);
        assert!(!moved.has_other_sums(&before) && !moved.has_other_votes(&before));
        let fewer = Feedback::of(vec![report("one", 4)]);
        assert!(fewer.has_other_sums(&before) && fewer.has_other_votes(&before));
        // Another proxy has it: the sums are the same.
        let mut disputed = report("two", 6);
        let fleet = disputed.fleets.values_mut().next().unwrap();
        let voter = heliograph_store::Voter(7);
        fleet.voters = heliograph_store::Voters { count: 3, only: None };
        fleet.votes = [(head(6), heliograph_store::Voters { count: 1, only: Some(voter) })].into();
        let other = Feedback::of(vec![report("one", 4), disputed]);
        assert!(other.has_other_votes(&before));
        assert!(Feedback::default().has_other_sums(&before));
    }

    #[test]
    fn what_no_connected_proxy_rejects_is_no_ones_fault_any_more() {
        let rejected = |rejected, accepted, is_counted| Rejection {
            words: "no".into(),
            rejected,
            accepted,
            is_counted,
        };
        assert!(rejected(1, 5, true).is_active());
        assert!(!rejected(0, 0, false).is_active(), "whoever did is gone");
        assert!(!rejected(0, 5, true).is_active(), "it is served to all again");
        assert!(rejected(0, 0, true).is_active(), "it is kept from all");
    }
}
