//! What routes do to requests, seen from outside: a table of requests through a real Envoy.

use crate::harness::{Helio, HttpRequest, backend, service, write};
use heliograph_testing::Port;
use std::fmt::Write as _;

/// A request, and what must come of it. A backend answers `name host path` and the headers that begin with `x-`.
struct Row {
    request: &'static str,
    headers: &'static [(&'static str, &'static str)],
    status: u16,
    /// The body, or, for a redirect, the location.
    answer: &'static str,
}

const ROWS: &[Row] = &[
    // Matches.
    row("GET plain.test /", 200, "one plain.test /"),
    row("GET plain.test /exact", 200, "two plain.test /exact"),
    row("GET plain.test /exact/not", 200, "one plain.test /exact/not"),
    row("GET plain.test /prefix", 200, "two plain.test /prefix"),
    row("GET plain.test /prefix/below", 200, "two plain.test /prefix/below"),
    row("GET plain.test /prefixed", 200, "one plain.test /prefixed"),
    row("GET plain.test /v12/x", 200, "two plain.test /v12/x"),
    row("GET plain.test /v/x", 200, "one plain.test /v/x"),
    row("DELETE plain.test /", 200, "two plain.test /"),
    row("GET plain.test /?page=2&x=y", 200, "two plain.test /?page=2&x=y"),
    row("GET plain.test /?page=3", 200, "one plain.test /?page=3"),
    with(&[("color", "red")], "GET plain.test /", 200, "two plain.test / "),
    with(&[("color", "reddish")], "GET plain.test /", 200, "one plain.test /"),
    with(&[("size", "10")], "GET plain.test /", 200, "two plain.test /"),
    // Hosts: the narrowest wins, wildcards catch the rest at any depth, a port in Host decides nothing.
    row("GET a.wild.test /", 200, "two a.wild.test /"),
    row("GET a.b.wild.test /", 200, "two a.b.wild.test /"),
    row("GET wild.test /", 404, ""),
    row("GET plain.test:1234 /", 200, "one plain.test:1234 /"),
    row("GET nobody.test /", 404, ""),
    // Headers.
    with(
        &[("x-gone", "1"), ("x-set", "old"), ("x-add", "old")],
        "GET headers.test /",
        200,
        "one headers.test / x-add=old,100% x-set=new",
    ),
    row("GET headers.test /backend", 200, "one headers.test /backend x-backend=one"),
    // Redirects.
    row("GET redirect.test /scheme?q=1", 301, "https://redirect.test:443/scheme?q=1"),
    row("GET redirect.test /both", 302, "https://other.test/both"),
    row("GET redirect.test /host", 302, "http://other.test:PORT/host"),
    row("GET redirect.test /port", 302, "https://redirect.test:8443/port"),
    row("GET redirect.test /standard", 302, "http://redirect.test:80/standard"),
    row("GET redirect.test /full/x?q=1", 302, "http://redirect.test:PORT/new?q=1"),
    row("GET redirect.test /old/x", 302, "http://redirect.test:PORT/new/x"),
    row("GET redirect.test /gone/x", 302, "http://redirect.test:PORT/x"),
    row("GET redirect.test /gone", 302, "http://redirect.test:PORT/"),
    // Rewrites.
    row("GET rewrite.test /host", 200, "one other.test /host"),
    row("GET rewrite.test /full/x?q=1", 200, "one rewrite.test /new?q=1"),
    row("GET rewrite.test /old", 200, "one rewrite.test /new"),
    row("GET rewrite.test /old/x", 200, "one rewrite.test /new/x"),
    row("GET rewrite.test /gone", 200, "one rewrite.test /"),
    row("GET rewrite.test /gone/", 200, "one rewrite.test /"),
    row("GET rewrite.test /gone/x", 200, "one rewrite.test /x"),
    row("GET below.test /", 200, "one below.test /deep/"),
    row("GET below.test /x", 200, "one below.test /deep/x"),
    row("GET rewrite.test /by-backend/x", 200, "one other.test /new/x x-backend=one"),
    row("GET rewrite.test /full-by-backend/x", 200, "two rewrite.test /new"),
    // What leads nowhere.
    row("GET broken.test /missing", 500, ""),
    row("GET broken.test /nothing", 500, ""),
    row("GET broken.test /empty", 503, "no healthy upstream"),
];

const ROUTES: &str = r#"
{host: plain.test, rules: [
  {backendRefs: [ONE]},
  {matches: [
    {path: {type: Exact, value: /exact}}, {path: {value: /prefix/}}, {path: {type: RegularExpression, value: "/v[0-9]+/.*"}},
    {method: DELETE}, {queryParams: [{name: page, value: "2"}]}, {headers: [{name: Color, value: red}]},
    {headers: [{name: size, type: RegularExpression, value: "[0-9]+"}]}], backendRefs: [TWO]}]}
{host: "*.wild.test", rules: [{backendRefs: [TWO]}]}
{host: headers.test, rules: [
  {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: new}], add: [{name: X-Add, value: 100%}], remove: [X-Gone]}}], backendRefs: [ONE]},
  {matches: [{path: {value: /backend}}], backendRefs: [{name: one, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Backend, value: one}]}}]}]}]}
{host: redirect.test, rules: [
  {matches: [{path: {value: /scheme}}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301}}]},
  {matches: [{path: {value: /both}}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: other.test}}]}, {matches: [{path: {value: /host}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: other.test}}]},
  {matches: [{path: {value: /port}}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https, port: 8443}}]},
  {matches: [{path: {value: /standard}}], filters: [{type: RequestRedirect, requestRedirect: {port: 80}}]},
  {matches: [{path: {value: /full}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /new}}}]},
  {matches: [{path: {value: /old}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}]},
  {matches: [{path: {value: /gone}}], filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]}]}
{host: rewrite.test, rules: [
  {matches: [{path: {value: /host}}], filters: [{type: URLRewrite, urlRewrite: {hostname: other.test}}], backendRefs: [ONE]},
  {matches: [{path: {value: /full}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /new}}}], backendRefs: [ONE]},
  {matches: [{path: {value: /old}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}], backendRefs: [ONE]},
  {matches: [{path: {value: /gone}}], filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}], backendRefs: [ONE]},
  {matches: [{path: {value: /by-backend}}], backendRefs: [{name: one, port: 80, filters: [{type: URLRewrite, urlRewrite: {hostname: other.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}, {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Backend, value: one}]}}]}]},
  {matches: [{path: {value: /full-by-backend}}], backendRefs: [{name: two, port: 80, filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /new}}}]}]}]}
{host: below.test, rules: [
  {filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /deep}}}], backendRefs: [ONE]}]}
{host: broken.test, rules: [
  {matches: [{path: {value: /missing}}], backendRefs: [{name: missing, port: 80}]},
  {matches: [{path: {value: /nothing}}]},
  {matches: [{path: {value: /empty}}], backendRefs: [{name: empty, port: 80}]}]}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_is_answered_as_the_table_says() {
    let (one, two) = (backend("one").await, backend("two").await);
    let port = Port::reserve().unwrap().number();
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &crate::harness::gateway("web", port));
        write(directory, "backends.yaml", &(service("one", one) + &service("two", two) + EMPTY));
        write(directory, "routes.yaml", &routes());
    });
    helio.until_ready().await;

    let mut wrong = String::new();
    for row in ROWS {
        let [method, host, path] = row.request.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{}", row.request)
        };
        let host = host.replace(":1234", &format!(":{port}"));
        let request = HttpRequest { method, host: &host, path, headers: row.headers };
        let answer = request.ask(port).await.unwrap();
        let expected =
            row.answer.replace("PORT", &port.to_string()).replace(":1234", &format!(":{port}"));
        let shown = answer.header("location").unwrap_or(&answer.body);
        if (answer.status, shown.trim()) != (row.status, expected.trim()) {
            let _ = writeln!(
                wrong,
                "{}: {} {shown:?}, expected {} {expected:?}",
                row.request, answer.status, row.status
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

const fn row(request: &'static str, status: u16, answer: &'static str) -> Row {
    with(&[], request, status, answer)
}

const fn with(
    headers: &'static [(&'static str, &'static str)],
    request: &'static str,
    status: u16,
    answer: &'static str,
) -> Row {
    Row { request, headers, status, answer }
}

/// A Service without endpoints.
const EMPTY: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {ports: [{port: 80}]}
";

/// One HTTPRoute for each entry of [`ROUTES`].
fn routes() -> String {
    let entries =
        ROUTES.trim().split("\n{").map(|entry| format!("{{{}", entry.trim_start_matches('{')));
    let mut text = String::new();
    for (index, entry) in entries.enumerate() {
        let entry = entry
            .replace('\n', " ")
            .replace("ONE", "{name: one, port: 80}")
            .replace("TWO", "{name: two, port: 80}");
        let (host, rules) = entry.split_once(", rules: ").unwrap();
        let host = host.strip_prefix("{host: ").unwrap();
        let rules = rules.strip_suffix('}').unwrap();
        let _ = write!(
            text,
            "
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: route-{index}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{host}]
  rules: {rules}
"
        );
    }
    text
}
