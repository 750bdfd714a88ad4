//! What proxies reject is kept from the others.

use super::super::quarantine::Decision;
use super::*;
use crate::feedback::Feedback;
use heliograph_snapshot::{Internal, Version};
use heliograph_store::{AckReport, Dispute, FleetReport, Voter, Voters};
use heliograph_views::{Quarantined, served};

const KIND: ResourceType = ResourceType::Cluster;

/// What one replica says of `edge`: the heads that are acknowledged, and what of a version of `a` is rejected and accepted.
fn says(acknowledged: &[Head], disputes: &[(ResourceType, &str, u64, u64)]) -> AckReport {
    let dispute = |(kind, body, rejected, accepted): &(ResourceType, &str, u64, u64)| {
        Dispute::new(*kind, "a".into(), Version::of(body.as_bytes()), *rejected, *accepted)
    };
    let report = FleetReport {
        connected: 10,
        acknowledged: acknowledged.iter().map(|head| (*head, 2)).collect(),
        disputes: disputes.iter().map(dispute).collect(),
        ..FleetReport::default()
    };
    AckReport { fleets: [(fleet("edge"), report)].into(), ..AckReport::default() }
}

fn receive(state: &mut PublishState, reports: &[AckReport]) {
    state.receive(&Feedback::of(reports.to_vec()));
}

fn decisions(state: &mut PublishState) -> Vec<Decision> {
    let events = state.take_events().into_iter();
    events
        .filter_map(|event| match event {
            PublishEvent::Decided { decision, .. } => Some(decision),
            _ => None,
        })
        .collect()
}

/// The body of `a` that a newcomer is served, and what is on record of it.
fn served_of(snapshot: &Arc<Snapshot>) -> (String, Vec<Quarantined>) {
    let quarantined = Quarantined::all(snapshot);
    let a = served(snapshot, &quarantined).get(KIND, "a").unwrap().body.clone();
    (String::from_utf8(a.to_vec()).unwrap(), quarantined)
}

/// A publish state that has published `a` at 1, which proxies accepted, and then what is given.
fn after(changes: &[Change]) -> PublishState {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1"), set("b", "1")], 1);
    state.complete();
    let first = publish(&mut state, "edge");
    receive(&mut state, &[says(&[first], &[])]);
    for change in changes {
        state.want(&fleet("edge"), vec![change.clone()], 1);
        publish(&mut state, "edge");
    }
    assert!(state.next(NOW).is_none());
    state.take_events();
    state
}

#[test]
fn what_most_reject_is_served_as_it_was_last_accepted_until_it_changes() {
    // What is beside it goes on.
    let mut state = after(&[set("a", "bad"), set("b", "2")]);
    let rejected = says(&[at(1)], &[(KIND, "bad", 2, 1)]);
    receive(&mut state, std::slice::from_ref(&rejected));
    let publication = publication(&mut state);
    assert_eq!(&*publication.cause, "acknowledgements of proxies");
    assert!(!publication.is_step(), "nobody goes back to that");
    let (body, quarantined) = served_of(&publication.snapshot);
    assert_eq!((&*body, quarantined.len()), ("1", 1));
    assert_eq!(publication.snapshot.get(KIND, "a").unwrap().body, "bad");
    assert_eq!(publication.snapshot.get(KIND, "b").unwrap().body, "2");
    succeed(&mut state, "edge", Step::Publish(publication));
    let decision = Decision {
        kind: KIND,
        name: "a".into(),
        version: Version::of(b"bad"),
        rejected: 2,
        accepted: 1,
        lifted: false,
    };
    assert_eq!(decisions(&mut state), [decision]);

    // The same rejection again, by more proxies or by none, changes nothing.
    for reports in [vec![rejected.clone(), rejected], vec![says(&[at(4)], &[])], vec![]] {
        receive(&mut state, &reports);
        assert!(state.next(NOW).is_none());
    }
    // Another change beside it, another one that is no better, and one that is.
    let mut write = |change: Option<Change>, reports: Option<AckReport>| {
        state.want(&fleet("edge"), change.into_iter().collect(), 1);
        reports.iter().for_each(|report| receive(&mut state, std::slice::from_ref(report)));
        let publication = super::publication(&mut state);
        let (body, quarantined) = served_of(&publication.snapshot);
        succeed(&mut state, "edge", Step::Publish(publication));
        (body, quarantined.len())
    };
    assert_eq!(write(Some(set("b", "3")), None), ("1".to_owned(), 1));
    assert_eq!(write(Some(set("a", "worse")), None), ("worse".to_owned(), 0));
    let rejected = says(&[at(5)], &[(KIND, "worse", 1, 0)]);
    assert_eq!(write(None, Some(rejected)), ("1".to_owned(), 1));
    assert_eq!(write(Some(set("a", "good")), None), ("good".to_owned(), 0));
}

#[test]
fn one_odd_proxy_keeps_nothing_from_the_others() {
    let mut state = after(&[set("a", "2")]);
    receive(&mut state, &[says(&[at(2)], &[(KIND, "2", 1, 9)])]);
    assert!(state.next(NOW).is_none());
    // One replica has only the odd proxy; the other counts once it knows of the dispute.
    let odd = says(&[], &[(KIND, "2", 1, 0)]);
    receive(&mut state, std::slice::from_ref(&odd));
    let publication = publication(&mut state);
    assert_eq!(served_of(&publication.snapshot).0, "1");
    succeed(&mut state, "edge", Step::Publish(publication));
    receive(&mut state, &[odd.clone(), says(&[], &[(KIND, "2", 0, 9)])]);
    let publication = super::publication(&mut state);
    let (body, on_record) = served_of(&publication.snapshot);
    assert_eq!((&*body, on_record[0].lifted), ("2", true));
    succeed(&mut state, "edge", Step::Publish(publication));
    let lifted: Vec<_> = decisions(&mut state).iter().map(|decision| decision.lifted).collect();
    assert_eq!(lifted, [false, true]);
    // And no back and forth.
    receive(&mut state, &[odd, says(&[], &[(KIND, "2", 0, 8)])]);
    assert!(state.next(NOW).is_none());
}

#[test]
fn without_a_last_good_there_is_no_quarantine() {
    // Never accepted in another version, gone in between, or of a kind that is never what it was.
    let new = vec![set_of(ResourceType::Listener, "a", "bad")];
    let gone = vec![Change::Remove(KIND, "a".into()), set("a", "bad")];
    let endpoints = ["1", "bad"].map(|body| set_of(ResourceType::Endpoints, "a", body)).into();
    for (kind, changes) in
        [(ResourceType::Listener, new), (KIND, gone), (ResourceType::Endpoints, endpoints)]
    {
        let mut state = after(&changes);
        let heads: Vec<_> = (1..=changes.len() as u64).map(at).collect();
        receive(&mut state, &[says(&heads, &[(kind, "bad", 5, 0)])]);
        assert!(state.next(NOW).is_none(), "{kind}");
    }
}

#[test]
fn the_last_good_is_what_was_accepted_and_not_what_was_published() {
    // No proxy accepted 2, and few accepted 3, which the others reject.
    let mut state = after(&[set("a", "2"), set("a", "3")]);
    receive(&mut state, &[says(&[at(3)], &[])]);
    receive(&mut state, &[says(&[at(3)], &[(KIND, "3", 5, 1)])]);
    assert_eq!(served_of(&publication(&mut state).snapshot).0, "1");
}

#[test]
fn one_of_many_makes_nothing_the_last_good() {
    let says = |acknowledged: Head, by: u64, rejecting: u64| {
        let mut report = says(&[], &[(KIND, "3", rejecting, 0)]);
        for fleet in report.fleets.values_mut() {
            // As many streams as it likes.
            (fleet.connected, fleet.acknowledged) = (1_000, [(acknowledged, 900)].into());
            fleet.voters = Voters { count: 5, only: None };
            let only = (by == 1).then_some(Voter(7));
            fleet.votes = [(acknowledged, Voters { count: by, only })].into();
        }
        report
    };
    for (by, expected) in [(1, "1"), (2, "2")] {
        let mut state = after(&[set("a", "2")]);
        // On two replicas, too.
        receive(&mut state, &[says(at(2), by, 0), says(at(2), by, 0)]);
        state.want(&fleet("edge"), vec![set("a", "3")], 1);
        publish(&mut state, "edge");
        receive(&mut state, &[says(at(2), by, 4)]);
        assert_eq!(served_of(&publication(&mut state).snapshot).0, expected);
    }
}

/// A proxy that has streams to every replica, where few others are.
#[test]
fn one_proxy_on_all_replicas_keeps_nothing_from_the_others() {
    let voters = |digests: &[u64]| -> Vec<_> { digests.iter().copied().map(Voter).collect() };
    let says = |rejecting: &[u64], accepting: &[u64]| {
        let (rejected, accepted) = (rejecting.len() as u64, accepting.len() as u64);
        let mut report = says(&[at(2)], &[(KIND, "2", rejected, accepted)]);
        for dispute in report.fleets.values_mut().flat_map(|fleet| &mut fleet.disputes) {
            (dispute.rejecting, dispute.accepting) = (voters(rejecting), voters(accepting));
        }
        report
    };
    let mut state = after(&[set("a", "2")]);
    receive(&mut state, &[says(&[7], &[1]), says(&[7], &[2]), says(&[7], &[])]);
    assert!(state.next(NOW).is_none());
    // Those of as many proxies as accept it count.
    receive(&mut state, &[says(&[7], &[1]), says(&[8], &[2]), says(&[7, 8], &[])]);
    assert_eq!(served_of(&publication(&mut state).snapshot).0, "1");
}

/// Endpoints change all the time, and reports come late.
#[test]
fn a_storm_of_endpoints_leaves_the_last_good_alone() {
    let storm = |from: u64| {
        (from..from + 300).map(|n| {
            let body: &'static str = Box::leak(n.to_string().into_boxed_str());
            set_of(ResourceType::Endpoints, "a", body)
        })
    };
    let changes: Vec<_> = storm(0).chain([set("a", "bad")]).chain(storm(300)).collect();
    let mut state = after(&changes);
    receive(&mut state, &[says(&[at(200)], &[(KIND, "bad", 5, 0)])]);
    let publication = publication(&mut state);
    assert_eq!(served_of(&publication.snapshot).0, "1");
    assert_eq!(publication.snapshot.get(ResourceType::Endpoints, "a").unwrap().body, "599");
}

#[test]
fn the_next_term_goes_on_with_it() {
    let mut state = after(&[set("a", "bad")]);
    receive(&mut state, &[says(&[at(1)], &[(KIND, "bad", 2, 0)])]);
    let left = publication(&mut state).snapshot;
    let record = record(&left);
    let mut next = claimed(&[&record]);
    next.want(&fleet("edge"), vec![set("a", "bad"), set("b", "1")], 1);
    next.complete();
    let step = step(&mut next);
    assert!(matches!(step, Step::LoadHeld { .. }), "{step:?}");
    let loaded = Loaded { snapshot: left.clone(), unopened: vec![] };
    next.done(&fleet("edge"), step, Ok(Reply::Loaded(loaded))).unwrap();
    assert!(next.next(NOW).is_none(), "it is what it should be");
    // The last good has been accepted, by who was served it, and is so for the next that is bad.
    receive(&mut next, &[says(&[left.head], &[])]);
    next.want(&fleet("edge"), vec![set("a", "worse")], 1);
    publish(&mut next, "edge");
    receive(&mut next, &[says(&[left.head], &[(KIND, "worse", 2, 0)])]);
    assert_eq!(served_of(&publication(&mut next).snapshot).0, "1");
}

#[test]
fn a_fleet_without_quarantine_has_no_trace_of_it() {
    let mut state = after(&[]);
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    let publication = publication(&mut state);
    assert!(publication.snapshot.internal(Internal::Quarantine).is_empty());
}
