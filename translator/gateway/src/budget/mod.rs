//! How much room routes take in route tables, and which of them do not fit. The size is computed before a route is
//! expanded. Which routes are left out depends on the routes alone, not on the order in which they came: of a namespace
//! the youngest first, and of a table those of namespaces that use more than their share.

mod matching;
mod shares;
mod table;

use crate::limits::Limits;
use heliograph_model::{FrozenSet, Hostname, RouteAge, RouteId, TableKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use table::Table;

/// The size that a route would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// When the object was made, in seconds.
    pub(crate) created: i64,
    /// In bytes, at each host.
    pub(crate) size: u64,
    /// Of the regular expressions that Envoy tries at each host to find out whether the route matches.
    pub(crate) instructions: u64,
    pub(crate) hosts: FrozenSet<(TableKey, Hostname)>,
}

/// Which budget a route is beyond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// By itself; how many bytes it would take.
    Route(u64),
    /// Together with older routes of its namespace.
    Namespace,
    /// At this hostname, together with the regular expressions of older routes of its namespace.
    Hostname(Hostname),
    /// In these tables, together with the routes of other namespaces.
    Tables(BTreeMap<TableKey, Loss>),
}

/// The part of a route that is left out of a table, because its namespace uses more than its share there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    All,
    /// The copies at hosts of these namespaces.
    Copies(BTreeSet<Arc<str>>),
}

/// The results that may have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// The budget that these are beyond.
    pub(crate) routes: Vec<RouteId>,
    /// Which routes these are without.
    pub(crate) hosts: Vec<(TableKey, Hostname)>,
}

/// The routes that a host is without, although they are for it as well.
#[derive(Clone, Copy)]
pub(crate) struct NotCopied<'a>(&'a BTreeMap<Arc<str>, RouteAge>);

/// How many routes are refused, by the budget that they are beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverBudget {
    /// By one of their regular expressions.
    pub expression: usize,
    /// By themselves.
    pub route: usize,
    /// Together with older routes of their namespace.
    pub namespace: usize,
    /// With the regular expressions that older routes of their namespace have for one of their hostnames.
    pub hostname: usize,
    /// In one of their tables, where their namespace takes more than its share; all of a route, or copies.
    pub table: usize,
}

/// All routes, and those that do not fit.
#[derive(Debug, Default)]
pub(crate) struct Budgets {
    costs: BTreeMap<RouteId, Cost>,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    tables: BTreeMap<TableKey, Table>,
    excess: BTreeMap<RouteId, Excess>,
    /// How many there are in `excess`.
    over: OverBudget,
    /// Those that are refused for a regular expression, so that nothing is known of what they would take.
    expressions: BTreeSet<RouteId>,
    unsettled: Unsettled,
}

/// The changes since the budgets were last settled.
#[derive(Debug, Default)]
struct Unsettled {
    routes: BTreeSet<RouteId>,
    namespaces: BTreeSet<Arc<str>>,
    tables: BTreeSet<TableKey>,
}

#[derive(Debug, Default)]
struct Namespace {
    sizes: BTreeMap<RouteAge, u64>,
    total: u64,
    /// The youngest, which do not fit.
    over: BTreeSet<RouteAge>,
    /// Those that have regular expressions, with the number of instructions.
    expressions: BTreeMap<RouteAge, u64>,
    instructions: u64,
    /// Those whose expressions do not fit, with the hostname.
    over_at_hostname: BTreeMap<RouteAge, Hostname>,
    /// Whether routes with regular expressions have changed since it was last worked out which of them fit.
    is_stale: bool,
}

impl Cost {
    /// In all its hosts.
    fn total(&self) -> u64 {
        self.size.saturating_mul(self.hosts.len() as u64)
    }

    fn age(&self, route: &RouteId) -> RouteAge {
        RouteAge::new(self.created, route.clone())
    }
}

impl NotCopied<'_> {
    pub(crate) fn contains(self, created: i64, route: &RouteId) -> bool {
        let first = self.0.get(&route.name.namespace);
        first.is_some_and(|first| RouteAge::new(created, route.clone()) >= *first)
    }
}

impl Budgets {
    /// Sets the size that a route would have now; `None` if it is gone. [`Budgets::settle`] computes the consequences.
    pub(crate) fn set(&mut self, limits: &Limits, route: &RouteId, cost: Option<Cost>) {
        if self.costs.get(route) == cost.as_ref() {
            return;
        }
        self.unsettled.routes.insert(route.clone());
        self.unsettled.namespaces.insert(route.name.namespace.clone());
        if let Some(before) = self.costs.remove(route) {
            self.remove(route, &before);
        }
        if let Some(cost) = cost {
            if cost.total() <= limits.route_bytes {
                let namespace = self.namespaces.entry(route.name.namespace.clone()).or_default();
                namespace.total += cost.total();
                namespace.sizes.insert(cost.age(route), cost.total());
                namespace.add_expressions(cost.age(route), cost.instructions);
                self.enter_tables(route, &cost);
            }
            self.costs.insert(route.clone(), cost);
        }
    }

    /// Works out what fits. This is done once for all routes that have changed: at a table that is full, it is work in
    /// proportion to the table.
    pub(crate) fn settle(&mut self, limits: &Limits) -> Changed {
        let mut affected = std::mem::take(&mut self.unsettled.routes);
        for namespace in std::mem::take(&mut self.unsettled.namespaces) {
            self.settle_namespace(limits, &namespace, &mut affected);
        }
        let mut changed = Changed::default();
        for key in std::mem::take(&mut self.unsettled.tables) {
            let Some(table) = self.tables.get_mut(&key) else { continue };
            let (routes, hosts) = table.settle(limits.table_bytes);
            affected.extend(routes.into_iter().map(|age| age.of().clone()));
            changed.hosts.extend(hosts.into_iter().map(|host| (key.clone(), host)));
            if table.is_empty() {
                self.tables.remove(&key);
            }
        }
        affected.retain(|route| self.judge(limits, route));
        changed.routes = affected.into_iter().collect();
        changed
    }

    /// Which budget a route is beyond, if any.
    pub(crate) fn excess(&self, route: &RouteId) -> Option<&Excess> {
        self.excess.get(route)
    }

    /// The routes that a host of a table is without, if any.
    pub(crate) fn not_copied(&self, table: &TableKey, host: &Hostname) -> Option<NotCopied<'_>> {
        self.tables.get(table)?.not_copied_to(host).map(NotCopied)
    }

    /// Whether a route is refused for a regular expression.
    pub(crate) fn set_expression(&mut self, route: &RouteId, is_refused: bool) {
        match is_refused {
            true => self.expressions.insert(route.clone()),
            false => self.expressions.remove(route),
        };
    }

    pub(crate) fn over(&self) -> OverBudget {
        OverBudget { expression: self.expressions.len(), ..self.over }
    }

    fn remove(&mut self, route: &RouteId, cost: &Cost) {
        let age = cost.age(route);
        let Some(namespace) = self.namespaces.get_mut(&route.name.namespace) else { return };
        let Some(size) = namespace.sizes.remove(&age) else { return };
        namespace.total -= size;
        namespace.remove_expressions(&age);
        let is_over = namespace.over.remove(&age);
        let is_over_at_hostname = namespace.over_at_hostname.remove(&age).is_some();
        if !is_over && !is_over_at_hostname {
            self.leave_tables(route, cost);
        }
    }

    fn enter_tables(&mut self, route: &RouteId, cost: &Cost) {
        for (key, host) in &cost.hosts {
            let table = self.tables.entry(key.clone()).or_default();
            table.enter(&cost.age(route), cost.size, host);
            self.unsettled.tables.insert(key.clone());
        }
    }

    fn leave_tables(&mut self, route: &RouteId, cost: &Cost) {
        for (key, host) in &cost.hosts {
            if let Some(table) = self.tables.get_mut(key) {
                table.leave(&cost.age(route), cost.size, host);
            }
            self.unsettled.tables.insert(key.clone());
        }
    }

    /// Finds who is beyond the budget of a namespace, or of one of its hostnames. Those are in no table.
    fn settle_namespace(
        &mut self,
        limits: &Limits,
        name: &Arc<str>,
        affected: &mut BTreeSet<RouteId>,
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
        let before = std::mem::replace(&mut namespace.over, over);
        let changed: Vec<_> = before.symmetric_difference(&namespace.over).cloned().collect();
        if !namespace.is_stale && changed.is_empty() {
            return;
        }
        let before_at_hostname = namespace.settle_expressions(&self.costs, limits.host_regex_size);
        let at_hostname = table::changed(&before_at_hostname, &namespace.over_at_hostname);
        let changed: BTreeSet<_> = changed.iter().chain(at_hostname).cloned().collect();
        let (over, at_hostname) = (&namespace.over, &namespace.over_at_hostname);
        let is_out = |age: &RouteAge| over.contains(age) || at_hostname.contains_key(age);
        let was_out = |age: &RouteAge| before.contains(age) || before_at_hostname.contains_key(age);
        let moved = changed.iter().map(|age| (age, was_out(age), is_out(age)));
        let moved: Vec<_> = moved.filter(|(_, was_out, is_out)| was_out != is_out).collect();
        for (age, _, is_out) in moved {
            let Some(cost) = self.costs.get(age.of()).cloned() else { continue };
            match is_out {
                true => self.leave_tables(age.of(), &cost),
                false => self.enter_tables(age.of(), &cost),
            }
        }
        affected.extend(changed.iter().map(|age| age.of().clone()));
    }

    /// Whether what is true of a route has changed.
    fn judge(&mut self, limits: &Limits, route: &RouteId) -> bool {
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

    fn excess_of(&self, limits: &Limits, route: &RouteId, cost: &Cost) -> Option<Excess> {
        if cost.total() > limits.route_bytes {
            return Some(Excess::Route(cost.total()));
        }
        let age = cost.age(route);
        let namespace = self.namespaces.get(&route.name.namespace);
        if namespace.is_some_and(|namespace| namespace.over.contains(&age)) {
            return Some(Excess::Namespace);
        }
        let over_at_hostname = namespace.and_then(|it| it.over_at_hostname.get(&age));
        if let Some(hostname) = over_at_hostname {
            return Some(Excess::Hostname(hostname.clone()));
        }
        let loss = |key: &TableKey| {
            let table = self.tables.get(key)?;
            match table.is_refused(&age) {
                true => Some(Loss::All),
                false => table.not_copied(&age).cloned().map(Loss::Copies),
            }
        };
        let keys: BTreeSet<_> = cost.hosts.iter().map(|(key, _)| key).collect();
        let tables = keys.into_iter().filter_map(|key| Some((key.clone(), loss(key)?)));
        let tables: BTreeMap<_, _> = tables.collect();
        (!tables.is_empty()).then_some(Excess::Tables(tables))
    }
}

impl OverBudget {
    fn of(&mut self, excess: &Excess) -> &mut usize {
        match excess {
            Excess::Route(_) => &mut self.route,
            Excess::Namespace => &mut self.namespace,
            Excess::Hostname(_) => &mut self.hostname,
            Excess::Tables(_) => &mut self.table,
        }
    }
}

impl Namespace {
    fn add_expressions(&mut self, age: RouteAge, instructions: u64) {
        if instructions > 0 {
            self.instructions = self.instructions.saturating_add(instructions);
            self.expressions.insert(age, instructions);
            self.is_stale = true;
        }
    }

    fn remove_expressions(&mut self, age: &RouteAge) {
        if let Some(instructions) = self.expressions.remove(age) {
            self.instructions = self.instructions.saturating_sub(instructions);
            self.is_stale = true;
        }
    }

    /// Finds whose regular expressions do not fit. Returns what was true before.
    fn settle_expressions(
        &mut self,
        costs: &BTreeMap<RouteId, Cost>,
        most: u64,
    ) -> BTreeMap<RouteAge, Hostname> {
        self.is_stale = false;
        // No hostname can have more than all of them together, so a namespace with few needs no closer look.
        let over = match self.instructions <= most {
            true => BTreeMap::new(),
            false => {
                let others = self.expressions.keys().filter(|age| !self.over.contains(age));
                let routes = others.filter_map(|age| Some((age, costs.get(age.of())?)));
                matching::beyond(&routes.collect::<Vec<_>>(), most)
            }
        };
        std::mem::replace(&mut self.over_at_hostname, over)
    }
}

/// The youngest routes, which are left out so that the others fit.
fn youngest(sizes: &BTreeMap<RouteAge, u64>, most: u64) -> BTreeSet<RouteAge> {
    let mut sum = 0_u64;
    let fits = |(_, size): &(&RouteAge, &u64)| {
        sum = sum.saturating_add(**size);
        sum <= most
    };
    sizes.iter().skip_while(fits).map(|(age, _)| age.clone()).collect()
}

#[cfg(test)]
mod tests;
