//! The votes of a fleet's proxies: a proxy with streams to several replicas has one vote.

use super::RejectedVersion;
use heliograph_snapshot::Head;
use heliograph_store::{Dispute, FleetReport, Voter, Voters};
use std::collections::{BTreeMap, BTreeSet};

/// The votes of the proxies of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Votes {
    /// How many proxies are connected, at most: not streams, of which one proxy may have many.
    pub(crate) connected: u64,
    /// Whether there are so many proxies that one of them is too few to say that a version is good.
    pub(crate) are_many: bool,
    /// The heads of which proxies acknowledged all that they ask for.
    pub(crate) acknowledged: BTreeMap<Head, Backing>,
    /// The newest head that enough proxies have acknowledged to say that it is good, it or a later one.
    pub(crate) confirmed: Option<Head>,
    /// Versions that a proxy rejects.
    pub(crate) disputes: BTreeMap<RejectedVersion, DisputeCount>,
}

/// How many of the proxies that are connected reject something, and how many have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DisputeCount {
    pub(crate) rejected: u64,
    pub(crate) accepted: u64,
}

/// The votes, while the reports of the replicas are walked.
#[derive(Debug, Default)]
pub(super) struct Tally {
    connected: Backing,
    /// How many those are at most: one that is connected to several replicas is counted by each of them.
    at_most: u64,
    acknowledged: BTreeMap<Head, Backing>,
    disputes: BTreeMap<RejectedVersion, (Side, Side)>,
}

/// How many different proxies there are, as far as matters: one, which two replicas may have counted, is not several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Backing {
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

impl Tally {
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
            let disputed = (*kind, name.clone(), *version);
            let (against, in_favour) = self.disputes.entry(disputed).or_default();
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

    pub(super) fn votes(self) -> Votes {
        let Self { connected, at_most, acknowledged, disputes } = self;
        let are_many = connected == Backing::Several && at_most >= FEW;
        let disputes = disputes.into_iter().map(|(disputed, (against, in_favour))| {
            (disputed, DisputeCount::of(&against, &in_favour))
        });
        Votes {
            connected: at_most,
            are_many,
            confirmed: confirmed(&acknowledged, are_many),
            acknowledged,
            disputes: disputes.collect(),
        }
    }
}

impl DisputeCount {
    fn of(against: &Side, in_favour: &Side) -> Self {
        // Who rejects it at one replica and has it at another does not speak for it.
        let named = in_favour.named.difference(&against.named).count() as u64;
        Self {
            rejected: against.unnamed.saturating_add(against.named.len() as u64),
            accepted: in_favour.unnamed.saturating_add(named),
        }
    }
}

impl Backing {
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, one) | (one, Self::Nobody) => one,
            (Self::One(Some(one)), Self::One(Some(other))) if one == other => self,
            _ => Self::Several,
        }
    }

    /// Whether that is enough to say that a version is good.
    pub(crate) fn suffices(self, are_many: bool) -> bool {
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

fn confirmed(acknowledged: &BTreeMap<Head, Backing>, are_many: bool) -> Option<Head> {
    let mut backing = Backing::Nobody;
    let mut newest = acknowledged.iter().rev();
    newest.find_map(|(head, of_head)| {
        backing = backing.and(*of_head);
        backing.suffices(are_many).then_some(*head)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_snapshot::{ResourceType, Version};

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
        let mut tally = Tally::default();
        for dispute in disputes {
            tally.add(&FleetReport { disputes: vec![dispute], ..FleetReport::default() });
        }
        let counts: Vec<_> = tally.votes().disputes.into_values().collect();
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
            let mut tally = Tally::default();
            for (voters, heads) in replicas {
                let heads = heads.iter().map(|(sequence, voters)| (head(*sequence), *voters));
                let (voters, votes_of) = (*voters, heads.collect());
                let report = FleetReport {
                    connected: 1_000,
                    voters,
                    votes: votes_of,
                    ..FleetReport::default()
                };
                tally.add(&report);
            }
            let Votes { acknowledged, are_many, .. } = tally.votes();
            let backing = acknowledged.into_values().fold(Backing::Nobody, Backing::and);
            backing.suffices(are_many)
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
            let mut tally = Tally::default();
            tally.add(&report(connected, acknowledged));
            let votes = tally.votes();
            let backing = votes.acknowledged[&head(1)];
            assert_eq!(backing.suffices(votes.are_many), expected, "{acknowledged}");
        }
    }
}
