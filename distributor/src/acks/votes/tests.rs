use super::*;
use heliograph_snapshot::Resource;

/// The state of a proxy, in a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TestState {
    id: u64,
    acknowledged: Option<Head>,
    rejected: Vec<Subject>,
    accepted: Vec<Subject>,
}

impl VoterState for TestState {
    fn id(&self) -> u64 {
        self.id
    }

    fn acknowledged(&self) -> Option<Head> {
        self.acknowledged
    }

    fn rejections(&self) -> impl Iterator<Item = Subject> {
        self.rejected.iter().cloned()
    }

    fn vote(&self, subject: &Subject) -> Option<Vote> {
        let rejected = self.rejected.contains(subject).then_some(Vote::Rejected);
        rejected.or_else(|| self.accepted.contains(subject).then_some(Vote::Accepted))
    }
}

fn subject(number: usize) -> Subject {
    (ResourceType::Route, format!("table-{number:02}").into(), Version::of(b"new"))
}

fn head(sequence: u64) -> Head {
    Head { epoch: 0, fence: 1, sequence }
}

fn start() -> TestState {
    TestState { id: 1, ..TestState::default() }
}

fn accepting() -> TestState {
    TestState {
        id: 2,
        accepted: vec![subject(0)],
        acknowledged: Some(head(2)),
        ..TestState::default()
    }
}

fn rejecting() -> TestState {
    TestState {
        id: 3,
        rejected: vec![subject(0)],
        acknowledged: Some(head(1)),
        ..TestState::default()
    }
}

fn counts(votes: &Votes<TestState>) -> (u64, u64) {
    match &votes.disputes(&[])[..] {
        [] => (0, 0),
        [dispute] => (dispute.rejected, dispute.accepted),
        more => panic!("{more:?}"),
    }
}

fn only(voter: u64) -> Voters {
    Voters { count: 1, only: Some(Voter(voter)) }
}

#[test]
fn a_proxy_has_one_vote_however_many_streams_it_has() {
    let mut votes = Votes::default();
    for _ in 0..10 {
        votes.join(Voter(7));
        votes.at(Voter(7), start());
        votes.at(Voter(7), rejecting());
    }
    for voter in 1..=3 {
        votes.join(Voter(voter));
        votes.at(Voter(voter), accepting());
    }
    assert_eq!(counts(&votes), (1, 3));
    assert_eq!(votes.connected(), Voters { count: 4, only: None });
    let [dispute] = &votes.disputes(&[])[..] else { panic!("one") };
    assert_eq!(dispute.rejecting, [Voter(7)]);
    assert_eq!(dispute.accepting, [1, 2, 3].map(Voter));
    let expected = [(head(1), only(7)), (head(2), Voters { count: 3, only: None })];
    assert_eq!(votes.acknowledged(), expected.into());
    // Each of the three has as much of a say.
    votes.at(Voter(1), rejecting());
    votes.at(Voter(2), rejecting());
    assert_eq!(counts(&votes), (3, 1));
    assert_eq!(votes.acknowledged()[&head(2)], only(3));
}

#[test]
fn what_a_proxy_answered_last_counts_until_its_last_stream_ends() {
    let mut votes = Votes::default();
    votes.join(Voter(1));
    assert_eq!(votes.at(Voter(1), rejecting()), (None, true));
    votes.join(Voter(1));
    assert_eq!(votes.at(Voter(1), accepting()), (Some(rejecting()), true), "what it rejected");
    assert_eq!(counts(&votes), (0, 0), "nobody rejects it");
    assert_eq!(votes.acknowledged(), [(head(2), only(1))].into());
    assert_eq!(votes.at(Voter(1), rejecting()), (Some(accepting()), true));
    assert_eq!(counts(&votes), (1, 0));
    assert_eq!(votes.leave(Voter(1)), None);
    assert_eq!(counts(&votes), (1, 0));
    assert_eq!(votes.leave(Voter(1)), Some(rejecting()));
    assert_eq!(counts(&votes), (0, 0));
    assert_eq!(votes.connected(), Voters::default());
    assert!(votes.voters.is_empty() && votes.positions.is_empty());
    assert_eq!(votes.leave(Voter(1)), None, "there is none");
}

#[test]
fn what_is_kept_follows_the_proxies_that_are_there() {
    let mut votes = Votes::default();
    for voter in 0..10_000 {
        votes.join(Voter(voter));
        votes.at(Voter(voter), TestState { id: voter, ..start() });
    }
    for voter in 1..10_000 {
        votes.leave(Voter(voter));
    }
    assert_eq!((votes.voters.len(), votes.positions.len()), (1, 1));
    assert!(votes.voters.capacity() <= 64 && votes.positions.capacity() <= 64);
    assert_eq!(votes.connected(), only(0));
}

#[test]
fn few_are_named_and_many_are_counted() {
    let mut votes = Votes::default();
    let many = Dispute::VOTERS as u64 + 1;
    for voter in 0..many {
        votes.join(Voter(voter));
        votes.at(Voter(voter), accepting());
    }
    votes.join(Voter(many));
    votes.at(Voter(many), rejecting());
    let [dispute] = &votes.disputes(&[])[..] else { panic!("one") };
    assert_eq!((dispute.rejected, dispute.accepted), (1, many));
    assert_eq!((&dispute.rejecting[..], &dispute.accepting[..]), (&[Voter(many)][..], &[][..]));
    votes.leave(Voter(0));
    let [dispute] = &votes.disputes(&[])[..] else { panic!("one") };
    assert_eq!(dispute.accepting.len(), Dispute::VOTERS);
}

/// One that rejects everything takes no room from what others reject.
#[test]
fn what_most_reject_is_told_first() {
    let mut votes = Votes::default();
    let everything = (0..2 * FleetReport::DISPUTES).map(subject).collect();
    votes.join(Voter(7));
    votes.at(Voter(7), TestState { id: 9, rejected: everything, ..TestState::default() });
    let last = TestState { id: 10, rejected: vec![subject(90)], ..TestState::default() };
    for voter in 1..=2 {
        votes.join(Voter(voter));
        votes.at(Voter(voter), last.clone());
    }
    let disputes = votes.disputes(&[]);
    assert_eq!(disputes.len(), FleetReport::DISPUTES);
    let found = disputes.iter().find(|it| it.name == subject(90).1).unwrap();
    assert_eq!((found.rejected, &found.rejecting[..]), (2, &[1, 2].map(Voter)[..]));
    // What is on record is counted wherever it is, by all.
    let [bad, good] = [&b"new"[..], b"old"]
        .map(|body| Arc::new(Resource::new("on-record", bytes::Bytes::from_static(body))));
    let entry = Quarantined { kind: ResourceType::Route, rejected: bad, good, lifted: true };
    let disputes = votes.disputes(std::slice::from_ref(&entry));
    assert_eq!(disputes.len(), FleetReport::DISPUTES);
    assert!(disputes.iter().any(|it| &*it.name == "on-record" && it.rejected == 0));
    assert!(disputes.iter().any(|it| it.name == subject(90).1));
}

/// Each entry was one once, and more come.
#[test]
fn what_is_on_record_leaves_room_for_what_is_not() {
    let mut votes = Votes::default();
    votes.join(Voter(1));
    votes.at(Voter(1), rejecting());
    let entry = |number: usize| {
        let [rejected, good] = [&b"new"[..], b"old"].map(|body| {
            let name = format!("on-record-{number:02}");
            Arc::new(Resource::new(name, bytes::Bytes::from_static(body)))
        });
        Quarantined { kind: ResourceType::Route, rejected, good, lifted: false }
    };
    let entries: Vec<_> = (0..64).map(entry).collect();
    for count in [1, 8, 16, 17, 64] {
        let disputes = votes.disputes(&entries[..count]);
        let is_there = |name: &str| disputes.iter().any(|it| &*it.name == name);
        assert!(is_there(&subject(0).1), "{count} on record");
        // All replicas count the same ones.
        let counted = entries[..count].iter().filter(|it| is_there(&it.rejected.name)).count();
        assert_eq!(counted, count.min(16));
        assert!(entries[..count.min(16)].iter().all(|it| is_there(&it.rejected.name)));
    }
    let everything = (0..100).map(subject).collect();
    votes.at(Voter(1), TestState { id: 4, rejected: everything, ..TestState::default() });
    for count in [0, 1, 64] {
        assert_eq!(votes.disputes(&entries[..count]).len(), FleetReport::DISPUTES);
    }
}
