//! A fleet that an operator holds at an earlier snapshot.

use super::*;

/// A fleet of which the first of two versions is known, with endpoints.
fn pinnable() -> (PublishState, Arc<Snapshot>, PinOrder) {
    let old = vec![set("a", "1"), set_of(ResourceType::Endpoints, "a", "old pods")];
    let old = snapshot("edge", earlier(1), old);
    let mut state = claimed(&[]);
    let changes = vec![set("a", "2"), set_of(ResourceType::Endpoints, "a", "pods")];
    state.want(&fleet("edge"), changes, 1);
    state.complete();
    publish(&mut state, "edge");
    assert!(state.next(NOW).is_none());
    let pin = pin(1, &record(&old));
    (state, old, pin)
}

fn held_at(publication: &Publication) -> Option<Head> {
    publication.pin.pinned.as_ref().map(|pinned| pinned.head)
}

fn body(snapshot: &Snapshot, kind: ResourceType) -> String {
    String::from_utf8(snapshot.get(kind, "a").unwrap().body.to_vec()).unwrap()
}

#[test]
fn a_pinned_fleet_goes_back_but_for_its_endpoints_until_it_is_released() {
    let (mut state, old, pin) = pinnable();
    let pins = [("edge", pin)];
    inspect(&mut state, &[("edge", at(1))], &pins).unwrap();
    assert_eq!(state.pinned(), 1);
    let load = step(&mut state);
    let Step::LoadPinned { record, .. } = &load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(1));
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    let pinned = publication(&mut state);
    assert_eq!((pinned.snapshot.head, held_at(&pinned)), (at(2), Some(earlier(1))));
    assert_eq!(&*pinned.cause, "pinned to 0.1.1 by ann: bad release");
    assert_eq!(body(&pinned.snapshot, ResourceType::Cluster), "1");
    assert_eq!(body(&pinned.snapshot, ResourceType::Endpoints), "pods");
    succeed(&mut state, "edge", Step::Publish(pinned));

    // Translation goes on underneath, and only endpoints are seen of it.
    state.want(&fleet("edge"), vec![set("a", "3")], 1);
    assert!(state.next(NOW).is_none());
    state.want(&fleet("edge"), vec![set_of(ResourceType::Endpoints, "a", "new pods")], 1);
    let endpoints = publication(&mut state);
    assert_eq!(body(&endpoints.snapshot, ResourceType::Cluster), "1");
    assert_eq!(body(&endpoints.snapshot, ResourceType::Endpoints), "new pods");
    assert!(!endpoints.is_step());
    succeed(&mut state, "edge", Step::Publish(endpoints));

    inspect(&mut state, &[("edge", at(3))], &pins).unwrap();
    assert!(state.next(NOW).is_none());
    inspect(&mut state, &[("edge", at(3))], &[("edge", release(2))]).unwrap();
    let released = publication(&mut state);
    assert_eq!((&*released.cause, held_at(&released)), ("released by ann", None));
    assert_eq!(released.pin.number, 2);
    assert_eq!(body(&released.snapshot, ResourceType::Cluster), "3");
}

#[test]
fn a_pinned_snapshot_that_cannot_be_read_leaves_what_is_published() {
    let (mut state, _, pin) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    state.want(&fleet("edge"), vec![set("a", "3")], 1);
    for attempt in 1..=2 {
        let load = step(&mut state);
        assert!(matches!(load, Step::LoadPinned { .. }));
        let damaged = StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() };
        let next_action = state.done(&fleet("edge"), load, Err(damaged));
        assert_eq!(next_action, Ok(NextAction::Rest(attempt)));
        state.rested(&fleet("edge"));
    }
    inspect(&mut state, &[("edge", at(1))], &[("edge", release(2))]).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(2), "released before it was ever pinned");
}

#[test]
fn a_pin_outlives_a_store_that_lost_everything() {
    let (mut state, old, pin) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut state);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(2));

    state.survey();
    state.inspected(Inspection::default()).unwrap();
    state.survey();
    assert_eq!(state.claimed(claim(&[])), Ok(lost(1)));
    let again = publication(&mut state);
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1", "it stays where it was held");
    assert_eq!(held_at(&again), Some(at(3)), "what it was pinned to is gone: this holds the same");
    let record = again.record();
    succeed(&mut state, "edge", Step::Publish(again));
    // A look that began before the pin is there again does not release the fleet.
    inspect(&mut state, &[("edge", at(3))], &[]).unwrap();
    let restore = step(&mut state);
    let Step::RestoreOrder(order) = &restore else { panic!("{restore:?}") };
    assert_eq!((order.at.as_deref(), &*order.reason), (Some(&record), "bad release"));
    assert_eq!((order.number, &*order.by), (1, "ann"));
    let order = order.clone();
    state.survey();
    succeed(&mut state, "edge", restore);
    let heads = BTreeMap::from([(fleet("edge"), at(3))]);
    state.inspected(Inspection { term: TERM, heads, orders: BTreeMap::new() }).unwrap();
    let again = step(&mut state);
    assert!(matches!(again, Step::RestoreOrder(_)), "{again:?}");
    succeed(&mut state, "edge", again);
    inspect(&mut state, &[("edge", at(3))], &[("edge", order)]).unwrap();
    assert!(state.next(NOW).is_none(), "all is as it should be");
}

/// As after a failover to a replica that was behind, but not so far as to have lost the term.
#[test]
fn a_pin_that_was_lost_with_the_head_that_it_made_is_no_release() {
    let (mut state, old, pin) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut state);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(2));

    assert_eq!(inspect(&mut state, &[("edge", at(1))], &[]), Ok(lost(1)));
    let again = publication(&mut state);
    assert_eq!((again.snapshot.head, held_at(&again)), (at(3), Some(at(3))));
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1", "it stays where it was held");
    succeed(&mut state, "edge", Step::Publish(again));
    assert!(matches!(step(&mut state), Step::RestoreOrder(_)), "the operator can release it again");
}

#[test]
fn a_pin_that_was_lost_beside_a_write_is_no_release() {
    let (mut state, old, pin) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut state);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(2));

    state.want(&fleet("edge"), vec![set_of(ResourceType::Endpoints, "a", "new pods")], 1);
    let write = step(&mut state);
    // The look sees less than was there when it began.
    inspect(&mut state, &[("edge", at(1))], &[]).unwrap();
    let conflict =
        StoreError::Conflict { fleet: fleet("edge"), expected: Some(at(2)), found: Some(at(1)) };
    assert_eq!(state.done(&fleet("edge"), write, Err(conflict)), Ok(NextAction::Survey));
    inspect(&mut state, &[("edge", at(1))], &[]).unwrap();
    let again = publication(&mut state);
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1", "it stays where it was held");
}

/// A fleet that the term before has pinned.
fn pinned_before() -> (PublishState, Arc<Snapshot>) {
    let old = vec![set("a", "1"), set_of(ResourceType::Endpoints, "a", "old pods")];
    let pin = pin(1, &record(&snapshot("edge", earlier(1), old.clone())));
    let held = snapshot("edge", earlier(3), old);
    let newest = Record { pin: pin.state(earlier(1)), ..(*record(&held)).clone() };
    let orders = BTreeMap::from([(fleet("edge"), pin)]);
    let mut state = PublishState::new(Some(TERM.fence));
    state.claimed(ClaimedTerm { orders, ..claim(&[&Arc::new(newest)]) }).unwrap();
    let live = vec![set("a", "2"), set_of(ResourceType::Endpoints, "a", "pods")];
    state.want(&fleet("edge"), live, 1);
    state.complete();
    (state, held)
}

#[test]
fn endpoints_of_a_pinned_fleet_need_no_more_than_what_is_published() {
    let (mut state, held) = pinned_before();
    let load = step(&mut state);
    let Step::LoadHeld { record, .. } = &load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(3));
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    let endpoints = publication(&mut state);
    assert_eq!((endpoints.expected, held_at(&endpoints)), (Some(earlier(3)), Some(earlier(1))));
    assert_eq!(body(&endpoints.snapshot, ResourceType::Cluster), "1");
    assert_eq!(body(&endpoints.snapshot, ResourceType::Endpoints), "pods");
}

#[test]
fn a_pinned_fleet_that_cannot_be_read_is_read_from_the_history() {
    let (mut state, _) = pinned_before();
    let load = step(&mut state);
    assert!(matches!(load, Step::LoadHeld { .. }));
    let damaged = StoreError::Damaged { fleet: fleet("edge"), reason: "torn".to_owned() };
    assert_eq!(state.done(&fleet("edge"), load, Err(damaged)), Ok(NextAction::GoOn));
    let load = step(&mut state);
    let Step::LoadPinned { record, .. } = load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(1));
}

#[test]
fn what_could_not_be_cleaned_beside_a_step_is_cleaned_after_it() {
    let (mut state, _, pin) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", pin)]).unwrap();
    let load = step(&mut state);
    assert!(state.next_to_clean().is_none(), "not beside");
    assert_eq!(state.done(&fleet("edge"), load, unavailable()), Ok(NextAction::Rest(1)));
    state.rested(&fleet("edge"));
    let load = step(&mut state);
    let old = snapshot("edge", earlier(1), vec![set("a", "2")]);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    publish(&mut state, "edge");
    assert!(state.next(NOW).is_none());
    assert!(state.next_to_clean().is_some());
}

/// Deleting an order is not an order, and neither is restoring an earlier one.
#[test]
fn an_order_that_is_gone_or_was_put_back_changes_nothing() {
    let (mut state, old, order) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", order.clone())]).unwrap();
    let load = step(&mut state);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(2));

    inspect(&mut state, &[("edge", at(2))], &[]).unwrap();
    let again = publication(&mut state);
    assert_eq!((held_at(&again), again.is_step()), (Some(at(3)), true), "it is in the history");
    assert_eq!(&*again.cause, "repair: the store had lost the pin");
    succeed(&mut state, "edge", Step::Publish(again));
    let restore = step(&mut state);
    assert!(matches!(restore, Step::RestoreOrder(_)), "{restore:?}");
    succeed(&mut state, "edge", restore);

    inspect(&mut state, &[("edge", at(3))], &[("edge", release(2))]).unwrap();
    let released = publication(&mut state);
    assert_eq!(body(&released.snapshot, ResourceType::Cluster), "2");
    succeed(&mut state, "edge", Step::Publish(released));
    inspect(&mut state, &[("edge", at(4))], &[("edge", order)]).unwrap();
    assert!(state.next(NOW).is_none(), "it was released");
    assert_eq!(state.pinned(), 0);
}

/// Of a store that lost everything, with the leader that knew of the order: who stood by remembers.
#[test]
fn what_a_standby_remembers_is_held_on() {
    let old = snapshot("edge", earlier(3), vec![set("a", "1")]);
    let order = pin(1, &record(&snapshot("edge", earlier(1), vec![set("a", "1")])));
    let newest = Record { pin: order.state(earlier(1)), ..(*record(&old)).clone() };
    let mut state = PublishState::new(Some(TERM.fence));
    state.remembers([(Arc::new(newest), Some(old))]);
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    state.complete();
    let found = state.claimed(claim(&[]));
    assert_eq!(found, Ok(Found { remembered: 1, ..Found::default() }));
    let again = publication(&mut state);
    assert_eq!((again.snapshot.head, held_at(&again)), (at(4), Some(at(4))));
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1");
    succeed(&mut state, "edge", Step::Publish(again));
    assert!(matches!(step(&mut state), Step::RestoreOrder(order) if &*order.by == "ann"));
}

/// Only distributors have the pinned content, and they refuse to serve anything else.
#[test]
fn what_distributors_remember_is_not_undone() {
    let (mut state, old, order) = pinnable();
    let remembered = Record { pin: order.state(earlier(1)), ..(*record(&old)).clone() };
    let remembered = Arc::new(Record { head: earlier(9), ..remembered });
    assert_eq!(state.remembers([(remembered.clone(), None)]), 1);
    assert_eq!(state.remembers([(remembered.clone(), None)]), 0, "it is known");
    inspect(&mut state, &[("edge", at(1))], &[]).unwrap();
    let restore = step(&mut state);
    assert!(matches!(&restore, Step::RestoreOrder(order) if order.number == 1), "{restore:?}");
    succeed(&mut state, "edge", restore);
    let load = step(&mut state);
    let Step::LoadPinned { record, .. } = &load else { panic!("{load:?}") };
    assert_eq!(record.head, earlier(9));
    let damaged = StoreError::Damaged { fleet: fleet("edge"), reason: "lost".to_owned() };
    assert_eq!(state.done(&fleet("edge"), load, Err(damaged)), Ok(NextAction::Rest(1)));
    assert_eq!(state.pinned(), 1);
    inspect(&mut state, &[("edge", at(1))], &[("edge", release(2))]).unwrap();
    state.rested(&fleet("edge"));
    let released = publication(&mut state);
    assert_eq!(released.pin.number, 2, "which distributors accept");
}

#[test]
fn a_fleet_that_readers_have_and_nobody_wants_is_retired() {
    let mut state = claimed(&[]);
    let ghost = record(&snapshot("ghost", earlier(5), vec![set("a", "1")]));
    assert_eq!(state.remembers([(ghost.clone(), None)]), 1);
    assert!(state.next(NOW).is_none(), "not before all fleets were told");
    assert_eq!(state.remembers([(ghost.clone(), None)]), 0);
    state.complete();
    let Step::Retire(retirement) = step(&mut state) else { panic!("it is to go") };
    assert_eq!((&retirement.fleet, retirement.tombstone), (&fleet("ghost"), at(6)));
    assert!(retirement.tombstone > ghost.head && retirement.expected.is_none());
    succeed(&mut state, "ghost", Step::Retire(retirement));
    assert_eq!(state.remembers([(ghost, None)]), 0);
    assert!(state.next(NOW).is_none());
}

#[test]
fn what_a_later_term_published_is_left_to_it() {
    let mut state = claimed(&[]);
    state.complete();
    let later = Head { fence: TERM.fence + 1, ..earlier(5) };
    let ghost = record(&snapshot("ghost", later, vec![set("a", "1")]));
    assert_eq!(state.remembers([(ghost, None)]), 0);
    assert!(state.next(NOW).is_none());
}

/// Proxies would wait for them.
#[test]
fn a_cluster_that_is_only_in_what_a_fleet_is_held_at_keeps_its_endpoints() {
    let endpoints = |name, body| set_of(ResourceType::Endpoints, name, body);
    let old = vec![set("a", "1"), set("b", "1"), endpoints("a", "old"), endpoints("b", "old")];
    let old = snapshot("edge", earlier(1), old);
    let mut state = claimed(&[]);
    let before = vec![set("a", "2"), set("b", "2"), endpoints("a", "pods"), endpoints("b", "pods")];
    state.want(&fleet("edge"), before, 1);
    state.complete();
    publish(&mut state, "edge");
    inspect(&mut state, &[("edge", at(1))], &[("edge", pin(1, &record(&old)))]).unwrap();
    let load = step(&mut state);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    publish(&mut state, "edge");

    let gone = |kind| Change::Remove(kind, "b".into());
    let changes = vec![gone(ResourceType::Cluster), gone(ResourceType::Endpoints)];
    state.want(&fleet("edge"), [changes, vec![endpoints("a", "new pods")]].concat(), 1);
    let held = publication(&mut state);
    let bodies = ["a", "b"].map(|name| {
        let found = held.snapshot.get(ResourceType::Endpoints, name);
        found.map(|found| String::from_utf8(found.body.to_vec()).unwrap())
    });
    assert_eq!(bodies, [Some("new pods".to_owned()), Some("pods".to_owned())]);
}

#[test]
fn a_fleet_that_comes_back_under_the_name_of_a_held_one_is_not_held() {
    let (mut state, old, order) = pinnable();
    inspect(&mut state, &[("edge", at(1))], &[("edge", order)]).unwrap();
    let load = step(&mut state);
    let loaded = Loaded { snapshot: old, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert_eq!(publish(&mut state, "edge"), at(2));
    state.unwant(&fleet("edge"));
    let Step::Retire(retirement) = step(&mut state) else { panic!("it is to go") };
    assert_eq!(retirement.order, 1, "no earlier order counts for the next one");
    succeed(&mut state, "edge", Step::Retire(retirement));
    inspect(&mut state, &[("edge", at(3))], &[]).unwrap();
    assert_eq!(state.pinned(), 0);

    state.want(&fleet("edge"), vec![set("a", "another")], 1);
    let next = publication(&mut state);
    assert_eq!(body(&next.snapshot, ResourceType::Cluster), "another");
    assert_eq!((next.pin.number, held_at(&next)), (1, None));
}

/// With the last writes of the leader before, so that what is there looks like what is wanted.
#[test]
fn a_store_that_went_back_before_a_term_is_repaired_when_readers_say_so() {
    let held = snapshot("edge", earlier(1), vec![set("a", "1")]);
    let mut state = claimed(&[&record(&held)]);
    state.want(&fleet("edge"), vec![set("a", "1")], 1);
    state.complete();
    assert!(state.next(NOW).is_none(), "all is as it should be");
    let lost = record(&snapshot("edge", earlier(4), vec![set("a", "1")]));
    assert_eq!(state.remembers([(lost.clone(), None)]), 1);
    let again = publication(&mut state);
    assert_eq!((again.snapshot.head, &*again.cause), (at(5), "repair: the store had lost it"));
    succeed(&mut state, "edge", Step::Publish(again));
    assert_eq!(state.remembers([(lost, None)]), 0);
    assert!(state.next(NOW).is_none());
}

/// The report may come before the objects are translated, or while the fleet is worked on.
#[test]
fn a_store_that_went_back_is_repaired_whenever_readers_say_so() {
    let held = snapshot("edge", earlier(1), vec![set("a", "1")]);
    let lost = record(&snapshot("edge", earlier(4), vec![set("a", "1")]));
    for is_working in [false, true] {
        let mut state = claimed(&[&record(&held)]);
        let cleaned = is_working.then(|| {
            state.want(&fleet("edge"), vec![set("a", "1")], 1);
            state.complete();
            assert!(state.next(NOW).is_none());
            state.clean_all(false);
            state.next_to_clean().unwrap().1
        });
        state.remembers([(lost.clone(), None)]);
        match cleaned {
            Some(clean) => succeed(&mut state, "edge", clean),
            None => {
                state.want(&fleet("edge"), vec![set("a", "1")], 1);
                state.complete();
            }
        }
        let again = publication(&mut state);
        assert_eq!((again.snapshot.head, &*again.cause), (at(5), "repair: the store had lost it"));
        succeed(&mut state, "edge", Step::Publish(again));
        assert!(state.next(NOW).is_none());
    }
}

/// The pinned content survives when the store is emptied before everything is translated.
#[test]
fn what_a_fleet_is_held_at_is_read_when_the_term_begins() {
    let held = snapshot("edge", earlier(3), vec![set("a", "1")]);
    let order = pin(1, &record(&snapshot("edge", earlier(1), vec![set("a", "1")])));
    let newest = Arc::new(Record { pin: order.state(earlier(1)), ..(*record(&held)).clone() });
    let mut state = PublishState::new(Some(TERM.fence));
    let orders = BTreeMap::from([(fleet("edge"), order)]);
    state.claimed(ClaimedTerm { orders, ..claim(&[&newest]) }).unwrap();
    let load = step(&mut state);
    assert!(matches!(load, Step::LoadHeld { .. }), "{load:?}");
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert!(state.next(NOW).is_none());

    assert_eq!(inspect(&mut state, &[], &[]), Ok(lost(1)));
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    state.complete();
    let again = publication(&mut state);
    assert_eq!(body(&again.snapshot, ResourceType::Cluster), "1");
}

/// It may be gone from the store before it is read from there.
#[test]
fn what_a_standby_has_loaded_is_not_loaded_again() {
    let old = snapshot("edge", earlier(3), vec![set("a", "1")]);
    let order = pin(1, &record(&snapshot("edge", earlier(1), vec![set("a", "1")])));
    let newest = Arc::new(Record { pin: order.state(earlier(1)), ..(*record(&old)).clone() });
    let mut state = PublishState::new(Some(TERM.fence));
    state.remembers([(newest.clone(), Some(old))]);
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    state.complete();
    let orders = BTreeMap::from([(fleet("edge"), order)]);
    state.claimed(ClaimedTerm { orders, ..claim(&[&newest]) }).unwrap();
    assert!(state.next(NOW).is_none(), "it is held where it is");
}
