//! How much room routes take in route tables, and which of them do not fit. It is known before anything of a route is
//! expanded, and which routes are left out depends on the routes alone, not on the order in which they came: the
//! youngest go first.

mod table;

use crate::ir::{Hostname, TableKey};
use crate::limits::Limits;
use crate::objects::{ObjectKey, Seniority};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::Table;

/// What a route would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// When the object was made, in seconds.
    pub(crate) created: i64,
    /// In bytes, at each host.
    pub(crate) size: u64,
    pub(crate) hosts: BTreeSet<(TableKey, Hostname)>,
}

/// Which budget a route is beyond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// By itself; how many bytes it would take.
    Route(u64),
    /// Together with older routes of its namespace.
    Namespace,
    /// In these tables, together with older routes of whatever namespace.
    Tables(BTreeSet<TableKey>),
}

/// How many routes are refused, by the budget that they are beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverBudget {
    /// By one of their regular expressions.
    pub expression: usize,
    /// By themselves.
    pub route: usize,
    /// Together with older routes of their namespace.
    pub namespace: usize,
    /// In one of their tables, together with older routes of whatever namespace.
    pub table: usize,
}

/// All routes, and those that do not fit.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    costs: BTreeMap<ObjectKey, Cost>,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    tables: BTreeMap<TableKey, Table>,
    excess: BTreeMap<ObjectKey, Excess>,
    /// How many there are in `excess`.
    over: OverBudget,
    /// Those that are refused for a regular expression, so that nothing is known of what they would take.
    expressions: BTreeSet<ObjectKey>,
}

#[derive(Debug, Default)]
struct Namespace {
    sizes: BTreeMap<Seniority, u64>,
    total: u64,
    /// The youngest, which do not fit.
    over: BTreeSet<Seniority>,
}

impl Cost {
    /// In all its hosts.
    fn total(&self) -> u64 {
        self.size.saturating_mul(self.hosts.len() as u64)
    }

    fn age(&self, route: &ObjectKey) -> Seniority {
        Seniority::new(self.created, route)
    }
}

impl Budgets {
    /// Takes over what a route would take now; `None` if it is gone. Returns the routes of which another thing is true
    /// than before.
    pub(crate) fn set(
        &mut self,
        limits: &Limits,
        route: &ObjectKey,
        cost: Option<Cost>,
    ) -> Vec<ObjectKey> {
        if self.costs.get(route) == cost.as_ref() {
            return Vec::new();
        }
        let mut affected = BTreeSet::from([route.clone()]);
        let mut tables = BTreeSet::new();
        if let Some(before) = self.costs.remove(route) {
            self.remove(route, &before, &mut tables);
        }
        if let Some(cost) = cost {
            if cost.total() <= limits.route_bytes {
                let namespace = self.namespaces.entry(route.name.namespace.clone()).or_default();
                namespace.total += cost.total();
                namespace.sizes.insert(cost.age(route), cost.total());
                self.enter_tables(route, &cost, &mut tables);
            }
            self.costs.insert(route.clone(), cost);
        }
        self.settle_namespace(limits, &route.name.namespace, &mut affected, &mut tables);
        for key in tables {
            let Some(table) = self.tables.get_mut(&key) else { continue };
            affected
                .extend(table.settle(limits.table_bytes).into_iter().map(|age| age.key().clone()));
            if table.is_empty() {
                self.tables.remove(&key);
            }
        }
        affected.retain(|route| self.judge(limits, route));
        affected.into_iter().collect()
    }

    /// Which budget a route is beyond, if any.
    pub(crate) fn excess(&self, route: &ObjectKey) -> Option<&Excess> {
        self.excess.get(route)
    }

    /// Whether a route is refused for a regular expression.
    pub(crate) fn set_expression(&mut self, route: &ObjectKey, is_refused: bool) {
        match is_refused {
            true => self.expressions.insert(route.clone()),
            false => self.expressions.remove(route),
        };
    }

    pub(crate) fn over(&self) -> OverBudget {
        OverBudget { expression: self.expressions.len(), ..self.over }
    }

    fn remove(&mut self, route: &ObjectKey, cost: &Cost, tables: &mut BTreeSet<TableKey>) {
        let age = cost.age(route);
        let Some(namespace) = self.namespaces.get_mut(&route.name.namespace) else { return };
        let Some(size) = namespace.sizes.remove(&age) else { return };
        namespace.total -= size;
        if !namespace.over.remove(&age) {
            self.leave_tables(route, cost, tables);
        }
    }

    fn enter_tables(&mut self, route: &ObjectKey, cost: &Cost, tables: &mut BTreeSet<TableKey>) {
        for (key, host) in &cost.hosts {
            let table = self.tables.entry(key.clone()).or_default();
            table.enter(&cost.age(route), cost.size, host);
            tables.insert(key.clone());
        }
    }

    fn leave_tables(&mut self, route: &ObjectKey, cost: &Cost, tables: &mut BTreeSet<TableKey>) {
        for (key, host) in &cost.hosts {
            if let Some(table) = self.tables.get_mut(key) {
                table.leave(&cost.age(route), cost.size, host);
            }
            tables.insert(key.clone());
        }
    }

    /// Finds who is beyond the budget of a namespace. Those are in no table.
    fn settle_namespace(
        &mut self,
        limits: &Limits,
        name: &Arc<str>,
        affected: &mut BTreeSet<ObjectKey>,
        tables: &mut BTreeSet<TableKey>,
    ) {
        let Some(namespace) = self.namespaces.get_mut(name) else { return };
        if namespace.sizes.is_empty() {
            self.namespaces.remove(name);
            return;
        }
        let over = match namespace.total <= limits.namespace_bytes {
            true => BTreeSet::new(),
            false => youngest(&namespace.sizes, limits.namespace_bytes),
        };
        let before = std::mem::replace(&mut namespace.over, over.clone());
        for age in before.symmetric_difference(&over) {
            affected.insert(age.key().clone());
            let Some(cost) = self.costs.get(age.key()).cloned() else { continue };
            match over.contains(age) {
                true => self.leave_tables(age.key(), &cost, tables),
                false => self.enter_tables(age.key(), &cost, tables),
            }
        }
    }

    /// Whether what is true of a route has changed.
    fn judge(&mut self, limits: &Limits, route: &ObjectKey) -> bool {
        let excess = self.costs.get(route).and_then(|cost| self.excess_of(limits, route, cost));
        if self.excess.get(route) == excess.as_ref() {
            return false;
        }
        if let Some(excess) = &excess {
            *self.over.of(excess) += 1;
        }
        let before = match excess {
            Some(excess) => self.excess.insert(route.clone(), excess),
            None => self.excess.remove(route),
        };
        if let Some(before) = &before {
            *self.over.of(before) -= 1;
        }
        true
    }

    fn excess_of(&self, limits: &Limits, route: &ObjectKey, cost: &Cost) -> Option<Excess> {
        if cost.total() > limits.route_bytes {
            return Some(Excess::Route(cost.total()));
        }
        let age = cost.age(route);
        let namespace = self.namespaces.get(&route.name.namespace);
        if namespace.is_some_and(|namespace| namespace.over.contains(&age)) {
            return Some(Excess::Namespace);
        }
        let is_over = |key: &TableKey| self.tables.get(key).is_some_and(|it| it.is_over(&age));
        let tables = cost.hosts.iter().map(|(key, _)| key).filter(|key| is_over(key));
        let tables: BTreeSet<_> = tables.cloned().collect();
        (!tables.is_empty()).then_some(Excess::Tables(tables))
    }
}

impl OverBudget {
    fn of(&mut self, excess: &Excess) -> &mut usize {
        match excess {
            Excess::Route(_) => &mut self.route,
            Excess::Namespace => &mut self.namespace,
            Excess::Tables(_) => &mut self.table,
        }
    }
}

/// Who has to go, so that the others fit.
fn youngest(sizes: &BTreeMap<Seniority, u64>, most: u64) -> BTreeSet<Seniority> {
    let mut sum = 0_u64;
    let fits = |(_, size): &(&Seniority, &u64)| {
        sum = sum.saturating_add(**size);
        sum <= most
    };
    sizes.iter().skip_while(fits).map(|(age, _)| age.clone()).collect()
}

#[cfg(test)]
mod tests;
