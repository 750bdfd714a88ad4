//! A route that is small as an object and enormous as a table: each match has a copy of the filters, and each host a copy
//! of all matches. This is a program of its own because it measures the memory of its process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::RouteConfiguration;
use heliograph_gateway::objects::{Document, Kind, ObjectName, parse};
use heliograph_gateway::{Event, Limits, OverBudget, World};
use heliograph_snapshot::{FleetName, ResourceType};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use std::collections::BTreeMap;

const OBJECTS: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: heliograph
  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: wide, namespace: shop}
spec:
  parentRefs: [{name: web, namespace: infra}]
  rules: [{matches: [{path: {value: /shop}}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: web, namespace: infra}]
  hostnames: [cart.example.com]
"#;

/// Of most objects here.
const CREATED: &str = "2026-01-01T00:00:00Z";

/// Held by each test: what others have at the same time is no matter of its own.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

/// How much memory the process had at most, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn apply(world: &mut World, manifest: &str) {
    for document in parse(manifest) {
        match document {
            Document::Object(object) => world.apply(Event::Applied(object)),
            other => panic!("{other:?}"),
        }
    }
    world.settle();
}

/// A route with so many hosts and matches, whose filters set so many bytes of headers.
fn route(name: &str, hosts: usize, matches: usize, bytes: usize) -> String {
    let hosts: Vec<String> = (0..hosts).map(|n| format!("{name}-{n}.example.com")).collect();
    let values = |of: &str| -> Vec<_> {
        let value = "v".repeat(bytes / 64);
        (0..16).map(|n| json!({"name": format!("{of}-{n}"), "value": value})).collect()
    };
    let edits = json!({"set": values("set"), "add": values("add")});
    let filters = json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": edits},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": edits},
    ]);
    let rule = |rule: usize| {
        let paths =
            (0..matches.min(64)).map(|n| json!({"path": {"value": format!("/{rule}/{n}")}}));
        json!({"matches": paths.collect::<Vec<_>>(), "filters": filters})
    };
    let rules: Vec<_> = (0..matches.div_ceil(64)).map(rule).collect();
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "hostile", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"parentRefs": [{"name": "web", "namespace": "infra"}], "hostnames": hosts, "rules": rules},
    })
    .to_string()
}

fn served(world: &World) -> BTreeMap<(ResourceType, String), bytes::Bytes> {
    let fleet = FleetName::new("infra", "web");
    let resources = world.resources(&fleet);
    resources.map(|(kind, it)| ((kind, it.name.to_string()), it.body.clone())).collect()
}

fn problem(world: &World, name: &str) -> Option<String> {
    let key = ObjectName::new("hostile", name).of(Kind::HTTPRoute);
    world.problems().find(|it| it.object == key).map(|it| format!("{}: {}", it.reason, it.message))
}

#[test]
fn an_enormous_route_is_refused_before_it_is_expanded_and_touches_no_other() {
    let _alone = alone();
    let mut world = World::new();
    apply(&mut world, OBJECTS);
    let before = served(&world);
    assert!(!before.is_empty());

    // 16 hosts, each with 128 copies of 256 KiB: half a gigabyte.
    apply(&mut world, &route("enormous", 16, 128, 256 << 10));
    assert_eq!(served(&world), before);
    let problem = problem(&world, "enormous").unwrap();
    assert!(problem.starts_with("TooLarge: The route needs 5"), "{problem}");
    assert!(peak() < 256 << 20, "{} MiB", peak() >> 20);

    // Many that are as large as they may be.
    for number in 0..40 {
        apply(&mut world, &route(&format!("large-{number}"), 4, 4, 60 << 10));
    }
    let refused = world.problems().filter(|it| it.reason == "TooLarge").count();
    assert_eq!(refused, 1 + 40 - 16);
    let counted = OverBudget { route: 1, namespace: 40 - 16, ..OverBudget::default() };
    assert_eq!(world.over_budget(), counted);
    let table: usize = served(&world).values().map(bytes::Bytes::len).sum();
    assert!(table < 20 << 20, "{table}");
    assert!(peak() < 256 << 20, "{} MiB", peak() >> 20);

    // All that the limits bound can be served, at whatever limits.
    let all = Limits { namespace_bytes: 1 << 40, table_bytes: 20 << 20, ..Limits::default() };
    let mut world = World::with_limits(all.clone());
    apply(&mut world, OBJECTS);
    for number in 0..40 {
        apply(&mut world, &route(&format!("large-{number}"), 4, 4, 60 << 10));
    }
    let tables = served(&world);
    let largest = tables.values().map(bytes::Bytes::len).max().unwrap() as u64;
    assert!((all.table_bytes * 9 / 10..=all.table_bytes).contains(&largest), "{largest}");
}

#[test]
fn routes_that_are_refused_for_an_expression_are_counted_where_they_would_be_served() {
    let _alone = alone();
    let mut world = World::new();
    apply(&mut world, OBJECTS);
    let at = |parent: &str, pattern: &str| {
        let path = json!({"type": "RegularExpression", "value": pattern});
        let spec = json!({
            "parentRefs": [{"name": parent, "namespace": "infra"}],
            "rules": [{"matches": [{"path": path}]}],
        });
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"name": parent, "namespace": "hostile"},
            "spec": spec,
        })
        .to_string()
    };
    let large = "/[a-z]{1000}".repeat(40);
    apply(&mut world, &at("web", &large));
    apply(&mut world, &at("somebody-elses", &large));
    let counted = OverBudget { expression: 1, ..OverBudget::default() };
    assert_eq!(world.over_budget(), counted);
    apply(&mut world, &at("web", "/[a-z]+"));
    assert_eq!(world.over_budget(), OverBudget::default());
}

/// A route of a namespace for these hosts with so many regular expressions in each rule.
fn with_patterns(namespace: &str, name: &str, hosts: &[&str], patterns: usize) -> String {
    let path = |n: usize| json!({"path": {"type": "RegularExpression", "value": format!("/.*a[ab]{{14}}x{n}")}});
    let rules: Vec<_> = (0..patterns)
        .step_by(64)
        .map(|first| json!({"matches": (first..patterns.min(first + 64)).map(path).collect::<Vec<_>>()}))
        .collect();
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "web", "namespace": "infra"}], "hostnames": hosts, "rules": rules},
    })
    .to_string()
}

#[test]
fn patterns_that_take_long_to_match_are_refused_beyond_a_bound_for_each_hostname() {
    let _alone = alone();
    let mut world = World::new();
    apply(&mut world, OBJECTS);
    apply(&mut world, &with_patterns("calm", "calm", &["slow.example.com"], 100));
    let before = served(&world);
    for number in 0..3 {
        let name = format!("slow-{number}");
        apply(&mut world, &with_patterns("hostile", &name, &["slow.example.com"], 768));
    }
    assert!(served(&world) == before);
    let counted = OverBudget { hostname: 3, ..OverBudget::default() };
    assert_eq!(world.over_budget(), counted);
    let refused = problem(&world, "slow-1").unwrap();
    let expected = "TooLarge: The regular expressions that routes of namespace hostile have for hostname slow.example.com have more than 8192 instructions";
    assert!(refused.starts_with(expected), "{refused}");

    // Some fit, at each hostname; a route for a wildcard counts at those below it.
    for host in ["slow.example.com", "other.example.com", "elsewhere.org"] {
        apply(&mut world, &with_patterns("hostile", &format!("a.{host}"), &[host], 150));
    }
    assert_eq!(world.over_budget(), counted);
    apply(&mut world, &with_patterns("hostile", "wide", &["*.example.com"], 100));
    let counted = OverBudget { hostname: 4, ..counted };
    assert_eq!(world.over_budget(), counted);
    assert!(problem(&world, "wide").is_some());
    apply(&mut world, &with_patterns("hostile", "wide", &["*.org"], 40));
    assert_eq!(problem(&world, "wide"), None);
}

/// A route of a namespace for these hosts, of about so many bytes at each.
fn sized(namespace: &str, name: &str, created: &str, hosts: &[String], bytes: usize) -> String {
    let value = "v".repeat(bytes.min(4000));
    let headers = |n: usize| json!({"name": format!("set-{n}"), "value": value});
    let set: Vec<_> = (0..bytes.div_ceil(4000)).map(headers).collect();
    let filter = json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}});
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created},
        "spec": {
            "parentRefs": [{"name": "web", "namespace": "infra"}],
            "hostnames": hosts,
            "rules": [{"matches": [{"path": {"value": format!("/{name}")}}], "filters": [filter]}],
        },
    })
    .to_string()
}

#[test]
fn hostnames_of_many_labels_take_no_more_than_others() {
    let _alone = alone();
    let mut world = World::new();
    apply(&mut world, OBJECTS);
    let before = peak();
    let route = |number: usize| {
        // The longest that there are, with 125 labels; of each, no part is that of another.
        let host = |of: usize| {
            let last = format!("n{number}x{of}");
            format!("{}{last}", "a.".repeat((253 - last.len()) / 2))
        };
        let hosts: Vec<_> = (0..16).map(host).collect();
        sized("hostile", &format!("deep-{number}"), CREATED, &hosts, 0)
    };
    let routes: Vec<_> = (0..500).map(route).collect();
    apply(&mut world, &routes.join("\n---\n"));
    let table = served(&world).remove(&(ResourceType::Route, "http/80".into())).unwrap();
    let table = RouteConfiguration::decode(&*table).unwrap();
    assert_eq!(table.virtual_hosts.len(), 2 + 500 * 16);
    println!("{} MiB before, {} MiB with them", before >> 20, peak() >> 20);
    assert!(peak() < 256 << 20, "{} MiB", peak() >> 20);
}

/// What is served, without some virtual hosts.
fn served_without(world: &World, hosts: &[&str]) -> BTreeMap<(ResourceType, String), Vec<u8>> {
    let without = |((kind, name), body): ((ResourceType, String), bytes::Bytes)| {
        let body = match kind {
            ResourceType::Route => {
                let mut table = RouteConfiguration::decode(&*body).unwrap();
                table.virtual_hosts.retain(|it| !hosts.contains(&&*it.name));
                table.encode_to_vec()
            }
            _ => body.to_vec(),
        };
        ((kind, name), body)
    };
    served(world).into_iter().map(without).collect()
}

#[test]
fn a_wide_route_that_grows_loses_its_copies_and_takes_nothing_from_younger_routes_of_others() {
    let _alone = alone();
    let limits = Limits { table_bytes: 1 << 20, ..Limits::default() };
    let mut world = World::with_limits(limits.clone());
    apply(&mut world, OBJECTS);
    let small = |number: usize| {
        let host = format!("{number}.tenant.example.com");
        sized("tenant", &format!("small-{number}"), "2026-02-02T00:00:00Z", &[host], 100)
    };
    for number in 0..40 {
        apply(&mut world, &small(number));
    }
    // There is room for one copy, at the only host of `shop`.
    let with_copies = ["*", "cart.example.com"];
    let alone = served_without(&world, &with_copies);

    // It fits, and every host has a copy.
    let wide = |bytes| sized("hostile", "wide", "2026-01-01T00:00:00Z", &[], bytes);
    apply(&mut world, &wide(4000));
    assert_eq!(world.over_budget(), OverBudget::default());
    let copied = served(&world);
    let size: usize = copied.values().map(bytes::Bytes::len).sum();
    assert!(size > 40 * 4000, "{size}");
    assert_eq!(problem(&world, "wide"), None);

    // It grows, and is still the oldest: no other route pays for that.
    apply(&mut world, &wide(40_000));
    assert_eq!(world.over_budget(), OverBudget { table: 1, ..OverBudget::default() });
    assert!(served_without(&world, &with_copies) == alone);
    let problem = problem(&world, "wide").unwrap();
    let expected = "TooLarge: The route is not served at hostnames of namespaces tenant: ";
    assert!(problem.starts_with(expected), "{problem}");
    let refused: Vec<_> = world.problems().filter(|it| it.reason == "TooLarge").collect();
    assert_eq!(refused.len(), 1, "{refused:?}");

    // The order of events does not matter, and when it is small again it has its copies again.
    let mut other = World::with_limits(limits.clone());
    apply(&mut other, &wide(40_000));
    for number in (0..40).rev() {
        apply(&mut other, &small(number));
    }
    apply(&mut other, OBJECTS);
    assert!(served(&other) == served(&world));
    apply(&mut world, &wide(4000));
    assert!(served(&world) == copied);

    // What a tenant adds pushes nothing of the others out either, whatever the hosts multiply.
    let mut crowded = World::with_limits(limits);
    apply(&mut crowded, OBJECTS);
    apply(&mut crowded, &wide(4000));
    apply(&mut crowded, &sized("calm", "calm", "2026-03-03T00:00:00Z", &["calm.org".into()], 100));
    for number in 0..400 {
        apply(&mut crowded, &small(number));
    }
    let table = served(&crowded).remove(&(ResourceType::Route, "http/80".into())).unwrap();
    let table = RouteConfiguration::decode(&*table).unwrap();
    assert_eq!(table.virtual_hosts.len(), 403);
    let routes = |host: &str| {
        let host = table.virtual_hosts.iter().find(|it| it.name == host).unwrap();
        host.routes.len()
    };
    // At `calm.org` there are two wide routes beside its own; the hosts of `tenant` have no copy of the large one.
    assert_eq!((routes("*"), routes("calm.org"), routes("7.tenant.example.com")), (2, 3, 2));
}
