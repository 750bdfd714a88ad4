//! Golden cases: input objects, then what they come to, in one file. `UPDATE_GOLDEN=1` rewrites the second part.
//!
//! Every case is also applied in shuffled orders, and one object at a time with everything worked out in between: the
//! end must be the same to the byte, versions included.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod case;

use case::{Case, Shuffle};
use heliograph_gateway::objects::{Object, ObjectKey};
use heliograph_gateway::status::reasons::{self, Reason};
use heliograph_gateway::{Event, Outcome, World};
use heliograph_snapshot::{Change, FleetName, Head, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ORDERS: u64 = 8;

#[test]
fn every_case_gives_what_its_file_says() {
    let mut wrong = Vec::new();
    for case in Case::all() {
        let actual = case::render(&case.world());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            case.rewrite(&actual);
        } else if actual != case.expected {
            wrong.push(format!(
                "{}:\n{}",
                case.name,
                case::first_difference(&case.expected, &actual)
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nIf the new output is right, rewrite the files with `make golden` and read the diff.",
        wrong.join("\n")
    );
}

#[test]
fn the_order_of_objects_decides_nothing() {
    for case in Case::all() {
        let expected = case::render(&case.world());
        for seed in 0..ORDERS {
            let mut world = World::new();
            for object in Shuffle::new(seed).shuffled(&case.objects) {
                world.apply(Event::Applied(object));
            }
            world.settle();
            assert_eq!(case::render(&world), expected, "{} in order {seed}", case.name);
        }
    }
}

#[test]
fn one_object_at_a_time_leads_to_the_same_end() {
    for case in Case::all() {
        let expected = case::render(&case.world());
        for seed in 0..ORDERS {
            let mut world = World::new();
            let mut replayed = Replayed::default();
            for object in Shuffle::new(seed).shuffled(&case.objects) {
                world.apply(Event::Applied(object));
                replayed.apply(world.settle());
            }
            assert_eq!(case::render(&world), expected, "{} in order {seed}", case.name);
            replayed.check(&world, &case.name);
        }
    }
}

/// An object that leaves and comes back leaves no trace, and neither does one that is another for a while.
#[test]
fn coming_and_going_leads_to_the_same_end() {
    for case in Case::all() {
        let expected = case::render(&case.world());
        let mut world = case.world();
        let mut replayed = Replayed::default();
        replayed.replace_all(&world);
        for object in Shuffle::new(1).shuffled(&case.objects) {
            world.apply(Event::Deleted(object.key()));
            replayed.apply(world.settle());
            world.apply(Event::Applied(object));
            replayed.apply(world.settle());
        }
        assert_eq!(case::render(&world), expected, "{}", case.name);
        replayed.check(&world, &case.name);
    }
}

/// The cases share names, so their objects together are a history of updates, deletions and returns.
#[test]
fn a_history_ends_as_if_its_end_had_been_told_at_once() {
    let pool: Vec<_> = Case::all().into_iter().flat_map(|case| case.objects).collect();
    for seed in 0..ORDERS {
        let mut shuffle = Shuffle::new(seed);
        let (mut world, mut replayed, mut now) =
            (World::new(), Replayed::default(), BTreeMap::new());
        for (step, object) in shuffle.shuffled(&pool).into_iter().enumerate() {
            let key = object.key();
            if now.contains_key(&key) && shuffle.below(3) == 0 {
                now.remove(&key);
                world.apply(Event::Deleted(key));
            } else {
                now.insert(key, object.clone());
                world.apply(Event::Applied(object));
            }
            if shuffle.below(4) == 0 {
                replayed.apply(world.settle());
            }
            if step % 64 == 0 {
                replayed.apply(world.settle());
                replayed.check(&world, "a history");
                let mut fresh = World::new();
                now.values().cloned().for_each(|object| fresh.apply(Event::Applied(object)));
                fresh.settle();
                assert_eq!(
                    case::render(&world),
                    case::render(&fresh),
                    "step {step} of history {seed}"
                );
                assert_eq!(world.units(), fresh.units(), "step {step} of history {seed}");
            }
        }
    }
}

/// A store keeps no record of a fleet's dialect, because it follows from what the fleet serves.
#[test]
fn what_a_fleet_serves_is_of_its_dialect() {
    for case in Case::all() {
        let world = case.world();
        for fleet in world.fleets() {
            for (kind, resource) in world.resources(&fleet.name) {
                let dialect = kind.properties().dialect;
                assert_eq!(dialect, fleet.dialect, "{}: {kind} {}", case.name, resource.name);
            }
        }
    }
}

/// Whoever fetches Secrets and ConfigMaps fetches what is named, and of that what is read.
#[test]
fn what_nothing_names_and_nothing_reads_decides_nothing() {
    let mut kept = 0;
    for case in Case::all() {
        let named: BTreeSet<ObjectKey> =
            case.objects.iter().flat_map(Object::named_content).collect();
        let mut world = World::new();
        for object in &case.objects {
            let mut object = object.clone();
            if object.kind().is_read_by_reference() {
                if !named.contains(&object.key()) {
                    continue;
                }
                kept += 1;
            }
            let read = object.kind().read_entries().unwrap_or_default();
            let is_read = |name: &String| read.contains(&name.as_str());
            match &mut object {
                Object::Secret(secret) => {
                    let secret = Arc::make_mut(secret);
                    secret.data.iter_mut().for_each(|data| data.retain(|name, _| is_read(name)));
                }
                Object::ConfigMap(map) => {
                    let map = Arc::make_mut(map);
                    map.data.iter_mut().for_each(|data| data.retain(|name, _| is_read(name)));
                }
                _ => {}
            }
            object.cut_content();
            world.apply(Event::Applied(object));
        }
        world.settle();
        assert_eq!(case::render(&world), case::render(&case.world()), "{}", case.name);
    }
    assert!(kept > 0, "no case has a Secret that is named");
}

#[test]
fn a_world_that_is_emptied_holds_nothing() {
    for case in Case::all() {
        for seed in 0..ORDERS {
            let mut world = case.world();
            let mut replayed = Replayed::default();
            replayed.replace_all(&world);
            for object in Shuffle::new(seed).shuffled(&case.objects) {
                world.apply(Event::Deleted(object.key()));
                replayed.apply(world.settle());
            }
            assert_eq!(world.units(), 0, "{} in order {seed}", case.name);
            assert!(
                replayed.0.is_empty(),
                "{} in order {seed}: {:?}",
                case.name,
                replayed.0.keys()
            );
            assert_eq!(
                world.statuses().count() + world.fleets().count() + world.routes().count(),
                0
            );
        }
    }
}

#[test]
fn a_settled_world_does_nothing() {
    for case in Case::all() {
        let mut world = case.world();
        assert_eq!(world.settle(), Outcome::default(), "{}", case.name);
        for object in &case.objects {
            world.apply(Event::Applied(object.clone()));
        }
        assert_eq!(world.settle(), Outcome::default(), "{}: the same again", case.name);
    }
}

/// The table that `docs/reference/conditions.md` is made of has all that the cases give, and the cases give all of the table but
/// what only the writer of statuses can say.
#[test]
fn every_condition_is_in_the_table_of_reasons() {
    let mut seen = BTreeSet::new();
    for case in Case::all() {
        for (part, condition) in case::conditions(&case.world()) {
            let [of, status, reason] =
                ["type", "status", "reason"].map(|field| condition[field].as_str().unwrap());
            let row = reasons::ALL.iter().position(|row| {
                row.part() == part
                    && row.r#type().as_str() == of
                    && row.is_true() == (status == "True")
                    && row.as_str() == reason
            });
            let row = row.unwrap_or_else(|| {
                panic!("{}: no row for {part:?} {of} {status} {reason}", case.name)
            });
            seen.insert(row);
        }
    }
    let unseen = (0..reasons::ALL.len()).filter(|row| !seen.contains(row));
    let unseen: Vec<_> = unseen.map(|row| reasons::ALL[row]).collect();
    assert_eq!(unseen, OF_WRITER, "every row wants a golden case, or to be taken away");
}

/// What proxies answer, what operators ordered, what cannot be read, that nothing is in the way of a listener, and what
/// takes a full table (`large.rs`).
const OF_WRITER: &[&Reason] = &[
    reasons::gateway_class::accepted::UNSUPPORTED_VALUE,
    reasons::gateway::programmed::PENDING,
    reasons::gateway::held::ROLLED_BACK,
    reasons::listener::conflicted::NO_CONFLICTS,
    reasons::listener::programmed::PENDING,
    reasons::listener_set::accepted::UNSUPPORTED_VALUE,
    reasons::listener_set::programmed::PENDING,
    reasons::listener_set::programmed::REJECTED_BY_PROXIES,
    reasons::listener_set::held::ROLLED_BACK,
    reasons::route::programmed::REJECTED_BY_PROXIES,
    reasons::route::programmed::LEFT_OUT,
    reasons::route::programmed::TOO_LARGE,
    reasons::view_policy::programmed::REJECTED_BY_PROXIES,
    reasons::view_policy::programmed::LEFT_OUT,
];

/// Snapshots as a publisher would build them from changes.
#[derive(Default)]
struct Replayed(BTreeMap<FleetName, Snapshot>);

impl Replayed {
    fn apply(&mut self, outcome: Outcome) {
        for fleet in outcome.retired {
            self.0.remove(&fleet);
        }
        for (fleet, changes) in outcome.changes {
            let snapshot = self.0.entry(fleet.clone()).or_insert_with(|| Snapshot::empty(fleet));
            *snapshot = snapshot.with(Head::default(), changes);
        }
    }

    fn replace_all(&mut self, world: &World) {
        for fleet in world.fleets() {
            self.0.insert(fleet.name.clone(), snapshot_of(world, &fleet.name));
        }
    }

    fn check(&self, world: &World, case: &str) {
        let fleets: Vec<&FleetName> = world.fleets().map(|fleet| &fleet.name).collect();
        assert_eq!(fleets, self.0.keys().collect::<Vec<_>>(), "{case}");
        for (fleet, snapshot) in &self.0 {
            assert!(snapshot.same_content(&snapshot_of(world, fleet)), "{case}: {fleet}");
        }
    }
}

fn snapshot_of(world: &World, fleet: &FleetName) -> Snapshot {
    let served = world.resources(fleet);
    let served = served.map(|(kind, resource)| Change::Set(kind, Arc::clone(resource)));
    let internals = world.internals(fleet);
    let internals =
        internals.map(|(part, resource)| Change::SetInternal(part, Arc::clone(resource)));
    Snapshot::empty(fleet.clone()).with(Head::default(), served.chain(internals))
}
