//! What a table must not do: each of these has one mistake, which an assertion finds in the first unit that makes it.

#![cfg(debug_assertions)]
// No mistake needs all facts.
#![allow(dead_code)]

/// A table of two stages over bytes, with one function for each thing that may be wrong. `Early` is settled by the first
/// stage and `Late` by the second.
macro_rules! mistaken {
    ($mistake:ident, $second_reads:expr, $demands:expr, $changed:expr) => {
        mod $mistake {
            use heliograph_engine::{Computed, Engine, Reads, Table};
            use std::collections::BTreeSet;

            heliograph_engine::table! {
                Bytes, Reader;
                units {
                    first: First(u8) -> u8 {
                        compute: |_, key| Some(*key),
                        demands: |_: &u8, key: &u8| BTreeSet::from([Unit::Second(*key)]),
                    }
                    second: Second(u8) -> u8 {
                        compute: |reader: &Reader<'_>, key| {
                            let read: fn(u8) -> Vec<Fact> = $second_reads;
                            read(*key).into_iter().for_each(|fact| reader.reads.record(fact));
                            Some(*key)
                        },
                        demands: $demands,
                        changed: $changed,
                    }
                }
                facts {
                    Given(u8) from input;
                    Early(u8) from First;
                    Late(u8) from Second;
                }
            }

            #[derive(Debug, Default)]
            struct Bytes {
                products: Products,
                indexes: (),
            }

            struct Reader<'a> {
                facts: &'a Bytes,
                reads: Reads<Fact>,
            }

            impl<'a> Reader<'a> {
                fn of(facts: &'a Bytes, stage: usize) -> Self {
                    Self { facts, reads: Reads::of_stage(stage) }
                }

                fn into_facts(self) -> Vec<Fact> {
                    self.reads.into_facts()
                }
            }

            impl Table for Bytes {
                type Unit = Unit;
                type Fact = Fact;

                fn compute(&mut self, unit: &Unit) -> Computed<Unit, Fact> {
                    self.compute_unit(unit)
                }

                fn forget(&mut self, unit: &Unit) -> Vec<Fact> {
                    self.forget_unit(unit)
                }
            }

            pub(super) fn settle() -> u64 {
                let mut engine = Engine::new(Bytes::default());
                engine.demand(&Fact::Given(1), BTreeSet::from([Unit::First(1)]));
                engine.settle().total()
            }
        }
    };
}

mistaken!(
    none,
    |key| vec![Fact::Given(key), Fact::Early(key)],
    |_: &u8, _: &u8| BTreeSet::new(),
    |_: &mut (), key: &u8, _, _| vec![Fact::Late(*key)]
);
mistaken!(
    reads_what_is_not_settled,
    |key| vec![Fact::Late(key)],
    |_: &u8, _: &u8| BTreeSet::new(),
    |_: &mut (), _: &u8, _, _| Vec::new()
);
mistaken!(
    demands_an_earlier_stage,
    |_| Vec::new(),
    |_: &u8, key: &u8| BTreeSet::from([Unit::First(*key + 1)]),
    |_: &mut (), _: &u8, _, _| Vec::new()
);
mistaken!(
    changes_what_is_settled,
    |_| Vec::new(),
    |_: &u8, _: &u8| BTreeSet::new(),
    |_: &mut (), key: &u8, _, _| vec![Fact::Early(*key)]
);
mistaken!(
    changes_an_input,
    |_| Vec::new(),
    |_: &u8, _: &u8| BTreeSet::new(),
    |_: &mut (), key: &u8, _, _| vec![Fact::Given(*key)]
);

#[test]
fn a_table_without_mistakes_settles() {
    assert_eq!(none::settle(), 2);
}

#[test]
#[should_panic(expected = "which a later stage may still change")]
fn a_unit_reads_only_what_earlier_stages_settle() {
    reads_what_is_not_settled::settle();
}

#[test]
#[should_panic(expected = "demands a unit of its own or an earlier stage")]
fn a_unit_demands_only_units_of_later_stages() {
    demands_an_earlier_stage::settle();
}

#[test]
#[should_panic(expected = "which no unit of its stage may change any more")]
fn a_unit_changes_only_what_no_earlier_stage_settles() {
    changes_what_is_settled::settle();
}

#[test]
#[should_panic(expected = "which no unit of its stage may change any more")]
fn a_unit_changes_no_input() {
    changes_an_input::settle();
}
