//! What proxies reject of an object is left out, and nothing else changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::route::Action;
use heliograph_envoy::envoy::config::route::v3::route_match::PathSpecifier;
use heliograph_envoy::envoy::config::route::v3::{Route, RouteConfiguration};
use heliograph_gateway::left_out::{object_name, object_of};
use heliograph_gateway::objects::{Document, Kind, ObjectKey, ObjectName, parse};
use heliograph_gateway::{Culprit, Event, RejectedResource, World};
use heliograph_snapshot::{Change, FleetName, Internal, Resource, ResourceType, Version};
use heliograph_views::{LeftOut, LeftOutRule};
use std::collections::BTreeMap;
use std::sync::Arc;

const OBJECTS: &str = "
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
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{port: 80}]}
";

/// A route that leads to the cart, whose second rule has an expression.
fn route(namespace: &str, name: &str, created: u32, pattern: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: {namespace}, creationTimestamp: \"2026-01-01T00:00:{created:02}Z\"}}
spec:
  parentRefs: [{{name: web, namespace: infra}}]
  rules:
  - matches: [{{path: {{value: /{name}}}}}]
    backendRefs: [{{name: cart, namespace: shop, port: 80}}]
  - matches: [{{path: {{type: Exact, value: /{name}/exact}}}}, {{path: {{type: RegularExpression, value: '{pattern}'}}}}]
    backendRefs: [{{name: cart, namespace: shop, port: 80}}]
"
    )
}

fn apply(world: &mut World, manifests: &str) {
    for document in parse(manifests) {
        match document {
            Document::Object(object) => world.apply(Event::Applied(object)),
            other => panic!("{other:?}"),
        }
    }
}

/// Three routes of one table, the youngest last.
fn world() -> World {
    let mut world = World::new();
    apply(&mut world, OBJECTS);
    for (created, name) in ["old", "bad", "new"].into_iter().enumerate() {
        apply(&mut world, &route("shop", name, created as u32, &format!("/{name}/[0-9]+")));
    }
    world.settle();
    world
}

fn fleet() -> FleetName {
    FleetName::new("infra", "web")
}

fn key(name: &str) -> ObjectKey {
    ObjectName::new("shop", name).of(Kind::HTTPRoute)
}

fn table(world: &World) -> Arc<Resource> {
    let fleet = fleet();
    let routes = world.resources(&fleet).filter(|(kind, _)| *kind == ResourceType::Route);
    routes.map(|(_, table)| table.clone()).next().unwrap()
}

/// The routes of the table by name.
fn routes(world: &World) -> BTreeMap<String, Route> {
    let table = RouteConfiguration::decode(table(world).body.as_ref()).unwrap();
    let routes = table.virtual_hosts.into_iter().flat_map(|host| host.routes);
    routes.map(|route| (route.name.clone(), route)).collect()
}

fn answers(route: &Route) -> Option<u32> {
    match route.action.as_ref()? {
        Action::DirectResponse(answer) => Some(answer.status),
        _ => None,
    }
}

fn left_out(world: &World, name: &str) -> LeftOut {
    LeftOut {
        object: object_name(&key(name)),
        revision: world.revision(&key(name)).unwrap(),
        words: "it is too large.".to_owned(),
        ..LeftOut::default()
    }
}

fn condition(world: &World, name: &str) -> Option<String> {
    let object = key(name);
    let mut problems = world.problems().filter(|problem| problem.object == object);
    problems.find(|problem| problem.reason == "LeftOut").map(|problem| problem.message)
}

#[test]
fn a_rule_that_is_left_out_answers_with_an_error_and_all_else_is_as_it_was() {
    let mut world = world();
    let before = routes(&world);
    let rules = vec![LeftOutRule { index: 1, dropped: vec![1] }];
    let entry = LeftOut { rules, ..left_out(&world, "bad") };
    assert_eq!(object_of(&entry), Some(key("bad")));
    world.leave_out(&fleet(), &key("bad"), Some(entry.clone()));
    let outcome = world.settle();

    let after = routes(&world);
    assert!(!after.contains_key("httproute/shop/bad/1/1"), "a match that is dropped");
    assert_eq!(answers(&after["httproute/shop/bad/1/0"]), Some(500));
    assert_eq!(after["httproute/shop/bad/1/0"].r#match, before["httproute/shop/bad/1/0"].r#match);
    let others = before.iter().filter(|(name, _)| !name.starts_with("httproute/shop/bad/1/"));
    for (name, route) in others {
        assert_eq!(after.get(name), Some(route), "{name}");
    }
    let changes = &outcome.changes[&fleet()];
    assert_eq!(changes.len(), 2, "the table, and what is stored of it: {changes:?}");
    let stored = changes.iter().find_map(|change| match change {
        Change::SetInternal(Internal::Quarantine, entry) => Some(entry.clone()),
        _ => None,
    });
    assert_eq!(stored.unwrap().body, entry.resource().body);
    let message = condition(&world, "bad").unwrap();
    assert_eq!(
        message,
        "Requests of rule 1 are answered with an error, and match 1 of rule 1 is dropped: requests that only a regular \
         expression distinguishes from its own are answered with an error, too, because proxies reject it: it is too large. \
         Heliograph tries it again when it changes, or when its annotation heliograph.dev/retry changes"
    );
    assert_eq!(condition(&world, "new"), None);
    assert_eq!(outcome.work.of("compiled_route"), 1, "{:?}", outcome.work);
}

#[test]
fn an_object_that_changes_is_tried_again() {
    let mut world = world();
    let before = table(&world);
    for retry in ["spec", "annotation"] {
        world.leave_out(&fleet(), &key("bad"), Some(left_out(&world, "bad")));
        world.settle();
        assert_eq!(answers(&routes(&world)["httproute/shop/bad/0/0"]), Some(500));
        assert!(world.internals(&fleet()).any(|(section, _)| section == Internal::Quarantine));
        // Another object is no reason.
        apply(&mut world, &route("shop", "later", 9, "/later/[0-9]+"));
        world.settle();
        assert!(condition(&world, "bad").is_some());
        world.apply(Event::Deleted(key("later")));
        match retry {
            "spec" => apply(&mut world, &route("shop", "bad", 1, "/other/[0-9]+")),
            _ => {
                let again = route("shop", "bad", 1, "/bad/[0-9]+");
                let annotated = again.replacen(
                    "namespace: shop, creation",
                    "namespace: shop, annotations: {heliograph.dev/retry: now}, creation",
                    1,
                );
                apply(&mut world, &annotated);
            }
        }
        world.settle();
        assert_eq!(condition(&world, "bad"), None);
        assert_eq!(world.internals(&fleet()).count(), 0);
        apply(&mut world, &route("shop", "bad", 1, "/bad/[0-9]+"));
        world.settle();
        assert_eq!(table(&world).body, before.body);
    }
}

#[test]
fn what_was_left_out_of_other_content_is_not_left_out() {
    let mut world = world();
    let before = table(&world);
    let outdated = LeftOut { revision: "another".to_owned(), ..left_out(&world, "bad") };
    world.leave_out(&fleet(), &key("bad"), Some(outdated));
    let outcome = world.settle();
    assert!(outcome.changes.is_empty(), "{outcome:?}");
    assert_eq!(table(&world).body, before.body);
}

#[test]
fn a_fleet_that_is_gone_leaves_nothing_behind() {
    let mut world = world();
    world.leave_out(&fleet(), &key("bad"), Some(left_out(&world, "bad")));
    world.settle();
    world.apply(Event::Deleted(ObjectName::new("infra", "web").of(Kind::Gateway)));
    let outcome = world.settle();
    assert_eq!(outcome.retired, [fleet()]);
    assert_eq!(world.objects_left_out(), 0);
    assert!(world.settle().changes.is_empty());
}

fn rejected<'a>(
    name: &'a str,
    version: Version,
    words: &'a str,
    good: Option<&'a Bytes>,
) -> RejectedResource<'a> {
    RejectedResource { kind: ResourceType::Route, name, version, body: None, words, good }
}

/// The names of those that may be the cause; those that the words mean have a star.
fn culprits(world: &World, words: &str, good: Option<&Resource>) -> Vec<String> {
    let version = table(world).version;
    let good = good.map(|good| &good.body);
    let culprits = world.culprits(&fleet(), &rejected(&table(world).name, version, words, good));
    let name = |culprit: Culprit| {
        let star = if culprit.is_meant { "*" } else { "" };
        let matches = culprit.matches.iter();
        let matches = matches.map(|it| {
            format!(" {}/{}{}", it.rule, it.index, if it.is_match { " match" } else { "" })
        });
        format!("{}{star}{}", culprit.object.name.name, matches.collect::<String>())
    };
    culprits.into_iter().map(name).collect()
}

#[test]
fn those_that_words_mean_come_first_and_then_the_youngest() {
    let mut world = world();
    let quoting = "regex '/bad/[0-9]+' RE2 program size of 20 > max program size of 10";
    assert_eq!(culprits(&world, quoting, None), ["bad* 1/1 match", "new", "old"]);
    assert_eq!(culprits(&world, "no idea", None), ["new", "bad", "old"]);
    assert_eq!(
        culprits(&world, "route httproute/shop/old/0/0 has no action", None),
        ["old* 0/0", "new", "bad"]
    );
    // Text that a tenant wrote into an expression makes no route a suspect as long as there is other evidence.
    let accusing = "regex '/bad/[0-9]+' httproute/shop/old/0/0";
    assert_eq!(culprits(&world, accusing, None)[0], "bad* 1/1 match");
    let accusing = "httproute/shop/new/0/0: unknown filter 'httproute/shop/old/0/0'";
    assert_eq!(culprits(&world, accusing, None)[0], "new* 0/0");

    // What was accepted before is innocent, whatever is said.
    let good = table(&world);
    apply(&mut world, &route("shop", "bad", 1, "/changed/[0-9]+"));
    apply(&mut world, &route("shop", "later", 9, "/later/[0-9]+"));
    world.settle();
    assert_eq!(culprits(&world, "no idea", Some(&good)), ["later", "bad"]);
    assert_eq!(culprits(&world, "httproute/shop/old/0/0", Some(&good)), ["later", "bad"]);
    apply(&mut world, &route("shop", "bad", 1, "/bad/[0-9]+"));
    world.settle();
    assert_eq!(culprits(&world, "no idea", Some(&good)), ["later*"]);
    let other = good.version;
    let (fleet, name) = (fleet(), &good.name);
    let culprits = world.culprits(&fleet, &rejected(name, other, "", None));
    assert_eq!(culprits, [], "it is not what there is");
    // What was rejected a moment ago and is there still, is suspect; what has changed since is not.
    let before = table(&world);
    apply(&mut world, &route("shop", "later", 9, "/fixed/[0-9]+"));
    world.settle();
    let (version, body) = (before.version, Some(&before.body));
    let suspects = world.culprits(
        &fleet,
        &RejectedResource { body, ..rejected(name, version, "", Some(&good.body)) },
    );
    assert_eq!(suspects, []);
    // The cause may be the route that has changed, so no other is a suspect unless the error names it.
    for (words, expected) in [
        ("no idea", &[][..]),
        ("httproute/shop/later/0/0", &[]),
        ("VirtualHosts[0]: Routes[0]", &[]),
        ("httproute/shop/old/0/0", &[]),
        ("regex '/old/[0-9]+' is too large", &["old"]),
        ("regex '/later/[0-9]+' is too large", &[]),
    ] {
        let of = RejectedResource { body, ..rejected(name, version, words, None) };
        let suspects = world.culprits(&fleet, &of).into_iter();
        let names: Vec<_> = suspects.map(|it| it.object.name.name.to_string()).collect();
        assert_eq!(names, expected, "{words}");
    }
}

#[test]
fn where_a_host_alone_is_new_those_are_suspect_that_name_it() {
    let mut world = world();
    let hosted = |hosts: &str| {
        let named = format!("namespace: infra}}]\n  hostnames: [{hosts}]");
        route("shop", "hosted", 0, "/[0-9]+").replacen("namespace: infra}]", &named, 1)
    };
    apply(&mut world, &hosted("one.example.com"));
    world.settle();
    let good = table(&world);
    apply(&mut world, &hosted("one.example.com, odd.example.com"));
    world.settle();
    assert_eq!(culprits(&world, "no idea", Some(&good)), ["hosted*"]);
}

/// Envoy quotes expressions as they are, with their quotation marks.
#[test]
fn an_expression_does_not_put_the_blame_on_others() {
    for (pattern, words) in [
        (
            "aa' httproute/shop/web/1/1 (a{10}b){100} 'b",
            "regex 'aa' httproute/shop/web/1/1 (a{10}b){100} 'b' is too large",
        ),
        ("`/web/[0-9]+`(a{10}b){100}", "regex '`/web/[0-9]+`(a{10}b){100}' is too large"),
        ("VirtualHosts[0]: Routes[0]", "regex VirtualHosts[0]: Routes[0] is too large"),
    ] {
        let mut world = world();
        let good = table(&world);
        let evil = |pattern: &str| route("evil", "web", 8, &pattern.replace('\'', "''"));
        apply(&mut world, &evil(pattern));
        apply(&mut world, &route("shop", "web", 9, "/web/[0-9]+"));
        world.settle();
        let (bad, fleet) = (table(&world), fleet());
        let of = RejectedResource {
            body: Some(&bad.body),
            ..rejected(&bad.name, bad.version, words, Some(&good.body))
        };
        let namespaces = |of| {
            let suspects = world.suspects_at(&fleet, of).into_iter();
            suspects.map(|it| it.name.namespace.to_string()).collect::<Vec<_>>()
        };
        assert!(namespaces(&of).contains(&"evil".to_owned()), "{words}");
        let quoting = RejectedResource { words: "regex '/web/[0-9]+$' or '/web/[0-9]+'", ..of };
        assert!(namespaces(&quoting).contains(&"shop".to_owned()));

        // The other one is not left out for what has changed since.
        apply(&mut world, &evil("/fine"));
        world.settle();
        assert_eq!(world.culprits(&fleet, &of), [], "{words}");
    }
}

/// What an Envoy with this table does with a request for a path.
fn ask(world: &World, host: &str, path: &str) -> String {
    let table = RouteConfiguration::decode(table(world).body.as_ref()).unwrap();
    let length = |domain: &str| match domain.strip_prefix('*') {
        None => (domain == host).then_some(usize::MAX),
        Some(rest) => host.ends_with(rest).then_some(rest.len()),
    };
    let hosts = table.virtual_hosts.iter().filter_map(|it| Some((length(&it.name)?, it)));
    let Some((_, host)) = hosts.max_by_key(|(length, _)| *length) else { return "404".to_owned() };
    let mut matching = host.routes.iter().filter(|route| {
        match route.r#match.as_ref().unwrap().path_specifier.as_ref().unwrap() {
            PathSpecifier::Path(it) => path == it,
            PathSpecifier::Prefix(it) => path.starts_with(it),
            PathSpecifier::PathSeparatedPrefix(it) => {
                path.strip_prefix(it).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            // Those of these tests.
            PathSpecifier::SafeRegex(it) => {
                let rest = path.strip_prefix(it.regex.strip_suffix("[0-9]+").unwrap());
                rest.is_some_and(|rest| rest.bytes().all(|letter| letter.is_ascii_digit()))
            }
            other => panic!("{other:?}"),
        }
    });
    match matching.next() {
        None => "404".to_owned(),
        Some(route) => match answers(route) {
            Some(status) => status.to_string(),
            None => route.name.split('/').nth(2).unwrap().to_owned(),
        },
    }
}

/// A route for hosts and matches of its own.
fn route_for(namespace: &str, name: &str, hosts: &[&str], matches: &str) -> String {
    let hosts = hosts.join(", ");
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  parentRefs: [{{name: web, namespace: infra}}]
  hostnames: [{hosts}]
  rules: [{{matches: [{matches}], backendRefs: [{{name: cart, namespace: shop, port: 80}}]}}]
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {{name: {namespace}, namespace: shop}}
spec:
  from: [{{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: {namespace}}}]
  to: [{{group: '', kind: Service}}]
"
    )
}

const EXPRESSION: &str = "{path: {type: RegularExpression, value: '/api/[0-9]+'}}";

/// Both ways to leave a route out as a whole.
fn whole(world: &World, name: &str) -> [LeftOut; 2] {
    let dropped = LeftOut { is_dropped: true, ..left_out(world, name) };
    [LeftOut { has_outlines: true, ..dropped.clone() }, dropped]
}

#[test]
fn a_host_of_which_the_only_route_is_dropped_is_nobody_elses() {
    let mut world = world();
    let hosts = ["odd.test", "'*.wild.test'"];
    apply(
        &mut world,
        &route_for("shop", "one", &hosts, &format!("{EXPRESSION}, {{path: {{value: /x}}}}")),
    );
    // Somebody else serves what no other route is for.
    apply(&mut world, &route_for("other", "wide", &[], "{path: {value: /}}"));
    world.settle();
    for host in ["odd.test", "a.wild.test"] {
        assert_eq!(ask(&world, host, "/api/7"), "one");
        assert_eq!(ask(&world, host, "/other"), "wide");
    }
    let before = table(&world);
    for left_out in whole(&world, "one") {
        let is_all = !left_out.has_outlines;
        world.leave_out(&fleet(), &key("one"), Some(left_out));
        world.settle();
        for host in ["odd.test", "a.wild.test"] {
            for path in ["/api/7", "/x", "/x/y"] {
                assert_eq!(ask(&world, host, path), "500", "{host}{path}");
            }
            let other = if is_all { "500" } else { "wide" };
            assert_eq!(ask(&world, host, "/other"), other, "{host}");
        }
        assert_eq!(ask(&world, "else.test", "/other"), "wide");
        world.leave_out(&fleet(), &key("one"), None);
        world.settle();
        assert_eq!(table(&world).body, before.body);
    }
}

#[test]
fn at_a_host_of_several_only_what_others_have_is_served() {
    let mut world = world();
    apply(&mut world, &route_for("shop", "one", &["odd.test"], EXPRESSION));
    apply(&mut world, &route_for("other", "two", &["odd.test"], "{path: {value: /two}}"));
    apply(&mut world, &route_for("other", "wide", &["'*.test'"], "{path: {value: /}}"));
    world.settle();
    for left_out in whole(&world, "one") {
        let is_all = !left_out.has_outlines;
        world.leave_out(&fleet(), &key("one"), Some(left_out));
        world.settle();
        assert_eq!(ask(&world, "odd.test", "/api/7"), "500");
        assert_eq!(ask(&world, "odd.test", "/two"), "two");
        assert_eq!(ask(&world, "odd.test", "/other"), if is_all { "500" } else { "wide" });
        assert_eq!(ask(&world, "b.test", "/other"), "wide");
    }
}

/// A dropped route without hostnames closes nobody's host, and what matched nothing is answered as before.
#[test]
fn what_is_dropped_at_every_host_takes_nothing_from_others() {
    let mut world = world();
    apply(
        &mut world,
        &route_for("shop", "one", &[], "{path: {type: RegularExpression, value: '/[0-9]+'}}"),
    );
    apply(&mut world, &route_for("other", "two", &["two.test"], "{path: {value: /two}}"));
    world.settle();
    for left_out in whole(&world, "one") {
        world.leave_out(&fleet(), &key("one"), Some(left_out));
        world.settle();
        assert_eq!(ask(&world, "two.test", "/two"), "two");
        assert_eq!(ask(&world, "two.test", "/nothing"), "404");
        assert_eq!(ask(&world, "else.test", "/old"), "old");
        assert_eq!(ask(&world, "else.test", "/nothing"), "404");
    }
}

/// An outline is no claim: a route that has the same match keeps its requests.
#[test]
fn an_outline_takes_no_match_that_somebody_has() {
    let mut world = world();
    let header = "headers: [{type: RegularExpression, name: x, value: '[0-9]+'}]";
    let matches = format!("{{path: {{value: /api}}, {header}}}");
    apply(&mut world, &route_for("shop", "one", &["odd.test"], &matches));
    apply(&mut world, &route_for("other", "two", &["odd.test"], "{path: {value: /api}}"));
    world.settle();
    let [outlined, _] = whole(&world, "one");
    world.leave_out(&fleet(), &key("one"), Some(outlined));
    world.settle();
    assert_eq!(ask(&world, "odd.test", "/api"), "two");
    world.apply(Event::Deleted(ObjectName::new("other", "two").of(Kind::HTTPRoute)));
    world.settle();
    assert_eq!(ask(&world, "odd.test", "/api"), "500");
}

/// A policy that cannot be enforced closes one route, and a wider one leads to the same backend without it.
#[test]
fn what_a_policy_closes_stays_closed_when_it_is_left_out() {
    let policy = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: admin, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: admin}]
  jwt: {providers: [{name: one, remoteJWKS: {uri: \"https://example.com/keys\"}}]}
";
    let header = "headers: [{type: RegularExpression, name: x, value: '[0-9]+'}]";
    for (matches, path) in [
        ("{path: {value: /admin}}", "/admin/users"),
        ("{path: {type: RegularExpression, value: '/admin/[0-9]+'}}", "/admin/7"),
        ("{path: {type: RegularExpression, value: '/[0-9]+'}}", "/7"),
        (&format!("{{path: {{value: /admin}}, {header}}}"), "/admin/users"),
    ] {
        for hosts in [&[][..], &["shop.test"]] {
            let mut world = world();
            apply(&mut world, policy);
            apply(&mut world, &route_for("shop", "admin", hosts, matches));
            apply(&mut world, &route_for("shop", "open", hosts, "{path: {value: /}}"));
            apply(&mut world, &route_for("shop", "wide", &[], "{path: {value: /}}"));
            apply(&mut world, &route_for("other", "other", &["other.test"], "{path: {value: /}}"));
            world.settle();
            assert_eq!(ask(&world, "shop.test", path), "500", "{matches}");
            assert_eq!(ask(&world, "shop.test", "/cart"), "open", "{matches}");
            let rule = LeftOutRule { index: 0, dropped: vec![0] };
            let of_rule = LeftOut { rules: vec![rule], ..left_out(&world, "admin") };
            for left_out in whole(&world, "admin").into_iter().chain([of_rule]) {
                world.leave_out(&fleet(), &key("admin"), Some(left_out.clone()));
                world.settle();
                assert_eq!(ask(&world, "shop.test", path), "500", "{matches} {left_out:?}");
                assert_eq!(ask(&world, "other.test", path), "other", "{matches} {left_out:?}");
            }
        }
    }
}

/// One policy closes many routes, all of which are dropped, and the same namespace has thousands of other matches behind them:
/// what each pair of them would cost, everybody would wait for.
#[test]
fn many_dropped_matches_close_what_may_have_their_requests_and_nothing_else() {
    const DROPPED: usize = 300;
    let mut world = world();
    let policy = "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: SecurityPolicy
metadata: {name: admin, namespace: shop}
spec:
  targetSelectors: [{group: gateway.networking.k8s.io, kind: HTTPRoute, matchLabels: {team: admin}}]
  jwt: {providers: [{name: one, remoteJWKS: {uri: \"https://example.com/keys\"}}]}
";
    apply(&mut world, policy);
    // Each has a match that not every Envoy can hold for certain.
    let name = |of: usize| format!("admin-{of}");
    let labelled = |of: usize| {
        let matches = format!("{{path: {{value: '/zz%20{of:03}'}}}}");
        let route = route_for("shop", &name(of), &["one.test"], &matches);
        route.replacen("namespace: shop}", "namespace: shop, labels: {team: admin}}", 1)
    };
    (0..DROPPED).for_each(|of| apply(&mut world, &labelled(of)));
    // Half of these begin like one of them.
    let path = |number: usize| format!("/zz%20{:03}/{number}", number % (2 * DROPPED));
    for first in (0..10 * DROPPED).step_by(50) {
        let matches: Vec<_> =
            (first..first + 50).map(|it| format!("{{path: {{value: '{}'}}}}", path(it))).collect();
        let name = format!("open-{first}");
        apply(&mut world, &route_for("shop", &name, &["'*.test'"], &matches.join(", ")));
    }
    world.settle();
    for of in 0..DROPPED {
        let entry = LeftOut { is_dropped: true, has_outlines: true, ..left_out(&world, &name(of)) };
        world.leave_out(&fleet(), &key(&name(of)), Some(entry));
    }
    world.settle();

    let table = RouteConfiguration::decode(table(&world).body.as_ref()).unwrap();
    let open_at = |host: &str| -> Vec<String> {
        let host = table.virtual_hosts.iter().find(|it| it.name == host).unwrap();
        let open = host.routes.iter().filter(|it| it.name.contains("/open-"));
        let open = open.filter(|route| answers(route).is_none());
        let path = |route: &Route| match route.r#match.as_ref()?.path_specifier.as_ref()? {
            PathSpecifier::PathSeparatedPrefix(path) => Some(path.clone()),
            _ => None,
        };
        let mut open: Vec<_> = open.map(|route| path(route).unwrap()).collect();
        open.sort();
        open
    };
    let mut all: Vec<_> = (0..10 * DROPPED).map(path).collect();
    all.sort();
    assert_eq!(open_at("*.test"), all, "nothing is dropped at this host");
    all.retain(|path| path.as_str() >= "/zz%20300");
    assert_eq!(all.len(), 5 * DROPPED);
    assert_eq!(open_at("one.test"), all);
}

/// What stays of calls of any service would come before all that is not of gRPC.
#[test]
fn a_dropped_match_for_calls_of_any_service_takes_nothing_from_others() {
    for matched in ["{method: Add}", "{type: RegularExpression, service: 'shop[.].+'}"] {
        let mut world = world();
        let calls = route_for("shop", "calls", &["odd.test"], &format!("{{method: {matched}}}"));
        apply(&mut world, &calls.replacen("kind: HTTPRoute", "kind: GRPCRoute", 1));
        let menu = "{path: {value: /shop.Menu}}";
        apply(&mut world, &route_for("other", "two", &["odd.test"], menu));
        apply(&mut world, &route_for("other", "wide", &["'*.test'"], "{path: {value: /}}"));
        world.settle();
        let key = ObjectName::new("shop", "calls").of(Kind::GRPCRoute);
        let dropped = LeftOut {
            object: object_name(&key),
            revision: world.revision(&key).unwrap(),
            is_dropped: true,
            ..LeftOut::default()
        };
        for left_out in [LeftOut { has_outlines: true, ..dropped.clone() }, dropped] {
            world.leave_out(&fleet(), &key, Some(left_out));
            world.settle();
            assert_eq!(ask(&world, "odd.test", "/shop.Menu/List"), "two", "{matched}");
            assert_eq!(ask(&world, "odd.test", "/shop.Cart/Add"), "500", "{matched}");
            assert_eq!(ask(&world, "b.test", "/shop.Cart/Add"), "wide", "{matched}");
        }
    }
}
