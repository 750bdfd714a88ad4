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

fn told(ledger: &mut Ledger) -> usize {
    let is_it = |news: &News| matches!(news, News::TooLarge { resource: TooLarge { name, .. }, .. } if &**name == "table");
    ledger.take_news().iter().filter(|news| is_it(news)).count()
}

#[test]
fn what_is_too_large_stays_as_it_was_and_the_rest_goes_on() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![table("first"), set("a", "1")], 1);
    ledger.complete();
    publish(&mut ledger, "edge");

    ledger.want(&fleet("edge"), vec![huge(), set("a", "2")], 1);
    let next = publication(&mut ledger);
    assert_eq!(body(&next.snapshot), Some(&b"first"[..]));
    assert_eq!(next.snapshot.get(ResourceType::Cluster, "a").unwrap().body, "2");
    succeed(&mut ledger, "edge", Step::Publish(next));
    assert_eq!(told(&mut ledger), 1);
    assert_eq!(ledger.oversized(), 1);

    // It is told once, and what changes beside it goes on.
    ledger.want(&fleet("edge"), vec![huge(), set("a", "3")], 1);
    publish(&mut ledger, "edge");
    assert_eq!(told(&mut ledger), 0);
    ledger.want(&fleet("edge"), vec![table("second")], 1);
    assert_eq!(ledger.oversized(), 0);
    let next = publication(&mut ledger);
    assert_eq!(body(&next.snapshot), Some(&b"second"[..]));
    succeed(&mut ledger, "edge", Step::Publish(next));
    ledger.want(&fleet("edge"), vec![huge()], 1);
    ledger.want(&fleet("edge"), vec![Change::Remove(KIND, "table".into())], 1);
    assert_eq!(body(&publication(&mut ledger).snapshot), None);
}

#[test]
fn what_is_too_large_is_counted_as_long_as_its_fleet_is_there() {
    let mut ledger = claimed(&[]);
    ledger.want(&fleet("edge"), vec![huge()], 1);
    ledger.want(&fleet("shop"), vec![huge()], 1);
    ledger.want(&fleet("shop"), vec![huge()], 1);
    assert_eq!(ledger.oversized(), 2);
    ledger.unwant(&fleet("shop"));
    ledger.unwant(&fleet("shop"));
    assert_eq!(ledger.oversized(), 1);
    ledger.want(&fleet("shop"), vec![set("a", "1")], 1);
    assert_eq!(ledger.oversized(), 1);
}

#[test]
fn a_new_leader_keeps_what_was_published_of_it() {
    let held = snapshot("edge", earlier(3), vec![table("first"), set("a", "1")]);
    let mut ledger = claimed(&[&record(&held)]);
    ledger.want(&fleet("edge"), vec![huge(), set("a", "1")], 1);
    ledger.complete();
    let load = step(&mut ledger);
    assert!(matches!(load, Step::LoadHeld { .. }), "{load:?}");
    let loaded = Loaded { snapshot: held, unopened: vec![] };
    ledger.done(&fleet("edge"), load, Ok(Reply::Loaded(loaded))).unwrap();
    assert!(ledger.next(NOW).is_none(), "all is as it was");
    ledger.want(&fleet("edge"), vec![set("a", "2")], 1);
    assert_eq!(body(&publication(&mut ledger).snapshot), Some(&b"first"[..]));
}
