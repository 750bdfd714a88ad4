//! The proxies that have a resource, and those that reject it, by the last answer of each proxy, however many streams it
//! has.

use heliograph_distributor_protocol::ClientState;
use heliograph_snapshot::{Head, ResourceType, Version};
use heliograph_store::{Dispute, FleetReport, Voter, Voters};
use heliograph_views::Quarantined;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The votes of the proxies of a fleet. There are many proxies and few positions, so it can be counted at any time how many
/// have something, without asking each.
#[derive(Debug)]
pub(super) struct Votes<S = ClientState> {
    /// Those with a stream, and so no more than there are streams.
    voters: HashMap<Voter, Connected>,
    everybody: Sum,
    positions: HashMap<u64, (S, Sum)>,
}

#[derive(Debug, Default)]
struct Connected {
    streams: u32,
    /// The position of the stream of it that moved last: its vote.
    position: Option<u64>,
}

/// How many there are, and all their digests combined: of one, that is its own.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    digests: u64,
}

/// The state of a proxy that votes are counted from.
pub(super) trait VoterState {
    fn id(&self) -> u64;
    fn acknowledged(&self) -> Option<Head>;
    fn rejections(&self) -> impl Iterator<Item = Subject>;
    fn vote(&self, subject: &Subject) -> Option<Vote>;

    fn rejects_something(&self) -> bool {
        self.rejections().next().is_some()
    }
}

pub(super) type Subject = (ResourceType, Arc<str>, Version);

/// By position, the disputes in which the voters there are to be named.
type ToName = HashMap<u64, Vec<(usize, Vote)>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    Rejected,
    Accepted,
}

/// Not derived: that would need a default state.
impl<S> Default for Votes<S> {
    fn default() -> Self {
        let (voters, positions) = (HashMap::new(), HashMap::new());
        Self { voters, everybody: Sum::default(), positions }
    }
}

impl<S: VoterState> Votes<S> {
    /// One stream more of this proxy.
    pub(super) fn join(&mut self, voter: Voter) {
        let connected = self.voters.entry(voter).or_default();
        if connected.streams == 0 {
            self.everybody.add(voter);
        }
        connected.streams += 1;
    }

    /// Moves one stream of it to another position. Returns the state that it left if no proxy is there any more, and whether the
    /// proxy rejects something, or did.
    pub(super) fn at(&mut self, voter: Voter, client_state: S) -> (Option<S>, bool) {
        let Some(connected) = self.voters.get_mut(&voter) else {
            return (Some(client_state), false);
        };
        let id = client_state.id();
        let before = connected.position.replace(id);
        if before == Some(id) {
            return (Some(client_state), false);
        }
        let mut is_news = client_state.rejects_something();
        self.positions.entry(id).or_insert_with(|| (client_state, Sum::default())).1.add(voter);
        let left = self.leave_position(voter, before);
        is_news |= left.as_ref().is_some_and(S::rejects_something);
        (left, is_news)
    }

    /// A stream has ended. The proxy's last answer counts while it has others. Returns the state that it left if no
    /// proxy is in it any more.
    pub(super) fn leave(&mut self, voter: Voter) -> Option<S> {
        let connected = self.voters.get_mut(&voter)?;
        connected.streams -= 1;
        if connected.streams > 0 {
            return None;
        }
        let position = self.voters.remove(&voter)?.position;
        self.everybody.remove(voter);
        if self.voters.capacity() > 64.max(8 * self.voters.len()) {
            self.voters.shrink_to_fit();
        }
        self.leave_position(voter, position)
    }

    fn leave_position(&mut self, voter: Voter, position: Option<u64>) -> Option<S> {
        let position = position?;
        let (_, sum) = self.positions.get_mut(&position)?;
        sum.remove(voter);
        if sum.count > 0 {
            return None;
        }
        let (client_state, _) = self.positions.remove(&position)?;
        if self.positions.capacity() > 64.max(8 * self.positions.len()) {
            self.positions.shrink_to_fit();
        }
        Some(client_state)
    }

    pub(super) fn connected(&self) -> Voters {
        self.everybody.into()
    }

    /// How many have acknowledged all of which head, of the newest ones.
    pub(super) fn acknowledged(&self) -> BTreeMap<Head, Voters> {
        let mut sums: BTreeMap<Head, Sum> = BTreeMap::new();
        for (client_state, sum) in self.positions.values() {
            let Some(head) = client_state.acknowledged() else { continue };
            let all = sums.entry(head).or_default();
            all.count += sum.count;
            all.digests ^= sum.digests;
        }
        let newest = sums.into_iter().rev().take(FleetReport::HEADS);
        newest.map(|(head, sum)| (head, sum.into())).collect()
    }

    /// The rejected resources, those of most proxies first, and those that the snapshot has on record: the translator
    /// counts the proxies of all replicas.
    pub(super) fn disputes(&self, on_record: &[Quarantined]) -> Vec<Dispute> {
        let recorded = on_record
            .iter()
            .map(|it| (it.kind, it.rejected.name.clone(), it.rejected.version))
            .take(FleetReport::ON_RECORD);
        let mut subjects: BTreeSet<Subject> = recorded.collect();
        let mut rejected: BTreeMap<Subject, u64> = BTreeMap::new();
        for (client_state, sum) in self.positions.values() {
            for subject in client_state.rejections().filter(|it| !subjects.contains(it)) {
                *rejected.entry(subject).or_default() += sum.count;
            }
        }
        let mut rejected: Vec<_> = rejected.into_iter().collect();
        rejected.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        rejected.truncate(FleetReport::DISPUTES.saturating_sub(subjects.len()));
        subjects.extend(rejected.into_iter().map(|(subject, _)| subject));
        let mut to_name = HashMap::new();
        let subjects = subjects.into_iter().enumerate();
        let mut disputes: Vec<_> =
            subjects.map(|(number, subject)| self.count(number, subject, &mut to_name)).collect();
        self.name_voters(&mut disputes, &to_name);
        disputes
    }

    /// How many reject this, and how many have it. Collects the positions whose voters are so few that they are to be named.
    fn count(&self, number: usize, subject: Subject, to_name: &mut ToName) -> Dispute {
        let voted = |(position, (client_state, sum)): (&u64, &(S, Sum))| {
            client_state.vote(&subject).map(|vote| (*position, vote, sum.count))
        };
        let votes: Vec<_> = self.positions.iter().filter_map(voted).collect();
        let of = |wanted: Vote| {
            votes.iter().filter(|(_, vote, _)| *vote == wanted).map(|(_, _, count)| count).sum()
        };
        let (rejected, accepted) = (of(Vote::Rejected), of(Vote::Accepted));
        for (position, vote, _) in votes {
            let count = match vote {
                Vote::Rejected => rejected,
                Vote::Accepted => accepted,
            };
            if count <= Dispute::VOTERS as u64 {
                to_name.entry(position).or_default().push((number, vote));
            }
        }
        let (kind, name, version) = subject;
        Dispute::new(kind, name, version, rejected, accepted)
    }

    /// Reads the vote of each proxy once, and only while there is a dispute with few voters on one side.
    fn name_voters(&self, disputes: &mut [Dispute], to_name: &ToName) {
        if to_name.is_empty() {
            return;
        }
        for (voter, connected) in &self.voters {
            let given = connected.position.and_then(|position| to_name.get(&position));
            for (number, vote) in given.into_iter().flatten() {
                let Some(dispute) = disputes.get_mut(*number) else { continue };
                match vote {
                    Vote::Rejected => dispute.rejecting.push(*voter),
                    Vote::Accepted => dispute.accepting.push(*voter),
                }
            }
        }
        for dispute in disputes {
            dispute.rejecting.sort_unstable();
            dispute.accepting.sort_unstable();
        }
    }
}

impl VoterState for ClientState {
    fn id(&self) -> u64 {
        self.id()
    }

    fn acknowledged(&self) -> Option<Head> {
        self.acknowledged()
    }

    fn rejections(&self) -> impl Iterator<Item = Subject> {
        let rejections = self.rejections().iter();
        rejections.map(|(kind, resource)| (*kind, resource.name.clone(), resource.version))
    }

    fn vote(&self, (kind, name, version): &Subject) -> Option<Vote> {
        let mut rejections = self.rejections().iter();
        if rejections.any(|(of, it)| of == kind && it.name == *name && it.version == *version) {
            return Some(Vote::Rejected);
        }
        self.holds(*kind, name, *version).then_some(Vote::Accepted)
    }
}

impl Sum {
    fn add(&mut self, voter: Voter) {
        self.count += 1;
        self.digests ^= voter.0;
    }

    fn remove(&mut self, voter: Voter) {
        self.count -= 1;
        self.digests ^= voter.0;
    }
}

impl From<Sum> for Voters {
    fn from(sum: Sum) -> Self {
        Self { count: sum.count, only: (sum.count == 1).then_some(Voter(sum.digests)) }
    }
}

#[cfg(test)]
mod tests;
