//! What is taken of regular expressions, a real Envoy takes: it rejects a whole route table for one that it does not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_envoy::{Any, json::to_json};
use heliograph_gateway::objects::{Document, parse};
use heliograph_gateway::{Event, Limits, World};
use heliograph_snapshot::{FleetName, ResourceType};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::Command;

/// How many patterns an Envoy is given at once.
const PATTERNS: usize = 400;

/// What is accepted under a limit fits an Envoy that has the same. The smallest is Envoy's own default, as in a bootstrap
/// that is not ours; the last is what ours say.
#[test]
fn whatever_is_accepted_envoy_accepts() {
    let mut runner = TestRunner::default();
    for limit in [40, 100, 1_000, Limits::default().regex_program_size] {
        let patterns: Vec<String> =
            (0..PATTERNS).map(|_| pattern().new_tree(&mut runner).unwrap().current()).collect();
        let (table, accepted) = table(&patterns, limit);
        assert!(accepted > PATTERNS / 10, "only {accepted} of {PATTERNS} within {limit}");
        assert_eq!(expressions(&table), PLACES * accepted, "within {limit}");
        let output = validated(&table, limit);
        assert!(output.is_ok(), "{}", output.unwrap_err());
    }
}

/// Random expressions are seldom large, so each is repeated until it is refused.
#[test]
fn what_is_almost_too_large_envoy_accepts() {
    const REPEATS: [u32; 12] = [2, 4, 8, 16, 32, 64, 125, 250, 400, 600, 800, 1_000];
    let limit = Limits::default().regex_program_size;
    let mut runner = TestRunner::default();
    let mut random = || pattern().new_tree(&mut runner).unwrap().current();
    let named = LARGE.iter().map(|pattern| (*pattern).to_owned());
    let base: Vec<String> = named.chain((0..LARGE_PATTERNS).map(|_| random())).collect();
    let repeated = |pattern: &String| {
        let of = |repeats| vec![format!("(?:{pattern}){{{repeats}}}")];
        // The last that is accepted is the largest.
        REPEATS.into_iter().map(of).take_while(|one| table(one, limit).1 == 1).last()
    };
    let largest: Vec<String> = base.iter().filter_map(repeated).flatten().collect();
    let (table, accepted) = table(&largest, limit);
    assert_eq!(accepted, largest.len());
    assert_eq!(expressions(&table), PLACES * accepted);
    validated(&table, limit).unwrap();
    // Not so much below the limit that it would be no test of it: Envoy counts more than half of it in some, which it says
    // if it may take no more than that.
    let rejected = validated(&table, limit / 2).unwrap_err();
    assert!(rejected.contains("max program size of"), "{rejected}");
}

/// Of which a number of copies has nearly as many instructions as may be.
const LARGE: [&str; 8] = [
    "[a-z]{32}",
    "(?:abcdefghijklmnopqrstuvwxyz012345)",
    r"\pL",
    r"\pN{2}",
    "[^/]+",
    "(?i:[a-é]k)",
    "(?:a|b|c|d|e|f|g)?",
    "(x*y){8}",
];

/// How many random ones.
const LARGE_PATTERNS: usize = 24;

/// In how many places of its route each pattern is.
const PLACES: usize = 3;

/// The estimate is above what Envoy counts, but not so much that ordinary expressions are refused.
#[test]
fn ordinary_expressions_are_accepted() {
    for (pattern, limit) in [
        ("/v[0-9]+/users/[^/]+", 100),
        ("^/api/(v1|v2)/.*$", 100),
        ("^/v4/advisory/[0-9a-z-]{36}/clone$", 150),
        ("/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", 150),
        (r"\pL{1,5}", 32_768),
    ] {
        let (table, accepted) = table(&[pattern.to_owned()], limit);
        assert_eq!((accepted, expressions(&table)), (1, PLACES), "{pattern}");
        validated(&table, limit).unwrap();
    }
}

/// Otherwise the tests above would pass with an Envoy that reads nothing.
#[test]
fn envoy_rejects_what_is_too_large_for_it() {
    let (table, accepted) = table(&["^(a{10}b){90}$".to_owned()], 2_000);
    assert_eq!((accepted, expressions(&table)), (1, PLACES));
    let rejected = validated(&table, 100).unwrap_err();
    assert!(rejected.contains("max program size of 100"), "{rejected}");
}

/// The same for expressions that no user wrote: Envoy gets one for a gRPC method of any service, and for an origin with a wildcard.
#[test]
fn whatever_is_generated_and_accepted_envoy_accepts() {
    const LONGEST: usize = 250;
    for limit in [40, 100, 1_000, Limits::default().regex_program_size] {
        let mut routes = String::new();
        for number in 0..PATTERNS / 4 {
            // Evenly spread, so that it is no matter of chance how many are accepted.
            let length = 1 + number * LONGEST / (PATTERNS / 4);
            let labels = vec!["o".repeat(length.min(60)); length.div_ceil(60)].join(".");
            writeln!(
                routes,
                "---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {{name: method-{number}, namespace: shop}}
spec:
  parentRefs: [{{name: web}}]
  rules: [{{matches: [{{method: {{method: {}}}}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: origin-{number}, namespace: shop}}
spec:
  parentRefs: [{{name: web}}]
  rules: [{{filters: [{{type: CORS, cors: {{allowOrigins: [\"https://*.{labels}.test\"]}}}}]}}]",
                "M".repeat(length),
            )
            .unwrap();
        }
        let (table, accepted) = table_of(&routes, limit);
        assert!(accepted > PATTERNS / 50, "only {accepted} within {limit}");
        assert_eq!(expressions(&table), accepted, "within {limit}");
        let output = validated(&table, limit);
        assert!(output.is_ok(), "{}", output.unwrap_err());
    }
}

/// The table of a Gateway with one route for each pattern, and how many patterns it has.
fn table(patterns: &[String], limit: u32) -> (Value, usize) {
    let mut routes = String::new();
    for (number, pattern) in patterns.iter().enumerate() {
        let pattern = json!(pattern);
        writeln!(
            routes,
            r#"---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: "r{number}", namespace: shop}}
spec:
  parentRefs: [{{name: web}}]
  rules:
  - matches:
    - path: {{type: RegularExpression, value: {pattern}}}
      headers: [{{type: RegularExpression, name: x, value: {pattern}}}]
      queryParams: [{{type: RegularExpression, name: x, value: {pattern}}}]"#
        )
        .unwrap();
    }
    table_of(&routes, limit)
}

/// The table of a Gateway with these routes, and how many of them are accepted.
fn table_of(routes: &str, limit: u32) -> (Value, usize) {
    let manifest = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec: {gatewayClassName: heliograph, listeners: [{name: http, port: 80, protocol: HTTP}]}
"#
    .to_owned()
        + routes;
    // No other budget has a say here: what is beyond one is accepted and not in the table.
    let mut world = World::with_limits(Limits {
        regex_program_size: limit,
        host_regex_size: u64::MAX,
        route_bytes: u64::MAX,
        namespace_bytes: u64::MAX,
        table_bytes: u64::MAX,
        ..Limits::default()
    });
    for document in parse(&manifest) {
        match document {
            Document::Object(object) => world.apply(Event::Applied(object)),
            other => panic!("{other:?}"),
        }
    }
    world.settle();
    let fleet = FleetName::new("shop", "web");
    let mut tables = world.resources(&fleet).filter(|(kind, _)| *kind == ResourceType::Route);
    let (kind, table) = tables.next().unwrap();
    let any = Any { type_url: kind.type_url().to_owned(), value: table.body.clone() };
    (to_json(&any).unwrap(), world.routes().count())
}

/// How many regular expressions a table has for Envoy to compile.
fn expressions(table: &Value) -> usize {
    match table {
        Value::Object(fields) => {
            let has_one = fields.keys().any(|name| name == "safe_regex" || name == "safeRegex");
            usize::from(has_one) + fields.values().map(expressions).sum::<usize>()
        }
        Value::Array(values) => values.iter().map(expressions).sum(),
        _ => 0,
    }
}

/// What an Envoy with this limit says to a table.
fn validated(table: &Value, limit: u32) -> Result<(), String> {
    let mut table = table.clone();
    table.as_object_mut().unwrap().remove("@type");
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "test",
        "route_config": table,
        "http_filters": [{
            "name": "router",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
        }],
    });
    let bootstrap = json!({
        "layered_runtime": {"layers": [
            {"name": "test", "static_layer": {"re2.max_program_size.error_level": limit}},
        ]},
        "static_resources": {"listeners": [{
            "name": "test",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
            "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
        }]},
    });
    let envoy = std::env::var("ENVOY").expect("ENVOY is to name an Envoy");
    let output = Command::new(envoy)
        .args(["--mode", "validate", "-l", "warning", "--config-yaml", &bootstrap.to_string()])
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn pattern() -> impl Strategy<Value = String> {
    let one_of = |all: &'static [&'static str]| {
        proptest::sample::select(all).prop_map(str::to_owned).boxed()
    };
    let leaf = prop_oneof![
        3 => "[a-zA-Z0-9/_~%-]{1,8}",
        1 => one_of(&[".", r"\.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "^", "$", r"\b", r"\B"]),
        1 => one_of(&["é", "λ", "ß", "ſ", "k", "K", "ǅ", "漢", "😀", r"\x{263a}", r"\x41", r"\n"]),
        1 => one_of(&["[[:alpha:]]", "[^/]", "[0-9a-z-]", r"[^\d]", r"[\w.-]", "[[:^digit:]]", r"[^\s\S]", "[a-é]", "[!-~]", "[а-я]", "[ɐ-ʯ]", "[^Ā-ſ]", "[J-ſ一-龥]"]),
        1 => one_of(&[r"\pL", r"\PN", r"\p{Lu}", r"[\pL_]", r"[^\pN\pP]", r"[\x{80}-\x{10ffff}]", r"\p{Cn}", r"\pC"]),
    ];
    let grammar = leaf.prop_recursive(4, 48, 6, move |inner| {
        let times = one_of(&["*", "+", "?", "*?", "{3}", "{0}", "{2,}", "{0,7}", "{5,20}", "{36}"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..6).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 2..5)
                .prop_map(|parts| format!("(?:{})", parts.join("|"))),
            inner.clone().prop_map(|inner| format!("({inner})")),
            inner.clone().prop_map(|inner| format!("(?i:{inner})")),
            inner.clone().prop_map(|inner| format!("(?:{inner}|)")),
            (inner, times).prop_map(|(inner, times)| format!("(?:{inner}){times}")),
        ]
    });
    prop_oneof![8 => grammar, 2 => r"[a-c0-9.*+?(){}|^$\\\[\]dwpLk,:-]{1,16}"]
}
