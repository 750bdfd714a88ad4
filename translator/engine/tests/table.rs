//! A table with two stages over numbers: what the engine keeps is what computing everything anew gives, and it computes
//! no more than what a change concerns.

use heliograph_engine::{Computed, Engine, Reads, Relation, Table, Work};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

heliograph_engine::table! {
    Numbers, Reader;
    units {
        /// The number of a name, and to which group it belongs.
        member: Member(u8) -> (u8, i64) {
            compute: |reader, name| {
                let number = reader.number(*name)?;
                Some((number.unsigned_abs() as u8 % 3, number))
            },
            demands: |_: &u8, member: &(u8, i64)| BTreeSet::from([Unit::Sum(member.0)]),
            changed: Indexes::move_member,
        }
        /// The sum of a group.
        sum: Sum(u8) -> i64 {
            compute: |reader, group| Some(reader.members(*group)),
        }
    }
    facts {
        /// What is given.
        Number(u8) from input;
        /// Who belongs to a group.
        Group(u8) from Member;
    }
}

#[derive(Debug, Default)]
struct Numbers {
    given: BTreeMap<u8, i64>,
    products: Products,
    indexes: Indexes,
}

#[derive(Debug, Default)]
struct Indexes {
    groups: Relation<u8, u8>,
}

struct Reader<'a> {
    facts: &'a Numbers,
    reads: Reads<Fact>,
}

impl<'a> Reader<'a> {
    fn of(facts: &'a Numbers, stage: usize) -> Self {
        Self { facts, reads: Reads::of_stage(stage) }
    }

    fn into_facts(self) -> Vec<Fact> {
        self.reads.into_facts()
    }

    fn number(&self, name: u8) -> Option<i64> {
        self.reads.record(Fact::Number(name));
        self.facts.given.get(&name).copied()
    }

    fn members(&self, group: u8) -> i64 {
        self.reads.record(Fact::Group(group));
        let members = self.facts.indexes.groups.of(&group);
        members.filter_map(|name| self.member(name)).map(|member| member.1).sum()
    }
}

impl Indexes {
    fn move_member(
        &mut self,
        name: &u8,
        before: Option<&(u8, i64)>,
        after: Option<&(u8, i64)>,
    ) -> Vec<Fact> {
        let (before, after) = (before.map(|it| it.0), after.map(|it| it.0));
        if before == after {
            return Vec::new();
        }
        before.iter().for_each(|group| self.groups.remove(group, name));
        after.iter().for_each(|group| self.groups.insert(*group, *name));
        before.into_iter().chain(after).map(Fact::Group).collect()
    }
}

impl Table for Numbers {
    type Unit = Unit;
    type Fact = Fact;

    fn compute(&mut self, unit: &Unit) -> Computed<Unit, Fact> {
        self.compute_unit(unit)
    }

    fn forget(&mut self, unit: &Unit) -> Vec<Fact> {
        self.forget_unit(unit)
    }
}

fn set(engine: &mut Engine<Numbers>, name: u8, number: Option<i64>) -> Work {
    let before = match number {
        Some(number) => engine.table.given.insert(name, number),
        None => engine.table.given.remove(&name),
    };
    let units = number.map(|_| Unit::Member(name)).into_iter().collect();
    engine.demand(&Fact::Number(name), units);
    if before != number {
        engine.touch(vec![Fact::Number(name)]);
    }
    engine.settle()
}

fn new() -> Engine<Numbers> {
    Engine::new(Numbers::default())
}

#[test]
fn an_equal_product_makes_nobody_dirty() {
    let mut engine = new();
    assert_eq!(set(&mut engine, 1, Some(3)).total(), 2);
    assert_eq!(set(&mut engine, 1, Some(3)).total(), 0);
    // Another group of the same numbers is not computed.
    assert_eq!(set(&mut engine, 2, Some(4)).total(), 2);
    assert_eq!(
        set(&mut engine, 1, Some(6)).by_stage().collect::<Vec<_>>(),
        [("member", 1), ("sum", 1)]
    );
}

#[test]
fn a_unit_that_nobody_demands_is_gone_with_its_product() {
    let mut engine = new();
    set(&mut engine, 1, Some(3));
    assert_eq!((engine.graph().units(), engine.table.products.sum.len()), (2, 1));
    set(&mut engine, 1, None);
    assert_eq!((engine.graph().units(), engine.table.products.sum.len()), (0, 0));
    assert!(!engine.is_demanded(Unit::Sum(0)));
}

proptest! {
    #[test]
    fn it_is_as_if_everything_were_computed_anew(
        steps in prop::collection::vec((0..12_u8, prop::option::of(-9..9_i64)), 0..60),
    ) {
        let mut engine = new();
        for (name, number) in steps {
            set(&mut engine, name, number);
        }
        let mut anew = new();
        for (name, number) in engine.table.given.clone() {
            set(&mut anew, name, Some(number));
        }
        prop_assert_eq!(&engine.table.products.member, &anew.table.products.member);
        prop_assert_eq!(&engine.table.products.sum, &anew.table.products.sum);
        prop_assert_eq!(engine.graph().units(), anew.graph().units());
    }
}
