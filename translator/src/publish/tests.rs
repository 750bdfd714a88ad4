//! What the ledger decides, without a store.

mod full;
mod notes;
mod oversized;
mod pins;
mod quarantine;
mod retention;
mod spared;

use super::ledger::{Found, Ledger, Reply, Survey, Verdict};
use super::news::News;
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

/// A ledger whose store held `records`.
fn claimed(records: &[&Arc<Record>]) -> Ledger {
    let mut ledger = Ledger::new(Some(TERM.fence));
    assert_eq!(ledger.survey(), Survey::Claim(Some(7)));
    assert_eq!(ledger.claimed(claim(records)).unwrap(), Found::default());
    assert_eq!(ledger.take_news(), [News::Claimed { term: TERM, fleets: records.len() }]);
    ledger
}

fn claim(records: &[&Arc<Record>]) -> ClaimedTerm {
    let records = records.iter().map(|record| (record.fleet.clone(), (*record).clone()));
    ClaimedTerm { term: TERM, records: records.collect(), orders: BTreeMap::new() }
}

fn step(ledger: &mut Ledger) -> Step {
    ledger.next(NOW).expect("there is a step").1
}

#[track_caller]
fn publication(ledger: &mut Ledger) -> Publication {
    match step(ledger) {
        Step::Publish(publication) => publication,
        other => panic!("{other:?}"),
    }
}

fn succeed(ledger: &mut Ledger, name: &str, step: Step) {
    assert_eq!(ledger.done(&fleet(name), step, Ok(Reply::Done)), Ok(Verdict::GoOn));
}

/// Publishes what is to be published of a fleet, and returns the head.
#[track_caller]
fn publish(ledger: &mut Ledger, name: &str) -> Head {
    let publication = publication(ledger);
    let head = publication.snapshot.head;
    succeed(ledger, name, Step::Publish(publication));
    ledger.take_news();
    head
}

fn inspect(
    ledger: &mut Ledger,
    heads: &[(&str, Head)],
    orders: &[(&str, PinOrder)],
) -> Result<Found, StoreError> {
    assert!(matches!(ledger.survey(), Survey::Inspect(_)));
    let heads = heads.iter().map(|(name, head)| (fleet(name), *head)).collect();
    let orders = orders.iter().map(|(name, order)| (fleet(name), order.clone())).collect();
    ledger.inspected(Inspection { term: TERM, heads, orders })
}

#[test]
fn changes_merge_until_the_store_is_claimed() {
    let mut ledger = Ledger::new(None);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    ledger.want(&fleet("edge"), vec![set("b", "1")], 1);
    assert!(ledger.next(NOW).is_none());
    assert_eq!(ledger.survey(), Survey::Claim(None));
    ledger.claimed(claim(&[])).unwrap();
    assert!(matches!(&ledger.take_news()[..], [News::Claimed { .. }]));
    ledger.complete();
    assert!(!ledger.is_out());
    let publication = publication(&mut ledger);
    assert_eq!(publication.snapshot.tree(ResourceType::Cluster).len(), 2);
    assert_eq!(publication.snapshot.head, at(1));
    assert_eq!((publication.expected, &*publication.cause), (None, "first translation"));
    succeed(&mut ledger, "edge", Step::Publish(publication));
    let news = News::Stands { fleet: fleet("edge"), head: at(1), written: true };
    assert_eq!(ledger.take_news(), [news]);
    assert!(ledger.is_out() && ledger.pending() == 1, "until it has been looked at");
    assert!(ledger.next(NOW).is_none() && ledger.pending() == 0);
}

/// Whoever waits until all is out hears of the claim, also when nothing follows from it.
#[test]
fn without_fleets_all_is_out_with_the_claim() {
    let mut ledger = Ledger::new(None);
    ledger.complete();
    assert!(!ledger.is_out() && ledger.take_news().is_empty());
    ledger.claimed(claim(&[])).unwrap();
    assert_eq!(ledger.take_news().len(), 1);
    assert!(ledger.is_out());
}

#[test]
fn what_is_unchanged_since_the_last_term_is_found_without_a_step() {
    let before = snapshot("edge", earlier(4), vec![set("a", "1"), set("b", "1")]);
    let mut ledger = claimed(&[&record(&before)]);
    ledger.want(&fleet("edge"), vec![set("b", "1"), set("a", "1")], 2);
    ledger.complete();
    assert!(ledger.next(NOW).is_none());
    let news = News::Stands { fleet: fleet("edge"), head: earlier(4), written: false };
    assert_eq!(ledger.take_news(), [news]);
    assert!(ledger.is_out());
    // From here on only what differs is written.
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    let publication = publication(&mut ledger);
    assert_eq!((publication.snapshot.head, publication.expected), (at(5), Some(earlier(4))));
    assert_eq!(&*publication.cause, "1 object changed");
    assert!(publication.held.unwrap().same_content(&before));
}

#[test]
fn what_differs_since_the_last_term_is_read_first() {
    let before = snapshot("edge", earlier(4), vec![set("a", "1")]);
    for damaged in [false, true] {
        let mut ledger = claimed(&[&record(&before)]);
        ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
        let load = step(&mut ledger);
        let Step::LoadHeld { record, known } = &load else { panic!("{load:?}") };
        assert_eq!((record.head, known.tree(ResourceType::Cluster).len()), (earlier(4), 1));
        let answer = if damaged {
            Err(StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() })
        } else {
            Ok(Reply::Loaded(Loaded { snapshot: before.clone(), unopened: vec![] }))
        };
        assert_eq!(ledger.done(&fleet("edge"), load, answer), Ok(Verdict::GoOn));
        let publication = publication(&mut ledger);
        assert_eq!(publication.expected, Some(earlier(4)));
        assert_eq!(publication.held.is_none(), damaged, "what is damaged is written whole");
    }
}

#[test]
fn a_snapshot_with_secrets_left_out_is_not_taken_for_what_is_there() {
    let before = snapshot("edge", earlier(4), vec![set("a", "1")]);
    let mut ledger = claimed(&[&record(&before)]);
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    let load = step(&mut ledger);
    let loaded = Loaded { snapshot: before, unopened: vec!["tls".into()] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert!(publication(&mut ledger).held.is_none());
}

#[test]
fn an_unknown_outcome_is_cleared_before_anything_newer_goes() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    let first = publication(&mut ledger);
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    ledger.want(&fleet("edge"), vec![set("b", "1")], 2);
    assert!(ledger.next(NOW).is_none(), "one step at a time");
    let lost = ledger.done(&fleet("edge"), Step::Publish(first.clone()), unavailable());
    assert_eq!(lost, Ok(Verdict::Rest(1)));
    assert!(ledger.next(NOW).is_none(), "it rests");
    ledger.rested(&fleet("edge"));
    let again = match ledger.next(NOW + std::time::Duration::from_secs(9)) {
        Some((_, Step::Publish(again))) => again,
        other => panic!("{other:?}"),
    };
    assert_eq!(again.record(), first.record(), "the same head, time and content");
    succeed(&mut ledger, "edge", Step::Publish(again));
    let next = publication(&mut ledger);
    assert_eq!((next.snapshot.head, next.expected), (at(2), Some(at(1))));
    assert_eq!(next.snapshot.tree(ResourceType::Cluster).len(), 2);
    assert_eq!(&*next.cause, "3 objects changed");
}

#[test]
fn a_fleet_that_rests_holds_up_no_other() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("a"), vec![], 1);
    ledger.want(&fleet("b"), vec![], 1);
    let (first, step) = ledger.next(NOW).unwrap();
    assert_eq!(ledger.done(&first, step, unavailable()), Ok(Verdict::Rest(1)));
    let (second, step) = ledger.next(NOW).unwrap();
    assert_ne!(first, second);
    assert_eq!(ledger.done(&second, step, Ok(Reply::Done)), Ok(Verdict::GoOn));
    assert!(ledger.next(NOW).is_none());
    assert_eq!(ledger.pending(), 1);
}

#[test]
fn a_fleet_that_changes_all_the_time_takes_its_turn() {
    let mut ledger = claimed(&[]);
    let mut served = Vec::new();
    for name in ["a", "b", "c"] {
        ledger.want(&fleet(name), vec![], 1);
    }
    for body in ["1", "2", "3"] {
        let (name, step) = ledger.next(NOW).unwrap();
        ledger.done(&name, step, Ok(Reply::Done)).unwrap();
        ledger.want(&fleet("a"), vec![set("hot", body)], 1);
        served.push(name);
    }
    assert_eq!(served, ["a", "b", "c"].map(fleet));
}

#[test]
fn a_fleet_of_an_earlier_term_goes_once_all_have_been_told() {
    let gone = record(&snapshot("gone", earlier(4), vec![set("a", "1")]));
    let mut ledger = claimed(&[&gone]);
    assert!(ledger.next(NOW).is_none(), "it may yet be told");
    ledger.complete();
    let step = step(&mut ledger);
    let Step::Retire(retirement) = &step else { panic!("{step:?}") };
    assert_eq!((retirement.tombstone, retirement.expected), (at(5), Some(earlier(4))));
    succeed(&mut ledger, "gone", step);
    assert!(matches!(&ledger.take_news()[..], [News::Retired { .. }]));
    assert!(ledger.next(NOW).is_none());
    // It comes back above its tombstone.
    ledger.want(&fleet("gone"), vec![], 1);
    let back = publication(&mut ledger);
    assert_eq!((back.snapshot.head, back.expected), (at(6), Some(at(5))));
}

#[test]
fn a_store_that_is_claimed_late_is_cleared_too() {
    let gone = record(&snapshot("gone", earlier(4), vec![set("a", "1")]));
    let mut ledger = Ledger::new(Some(TERM.fence));
    ledger.complete();
    ledger.survey();
    ledger.claimed(claim(&[&gone])).unwrap();
    assert!(matches!(step(&mut ledger), Step::Retire(_)));
}

#[test]
fn a_fleet_that_comes_and_goes_unseen_was_never_there() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![], 1);
    ledger.unwant(&fleet("edge"));
    assert!(ledger.next(NOW).is_none());
}

#[test]
fn a_lost_head_is_published_again_in_full_and_above_all_that_was_used() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    ledger.want(&fleet("gone"), vec![], 1);
    publish(&mut ledger, "edge");
    publish(&mut ledger, "gone");
    ledger.unwant(&fleet("gone"));
    let step_gone = step(&mut ledger);
    succeed(&mut ledger, "gone", step_gone);
    assert_eq!(
        inspect(&mut ledger, &[("edge", at(1)), ("gone", at(2))], &[]),
        Ok(Found::default())
    );
    assert!(ledger.next(NOW).is_none(), "all is as it was written");
    assert_eq!(inspect(&mut ledger, &[], &[]), Ok(lost(2)));
    let again = publication(&mut ledger);
    assert_eq!((again.snapshot.head, again.expected), (at(2), None));
    assert!(again.held.is_none(), "nothing that was uploaded is relied on");
    assert_eq!(&*again.cause, "repair: the store had lost it");
    let tombstone = step(&mut ledger);
    let Step::Retire(tombstone) = tombstone else { panic!("{tombstone:?}") };
    assert_eq!((tombstone.tombstone, tombstone.expected), (at(3), None));
}

#[test]
fn a_head_that_went_back_or_is_not_ours_is_written_over() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    publish(&mut ledger, "edge");
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert_eq!(publish(&mut ledger, "edge"), at(2));
    assert_eq!(inspect(&mut ledger, &[("edge", at(1))], &[]), Ok(lost(1)));
    let again = publication(&mut ledger);
    assert_eq!((again.snapshot.head, again.expected), (at(3), Some(at(1))));
    succeed(&mut ledger, "edge", Step::Publish(again));
    assert_eq!(inspect(&mut ledger, &[("edge", at(9))], &[]), Ok(lost(1)));
    let above = publication(&mut ledger);
    assert_eq!((above.snapshot.head, above.expected), (at(10), Some(at(9))));
}

#[test]
fn a_refused_write_waits_for_a_look() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    let first = publication(&mut ledger);
    // A look that began before the write says nothing of what came after.
    ledger.survey();
    let conflict =
        StoreError::Conflict { fleet: fleet("edge"), expected: None, found: Some(at(5)) };
    let verdict = ledger.done(&fleet("edge"), Step::Publish(first), Err(conflict));
    assert_eq!(verdict, Ok(Verdict::Survey));
    let stale = Inspection { term: TERM, ..Inspection::default() };
    assert_eq!(ledger.inspected(stale), Ok(Found::default()));
    assert!(ledger.next(NOW).is_none() && ledger.pending() == 1);
    assert_eq!(inspect(&mut ledger, &[("edge", at(5))], &[]), Ok(lost(1)));
    let second = publication(&mut ledger);
    assert_eq!((second.snapshot.head, second.expected), (at(6), Some(at(5))));
}

#[test]
fn a_look_that_overlaps_a_write_is_not_compared_with_it() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    ledger.survey();
    publish(&mut ledger, "edge");
    let before_the_write = Inspection { term: TERM, ..Inspection::default() };
    assert_eq!(ledger.inspected(before_the_write), Ok(Found::default()));
    assert!(ledger.next(NOW).is_none());
}

#[test]
fn what_a_late_writer_left_is_retired() {
    let mut ledger = claimed(&[]);
    ledger.complete();
    let found = inspect(&mut ledger, &[("ghost", earlier(3))], &[]);
    assert_eq!(found, Ok(Found { strange: 1, ..Found::default() }));
    let step = step(&mut ledger);
    let Step::Retire(retirement) = step else { panic!("{step:?}") };
    assert_eq!((retirement.tombstone, retirement.expected), (at(4), Some(earlier(3))));
}

#[test]
fn a_newer_term_is_the_end() {
    let theirs = Term { epoch: 0, fence: 8 };
    let fenced = StoreError::Fenced { ours: TERM, theirs };
    let mut ledger = claimed(&[]);
    ledger.survey();
    let newer = Inspection { term: theirs, ..Inspection::default() };
    assert_eq!(ledger.inspected(newer), Err(fenced.clone()));
    let mut ledger = claimed(&[]);
    let head = Head { epoch: 0, fence: 8, sequence: 1 };
    assert_eq!(inspect(&mut ledger, &[("edge", head)], &[]), Err(fenced.clone()));
    ledger.want(&fleet("edge"), vec![], 1);
    let step = step(&mut ledger);
    assert_eq!(ledger.done(&fleet("edge"), step, Err(fenced.clone())), Err(fenced));
}

#[test]
fn a_store_that_lost_the_term_is_claimed_again_before_it_is_written_to() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    publish(&mut ledger, "edge");
    ledger.survey();
    assert_eq!(ledger.inspected(Inspection::default()), Ok(Found::default()));
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert!(ledger.next(NOW).is_none());
    assert_eq!(ledger.survey(), Survey::Claim(Some(7)), "with the same token");
    assert_eq!(ledger.claimed(claim(&[])), Ok(lost(1)));
    assert_eq!(publish(&mut ledger, "edge"), at(2));
}

#[test]
fn an_epoch_that_the_store_lost_is_kept() {
    let ours = Term { epoch: 3, fence: 7 };
    let mut ledger = Ledger::new(Some(7));
    ledger.claimed(ClaimedTerm { term: ours, ..claim(&[]) }).unwrap();
    ledger.survey();
    assert_eq!(ledger.inspected(Inspection::default()), Ok(Found::default()));
    ledger.survey();
    ledger.claimed(claim(&[])).unwrap();
    ledger.want(&fleet("edge"), vec![], 1);
    let head = publication(&mut ledger).snapshot.head;
    assert_eq!(Term::from(head), ours, "readers do not go back");
    ledger.survey();
    ledger.inspected(Inspection { term: TERM, ..Inspection::default() }).unwrap();
    assert!(ledger.has_claim(), "what the store says to a claim is not asked for again and again");
}

#[test]
fn a_fleet_is_cleaned_after_a_publish_and_never_beside_one() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    publish(&mut ledger, "edge");
    let (name, clean) = ledger.next_to_clean().unwrap();
    assert!(matches!(&clean, Step::Clean(newest) if newest.head == at(1)));
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert!(ledger.next(NOW).is_none(), "not beside");
    assert_eq!(ledger.done(&name, clean, unavailable()), Ok(Verdict::GoOn));
    let publication = publication(&mut ledger);
    ledger.clean_all(false);
    assert!(ledger.next_to_clean().is_none(), "not beside");
    succeed(&mut ledger, "edge", Step::Publish(publication));
    assert!(
        matches!(ledger.next_to_clean(), Some((_, Step::Clean(newest))) if newest.head == at(2))
    );
}

#[test]
fn a_fleet_that_changes_all_the_time_is_cleaned_all_the_same() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![set("a", "0")], 1);
    publish(&mut ledger, "edge");
    for body in ["1", "2", "3"] {
        ledger.want(&fleet("edge"), vec![set("a", body)], 1);
        match ledger.next(NOW).unwrap() {
            (_, publish @ Step::Publish(_)) => {
                ledger.clean_all(false);
                assert!(ledger.next_to_clean().is_none(), "not beside");
                succeed(&mut ledger, "edge", publish);
            }
            (_, clean @ Step::Clean(_)) => {
                assert_eq!(body, "3", "a publish does not wait for what is not overdue");
                succeed(&mut ledger, "edge", clean);
                assert_eq!(publish(&mut ledger, "edge"), at(4), "then it goes on");
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
    let mut ledger = claimed(&[&newer]);
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    let load = step(&mut ledger);
    assert!(matches!(load, Step::LoadHeld { .. }));
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut ledger, "edge"), at(5));
    assert!(ledger.next(NOW).is_none(), "it is known now");
}

#[test]
fn what_is_damaged_is_published_again_in_full() {
    let mut ledger = claimed(&[]);
    assert!(!ledger.damaged(&fleet("edge"), at(1)), "there is none");
    ledger.want(&fleet("edge"), vec![set("a", "1")], 1);
    assert!(!ledger.damaged(&fleet("edge"), at(1)), "it was never published");
    let first = publication(&mut ledger);
    assert!(!ledger.damaged(&fleet("edge"), at(1)), "a write may mend it");
    succeed(&mut ledger, "edge", Step::Publish(first));
    assert!(ledger.next(NOW).is_none());

    assert!(ledger.damaged(&fleet("edge"), at(1)));
    assert_eq!(ledger.pending(), 1);
    let again = publication(&mut ledger);
    assert_eq!((again.snapshot.head, again.expected), (at(2), Some(at(1))));
    assert!(again.held.is_none(), "nothing that is there is relied on");
    assert_eq!(&*again.cause, "repair: what the store held was damaged");
    succeed(&mut ledger, "edge", Step::Publish(again));
    assert!(!ledger.damaged(&fleet("edge"), at(1)), "that was repaired");

    ledger.unwant(&fleet("edge"));
    let retire = step(&mut ledger);
    succeed(&mut ledger, "edge", retire);
    assert!(!ledger.damaged(&fleet("edge"), at(2)), "it is no more");
}
