//! What the proxies of a fleet say on all replicas, with one vote each: a proxy with streams to several replicas is not several.

use super::quarantine::Count;
use heliograph_snapshot::{Head, ResourceType, Version};
use heliograph_store::{Dispute, FleetReport, Voter, Voters};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) type Subject = (ResourceType, Arc<str>, Version);

/// The votes of a fleet, while the reports of its replicas are read.
#[derive(Debug, Default)]
pub(super) struct Votes {
    connected: Backing,
    /// How many those are at most: one that is connected to several replicas is counted by each of them.
    at_most: u64,
    acknowledged: BTreeMap<Head, Backing>,
    disputes: BTreeMap<Subject, (Side, Side)>,
}

/// How many different proxies there are, as far as matters: one, which two replicas may have counted, is not several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Backing {
    #[default]
    Nobody,
    /// It is not known which where a replica does not tell proxies from streams.
    One(Option<Voter>),
    Several,
}

/// Those who answer the same.
#[derive(Debug, Default)]
struct Side {
    named: BTreeSet<Voter>,
    /// Where there are too many to name them, a proxy counts at each of its replicas.
    unnamed: u64,
}

/// One proxy among so many cannot make a version the last good alone. Of fewer, it is half of them.
const FEW: u64 = 3;

impl Votes {
    pub(super) fn add(&mut self, report: &FleetReport) {
        let FleetReport { connected, acknowledged, disputes, voters, votes, rejections: _ } =
            report;
        if voters.count == 0 && *connected > 0 {
            // A replica that counts streams.
            let streams = |count: &u64| Voters { count: *count, only: None };
            let heads = acknowledged.iter().map(|(head, count)| (*head, streams(count)));
            self.add_voters(streams(connected), heads);
        } else {
            self.add_voters(*voters, votes.iter().map(|(head, voters)| (*head, *voters)));
        }
        for dispute in disputes {
            let Dispute { kind, name, version, rejected, accepted, rejecting, accepting } = dispute;
            let subject = (*kind, name.clone(), *version);
            let (against, in_favour) = self.disputes.entry(subject).or_default();
            against.add(*rejected, rejecting);
            in_favour.add(*accepted, accepting);
        }
    }

    fn add_voters(&mut self, connected: Voters, heads: impl Iterator<Item = (Head, Voters)>) {
        self.connected = self.connected.and(connected.into());
        self.at_most = self.at_most.saturating_add(connected.count);
        for (head, voters) in heads {
            let backing = self.acknowledged.entry(head).or_default();
            *backing = backing.and(voters.into());
        }
    }

    /// Whether one proxy is too few to say that a version is good.
    pub(super) fn are_many(&self) -> bool {
        self.connected == Backing::Several && self.at_most >= FEW
    }

    /// How many proxies are connected. One that is connected to several replicas counts at each of them.
    pub(super) fn at_most(&self) -> u64 {
        self.at_most
    }

    pub(super) fn acknowledged(&self) -> BTreeMap<Head, Backing> {
        self.acknowledged.clone()
    }

    pub(super) fn disputes(&self) -> BTreeMap<Subject, Count> {
        let counted = self.disputes.iter().map(|(subject, (against, in_favour))| {
            // Who rejects it at one replica and has it at another does not speak for it.
            let named = in_favour.named.difference(&against.named).count() as u64;
            let count = Count {
                rejected: against.unnamed.saturating_add(against.named.len() as u64),
                accepted: in_favour.unnamed.saturating_add(named),
            };
            (subject.clone(), count)
        });
        counted.collect()
    }
}

impl Backing {
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, one) | (one, Self::Nobody) => one,
            (Self::One(Some(one)), Self::One(Some(other))) if one == other => self,
            _ => Self::Several,
        }
    }

    /// Whether that is enough to say that a version is good.
    pub(super) fn suffices(self, are_many: bool) -> bool {
        match self {
            Self::Nobody => false,
            Self::One(_) => !are_many,
            Self::Several => true,
        }
    }
}

impl From<Voters> for Backing {
    fn from(voters: Voters) -> Self {
        match voters.count {
            0 => Self::Nobody,
            1 => Self::One(voters.only),
            _ => Self::Several,
        }
    }
}

impl Side {
    fn add(&mut self, count: u64, voters: &[Voter]) {
        if voters.len() as u64 == count {
            self.named.extend(voters);
        } else {
            self.unnamed = self.unnamed.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(sequence: u64) -> Head {
        Head { epoch: 0, fence: 1, sequence }
    }

    fn dispute(rejecting: &[u64], accepting: &[u64]) -> Dispute {
        let voters = |digests: &[u64]| digests.iter().copied().map(Voter).collect();
        Dispute {
            kind: ResourceType::Route,
            name: "table".into(),
            version: Version::of(b"bad"),
            rejected: rejecting.len() as u64,
            accepted: accepting.len() as u64,
            rejecting: voters(rejecting),
            accepting: voters(accepting),
        }
    }

    fn counted(disputes: impl IntoIterator<Item = Dispute>) -> (u64, u64) {
        let mut votes = Votes::default();
        for dispute in disputes {
            votes.add(&FleetReport { disputes: vec![dispute], ..FleetReport::default() });
        }
        let counts: Vec<_> = votes.disputes().into_values().collect();
        assert_eq!(counts.len(), 1, "of one resource");
        (counts[0].rejected, counts[0].accepted)
    }

    #[test]
    fn a_proxy_has_one_vote_on_all_replicas() {
        let all = [dispute(&[1], &[2]), dispute(&[1], &[3]), dispute(&[1], &[4])];
        assert_eq!(counted(all), (1, 3));
        // And none in favour where it is of two minds.
        assert_eq!(counted([dispute(&[1], &[2]), dispute(&[], &[1, 2, 3])]), (1, 2));
    }

    #[test]
    fn who_is_not_named_counts_at_each_replica() {
        let unnamed = |rejected, accepted| Dispute { rejected, accepted, ..dispute(&[], &[]) };
        assert_eq!(counted([unnamed(2, 70), unnamed(1, 0)]), (3, 70), "replicas of before");
        let large = Dispute { accepted: 70, ..dispute(&[1], &[]) };
        assert_eq!(counted([large.clone(), large, dispute(&[1], &[2])]), (1, 141));
        assert_eq!(counted([unnamed(u64::MAX, u64::MAX), unnamed(1, 1)]), (u64::MAX, u64::MAX));
    }

    #[test]
    fn one_of_many_does_not_say_that_a_version_is_good() {
        let one = |digest| Voters { count: 1, only: Some(Voter(digest)) };
        let many = |count| Voters { count, only: None };
        let good = |replicas: &[(Voters, &[(u64, Voters)])]| {
            let mut votes = Votes::default();
            for (voters, heads) in replicas {
                let heads = heads.iter().map(|(sequence, voters)| (head(*sequence), *voters));
                let (voters, votes_of) = (*voters, heads.collect());
                let report = FleetReport {
                    connected: 1_000,
                    voters,
                    votes: votes_of,
                    ..FleetReport::default()
                };
                votes.add(&report);
            }
            let backing = votes.acknowledged().into_values().fold(Backing::Nobody, Backing::and);
            backing.suffices(votes.are_many())
        };
        assert!(good(&[(one(1), &[(1, one(1))])]), "the only one, or one of two, is half of them");
        assert!(good(&[(many(2), &[(1, one(1))])]));
        assert!(good(&[(one(1), &[(1, one(1))]), (one(2), &[])]));
        assert!(good(&[(one(1), &[(1, one(1))]), (one(1), &[]), (one(1), &[])]));
        assert!(!good(&[(many(3), &[(1, one(1))])]));
        assert!(!good(&[(many(3), &[])]));
        assert!(!good(&[(many(2), &[(1, one(1))]), (many(2), &[(1, one(1)), (2, one(1))])]));
        assert!(good(&[(many(2), &[(1, one(1))]), (many(2), &[(2, one(2))])]));
        assert!(good(&[(many(3), &[(1, many(2))])]));
    }

    #[test]
    fn a_replica_that_counts_streams_is_taken_at_its_word() {
        let report = |connected, acknowledged| FleetReport {
            connected,
            acknowledged: [(head(1), acknowledged)].into(),
            ..FleetReport::default()
        };
        for (connected, acknowledged, expected) in [(1, 1, true), (3, 1, false), (3, 2, true)] {
            let mut votes = Votes::default();
            votes.add(&report(connected, acknowledged));
            let backing = votes.acknowledged()[&head(1)];
            assert_eq!(backing.suffices(votes.are_many()), expected, "{acknowledged}");
        }
    }
}
