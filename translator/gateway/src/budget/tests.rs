use super::*;
use heliograph_model::{ObjectName, RouteKind};
use heliograph_snapshot::FleetName;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn limits() -> Limits {
    Limits {
        host_regex_size: 100,
        route_bytes: 300,
        namespace_bytes: 800,
        table_bytes: 1_500,
        ..Limits::default()
    }
}

impl Budgets {
    fn change(&mut self, limits: &Limits, route: &RouteId, cost: Option<Cost>) -> Changed {
        self.set(limits, route, cost);
        self.settle(limits)
    }
}

fn route(number: u8) -> RouteId {
    let (namespace, name) = (format!("n{}", number % 3), format!("r{number}"));
    ObjectName::new(&namespace, &name).of(RouteKind::Http)
}

fn table(port: u16) -> TableKey {
    TableKey::new(FleetName::new("shop", "web"), port, None)
}

fn host(text: &str) -> Hostname {
    Hostname::parse(Some(text).filter(|text| *text != "*")).unwrap()
}

/// How large a table is with what fits of these routes, counted host by host.
fn counted(budgets: &Budgets, all: &BTreeMap<RouteId, Cost>, key: &TableKey) -> u64 {
    let is_in = |route: &RouteId| match budgets.excess(route) {
        None => true,
        Some(Excess::Tables(tables)) => tables.get(key) != Some(&Loss::All),
        Some(Excess::Route(_) | Excess::Namespace | Excess::Hostname(_)) => false,
    };
    let routes: Vec<_> = all.iter().filter(|(route, _)| is_in(route)).collect();
    let hosts = routes.iter().flat_map(|(_, cost)| &cost.hosts).filter(|(of, _)| of == key);
    let hosts: BTreeSet<&Hostname> = hosts.map(|(_, host)| host).collect();
    let size = |host: &Hostname| {
        let here = routes.iter().filter(|(route, cost)| {
            let not_copied = budgets.not_copied(key, host);
            !not_copied.is_some_and(|it| it.contains(cost.created, route))
        });
        let here = here.map(|(_, cost)| {
            let wider = cost.hosts.iter().filter(|(of, it)| of == key && it.covers(host));
            cost.size * wider.count() as u64
        });
        here.sum::<u64>() + 16 + 2 * host.to_string().len() as u64
    };
    hosts.into_iter().map(size).sum()
}

/// What each namespace would take in a table, with the copies of its routes; and how much of that is its own, which does not
/// depend on other namespaces.
fn shares(all: &BTreeMap<RouteId, Cost>, key: &TableKey) -> BTreeMap<Arc<str>, (u64, u64)> {
    let named = |namespace: Option<&str>| -> BTreeSet<&Hostname> {
        let is_of = |route: &RouteId| namespace.is_none_or(|it| *it == *route.name.namespace);
        let hosts = all.iter().filter(|(route, _)| is_of(route)).flat_map(|(_, cost)| &cost.hosts);
        hosts.filter(|(of, _)| of == key).map(|(_, host)| host).collect()
    };
    let mut shares = BTreeMap::new();
    for (route, cost) in all {
        let own = named(Some(&route.name.namespace));
        if own.is_empty() {
            continue;
        }
        let frames = || own.iter().map(|host| 16 + 2 * host.to_string().len() as u64).sum();
        let share = shares.entry(route.name.namespace.clone()).or_insert_with(|| {
            let frames: u64 = frames();
            (frames, frames)
        });
        for (_, wider) in cost.hosts.iter().filter(|(of, _)| of == key) {
            let at = |hosts: &BTreeSet<&Hostname>| {
                cost.size * hosts.iter().filter(|host| wider.covers(host)).count() as u64
            };
            share.0 += at(&named(None));
            share.1 += at(&own);
        }
    }
    shares
}

#[test]
fn the_youngest_go_first_and_come_back_when_there_is_room() {
    let (limits, mut budgets) = (limits(), Budgets::default());
    let cost = |created, size| {
        let hosts = [(table(80), host("*"))].into();
        Cost { created, size, instructions: 0, hosts }
    };
    let n = |number: u8| route(3 * number);
    for number in 0..4 {
        let changed = budgets.change(&limits, &n(number), Some(cost(number.into(), 250)));
        assert_eq!(changed.routes.is_empty(), number < 3, "{number}");
    }
    assert_eq!(budgets.excess(&n(3)), Some(&Excess::Namespace));
    // An older one comes: the youngest of those that had room has to go.
    assert_eq!(budgets.change(&limits, &n(4), Some(cost(-1, 250))).routes, [n(2)]);
    assert_eq!(budgets.change(&limits, &n(0), None).routes, [n(2)]);
    assert_eq!(budgets.excess(&n(2)), None);
    // Too large by itself, it takes nothing from the others.
    assert_eq!(budgets.change(&limits, &n(4), Some(cost(-1, 301))).routes, [n(4), n(3)]);
    assert_eq!(budgets.excess(&n(4)), Some(&Excess::Route(301)));
    assert_eq!(budgets.excess(&n(3)), None);
    assert_eq!(budgets.over(), OverBudget { route: 1, ..OverBudget::default() });
}

fn in_namespace(namespace: &str, name: &str) -> RouteId {
    ObjectName::new(namespace, name).of(RouteKind::Http)
}

fn at(created: i64, size: u64, hosts: &[&str]) -> Option<Cost> {
    let hosts = hosts.iter().map(|name| (table(80), host(name))).collect();
    Some(Cost { created, size, instructions: 0, hosts })
}

fn copies(namespaces: &[&str]) -> Excess {
    let namespaces = namespaces.iter().map(|namespace| (*namespace).into()).collect();
    Excess::Tables([(table(80), Loss::Copies(namespaces))].into())
}

#[test]
fn copies_of_a_wide_route_are_charged_to_it_and_lost_before_any_route() {
    let limits = Limits { namespace_bytes: 10_000, route_bytes: 10_000, ..limits() };
    let mut budgets = Budgets::default();
    let wide = in_namespace("wide", "wide");
    let [a, b, c] = ["a", "b", "c"].map(|name| in_namespace(name, name));
    budgets.change(&limits, &wide, at(0, 300, &["*"]));
    budgets.change(&limits, &a, at(1, 1, &["a.com"]));
    budgets.change(&limits, &b, at(2, 1, &["b.com"]));
    assert_eq!(budgets.change(&limits, &c, at(3, 1, &["c.com"])), Changed::default());
    // 4 times 400 bytes are too much, and 3 times are not.
    let changed = budgets.change(&limits, &wide, at(0, 400, &["*"]));
    assert_eq!(changed.routes, std::slice::from_ref(&wide));
    assert_eq!(changed.hosts, [(table(80), host("a.com"))]);
    assert_eq!(budgets.excess(&wide), Some(&copies(&["a"])));
    let not_copied = |budgets: &Budgets, at: &str| {
        budgets.not_copied(&table(80), &host(at)).is_some_and(|it| it.contains(0, &wide))
    };
    let hosts = ["*", "a.com", "b.com", "c.com"];
    assert_eq!(hosts.map(|at| not_copied(&budgets, at)), [false, true, false, false]);
    // It stays at the hosts that its own namespace names, also where others name them.
    budgets.change(&limits, &in_namespace("wide", "same"), at(9, 0, &["a.com"]));
    assert!(!not_copied(&budgets, "a.com"));
    budgets.change(&limits, &in_namespace("wide", "same"), None);
    // By itself too large, it is refused.
    budgets.change(&limits, &wide, at(0, 1_500, &["*"]));
    let refused = Excess::Tables([(table(80), Loss::All)].into());
    assert_eq!(budgets.excess(&wide), Some(&refused));
    for other in [&a, &b, &c] {
        assert_eq!(budgets.excess(other), None);
    }
    // In another table there is room.
    let hosts = [(table(81), host("*"))].into();
    let elsewhere = Cost { created: 0, size: 1_400, instructions: 0, hosts };
    assert_eq!(budgets.change(&limits, &wide, Some(elsewhere)).routes, std::slice::from_ref(&wide));
    assert_eq!(budgets.excess(&wide), None);
}

#[test]
fn many_hosts_cost_the_wide_routes_of_others_their_copies_there_and_nowhere_else() {
    let limits = Limits { namespace_bytes: 10_000, route_bytes: 10_000, ..limits() };
    let mut budgets = Budgets::default();
    let [wide, calm] = ["wide", "calm"].map(|name| in_namespace(name, name));
    budgets.change(&limits, &wide, at(5, 100, &["*"]));
    budgets.change(&limits, &calm, at(5, 100, &["calm.org"]));
    for number in 0..10 {
        let (route, name) = (in_namespace("crowd", &number.to_string()), format!("{number}.com"));
        budgets.change(&limits, &route, at(0, 10, &[&name]));
    }
    assert_eq!(budgets.excess(&wide), Some(&copies(&["crowd"])));
    assert_eq!(budgets.over(), OverBudget { table: 1, ..OverBudget::default() });
    assert!(budgets.not_copied(&table(80), &host("calm.org")).is_none());
    assert!(budgets.not_copied(&table(80), &host("3.com")).is_some());
}

fn with_expressions(created: i64, instructions: u64, hosts: &[&str]) -> Option<Cost> {
    Some(Cost { instructions, ..at(created, 1, hosts)? })
}

/// How many instructions a namespace has at a host with these routes, counted route by route.
fn instructions<'a>(
    routes: impl Iterator<Item = &'a Cost>,
    (key, host): &(TableKey, Hostname),
) -> u64 {
    let is_for = |cost: &&Cost| cost.hosts.iter().any(|(of, it)| of == key && it.covers(host));
    routes.filter(is_for).map(|cost| cost.instructions).sum()
}

/// No host has more expressions of a namespace than it may have, and each route that is refused for that would be too much
/// with the older ones.
fn assert_expressions(budgets: &Budgets, all: &BTreeMap<RouteId, Cost>, limits: &Limits) {
    let is_over = |route: &RouteId| {
        let excess = budgets.excess(route);
        matches!(excess, Some(Excess::Route(_) | Excess::Namespace | Excess::Hostname(_)))
    };
    for (route, cost) in all {
        let of_namespace =
            |other: &&RouteId| other.name.namespace == route.name.namespace && !is_over(other);
        let fitting = || all.iter().filter(|(other, _)| of_namespace(other));
        for at in &cost.hosts {
            let sum = instructions(fitting().map(|(_, cost)| cost), at);
            assert!(sum <= limits.host_regex_size, "{route}: {sum}");
        }
        if let Some(Excess::Hostname(_)) = budgets.excess(route) {
            let is_older = |other: &RouteId, of: &Cost| of.age(other) < cost.age(route);
            let older = || fitting().filter(|(other, of)| is_older(other, of)).map(|(_, of)| of);
            let at = all.values().flat_map(|cost| &cost.hosts);
            let mut at = at.filter(|at| instructions(std::iter::once(cost), at) > 0);
            let sum = |at| instructions(older(), at) + cost.instructions;
            assert!(at.any(|at| sum(at) > limits.host_regex_size), "{route}");
        }
    }
}

#[test]
fn the_youngest_routes_with_expressions_for_a_hostname_are_refused_and_no_others() {
    let (limits, mut budgets) = (limits(), Budgets::default());
    let [old, young, late, plain] =
        ["old", "young", "late", "plain"].map(|name| in_namespace("a", name));
    let (elsewhere, other) = (in_namespace("a", "elsewhere"), in_namespace("b", "other"));
    budgets.change(&limits, &young, with_expressions(2, 60, &["a.com"]));
    budgets.change(&limits, &elsewhere, with_expressions(9, 90, &["b.com"]));
    budgets.change(&limits, &plain, with_expressions(9, 0, &["a.com"]));
    budgets.change(&limits, &other, with_expressions(9, 90, &["a.com"]));
    // An older one comes.
    let changed = budgets.change(&limits, &old, with_expressions(1, 50, &["a.com"]));
    assert_eq!(changed.routes, std::slice::from_ref(&young));
    assert_eq!(budgets.excess(&young), Some(&Excess::Hostname(host("a.com"))));
    assert_eq!(budgets.over(), OverBudget { hostname: 1, ..OverBudget::default() });
    // What is refused takes nothing, so there is room for one that is younger.
    assert_eq!(budgets.change(&limits, &late, with_expressions(3, 50, &["a.com"])).routes, []);
    assert_eq!(budgets.excess(&late), None);
    let changed = budgets.change(&limits, &old, None).routes;
    assert_eq!(changed, [late.clone(), young.clone()]);
    assert_eq!(budgets.excess(&late), Some(&Excess::Hostname(host("a.com"))));
    for fitting in [&young, &elsewhere, &plain, &other] {
        assert_eq!(budgets.excess(fitting), None, "{fitting}");
    }
}

#[test]
fn expressions_of_wide_routes_count_at_every_narrower_hostname() {
    let (limits, mut budgets) = (limits(), Budgets::default());
    let [wide, narrow, beside, all] =
        ["wide", "narrow", "beside", "all"].map(|name| in_namespace("a", name));
    budgets.change(&limits, &wide, with_expressions(1, 60, &["*.a.com", "x.a.com"]));
    budgets.change(&limits, &narrow, with_expressions(2, 40, &["x.a.com"]));
    budgets.change(&limits, &beside, with_expressions(3, 90, &["*.b.com", "c.com"]));
    assert_eq!(budgets.over(), OverBudget::default());
    budgets.change(&limits, &all, with_expressions(4, 1, &["*"]));
    assert_eq!(budgets.excess(&all), Some(&Excess::Hostname(host("*"))));
    // As the oldest it has the others go that are too much with it.
    budgets.change(&limits, &all, with_expressions(0, 20, &["*"]));
    let excess = [&all, &wide, &narrow, &beside].map(|route| budgets.excess(route).cloned());
    let [at_x, at_b] = ["x.a.com", "*.b.com"].map(|name| Some(Excess::Hostname(host(name))));
    assert_eq!(excess, [None, None, at_x, at_b]);
    // In another table there is room.
    let mut elsewhere = with_expressions(3, 90, &["c.com"]).unwrap();
    let but_one = elsewhere.hosts.iter().filter(|at| **at != (table(80), host("c.com")));
    elsewhere.hosts = but_one.cloned().chain([(table(81), host("*.b.com"))]).collect();
    budgets.change(&limits, &beside, Some(elsewhere));
    assert_eq!(budgets.excess(&beside), None);
}

fn cost() -> impl Strategy<Value = Option<Cost>> {
    let hosts = prop::sample::select(
        &["*", "*.com", "*.a.com", "a.com", "b.a.com", "c.a.com", "d.org"][..],
    );
    let hosts = btree_set((80..82_u16, hosts), 1..4);
    // Half of the routes have expressions.
    let sizes = (0..150_u64, (-80..80_i64).prop_map(|it| it.max(0).unsigned_abs()));
    let cost = (0..4_i64, sizes, hosts).prop_map(|(created, (size, instructions), hosts)| Cost {
        created,
        size,
        instructions,
        hosts: hosts.into_iter().map(|(port, name)| (table(port), host(name))).collect(),
    });
    prop::option::weighted(0.8, cost)
}

proptest! {
    #[test]
    fn whatever_the_order_the_same_fit_and_no_budget_is_exceeded(
        changes in vec((0..12_u8, cost()), 1..40),
    ) {
        let (limits, mut budgets) = (limits(), Budgets::default());
        let mut known: BTreeMap<RouteId, Option<Excess>> = BTreeMap::new();
        let mut without: BTreeMap<(TableKey, Hostname), Option<_>> = BTreeMap::new();
        let mut all: BTreeMap<RouteId, Cost> = BTreeMap::new();
        for (number, cost) in changes {
            let route = route(number);
            match &cost {
                Some(cost) => drop(all.insert(route.clone(), cost.clone())),
                None => drop(all.remove(&route)),
            }
            let changed = budgets.change(&limits, &route, cost);
            for changed in changed.routes {
                known.insert(changed.clone(), budgets.excess(&changed).cloned());
            }
            for (table, host) in changed.hosts {
                let now = budgets.not_copied(&table, &host).map(|it| it.0.clone());
                without.insert((table, host), now);
            }
            // What is not reported as changed is as before.
            for route in all.keys() {
                prop_assert_eq!(budgets.excess(route), known.get(route).and_then(Option::as_ref));
            }
            for at in all.values().flat_map(|cost| &cost.hosts) {
                let now = budgets.not_copied(&at.0, &at.1).map(|it| it.0);
                prop_assert_eq!(now, without.get(at).and_then(Option::as_ref));
            }
        }
        let mut fresh = Budgets::default();
        for (route, cost) in all.iter().rev() {
            fresh.set(&limits, route, Some(cost.clone()));
        }
        fresh.settle(&limits);
        prop_assert_eq!(&fresh.excess, &budgets.excess);
        for (table, host) in all.values().flat_map(|cost| &cost.hosts) {
            let [fresh, now] = [&fresh, &budgets].map(|it| it.not_copied(table, host).map(|it| it.0));
            prop_assert_eq!(fresh, now);
        }
        let mut over = OverBudget::default();
        budgets.excess.values().for_each(|excess| *over.of(excess) += 1);
        prop_assert_eq!(over, budgets.over());
        for port in 80..82 {
            let size = counted(&budgets, &all, &table(port));
            prop_assert!(size <= limits.table_bytes, "{}", size);
        }
        for namespace in ["n0", "n1", "n2"] {
            let of = all.iter().filter(|(route, _)| &*route.name.namespace == namespace);
            let fit = of.filter(|(route, _)| {
                !matches!(budgets.excess(route), Some(Excess::Route(_) | Excess::Namespace))
            });
            prop_assert!(fit.map(|(_, cost)| cost.total()).sum::<u64>() <= limits.namespace_bytes);
        }
        assert_expressions(&budgets, &all, &limits);
        for route in all.keys() {
            budgets.change(&limits, route, None);
        }
        prop_assert!(budgets.tables.is_empty() && budgets.namespaces.is_empty());
        prop_assert!(budgets.excess.is_empty() && budgets.costs.is_empty());
        prop_assert_eq!(budgets.over(), OverBudget::default());
    }
    #[test]
    fn a_namespace_within_an_equal_share_of_a_table_loses_nothing_there(
        routes in vec((0..12_u8, cost()), 1..40),
    ) {
        // What a route and a namespace may take is no matter here.
        let most = 1 << 40;
        let limits =
            Limits { host_regex_size: most, route_bytes: most, namespace_bytes: most, ..limits() };
        let routes = routes.into_iter().filter_map(|(number, cost)| Some((route(number), cost?)));
        let all: BTreeMap<RouteId, Cost> = routes.collect();
        let mut budgets = Budgets::default();
        for (route, cost) in &all {
            budgets.change(&limits, route, Some(cost.clone()));
        }
        for port in 80..82 {
            let shares = shares(&all, &table(port));
            for (namespace, (total, own)) in &shares {
                let equal = limits.table_bytes / shares.len() as u64;
                for route in all.keys().filter(|route| route.name.namespace == *namespace) {
                    let loss = match budgets.excess(route) {
                        Some(Excess::Tables(tables)) => tables.get(&table(port)),
                        _ => None,
                    };
                    prop_assert!(loss.is_none() || *total > equal, "{route}: {loss:?}");
                    // However many hosts others name, and however large their routes are.
                    prop_assert!(loss != Some(&Loss::All) || *own > equal, "{route}");
                }
            }
        }
    }
}
