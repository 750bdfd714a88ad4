//! Policies through a real Envoy: a timeout at each level, and what is closed because it cannot be protected.

use crate::harness::{Helio, HttpRequest, gateway_with, service, until, write};
use axum::Router;
use axum::extract::Request;
use heliograph_testing::Port;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a request may take that is answered by a timeout of a policy, and how long one is watched that is not.
const WHILE: Duration = Duration::from_secs(1);

/// A Gateway with two listeners and a ListenerSet, with one route for all of them.
fn site(ports: [u16; 3]) -> String {
    let [one, two, added] = ports;
    let listeners = format!(
        "
  allowedListeners: {{namespaces: {{from: Same}}}}
  listeners:
  - {{name: one, protocol: HTTP, port: {one}}}
  - {{name: two, protocol: HTTP, port: {two}}}
"
    );
    let set = format!(
        "
---
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {{name: more}}
spec:
  parentRef: {{name: web}}
  listeners: [{{name: added, protocol: HTTP, port: {added}}}]
"
    );
    gateway_with("web", listeners.trim_start()) + &set
}

const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}, {name: more, kind: ListenerSet}]
  rules:
  - {name: named, matches: [{path: {value: /named}}], backendRefs: [{name: cart, port: 80}]}
  - {matches: [{path: {value: /}}], backendRefs: [{name: cart, port: 80}]}
";

/// A target of a policy, with a request that it is for and one that it is not for, if there is one.
struct Level {
    kind: &'static str,
    name: &'static str,
    section: Option<&'static str>,
    is_for: (usize, &'static str),
    is_not_for: Option<(usize, &'static str)>,
}

const LEVELS: [Level; 6] = [
    Level { kind: "Gateway", name: "web", section: None, is_for: (2, "/silent"), is_not_for: None },
    Level {
        kind: "Gateway",
        name: "web",
        section: Some("two"),
        is_for: (1, "/silent"),
        is_not_for: Some((0, "/silent")),
    },
    Level {
        kind: "ListenerSet",
        name: "more",
        section: None,
        is_for: (2, "/silent"),
        is_not_for: Some((1, "/silent")),
    },
    Level {
        kind: "ListenerSet",
        name: "more",
        section: Some("added"),
        is_for: (2, "/silent"),
        is_not_for: Some((1, "/silent")),
    },
    Level {
        kind: "HTTPRoute",
        name: "web",
        section: None,
        is_for: (0, "/silent"),
        is_not_for: None,
    },
    Level {
        kind: "HTTPRoute",
        name: "web",
        section: Some("named"),
        is_for: (0, "/named/silent"),
        is_not_for: Some((0, "/silent")),
    },
];

fn policy(kind: &str, name: &str, target: &Level, spec: &str) -> String {
    let Level { kind: of, name: at, section, .. } = target;
    let section = section.map(|section| format!(", sectionName: {section}")).unwrap_or_default();
    format!(
        "
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: {kind}
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: {of}, name: {at}{section}}}]
  {spec}
"
    )
}

/// Says nothing to requests for `/silent`, at any depth, and something to others. Counts them. Returns its port.
async fn backend(asked: Arc<AtomicUsize>) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = async move |request: Request| {
        asked.fetch_add(1, Ordering::Relaxed);
        if request.uri().path().ends_with("/silent") {
            std::future::pending::<()>().await;
        }
        "here"
    };
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    port
}

/// The status of the answer, if there is one in time.
async fn status(port: u16, path: &str) -> Option<u16> {
    let request = HttpRequest { method: "GET", host: "web.test", path, headers: &[] };
    let answer = tokio::time::timeout(WHILE, request.ask(port)).await.ok()?;
    answer.ok().map(|answer| answer.status)
}

async fn until_status(port: u16, path: &str, expected: u16) {
    let what = format!("{path} at {port} is answered with {expected}");
    until(&what, || async { status(port, path).await == Some(expected) }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeout_at_each_level_answers_504() {
    let backend = backend(Arc::default()).await;
    let ports = [(); 3].map(|()| Port::reserve().unwrap().number());
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &site(ports));
        write(directory, "backends.yaml", &service("cart", backend));
        write(directory, "route.yaml", ROUTE);
    });
    helio.until_ready().await;
    assert_eq!(status(ports[0], "/silent").await, None, "without a policy there is no limit");
    for level in &LEVELS {
        let spec = "timeout: {http: {requestTimeout: 100ms}}";
        let limited = policy("BackendTrafficPolicy", "limited", level, spec);
        write(&helio.directory(), "policy.yaml", &limited);
        let (at, path) = level.is_for;
        until_status(ports[at], path, 504).await;
        if let Some((other, path)) = level.is_not_for {
            assert_eq!(status(ports[other], path).await, None, "{limited}");
        }
        assert_eq!(status(ports[0], "/named").await, Some(200));
        fs::remove_file(helio.directory().join("policy.yaml")).unwrap();
        let is_unlimited = || async { status(ports[at], path).await.is_none() };
        until("it is unlimited again", is_unlimited).await.unwrap();
    }
    // The most specific one replaces the others.
    let off =
        policy("BackendTrafficPolicy", "off", &LEVELS[5], "timeout: {http: {requestTimeout: 0s}}");
    let spec = "timeout: {http: {requestTimeout: 100ms}}";
    let limited = policy("BackendTrafficPolicy", "limited", &LEVELS[0], spec);
    write(&helio.directory(), "policy.yaml", &format!("{off}---{limited}"));
    until_status(ports[0], "/silent", 504).await;
    assert_eq!(status(ports[0], "/named/silent").await, None);
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_security_policy_closes_what_it_targets_until_it_is_removed() {
    let backend = backend(Arc::default()).await;
    let ports = [(); 3].map(|()| Port::reserve().unwrap().number());
    let mut helio = Helio::start(|directory| {
        write(directory, "gateway.yaml", &site(ports));
        write(directory, "backends.yaml", &service("cart", backend));
        write(directory, "route.yaml", ROUTE);
    });
    helio.until_ready().await;
    assert_eq!(status(ports[0], "/named").await, Some(200));
    for level in &LEVELS {
        let spec = "jwt: {providers: [{name: one, remoteJWKS: {uri: 'https://example.com/keys'}}]}";
        let unsupported = policy("SecurityPolicy", "unsupported", level, spec);
        write(&helio.directory(), "policy.yaml", &unsupported);
        let (at, path) = level.is_for;
        let path = path.trim_end_matches("silent");
        until_status(ports[at], path, 500).await;
        if let Some((other, path)) = level.is_not_for {
            let path = path.trim_end_matches("silent");
            assert_eq!(status(ports[other], path).await, Some(200), "{unsupported}");
        }
        fs::remove_file(helio.directory().join("policy.yaml")).unwrap();
        until_status(ports[at], path, 200).await;
    }
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}

/// Plaintext reaches the backend neither while the policy is changed nor after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_whose_policy_cannot_be_decoded_receives_no_plaintext() {
    let asked = Arc::new(AtomicUsize::new(0));
    let backend = backend(asked.clone()).await;
    let ports = [(); 3].map(|()| Port::reserve().unwrap().number());
    let policy = |hostname: &str| {
        format!(
            "
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: cart}}
spec:
  targetRefs: [{{group: '', kind: Service, name: cart}}]
  validation: {{wellKnownCACertificates: System, {hostname}}}
"
        )
    };
    let (good, bad) = (policy("hostname: cart.test"), policy("hostname: cart.test, hostnme: x"));
    let prepare = |directory: &Path, policy: &str| {
        write(directory, "gateway.yaml", &site(ports));
        write(directory, "backends.yaml", &service("cart", backend));
        write(directory, "route.yaml", ROUTE);
        write(directory, "policy.yaml", policy);
    };
    let mut helio = Helio::start(|directory| prepare(directory, &good));
    helio.until_ready().await;
    // It speaks plaintext only, so a handshake fails.
    until_status(ports[0], "/", 503).await;
    write(&helio.directory(), "policy.yaml", &bad);
    until_status(ports[0], "/", 500).await;
    assert!(helio.end("TERM").await.success(), "{}", helio.log());

    let mut helio = Helio::start(|directory| prepare(directory, &bad));
    helio.until_ready().await;
    assert_eq!(status(ports[0], "/").await, Some(500));
    assert_eq!(asked.load(Ordering::Relaxed), 0, "a request came in plaintext");
    fs::remove_file(helio.directory().join("policy.yaml")).unwrap();
    until_status(ports[0], "/", 200).await;
    assert!(helio.end("TERM").await.success(), "{}", helio.log());
}
