//! What tenant A applies: objects that harmed others once, or would.

use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

use crate::harness::replace;
use crate::tls::Identity;

/// The namespace of the hostile tenant.
pub(crate) const TENANT: &str = "a";

/// An expression that only Envoys reject: the translator allows larger ones, and these Envoys do not.
pub(crate) const REJECTED: &str = "^(a{10}b){100}$";

/// What an overlay adds to the route table of the tenant's own Gateway, and its own proxy does not take.
pub(crate) const OVERLAID: &str = "x-only-in-an-overlay";

/// What is applied at once, and the condition that each object of it gets.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    /// Files and what they hold.
    manifests: Vec<(String, String)>,
    pub(crate) conditions: Vec<Condition>,
}

/// Of the object of a kind and a name: a type, a status and a reason.
pub(crate) type Condition = (&'static str, String, [&'static str; 3]);

/// The condition of what Envoys reject.
pub(crate) const LEFT_OUT: [&str; 3] = ["Programmed", "False", "LeftOut"];

const ACCEPTED: [&str; 3] = ["Accepted", "True", "Accepted"];
const UNSUPPORTED: [&str; 3] = ["Accepted", "False", "UnsupportedValue"];
const TOO_LARGE: [&str; 3] = ["Accepted", "False", "TooLarge"];

/// How many routes of a quarter of a megabyte the tenant has: more than [`NAMESPACE`] has room for.
const LARGE: usize = 12;
/// What the routes of a namespace may take, as a flag of the translator says it.
pub(crate) const NAMESPACE: &str = "2MiB";

/// Much less time than it takes until the proxies' answers are known.
const BETWEEN_EDITS: Duration = Duration::from_millis(100);

impl Hostile {
    fn new(name: &'static str) -> Self {
        Self { name, manifests: Vec::new(), conditions: Vec::new() }
    }

    fn with(mut self, object: &Value, condition: [&'static str; 3]) -> Self {
        let kinds = ["GRPCRoute", "HTTPRoute", "ViewPolicy"];
        let kind = kinds.into_iter().find(|kind| object["kind"] == *kind).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.manifests.push((format!("{TENANT}-{name}.yaml"), object.to_string()));
        self.conditions.push((kind, name, condition));
        self
    }

    fn file(mut self, name: &str, text: String) -> Self {
        self.manifests.push((format!("{TENANT}-{name}.yaml"), text));
        self
    }

    pub(crate) fn apply(&self, directory: &Path) {
        for (name, text) in &self.manifests {
            replace(directory, name, text);
        }
    }
}

/// In the order in which they are applied. What was applied before stays. `own` is the port of the tenant's own Gateway.
pub(crate) fn all(https: u16, own: u16) -> Vec<Hostile> {
    let expressions = Hostile::new("expressions, some of them too large for any Envoy")
        .with(&route("ordinary", &[&expression("^/v4/advisory/[0-9a-z-]{36}/clone$")]), ACCEPTED)
        .with(&route("huge-expression", &[&expression(r"^\pL{900}$")]), UNSUPPORTED);
    let patterns =
        Hostile::new("4,224 patterns that take long to compile").with(&patterns(), UNSUPPORTED);
    let slow = (0..3)
        .fold(Hostile::new("2,304 patterns that take long to match"), |hostile, number| {
            hostile.with(&slow(number), TOO_LARGE)
        });
    let rejected = Hostile::new("an expression that only Envoys reject")
        .with(&route("rejected", &[&expression(REJECTED)]), LEFT_OUT);
    let overlay = Hostile::new("an overlay that only Envoys reject").with(&overlay(own), LEFT_OUT);
    let enormous = Hostile::new("a route of half a megabyte that would be half a gigabyte")
        .with(&large("enormous", 16, 128, 256 << 10), TOO_LARGE);
    let generated = Hostile::new("names of which long expressions are made")
        .with(&long_method(), ACCEPTED)
        .with(&long_origins(), ACCEPTED);
    let retries = Hostile::new("retries without an end").with(&retries(), UNSUPPORTED);
    let malformed = Hostile::new("manifests that cannot be read")
        .file("garbage", "\u{7}: [ {{ not yaml".to_owned())
        .file("deep", "[".repeat(100_000))
        .file("wrong", route("wrong", &[&json!({"matches": "everything"})]).to_string());
    let mut secret = Hostile::new("a Secret of a megabyte").file("secret", large_secret(https));
    let refused = ["ResolvedRefs", "False", "InvalidCertificateRef"];
    secret.conditions.push(("ListenerSet", "large-secret".to_owned(), refused));
    let wide = (0..20).fold(Hostile::new("routes for every host"), |hostile, number| {
        hostile.with(&wide(number), ACCEPTED)
    });
    let mut full = Hostile::new("more routes than its namespace has room for");
    for number in 0..LARGE {
        full = full.with(&large(&format!("z-{number:02}"), 4, 4, 16 << 10), ACCEPTED);
    }
    // Of the same age, the last by name are the ones without room.
    full.conditions = vec![("HTTPRoute", format!("z-{:02}", LARGE - 1), TOO_LARGE)];
    vec![
        expressions,
        patterns,
        slow,
        rejected,
        overlay,
        enormous,
        generated,
        retries,
        malformed,
        secret,
        wide,
        full,
    ]
}

/// Edits the route that Envoys reject, so that each time it is another one.
pub(crate) fn rejected_edit(number: usize) -> Value {
    let another = json!({"matches": [{"path": {"value": format!("/edit-{number}")}}]});
    route("rejected", &[&expression(REJECTED), &another])
}

/// Edits one of the routes that fill the tenant's part of the table, so that all of the table is another one.
pub(crate) fn large_edit(number: usize) -> Value {
    let mut large = large("z-00", 4, 4, 16 << 10);
    large["spec"]["rules"][0]["matches"][0]["path"]["value"] = json!(format!("/edit-{number}"));
    large
}

/// Makes such an edit again and again. It ends with the receiver of what is returned.
pub(crate) fn keep_editing(directory: &Path, edit: fn(usize) -> Value) -> watch::Receiver<usize> {
    let (edits, counted) = watch::channel(0);
    let directory = directory.to_owned();
    let mut ticks = tokio::time::interval(BETWEEN_EDITS);
    tokio::spawn(async move {
        while !edits.is_closed() {
            ticks.tick().await;
            let number = *edits.borrow();
            let route = edit(number);
            let name = route["metadata"]["name"].as_str().unwrap();
            replace(&directory, &format!("{TENANT}-{name}.yaml"), &route.to_string());
            edits.send_modify(|number| *number += 1);
        }
    });
    counted
}

/// A Gateway and a Service of the tenant's own, so that it has a fleet that its clients may read.
pub(crate) fn own(port: u16) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web, namespace: {TENANT}}}
spec:
  gatewayClassName: web
  listeners: [{{name: http, protocol: HTTP, port: {port}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: one, namespace: {TENANT}}}
spec: {{ports: [{{name: http, port: 80}}]}}
"
    )
}

fn object(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": TENANT},
        "spec": {"parentRefs": [{"name": "web", "namespace": "default", "sectionName": "http"}]},
    });
    let Value::Object(more) = spec else { panic!("{spec}") };
    object["spec"].as_object_mut().unwrap().extend(more);
    object
}

/// A route of a host of its own, with rules to a Service of the tenant's.
fn route(name: &str, rules: &[&Value]) -> Value {
    let rule = |rule: &&Value| {
        let mut rule = (*rule).clone();
        rule["backendRefs"] = json!([{"name": "one", "port": 80}]);
        rule
    };
    let rules: Vec<_> = rules.iter().map(rule).collect();
    object("HTTPRoute", name, json!({"hostnames": [format!("{name}.a.test")], "rules": rules}))
}

fn expression(pattern: &str) -> Value {
    json!({"matches": [{"path": {"type": "RegularExpression", "value": pattern}}]})
}

fn patterns() -> Value {
    let pattern = |n: usize| json!({"type": "RegularExpression", "name": format!("n{n}"), "value": r"\pL{80}"});
    let parts: Vec<_> = (0..16).map(pattern).collect();
    let all = json!({
        "path": {"type": "RegularExpression", "value": r"\pL{80}"},
        "headers": parts,
        "queryParams": parts,
    });
    let rule = json!({"matches": vec![all; 64]});
    route("patterns", &[&rule, &rule])
}

/// Patterns that RE2 has to remember much for, or to follow many ways at once: a long path takes 40 ms with each. All are for one
/// host. By name these are the youngest routes, so that they take no room from others.
fn slow(number: usize) -> Value {
    let pattern = |n: usize| format!("/.*a[ab]{{14}}x{number}x{n}");
    let path = |n: usize| json!({"path": {"type": "RegularExpression", "value": pattern(n)}});
    let rule =
        |rule: usize| json!({"matches": (0..64).map(|n| path(64 * rule + n)).collect::<Vec<_>>()});
    let rules: Vec<_> = (0..12).map(rule).collect();
    let mut slow = route(&format!("zz-slow-{number}"), &rules.iter().collect::<Vec<_>>());
    slow["spec"]["hostnames"] = json!(["slow.a.test"]);
    slow
}

/// A route with so many hosts and matches, whose filters set so many bytes of headers for each match.
fn large(name: &str, hosts: usize, matches: usize, bytes: usize) -> Value {
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
    let hosts: Vec<String> = (0..hosts).map(|n| format!("{name}-{n}.a.test")).collect();
    object("HTTPRoute", name, json!({"hostnames": hosts, "rules": rules}))
}

/// For every host, and as much of each as a regular expression can be for.
fn wide(number: usize) -> Value {
    let paths = (0..8).map(|n| json!({"path": {"value": format!("/wide/{number}/{n}")}}));
    let mut matches: Vec<_> = paths.collect();
    matches.push(json!({"path": {"type": "RegularExpression", "value": "/.*"}}));
    let rules = json!([{"matches": matches, "backendRefs": [{"name": "one", "port": 80}]}]);
    object("HTTPRoute", &format!("wide-{number}"), json!({"rules": rules}))
}

fn long_method() -> Value {
    let method = json!({"method": "M".repeat(120)});
    let rules =
        json!([{"matches": [{"method": method}], "backendRefs": [{"name": "one", "port": 80}]}]);
    object("GRPCRoute", "long-method", json!({"hostnames": ["method.a.test"], "rules": rules}))
}

fn long_origins() -> Value {
    let origin = format!("https://*.{}.example.com", vec!["o".repeat(30); 5].join("."));
    let cors = json!([{"type": "CORS", "cors": {"allowOrigins": [origin]}}]);
    route("long-origins", &[&json!({"filters": cors})])
}

fn retries() -> Value {
    route("retries", &[&json!({"retry": {"attempts": 2_147_483_647}})])
}

/// A patch of the route table of the tenant's own Gateway.
fn overlay(port: u16) -> Value {
    let overlay = json!({
        "type": "Route",
        "name": format!("http/{port}"),
        "mergePatch": {"internal_only_headers": [OVERLAID]},
    });
    json!({
        "apiVersion": "heliograph.dev/v1alpha1",
        "kind": "ViewPolicy",
        "metadata": {"name": "overlay", "namespace": TENANT},
        "spec": {
            "targetRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"},
            "clients": {},
            "rules": [{"overlay": overlay}],
        },
    })
}

/// A good certificate, and a chain of a megabyte behind it.
fn large_secret(https: u16) -> String {
    let Identity { secret, .. } = Identity::new("large", "large.a.test");
    let name = format!("metadata: {{name: large, namespace: {TENANT}}}");
    let secret = secret.replace("metadata: {name: large}", &name);
    assert!(secret.contains(&name), "{secret}");
    let more = format!("tls.crt: |\n    {}\n", "A".repeat(1 << 20));
    let secret = secret.replace("tls.crt: |\n", &more);
    let set = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ListenerSet",
        "metadata": {"name": "large-secret", "namespace": TENANT},
        "spec": {
            "parentRef": {"name": "web", "namespace": "default"},
            "listeners": [{
                "name": "large", "protocol": "HTTPS", "port": https, "hostname": "large.a.test",
                "tls": {"certificateRefs": [{"name": "large"}]},
            }],
        },
    });
    format!("{secret}\n---\n{set}\n")
}
