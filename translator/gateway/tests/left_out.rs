//! What proxies reject of an object is left out, and nothing else changes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::route::Action;
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
        "Requests of rule 1 are answered with an error, and match 1 of rule 1 is dropped, because proxies reject it: it is \
         too large. Heliograph tries it again when it changes, or when its annotation heliograph.dev/retry changes"
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

#[test]
fn a_host_that_only_dropped_routes_ask_for_is_dropped_with_them() {
    let mut world = world();
    let hosted = |name: &str| {
        let hosts = "parentRefs: [{name: web, namespace: infra}]\n  hostnames: [odd.example.com]";
        route("shop", name, 5, "/[0-9]+").replacen(
            "parentRefs: [{name: web, namespace: infra}]",
            hosts,
            1,
        )
    };
    let hosts = |world: &World| {
        let table = RouteConfiguration::decode(table(world).body.as_ref()).unwrap();
        table.virtual_hosts.into_iter().map(|host| host.name).collect::<Vec<_>>()
    };
    apply(&mut world, &hosted("one"));
    world.settle();
    assert_eq!(hosts(&world), ["*", "odd.example.com"]);
    let dropped = LeftOut { is_dropped: true, ..left_out(&world, "one") };
    world.leave_out(&fleet(), &key("one"), Some(dropped));
    world.settle();
    assert_eq!(hosts(&world), ["*"]);
    apply(&mut world, &hosted("two"));
    world.settle();
    assert_eq!(hosts(&world), ["*", "odd.example.com"], "somebody else asks for it");
}
