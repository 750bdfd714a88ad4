//! A fleet that an operator holds at an earlier snapshot.

use super::*;

/// A fleet of which the first of two versions is known, with endpoints.
pub(super) fn pinnable() -> (Ledger, Arc<Snapshot>, Pin) {
    let old = vec![set("a", "1"), set_of(ResourceType::Endpoints, "a", "old pods")];
    let old = snapshot("edge", earlier(1), old);
    let mut ledger = claimed(&[]);
    let changes = vec![set("a", "2"), set_of(ResourceType::Endpoints, "a", "pods")];
    ledger.want(&fleet("edge"), changes, 1);
    ledger.complete();
    publish(&mut ledger, "edge");
    assert!(ledger.next(NOW).is_none());
    let pin = pin(&record(&old));
    (ledger, old, pin)
}

fn body(snapshot: &Snapshot, kind: ResourceType) -> String {
    String::from_utf8(snapshot.get(kind, "a").unwrap().body.to_vec()).unwrap()
}

#[test]
fn a_pinned_fleet_goes_back_but_for_its_endpoints_until_it_is_released() {
    let (mut ledger, old, pin) = pinnable();
    let pins = [("edge", pin)];
    inspect(&mut ledger, &[("edge", at(1))], &pins).unwrap();
    assert_eq!(ledger.pinned(), 1);
    let load = step(&mut ledger);
    let Step::LoadPinned { record, .. } = &load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(1));
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    let pinned = publication(&mut ledger);
    assert_eq!((pinned.snapshot.head, pinned.pinned), (at(2), Some(earlier(1))));
    assert_eq!(&*pinned.cause, "pinned to 0.1.1: bad release");
    assert_eq!(body(&pinned.snapshot, ResourceType::Cluster), "1");
    assert_eq!(body(&pinned.snapshot, ResourceType::Endpoints), "pods");
    succeed(&mut ledger, "edge", Step::Publish(pinned));

    // Translation goes on underneath, and only endpoints are seen of it.
    ledger.want(&fleet("edge"), vec![set("a", "3")], 1);
    assert!(ledger.next(NOW).is_none());
    ledger.want(&fleet("edge"), vec![set_of(ResourceType::Endpoints, "a", "new pods")], 1);
    let endpoints = publication(&mut ledger);
    assert_eq!(body(&endpoints.snapshot, ResourceType::Cluster), "1");
    assert_eq!(body(&endpoints.snapshot, ResourceType::Endpoints), "new pods");
    assert!(!endpoints.is_step());
    succeed(&mut ledger, "edge", Step::Publish(endpoints));

    inspect(&mut ledger, &[("edge", at(3))], &pins).unwrap();
    assert!(ledger.next(NOW).is_none());
    inspect(&mut ledger, &[("edge", at(3))], &[]).unwrap();
    let released = publication(&mut ledger);
    assert_eq!((&*released.cause, released.pinned), ("released", None));
    assert_eq!(body(&released.snapshot, ResourceType::Cluster), "3");
}

#[test]
fn a_pinned_snapshot_that_cannot_be_read_leaves_what_is_published() {
    let (mut ledger, _, pin) = pinnable();
    inspect(&mut ledger, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    ledger.want(&fleet("edge"), vec![set("a", "3")], 1);
    for attempt in 1..=2 {
        let load = step(&mut ledger);
        assert!(matches!(load, Step::LoadPinned { .. }));
        let damaged = StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() };
        let verdict = ledger.done(&fleet("edge"), load, Err(damaged));
        assert_eq!(verdict, Ok(Verdict::Rest(attempt)));
        ledger.rested(&fleet("edge"));
    }
    inspect(&mut ledger, &[("edge", at(1))], &[]).unwrap();
    assert_eq!(publish(&mut ledger, "edge"), at(2), "released before it was ever pinned");
}

#[test]
fn a_pin_outlives_a_store_that_lost_everything() {
    let (mut ledger, old, pin) = pinnable();
    inspect(&mut ledger, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut ledger);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut ledger, "edge"), at(2));

    ledger.survey();
    ledger.inspected(Inspection::default()).unwrap();
    ledger.survey();
    assert_eq!(ledger.claimed(claim(&[])), Ok(Found { lost: 1, strange: 0 }));
    let again = publication(&mut ledger);
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1", "it stays where it was held");
    assert_eq!(again.pinned, Some(at(3)), "what it was pinned to is gone: this holds the same");
    let record = again.record();
    succeed(&mut ledger, "edge", Step::Publish(again));
    // A look that began before the pin is there again does not release the fleet.
    inspect(&mut ledger, &[("edge", at(3))], &[]).unwrap();
    let restore = step(&mut ledger);
    let Step::Pin(pin) = &restore else { panic!("{restore:?}") };
    assert_eq!((&*pin.record, &*pin.cause), (&record, "bad release"));
    let pin = pin.clone();
    ledger.survey();
    succeed(&mut ledger, "edge", restore);
    let heads = BTreeMap::from([(fleet("edge"), at(3))]);
    ledger.inspected(Inspection { term: TERM, heads, pins: BTreeMap::new() }).unwrap();
    inspect(&mut ledger, &[("edge", at(3))], &[("edge", pin)]).unwrap();
    assert!(ledger.next(NOW).is_none(), "all is as it should be");
}

/// As after a failover to a replica that was behind, but not so far as to have lost the term.
#[test]
fn a_pin_that_was_lost_with_the_head_that_it_made_is_no_release() {
    let (mut ledger, old, pin) = pinnable();
    inspect(&mut ledger, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut ledger);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut ledger, "edge"), at(2));

    assert_eq!(inspect(&mut ledger, &[("edge", at(1))], &[]), Ok(Found { lost: 1, strange: 0 }));
    let again = publication(&mut ledger);
    assert_eq!((again.snapshot.head, again.pinned), (at(3), Some(at(3))));
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1", "it stays where it was held");
    succeed(&mut ledger, "edge", Step::Publish(again));
    assert!(matches!(step(&mut ledger), Step::Pin(_)), "the operator can release it again");
}

#[test]
fn a_pin_that_was_lost_beside_a_write_is_no_release() {
    let (mut ledger, old, pin) = pinnable();
    inspect(&mut ledger, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut ledger);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut ledger, "edge"), at(2));

    ledger.want(&fleet("edge"), vec![set_of(ResourceType::Endpoints, "a", "new pods")], 1);
    let write = step(&mut ledger);
    // The look sees less than was there when it began.
    inspect(&mut ledger, &[("edge", at(1))], &[]).unwrap();
    let conflict =
        StoreError::Conflict { fleet: fleet("edge"), expected: Some(at(2)), found: Some(at(1)) };
    assert_eq!(ledger.done(&fleet("edge"), write, Err(conflict)), Ok(Verdict::Survey));
    inspect(&mut ledger, &[("edge", at(1))], &[]).unwrap();
    let again = publication(&mut ledger);
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1", "it stays where it was held");
}

/// A fleet that the term before has pinned.
fn pinned_before() -> (Ledger, Arc<Snapshot>) {
    let old = vec![set("a", "1"), set_of(ResourceType::Endpoints, "a", "old pods")];
    let pin = pin(&record(&snapshot("edge", earlier(1), old.clone())));
    let held = snapshot("edge", earlier(3), old);
    let newest = Record { pinned: Some(earlier(1)), ..(*record(&held)).clone() };
    let pins = BTreeMap::from([(fleet("edge"), pin)]);
    let mut ledger = Ledger::new(Some(TERM.fence));
    ledger.claimed(Claim { pins, ..claim(&[&Arc::new(newest)]) }).unwrap();
    let live = vec![set("a", "2"), set_of(ResourceType::Endpoints, "a", "pods")];
    ledger.want(&fleet("edge"), live, 1);
    ledger.complete();
    (ledger, held)
}

#[test]
fn endpoints_of_a_pinned_fleet_need_no_more_than_what_is_published() {
    let (mut ledger, held) = pinned_before();
    let load = step(&mut ledger);
    let Step::LoadHeld { record, .. } = &load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(3));
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    let endpoints = publication(&mut ledger);
    assert_eq!((endpoints.expected, endpoints.pinned), (Some(earlier(3)), Some(earlier(1))));
    assert_eq!(body(&endpoints.snapshot, ResourceType::Cluster), "1");
    assert_eq!(body(&endpoints.snapshot, ResourceType::Endpoints), "pods");
}

#[test]
fn a_pinned_fleet_that_cannot_be_read_is_read_from_the_history() {
    let (mut ledger, _) = pinned_before();
    let load = step(&mut ledger);
    assert!(matches!(load, Step::LoadHeld { .. }));
    let damaged = StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() };
    assert_eq!(ledger.done(&fleet("edge"), load, Err(damaged)), Ok(Verdict::GoOn));
    let load = step(&mut ledger);
    let Step::LoadPinned { record, .. } = load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(1));
}

#[test]
fn what_could_not_be_tended_beside_a_step_is_tended_after_it() {
    let (mut ledger, _, pin) = pinnable();
    inspect(&mut ledger, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut ledger);
    assert!(ledger.next_to_tend().is_none(), "not beside");
    assert_eq!(ledger.done(&fleet("edge"), load, unavailable()), Ok(Verdict::Rest(1)));
    inspect(&mut ledger, &[("edge", at(1))], &[]).unwrap();
    ledger.rested(&fleet("edge"));
    assert!(ledger.next(NOW).is_none());
    assert!(ledger.next_to_tend().is_some());
}
