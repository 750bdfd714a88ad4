use std::collections::BTreeMap;
use std::fmt::Debug;

/// One unit of work. Units are ordered by stage first.
pub trait Unit: Ord + Clone + Debug {
    /// The place of its entry in the table.
    fn stage(&self) -> usize;

    /// The name of the stage, for counters.
    fn stage_name(&self) -> &'static str;
}

/// Something that a unit can read and that can change: an input, the product of a unit, or an index over products.
pub trait Fact: Ord + Clone + Debug {
    type Unit: Unit;

    /// The fact that a unit has this product.
    fn product(unit: Self::Unit) -> Self;

    /// The unit whose product the fact is, if it is one.
    fn unit(&self) -> Option<&Self::Unit>;

    /// The last stage that changes the fact; `None` for an input.
    fn settled_by(&self) -> Option<usize>;
}

/// Everything that is known, and how units follow from it. [`table!`](crate::table!) generates most of an implementation.
pub trait Table {
    type Unit: Unit;
    type Fact: Fact<Unit = Self::Unit>;

    /// Computes a unit and keeps its product.
    fn compute(&mut self, unit: &Self::Unit) -> Computed<Self::Unit, Self::Fact>;

    /// Drops the product of a unit without any demand. Returns the facts that changed.
    fn forget(&mut self, unit: &Self::Unit) -> Vec<Self::Fact>;

    /// Computes what is shared by all units, before the next unit is computed or at the end. Returns the facts that
    /// changed.
    fn settle_before(&mut self, _next: Option<&Self::Unit>) -> Vec<Self::Fact> {
        Vec::new()
    }
}

/// The result of computing a unit.
#[derive(Debug)]
pub struct Computed<U, F> {
    /// In order, each once.
    pub read: Vec<F>,
    /// The units that exist because of the product. In order, each once.
    pub demands: Vec<U>,
    /// The facts that changed.
    pub changed: Vec<F>,
}

/// Replaces the product of a unit, and returns the facts that changed: for [`table!`](crate::table!).
pub fn keep<K: Ord + Clone, V: PartialEq, F: Fact>(
    products: &mut BTreeMap<K, V>,
    key: &K,
    product: Option<V>,
    changed: impl FnOnce(&K, Option<&V>, Option<&V>) -> Vec<F>,
    unit: impl FnOnce(K) -> F::Unit,
) -> Vec<F> {
    let before = products.get(key);
    if before == product.as_ref() {
        return Vec::new();
    }
    let mut facts = changed(key, before, product.as_ref());
    match product {
        Some(product) => drop(products.insert(key.clone(), product)),
        None => drop(products.remove(key)),
    }
    facts.push(F::product(unit(key.clone())));
    facts
}

/// Generates the units, facts, products and typed getters of a [`Table`](crate::Table) from one entry for each unit.
///
/// The order of the entries is the order of the stages. For an entry
///
/// ```text
/// /// What the unit answers.
/// name: Name(Key) -> Value {
///     compute: function of a reader and a key, to an optional value,
///     demands: function of key and value, to the units that follow,
///     changed: function that updates the indexes, and returns the facts among them that changed,
/// }
/// ```
///
/// there is a variant `Unit::Name`, a map `Products::name`, and `Reader::name`, which records the read. An equal product
/// changes nothing. A fact under `facts` names the last unit that changes it, or `input`.
#[macro_export]
macro_rules! table {
    (
        $facts:ident, $reader:ident;
        units {$(
            $(#[$unit_meta:meta])*
            $name:ident: $unit:ident($key:ty) -> $value:ty {
                compute: $compute:expr,
                $(demands: $demands:expr,)?
                $(changed: $changed:expr,)?
            }
        )*}
        facts {$(
            $(#[$fact_meta:meta])*
            $fact:ident($fact_key:ty) from $source:ident;
        )*}
    ) => {
        /// One unit of translation, the smallest that is done again when something it read has changed. The order of the
        /// variants is the order of the stages.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Unit {$(
            $(#[$unit_meta])*
            $unit($key),
        )*}

        /// Something that a unit can read, and that can change.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Fact {
            /// What a unit came to.
            Product(Unit),
            $(
                $(#[$fact_meta])*
                $fact($fact_key),
            )*
        }

        /// The products of units. A unit without a product is absent.
        #[derive(Debug, Default)]
        pub(crate) struct Products {$(
            pub(crate) $name: ::std::collections::BTreeMap<$key, $value>,
        )*}

        /// The places of the units in the order of stages.
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types, dead_code)]
        enum Stage {
            $($unit,)*
        }

        impl $crate::Unit for Unit {
            fn stage(&self) -> usize {
                match self {
                    $(Self::$unit(_) => Stage::$unit as usize,)*
                }
            }

            fn stage_name(&self) -> &'static str {
                match self {
                    $(Self::$unit(_) => stringify!($name),)*
                }
            }
        }

        impl $crate::Fact for Fact {
            type Unit = Unit;

            fn product(unit: Unit) -> Self {
                Self::Product(unit)
            }

            fn unit(&self) -> Option<&Unit> {
                match self {
                    Self::Product(unit) => Some(unit),
                    _ => None,
                }
            }

            fn settled_by(&self) -> Option<usize> {
                match self {
                    Self::Product(unit) => Some($crate::Unit::stage(unit)),
                    $(Self::$fact(_) => $crate::table!(@stage $source),)*
                }
            }
        }

        impl $facts {
            /// Computes a unit and keeps its product.
            pub(crate) fn compute_unit(&mut self, unit: &Unit) -> $crate::Computed<Unit, Fact> {
                let reader = $reader::of(self, $crate::Unit::stage(unit));
                match unit {$(
                    Unit::$unit(key) => {
                        let compute: fn(&$reader<'_>, &$key) -> Option<$value> = $compute;
                        let product = compute(&reader, key);
                        let read = reader.into_facts();
                        let demands: ::std::collections::BTreeSet<Unit> = match &product {
                            None => Default::default(),
                            Some(_product) => $crate::table!(@demands key, _product $(, $demands)?),
                        };
                        let changed = $crate::keep(
                            &mut self.products.$name,
                            key,
                            product,
                            $crate::table!(@changed &mut self.indexes $(, $changed)?),
                            Unit::$unit,
                        );
                        $crate::Computed { read, demands: demands.into_iter().collect(), changed }
                    }
                )*}
            }

            /// Drops the product of a unit.
            pub(crate) fn forget_unit(&mut self, unit: &Unit) -> Vec<Fact> {
                match unit {
                    $(Unit::$unit(key) => $crate::keep(
                        &mut self.products.$name,
                        key,
                        None,
                        $crate::table!(@changed &mut self.indexes $(, $changed)?),
                        Unit::$unit,
                    ),)*
                }
            }
        }

        #[allow(dead_code)]
        impl<'a> $reader<'a> {$(
            $(#[$unit_meta])*
            pub(crate) fn $name(&self, key: &$key) -> Option<&'a $value> {
                self.reads.record(Fact::Product(Unit::$unit(key.clone())));
                self.facts.products.$name.get(key)
            }
        )*}
    };
    (@stage input) => { None };
    (@stage $source:ident) => { Some(Stage::$source as usize) };
    (@demands $key:ident, $product:ident) => { Default::default() };
    (@demands $key:ident, $product:ident, $demands:expr) => { ($demands)($key, $product) };
    (@changed $indexes:expr) => { |_, _, _| Vec::new() };
    (@changed $indexes:expr, $changed:expr) => {
        |key, before, after| ($changed)($indexes, key, before, after)
    };
}
