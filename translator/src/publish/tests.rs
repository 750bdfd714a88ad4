//! The decisions of the publish state, without a store.

mod full;
mod outages;
mod oversized;
mod pins;
mod preserved;
mod quarantine;
mod retention;

use super::events::PublishEvent;
use super::publish_state::{Found, NextAction, PublishState, Reply, Survey};
use super::step::Step;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::{
    ClaimedTerm, Inspection, Loaded, PinOrder, PinState, Publication, Record, State, StoreError,
    Term,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;
const TERM: Term = Term { epoch: 0, fence: 7 };

fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

fn at(sequence: u64) -> Head {
    Head { epoch: TERM.epoch, fence: TERM.fence, sequence }
}

fn earlier(sequence: u64) -> Head {
    Head { epoch: 0, fence: 1, sequence }
}

fn set_of(kind: ResourceType, name: &str, body: &'static str) -> Change {
    Change::Set(kind, Arc::new(Resource::new(name, body.as_bytes().into())))
}

fn set(name: &str, body: &'static str) -> Change {
    set_of(ResourceType::Cluster, name, body)
}

fn snapshot(name: &str, head: Head, changes: Vec<Change>) -> Arc<Snapshot> {
    Arc::new(Snapshot::empty(fleet(name)).with(head, changes))
}

fn record(snapshot: &Snapshot) -> Arc<Record> {
    Arc::new(Record {
        fleet: snapshot.fleet.clone(),
        head: snapshot.head,
        state: State::Live(snapshot.roots()),
        time: NOW,
        cause: "told by a test".into(),
        pin: PinState::default(),
        bytes: 0,
        partly_sealed: std::collections::BTreeSet::new(),
        has_unknown_types: false,
    })
}

fn pin(number: u64, record: &Arc<Record>) -> PinOrder {
    PinOrder { at: Some(record.clone()), reason: "bad release".into(), ..release(number) }
}

fn release(number: u64) -> PinOrder {
    PinOrder { number, at: None, time: NOW, by: "ann".into(), reason: "".into() }
}

fn lost(lost: usize) -> Found {
    Found { lost, ..Found::default() }
}

fn unavailable() -> Result<Reply, StoreError> {
    Err(StoreError::Unavailable("no answer".to_owned()))
}

/// A publish state whose store held `records`.
fn claimed(records: &[&Arc<Record>]) -> PublishState {
    let mut state = PublishState::new(Some(TERM.fence));
    assert_eq!(state.survey(), Survey::Claim(Some(7)));
    assert_eq!(state.claimed(claim(records)).unwrap(), Found::default());
    assert_eq!(state.take_events(), [PublishEvent::Claimed { term: TERM, fleets: records.len() }]);
    state
}

fn claim(records: &[&Arc<Record>]) -> ClaimedTerm {
    let records = records.iter().map(|record| (record.fleet.clone(), (*record).clone()));
    ClaimedTerm { term: TERM, records: records.collect(), orders: BTreeMap::new() }
}

fn step(state: &mut PublishState) -> Step {
    state.next(NOW).expect("there is a step").1
}

#[track_caller]
fn publication(state: &mut PublishState) -> Publication {
    match step(state) {
        Step::Publish(publication) => publication,
        other => panic!("{other:?}"),
    }
}

fn succeed(state: &mut PublishState, name: &str, step: Step) {
    assert_eq!(state.done(&fleet(name), step, Ok(Reply::Done)), Ok(NextAction::GoOn));
}

/// Publishes what is to be published of a fleet, and returns the head.
#[track_caller]
fn publish(state: &mut PublishState, name: &str) -> Head {
    let publication = publication(state);
    let head = publication.snapshot.head;
    succeed(state, name, Step::Publish(publication));
    state.take_events();
    head
}

fn inspect(
    state: &mut PublishState,
    heads: &[(&str, Head)],
    orders: &[(&str, PinOrder)],
) -> Result<Found, StoreError> {
    assert!(matches!(state.survey(), Survey::Inspect(_)));
    let heads = heads.iter().map(|(name, head)| (fleet(name), *head)).collect();
    let orders = orders.iter().map(|(name, order)| (fleet(name), order.clone())).collect();
    state.inspected(Inspection { term: TERM, heads, orders })
}

#[test]
fn changes_merge_until_the_store_is_claimed() {
    let mut state = PublishState::new(None);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    state.want(&fleet("edge"), vec![set("b", "1")], 1);
    assert!(state.next(NOW).is_none());
    assert_eq!(state.survey(), Survey::Claim(None));
    state.claimed(claim(&[])).unwrap();
    assert!(matches!(&state.take_events()[..], [PublishEvent::Claimed { .. }]));
    state.complete();
    assert!(!state.is_out());
    let publication = publication(&mut state);
    assert_eq!(publication.snapshot.tree(ResourceType::Cluster).len(), 2);
    assert_eq!(publication.snapshot.head, at(1));
    assert_eq!((publication.expected, &*publication.cause), (None, "first translation"));
    succeed(&mut state, "edge", Step::Publish(publication));
    let event = PublishEvent::Stored { fleet: fleet("edge"), head: at(1), written: true };
    assert_eq!(state.take_events(), [event]);
    assert!(state.is_out() && state.pending() == 1, "until it has been looked at");
    assert!(state.next(NOW).is_none() && state.pending() == 0);
}

/// A caller that waits until everything is published is notified of the claim, also without any publication.
#[test]
fn without_fleets_all_is_out_with_the_claim() {
    let mut state = PublishState::new(None);
    state.complete();
    assert!(!state.is_out() && state.take_events().is_empty());
    state.claimed(claim(&[])).unwrap();
    assert_eq!(state.take_events().len(), 1);
    assert!(state.is_out());
}

#[test]
fn what_is_unchanged_since_the_last_term_is_found_without_a_step() {
    let before = snapshot("edge", earlier(4), vec![set("a", "1"), set("b", "1")]);
    let mut state = claimed(&[&record(&before)]);
    state.want(&fleet("edge"), vec![set("b", "1"), set("a", "1")], 2);
    state.complete();
    assert!(state.next(NOW).is_none());
    let event = PublishEvent::Stored { fleet: fleet("edge"), head: earlier(4), written: false };
    assert_eq!(state.take_events(), [event]);
    assert!(state.is_out());
    // From here on only what differs is written.
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    let publication = publication(&mut state);
    assert_eq!((publication.snapshot.head, publication.expected), (at(5), Some(earlier(4))));
    assert_eq!(&*publication.cause, "1 object changed");
    assert!(publication.held.unwrap().same_content(&before));
}

#[test]
fn what_differs_since_the_last_term_is_read_first() {
    let before = snapshot("edge", earlier(4), vec![set("a", "1")]);
    for damaged in [false, true] {
        let mut state = claimed(&[&record(&before)]);
        state.want(&fleet("edge"), vec![set("a", "2")], 1);
        let load = step(&mut state);
        let Step::LoadHeld { record, known } = &load else { panic!("{load:?}") };
        assert_eq!((record.head, known.tree(ResourceType::Cluster).len()), (earlier(4), 1));
        let answer = if damaged {
            Err(StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() })
        } else {
            Ok(Reply::Loaded(Loaded { snapshot: before.clone(), unopened: vec![] }))
        };
        assert_eq!(state.done(&fleet("edge"), load, answer), Ok(NextAction::GoOn));
        let publication = publication(&mut state);
        assert_eq!(publication.expected, Some(earlier(4)));
        assert_eq!(publication.held.is_none(), damaged, "what is damaged is written whole");
    }
}

#[test]
fn a_snapshot_with_secrets_left_out_is_not_taken_for_what_is_there() {
    let before = snapshot("edge", earlier(4), vec![set("a", "1")]);
    let mut state = claimed(&[&record(&before)]);
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    let load = step(&mut state);
    let loaded = Loaded { snapshot: before, unopened: vec!["tls".into()] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert!(publication(&mut state).held.is_none());
}

#[test]
fn an_unknown_outcome_is_cleared_before_anything_newer_goes() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    let first = publication(&mut state);
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    state.want(&fleet("edge"), vec![set("b", "1")], 2);
    assert!(state.next(NOW).is_none(), "one step at a time");
    let lost = state.done(&fleet("edge"), Step::Publish(first.clone()), unavailable());
    assert_eq!(lost, Ok(NextAction::Rest(1)));
    assert!(state.next(NOW).is_none(), "it rests");
    state.rested(&fleet("edge"));
    let again = match state.next(NOW + std::time::Duration::from_secs(9)) {
        Some((_, Step::Publish(again))) => again,
        other => panic!("{other:?}"),
    };
    assert_eq!(again.record(), first.record(), "the same head, time and content");
    succeed(&mut state, "edge", Step::Publish(again));
    let next = publication(&mut state);
    assert_eq!((next.snapshot.head, next.expected), (at(2), Some(at(1))));
    assert_eq!(next.snapshot.tree(ResourceType::Cluster).len(), 2);
    assert_eq!(&*next.cause, "3 objects changed");
}

#[test]
fn a_fleet_that_rests_holds_up_no_other() {
    let mut state = claimed(&[]);
    state.want(&fleet("a"), vec![], 1);
    state.want(&fleet("b"), vec![], 1);
    let (first, step) = state.next(NOW).unwrap();
    assert_eq!(state.done(&first, step, unavailable()), Ok(NextAction::Rest(1)));
    let (second, step) = state.next(NOW).unwrap();
    assert_ne!(first, second);
    assert_eq!(state.done(&second, step, Ok(Reply::Done)), Ok(NextAction::GoOn));
    assert!(state.next(NOW).is_none());
    assert_eq!(state.pending(), 1);
}

#[test]
fn a_fleet_that_changes_all_the_time_takes_its_turn() {
    let mut state = claimed(&[]);
    let mut served = Vec::new();
    for name in ["a", "b", "c"] {
        state.want(&fleet(name), vec![], 1);
    }
    for body in ["1", "2", "3"] {
        let (name, step) = state.next(NOW).unwrap();
        state.done(&name, step, Ok(Reply::Done)).unwrap();
        state.want(&fleet("a"), vec![set("hot", body)], 1);
        served.push(name);
    }
    assert_eq!(served, ["a", "b", "c"].map(fleet));
}

#[test]
fn a_fleet_of_an_earlier_term_goes_once_all_have_been_told() {
    let gone = record(&snapshot("gone", earlier(4), vec![set("a", "1")]));
    let mut state = claimed(&[&gone]);
    assert!(state.next(NOW).is_none(), "it may yet be told");
    state.complete();
    let step = step(&mut state);
    let Step::Retire(retirement) = &step else { panic!("{step:?}") };
    assert_eq!((retirement.tombstone, retirement.expected), (at(5), Some(earlier(4))));
    succeed(&mut state, "gone", step);
    assert!(matches!(&state.take_events()[..], [PublishEvent::Retired { .. }]));
    assert!(state.next(NOW).is_none());
    // It comes back above its tombstone.
    state.want(&fleet("gone"), vec![], 1);
    let back = publication(&mut state);
    assert_eq!((back.snapshot.head, back.expected), (at(6), Some(at(5))));
}

#[test]
fn a_store_that_is_claimed_late_is_cleared_too() {
    let gone = record(&snapshot("gone", earlier(4), vec![set("a", "1")]));
    let mut state = PublishState::new(Some(TERM.fence));
    state.complete();
    state.survey();
    state.claimed(claim(&[&gone])).unwrap();
    assert!(matches!(step(&mut state), Step::Retire(_)));
}

#[test]
fn a_fleet_that_comes_and_goes_unseen_was_never_there() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![], 1);
    state.unwant(&fleet("edge"));
    assert!(state.next(NOW).is_none());
}

#[test]
fn a_lost_head_is_published_again_in_full_and_above_all_that_was_used() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    state.want(&fleet("gone"), vec![], 1);
    publish(&mut state, "edge");
    publish(&mut state, "gone");
    state.unwant(&fleet("gone"));
    let step_gone = step(&mut state);
    succeed(&mut state, "gone", step_gone);
    assert_eq!(inspect(&mut state, &[("edge", at(1)), ("gone", at(2))], &[]), Ok(Found::default()));
    assert!(state.next(NOW).is_none(), "all is as it was written");
    assert_eq!(inspect(&mut state, &[], &[]), Ok(lost(2)));
    let again = publication(&mut state);
    assert_eq!((again.snapshot.head, again.expected), (at(2), None));
    assert!(again.held.is_none(), "nothing that was uploaded is relied on");
    assert_eq!(&*again.cause, "repair: the store had lost it");
    let tombstone = step(&mut state);
    let Step::Retire(tombstone) = tombstone else { panic!("{tombstone:?}") };
    assert_eq!((tombstone.tombstone, tombstone.expected), (at(3), None));
}

#[test]
fn a_head_that_went_back_or_is_not_ours_is_written_over() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    publish(&mut state, "edge");
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert_eq!(publish(&mut state, "edge"), at(2));
    assert_eq!(inspect(&mut state, &[("edge", at(1))], &[]), Ok(lost(1)));
    let again = publication(&mut state);
    assert_eq!((again.snapshot.head, again.expected), (at(3), Some(at(1))));
    succeed(&mut state, "edge", Step::Publish(again));
    assert_eq!(inspect(&mut state, &[("edge", at(9))], &[]), Ok(lost(1)));
    let above = publication(&mut state);
    assert_eq!((above.snapshot.head, above.expected), (at(10), Some(at(9))));
}

#[test]
fn a_refused_write_waits_for_a_look() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    let first = publication(&mut state);
    // A look that began before the write says nothing of what came after.
    state.survey();
    let conflict =
        StoreError::Conflict { fleet: fleet("edge"), expected: None, found: Some(at(5)) };
    let next_action = state.done(&fleet("edge"), Step::Publish(first), Err(conflict));
    assert_eq!(next_action, Ok(NextAction::Survey));
    let stale = Inspection { term: TERM, ..Inspection::default() };
    assert_eq!(state.inspected(stale), Ok(Found::default()));
    assert!(state.next(NOW).is_none() && state.pending() == 1);
    assert_eq!(inspect(&mut state, &[("edge", at(5))], &[]), Ok(lost(1)));
    let second = publication(&mut state);
    assert_eq!((second.snapshot.head, second.expected), (at(6), Some(at(5))));
}

#[test]
fn a_look_that_overlaps_a_write_is_not_compared_with_it() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    state.survey();
    publish(&mut state, "edge");
    let before_the_write = Inspection { term: TERM, ..Inspection::default() };
    assert_eq!(state.inspected(before_the_write), Ok(Found::default()));
    assert!(state.next(NOW).is_none());
}

#[test]
fn what_a_late_writer_left_is_retired() {
    let mut state = claimed(&[]);
    state.complete();
    let found = inspect(&mut state, &[("ghost", earlier(3))], &[]);
    assert_eq!(found, Ok(Found { unknown: 1, ..Found::default() }));
    let step = step(&mut state);
    let Step::Retire(retirement) = step else { panic!("{step:?}") };
    assert_eq!((retirement.tombstone, retirement.expected), (at(4), Some(earlier(3))));
}

#[test]
fn a_newer_term_is_the_end() {
    let theirs = Term { epoch: 0, fence: 8 };
    let fenced = StoreError::Fenced { ours: TERM, theirs };
    let mut state = claimed(&[]);
    state.survey();
    let newer = Inspection { term: theirs, ..Inspection::default() };
    assert_eq!(state.inspected(newer), Err(fenced.clone()));
    let mut state = claimed(&[]);
    let head = Head { epoch: 0, fence: 8, sequence: 1 };
    assert_eq!(inspect(&mut state, &[("edge", head)], &[]), Err(fenced.clone()));
    state.want(&fleet("edge"), vec![], 1);
    let step = step(&mut state);
    assert_eq!(state.done(&fleet("edge"), step, Err(fenced.clone())), Err(fenced));
}

#[test]
fn a_store_that_lost_the_term_is_claimed_again_before_it_is_written_to() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    publish(&mut state, "edge");
    state.survey();
    assert_eq!(state.inspected(Inspection::default()), Ok(Found::default()));
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert!(state.next(NOW).is_none());
    assert_eq!(state.survey(), Survey::Claim(Some(7)), "with the same token");
    assert_eq!(state.claimed(claim(&[])), Ok(lost(1)));
    assert_eq!(publish(&mut state, "edge"), at(2));
}

#[test]
fn an_epoch_that_the_store_lost_is_kept() {
    let ours = Term { epoch: 3, fence: 7 };
    let mut state = PublishState::new(Some(7));
    state.claimed(ClaimedTerm { term: ours, ..claim(&[]) }).unwrap();
    state.survey();
    assert_eq!(state.inspected(Inspection::default()), Ok(Found::default()));
    state.survey();
    state.claimed(claim(&[])).unwrap();
    state.want(&fleet("edge"), vec![], 1);
    let head = publication(&mut state).snapshot.head;
    assert_eq!(Term::from(head), ours, "readers do not go back");
    state.survey();
    state.inspected(Inspection { term: TERM, ..Inspection::default() }).unwrap();
    assert!(state.has_claim(), "what the store says to a claim is not asked for again and again");
}

#[test]
fn a_fleet_is_cleaned_after_a_publish_and_never_beside_one() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    publish(&mut state, "edge");
    let (name, clean) = state.next_to_clean().unwrap();
    assert!(matches!(&clean, Step::Clean(newest) if newest.head == at(1)));
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert!(state.next(NOW).is_none(), "not beside");
    assert_eq!(state.done(&name, clean, unavailable()), Ok(NextAction::GoOn));
    let publication = publication(&mut state);
    state.clean_all(false);
    assert!(state.next_to_clean().is_none(), "not beside");
    succeed(&mut state, "edge", Step::Publish(publication));
    assert!(
        matches!(state.next_to_clean(), Some((_, Step::Clean(newest))) if newest.head == at(2))
    );
}

#[test]
fn a_fleet_that_changes_all_the_time_is_cleaned_all_the_same() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![set("a", "0")], 1);
    publish(&mut state, "edge");
    for body in ["1", "2", "3"] {
        state.want(&fleet("edge"), vec![set("a", body)], 1);
        match state.next(NOW).unwrap() {
            (_, publish @ Step::Publish(_)) => {
                state.clean_all(false);
                assert!(state.next_to_clean().is_none(), "not beside");
                succeed(&mut state, "edge", publish);
            }
            (_, clean @ Step::Clean(_)) => {
                assert_eq!(body, "3", "a publish does not wait for what is not overdue");
                succeed(&mut state, "edge", clean);
                assert_eq!(publish(&mut state, "edge"), at(4), "then it goes on");
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("it was never cleaned");
}

#[test]
fn what_nobody_here_knows_of_is_not_taken_for_what_is_wanted() {
    let held = snapshot("edge", earlier(4), vec![set("a", "1")]);
    let newer = Arc::new(Record { has_unknown_types: true, ..(*record(&held)).clone() });
    let mut state = claimed(&[&newer]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    let load = step(&mut state);
    assert!(matches!(load, Step::LoadHeld { .. }));
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(5));
    assert!(state.next(NOW).is_none(), "it is known now");
}

#[test]
fn what_is_damaged_is_published_again_in_full() {
    let mut state = claimed(&[]);
    assert!(!state.damaged(&fleet("edge"), at(1)), "there is none");
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    assert!(!state.damaged(&fleet("edge"), at(1)), "it was never published");
    let first = publication(&mut state);
    assert!(!state.damaged(&fleet("edge"), at(1)), "a write may repair it");
    succeed(&mut state, "edge", Step::Publish(first));
    assert!(state.next(NOW).is_none());

    assert!(state.damaged(&fleet("edge"), at(1)));
    assert_eq!(state.pending(), 1);
    let again = publication(&mut state);
    assert_eq!((again.snapshot.head, again.expected), (at(2), Some(at(1))));
    assert!(again.held.is_none(), "nothing that is there is relied on");
    assert_eq!(&*again.cause, "repair: the content of the store was damaged");
    succeed(&mut state, "edge", Step::Publish(again));
    assert!(!state.damaged(&fleet("edge"), at(1)), "that was repaired");

    state.unwant(&fleet("edge"));
    let retire = step(&mut state);
    succeed(&mut state, "edge", retire);
    assert!(!state.damaged(&fleet("edge"), at(2)), "it is no more");
}
