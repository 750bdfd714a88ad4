use super::*;
use proptest::prelude::*;

const IDLE: Duration = Duration::from_secs(10);

fn name(number: u8) -> FleetName {
    FleetName::new("default", &format!("fleet-{number:03}"))
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn budget(limit: u64, sizes: &[u64]) -> Budget {
    let mut budget = Budget::new(limit, IDLE);
    for (number, bytes) in sizes.iter().enumerate() {
        budget.set_size(&name(number as u8), *bytes);
    }
    budget
}

fn ahead(budget: &mut Budget, now: Duration) -> Vec<FleetName> {
    std::iter::from_fn(|| budget.next_ahead(now)).collect()
}

#[test]
fn the_smallest_are_loaded_ahead_as_long_as_they_fit() {
    let mut budget = budget(100, &[90, 30, 40, 50]);
    assert_eq!(ahead(&mut budget, at(0)), [name(1), name(2)]);
    assert_eq!(budget.used(), 70);
    // One that shrinks, one that is new, and one that is too large.
    budget.set_size(&name(3), 20);
    budget.set_size(&name(4), 10);
    budget.set_size(&name(5), 1);
    assert_eq!(ahead(&mut budget, at(1)), [name(5), name(4)]);
}

#[test]
fn what_had_clients_before_a_restart_is_loaded_first_as_far_as_it_fits() {
    let mut budget = budget(100, &[10, 60, 90, 30, 20]);
    for (number, last_use) in [(3, 500), (2, 1_000), (1, 2_000)] {
        budget.prefer(&name(number), last_use);
    }
    assert_eq!(ahead(&mut budget, at(0)), [name(1), name(3), name(0)]);
    assert_eq!(budget.used(), 100);
    budget.prefer(&name(1), 9_000);
    assert_eq!(budget.used(), 100, "it is kept already");
    budget.forget(&name(1));
    assert_eq!(ahead(&mut budget, at(1)), [name(4)]);
}

#[test]
fn what_clients_ask_for_is_loaded_whatever_it_takes() {
    let mut budget = budget(100, &[60, 500]);
    assert_eq!(ahead(&mut budget, at(0)), [name(0)]);
    assert!(budget.in_use(&name(1), at(1)), "it is to be loaded");
    assert!(!budget.in_use(&name(1), at(2)), "once");
    assert!(!budget.in_use(&name(0), at(2)), "it is there");
    assert!(!budget.in_use(&name(9), at(2)), "there is no such fleet");
    assert_eq!(budget.used(), 560);
    assert!(budget.to_drop(at(11)).is_empty(), "both were in use lately");
}

#[test]
fn what_was_unused_for_longest_goes_first_and_no_more_than_it_takes() {
    let mut budget = budget(100, &[40, 40, 40]);
    for number in [2, 0, 1] {
        budget.in_use(&name(number), at(u64::from(number)));
    }
    assert!(budget.to_drop(at(9)).is_empty(), "none is idle");
    budget.in_use(&name(0), at(12));
    assert_eq!(budget.to_drop(at(12)), [name(1)]);
    budget.dropped(&name(1));
    assert_eq!(budget.used(), 80);
    assert!(budget.to_drop(at(1000)).is_empty(), "what fits stays, used or not");
}

/// Its comings and goings push the others out once, and not again and again.
#[test]
fn one_huge_fleet_does_not_make_the_others_come_and_go() {
    let mut budget = budget(100, &[30, 30, 30, 1000]);
    assert_eq!(ahead(&mut budget, at(0)).len(), 3);
    let drop_at = |budget: &mut Budget, now| {
        let names = budget.to_drop(now);
        names.iter().for_each(|name| budget.dropped(name));
        names
    };
    for round in 1..100 {
        let now = at(round * 100);
        assert!(budget.in_use(&name(3), now));
        budget.in_use(&name(3), now + at(20));
        let pushed_out = drop_at(&mut budget, now + at(20)).len();
        assert_eq!(pushed_out, if round == 1 { 3 } else { 0 });
        assert_eq!(drop_at(&mut budget, now + at(90)), [name(3)], "it is unused itself");
        assert!(ahead(&mut budget, now + at(90)).is_empty(), "they come when a client asks");
    }
}

#[test]
fn a_fleet_that_comes_back_begins_anew() {
    let mut budget = budget(100, &[60]);
    assert_eq!(ahead(&mut budget, at(0)).len(), 1);
    budget.forget(&name(0));
    assert_eq!(budget.used(), 0);
    budget.set_size(&name(0), 50);
    assert_eq!(ahead(&mut budget, at(1)), [name(0)]);
}

#[derive(Clone, Debug)]
enum Step {
    Note(u8, u64),
    Forget(u8),
    Use(u8),
    Ahead,
    Drop,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..12u8, 0..60u64).prop_map(|(fleet, bytes)| Step::Note(fleet, bytes)),
        (0..12u8).prop_map(Step::Forget),
        (0..12u8).prop_map(Step::Use),
        Just(Step::Ahead),
        Just(Step::Drop),
        (1..20u64).prop_map(Step::Wait),
    ]
}

/// A model of the budget's invariants, from its outputs alone.
#[derive(Default)]
struct Model {
    bytes: BTreeMap<FleetName, u64>,
    /// When each that is kept was last used.
    kept: BTreeMap<FleetName, Duration>,
    /// Those that were loaded ahead or for a client since they were there.
    loaded: BTreeSet<FleetName>,
}

impl Model {
    fn used(&self) -> u64 {
        self.kept.keys().map(|name| self.bytes[name]).sum()
    }
}

const LIMIT: u64 = 150;

proptest! {
    #[test]
    fn the_budget_keeps_its_promises(steps in prop::collection::vec(step(), 0..200)) {
        let (mut budget, mut model, mut now) = (Budget::new(LIMIT, IDLE), Model::default(), at(0));
        for step in steps {
            match step {
                Step::Note(fleet, bytes) => {
                    budget.set_size(&name(fleet), bytes);
                    model.bytes.insert(name(fleet), bytes);
                }
                Step::Forget(fleet) => {
                    budget.forget(&name(fleet));
                    model.bytes.remove(&name(fleet));
                    model.kept.remove(&name(fleet));
                    model.loaded.remove(&name(fleet));
                }
                Step::Use(fleet) => {
                    let known = model.bytes.contains_key(&name(fleet));
                    let was_kept = model.kept.contains_key(&name(fleet));
                    prop_assert_eq!(budget.in_use(&name(fleet), now), known && !was_kept);
                    if known {
                        model.kept.insert(name(fleet), now);
                        model.loaded.insert(name(fleet));
                    }
                }
                Step::Ahead => {
                    while let Some(fleet) = budget.next_ahead(now) {
                        prop_assert!(model.loaded.insert(fleet.clone()), "{} ahead again", fleet);
                        prop_assert!(model.kept.insert(fleet, now).is_none());
                        prop_assert!(model.used() <= LIMIT, "more ahead than fits");
                    }
                    let left = model.bytes.iter().filter(|(name, _)| !model.loaded.contains(*name));
                    for (name, bytes) in left {
                        prop_assert!(model.used() + bytes > LIMIT, "{} would fit", name);
                    }
                }
                Step::Drop => {
                    let dropped = budget.to_drop(now);
                    prop_assert!(dropped.is_empty() || model.used() > LIMIT);
                    for name in &dropped {
                        prop_assert!(model.used() > LIMIT, "more than it takes");
                        let last_use = model.kept.remove(name);
                        prop_assert!(last_use.is_some_and(|at| now - at >= IDLE), "{} is in use", name);
                        let older = model.kept.values().filter(|at| Some(**at) < last_use).count();
                        prop_assert_eq!(older, 0, "others are unused for longer");
                        budget.dropped(name);
                    }
                    let all_lately = model.kept.values().all(|at| now - *at < IDLE);
                    prop_assert!(model.used() <= LIMIT || all_lately, "too much is kept unused");
                }
                Step::Wait(seconds) => now += at(seconds),
            }
            prop_assert_eq!(budget.used(), model.used());
        }
    }
}
