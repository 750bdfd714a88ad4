use super::*;
use crate::objects::{Kind, ObjectName};
use heliograph_snapshot::FleetName;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn limits() -> Limits {
    Limits { route_bytes: 300, namespace_bytes: 800, table_bytes: 1_500, ..Limits::default() }
}

fn route(number: u8) -> ObjectKey {
    let (namespace, name) = (format!("n{}", number % 3), format!("r{number}"));
    ObjectName::new(&namespace, &name).of(Kind::HTTPRoute)
}

fn table(port: u16) -> TableKey {
    TableKey { fleet: FleetName::new("shop", "web"), port, listener: None }
}

fn host(text: &str) -> Hostname {
    Hostname::parse(Some(text).filter(|text| *text != "*")).unwrap()
}

/// How large each table is with these routes, counted host by host.
fn counted(routes: &BTreeMap<&ObjectKey, &Cost>) -> BTreeMap<TableKey, u64> {
    let mut sizes = BTreeMap::new();
    let all: BTreeSet<_> = routes.values().flat_map(|cost| &cost.hosts).collect();
    for (key, host) in all {
        let here = routes.values().map(|cost| {
            let wider = cost.hosts.iter().filter(|(of, it)| of == key && it.covers(host));
            cost.size * wider.count() as u64
        });
        let frame = 16 + 2 * host.to_string().len() as u64;
        *sizes.entry(key.clone()).or_default() += here.sum::<u64>() + frame;
    }
    sizes
}

#[test]
fn the_youngest_go_first_and_come_back_when_there_is_room() {
    let (limits, mut budgets) = (limits(), Budgets::default());
    let cost = |created, size| Cost { created, size, hosts: [(table(80), host("*"))].into() };
    let n = |number: u8| route(3 * number);
    for number in 0..4 {
        let changed = budgets.set(&limits, &n(number), Some(cost(number.into(), 250)));
        assert_eq!(changed.is_empty(), number < 3, "{number}");
    }
    assert_eq!(budgets.excess(&n(3)), Some(&Excess::Namespace));
    // An older one comes: the youngest of those that had room has to go.
    assert_eq!(budgets.set(&limits, &n(4), Some(cost(-1, 250))), [n(2)]);
    assert_eq!(budgets.set(&limits, &n(0), None), [n(2)]);
    assert_eq!(budgets.excess(&n(2)), None);
    // Too large by itself, it takes nothing from the others.
    assert_eq!(budgets.set(&limits, &n(4), Some(cost(-1, 301))), [n(4), n(3)]);
    assert_eq!(budgets.excess(&n(4)), Some(&Excess::Route(301)));
    assert_eq!(budgets.excess(&n(3)), None);
    assert_eq!(budgets.over(), OverBudget { route: 1, ..OverBudget::default() });
}

#[test]
fn a_wide_route_counts_in_every_host_below_it() {
    let limits = Limits { namespace_bytes: 10_000, route_bytes: 10_000, ..limits() };
    let mut budgets = Budgets::default();
    let at =
        |created, size, name: &str| Cost { created, size, hosts: [(table(80), host(name))].into() };
    assert_eq!(budgets.set(&limits, &route(0), Some(at(0, 400, "*"))), []);
    assert_eq!(budgets.set(&limits, &route(1), Some(at(1, 1, "a.example.com"))), []);
    assert_eq!(budgets.set(&limits, &route(2), Some(at(2, 1, "b.example.com"))), []);
    assert_eq!(budgets.set(&limits, &route(3), Some(at(3, 1, "c.example.com"))), [route(3)]);
    let full = Excess::Tables([table(80)].into());
    assert_eq!(budgets.excess(&route(3)), Some(&full));
    // In another table there is room.
    let elsewhere = Cost { hosts: [(table(81), host("c.example.com"))].into(), ..at(3, 1, "*") };
    assert_eq!(budgets.set(&limits, &route(3), Some(elsewhere)), [route(3)]);
    assert_eq!(budgets.excess(&route(3)), None);
}

fn cost() -> impl Strategy<Value = Option<Cost>> {
    let hosts = prop::sample::select(
        &["*", "*.com", "*.a.com", "a.com", "b.a.com", "c.a.com", "d.org"][..],
    );
    let hosts = btree_set((80..82_u16, hosts), 1..4);
    let cost = (0..4_i64, 0..150_u64, hosts).prop_map(|(created, size, hosts)| Cost {
        created,
        size,
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
        let mut known: BTreeMap<ObjectKey, Option<Excess>> = BTreeMap::new();
        let mut all: BTreeMap<ObjectKey, Cost> = BTreeMap::new();
        for (number, cost) in changes {
            let route = route(number);
            match &cost {
                Some(cost) => drop(all.insert(route.clone(), cost.clone())),
                None => drop(all.remove(&route)),
            }
            for changed in budgets.set(&limits, &route, cost) {
                known.insert(changed.clone(), budgets.excess(&changed).cloned());
            }
            // Who is not told of is as before.
            for route in all.keys() {
                prop_assert_eq!(budgets.excess(route), known.get(route).and_then(Option::as_ref));
            }
        }
        let mut fresh = Budgets::default();
        for (route, cost) in all.iter().rev() {
            fresh.set(&limits, route, Some(cost.clone()));
        }
        prop_assert_eq!(&fresh.excess, &budgets.excess);
        let mut over = OverBudget::default();
        budgets.excess.values().for_each(|excess| *over.of(excess) += 1);
        prop_assert_eq!(over, budgets.over());
        let fitting = |key: &TableKey| -> BTreeMap<&ObjectKey, &Cost> {
            let is_in = |route: &ObjectKey| match budgets.excess(route) {
                None => true,
                Some(Excess::Tables(tables)) => !tables.contains(key),
                Some(Excess::Route(_) | Excess::Namespace) => false,
            };
            all.iter().filter(|(route, _)| is_in(route)).collect()
        };
        for port in 80..82 {
            let size = counted(&fitting(&table(port))).remove(&table(port)).unwrap_or_default();
            prop_assert!(size <= limits.table_bytes, "{}", size);
        }
        for namespace in ["n0", "n1", "n2"] {
            let of = all.iter().filter(|(route, _)| &*route.name.namespace == namespace);
            let fit = of.filter(|(route, _)| {
                !matches!(budgets.excess(route), Some(Excess::Route(_) | Excess::Namespace))
            });
            prop_assert!(fit.map(|(_, cost)| cost.total()).sum::<u64>() <= limits.namespace_bytes);
        }
        for route in all.keys() {
            budgets.set(&limits, route, None);
        }
        prop_assert!(budgets.tables.is_empty() && budgets.namespaces.is_empty());
        prop_assert!(budgets.excess.is_empty() && budgets.costs.is_empty());
        prop_assert_eq!(budgets.over(), OverBudget::default());
    }
}
