//! A resource that is too large for the store holds up nothing else.

use super::*;
use crate::publish::TooLarge;

const KIND: ResourceType = ResourceType::Route;

fn table(body: impl Into<bytes::Bytes>) -> Change {
    Change::Set(KIND, Arc::new(Resource::new("table", body.into())))
}

fn huge() -> Change {
    table(vec![b'x'; heliograph_store::LARGEST_RESOURCE + 1])
}

fn body(snapshot: &Snapshot) -> Option<&[u8]> {
    snapshot.get(KIND, "table").map(|table| &table.body[..])
}

fn reported(state: &mut PublishState) -> usize {
    let is_it = |event: &PublishEvent| matches!(event, PublishEvent::TooLarge { resource: TooLarge { name, .. }, .. } if &**name == "table");
    state.take_events().iter().filter(|event| is_it(event)).count()
}

#[test]
fn what_is_too_large_stays_as_it_was_and_the_rest_goes_on() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![table("first"), set("a", "1")], 1);
    state.complete();
    publish(&mut state, "edge");

    state.want(&fleet("edge"), vec![huge(), set("a", "2")], 1);
    let next = publication(&mut state);
    assert_eq!(body(&next.snapshot), Some(&b"first"[..]));
    assert_eq!(next.snapshot.get(ResourceType::Cluster, "a").unwrap().body, "2");
    succeed(&mut state, "edge", Step::Publish(next));
    assert_eq!(reported(&mut state), 1);
    assert_eq!(state.oversized(), 1);

    // It is reported once, and changes of other resources are published.
    state.want(&fleet("edge"), vec![huge(), set("a", "3")], 1);
    publish(&mut state, "edge");
    assert_eq!(reported(&mut state), 0);
    state.want(&fleet("edge"), vec![table("second")], 1);
    assert_eq!(state.oversized(), 0);
    let next = publication(&mut state);
    assert_eq!(body(&next.snapshot), Some(&b"second"[..]));
    succeed(&mut state, "edge", Step::Publish(next));
    state.want(&fleet("edge"), vec![huge()], 1);
    state.want(&fleet("edge"), vec![Change::Remove(KIND, "table".into())], 1);
    assert_eq!(body(&publication(&mut state).snapshot), None);
}

#[test]
fn what_is_too_large_is_counted_as_long_as_its_fleet_is_there() {
    let mut state = claimed(&[]);
    state.want(&fleet("edge"), vec![huge()], 1);
    state.want(&fleet("shop"), vec![huge()], 1);
    state.want(&fleet("shop"), vec![huge()], 1);
    assert_eq!(state.oversized(), 2);
    state.unwant(&fleet("shop"));
    state.unwant(&fleet("shop"));
    assert_eq!(state.oversized(), 1);
    state.want(&fleet("shop"), vec![set("a", "1")], 1);
    assert_eq!(state.oversized(), 1);
}

#[test]
fn a_new_leader_keeps_what_was_published_of_it() {
    let held = snapshot("edge", earlier(3), vec![table("first"), set("a", "1")]);
    let mut state = claimed(&[&record(&held)]);
    state.want(&fleet("edge"), vec![huge(), set("a", "1")], 1);
    state.complete();
    let load = step(&mut state);
    assert!(matches!(load, Step::LoadHeld { .. }), "{load:?}");
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    state.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert!(state.next(NOW).is_none(), "all is as it was");
    state.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert_eq!(body(&publication(&mut state).snapshot), Some(&b"first"[..]));
}
