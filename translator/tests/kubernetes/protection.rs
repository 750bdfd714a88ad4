//! What waits while it is not known which objects forbid something.

use crate::client;
use crate::contents::{Translated, site};
use crate::kubernetes::{Kubernetes, gateway_api_crds, until};
use crate::obstructed::{DISCOVERY, Failure, Obstructed};
use crate::watches::{Watched, gateway, gateways, selecting};
use serde_json::{Value, json};
use std::sync::Arc;

const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";
const POLICIES: &str = "backendtlspolicies";

/// A namespace with a Gateway, and Services that routes may lead to.
struct Shop {
    cluster: Arc<Kubernetes>,
    namespace: String,
    way: Obstructed,
}

impl Shop {
    async fn open() -> Self {
        Self::at(Kubernetes::shared().await).await
    }

    async fn at(cluster: Arc<Kubernetes>) -> Self {
        let namespace = site(&cluster).await;
        let shop = Self { cluster, namespace, way: Obstructed::default() };
        let edge = gateway("edge", &shop.namespace, Value::Null);
        shop.cluster.create(&gateways(&shop.namespace), edge).await;
        for name in ["cart", "pay"] {
            shop.create_service(name).await;
        }
        shop
    }

    async fn create_service(&self, name: &str) {
        let namespace = &self.namespace;
        let spec = json!({ "ports": [{ "name": "web", "port": 443 }] });
        let service = json!({ "metadata": { "name": name }, "spec": spec });
        self.cluster.create(&format!("/api/v1/namespaces/{namespace}/services"), service).await;
    }

    fn path(&self, plural: &str) -> String {
        format!("{GATEWAY_API}/namespaces/{}/{plural}", self.namespace)
    }

    /// A route to the Service of its name.
    async fn create_route(&self, name: &str) {
        let route = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "name": name },
            "spec": {
                "parentRefs": [{ "name": "edge" }], "hostnames": [format!("{name}.example")],
                "rules": [{ "backendRefs": [{ "name": name, "port": 443 }] }],
            },
        });
        self.cluster.create(&self.path("httproutes"), route).await;
    }

    /// A policy that has the Service of its name called over TLS.
    async fn create_policy(&self, name: &str, validation: Value) {
        let mut validation = validation;
        validation["hostname"] = json!(format!("{name}.internal"));
        let policy = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy",
            "metadata": { "name": name },
            "spec": {
                "targetRefs": [{ "group": "", "kind": "Service", "name": name }],
                "validation": validation,
            },
        });
        self.cluster.create(&self.path(POLICIES), policy).await;
    }

    /// An endpoint of a Service.
    async fn apply_endpoint(&self, service: &str, address: &str) {
        let slices =
            format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", self.namespace);
        let labels = json!({ "kubernetes.io/service-name": service });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": service, "labels": labels }, "addressType": "IPv4",
            "ports": [{ "name": "web", "port": 8443 }], "endpoints": [{ "addresses": [address] }],
        });
        self.cluster.apply(&format!("{slices}/{service}"), slice).await;
    }

    async fn watched(&self) -> Watched {
        let client = self.way.client(client(&self.cluster).await);
        let scope = selecting(&format!("team={}", self.namespace));
        let mut watched = Watched::start(client, scope);
        watched.translated = Some(Translated::default());
        watched
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("{kind} {}/{name}", self.namespace)
    }

    /// Whether the last of these was published with TLS to the backend, and none before without it.
    fn is_only_over_tls(&self, watched: &Watched, service: &str) -> bool {
        let translated = watched.translated.as_ref().unwrap();
        let of = format!("{}/{service}", self.namespace);
        let mut clusters = translated.clusters.iter().filter(|(name, _)| name.contains(&of));
        clusters.any(|(_, over_tls)| !over_tls.is_empty() && over_tls.iter().all(|it| *it))
    }
}

fn waiting(kind: &str, count: usize) -> String {
    format!("heliograph_kubernetes_waiting_objects{{kind=\"{kind}\"}} {count}\n")
}

fn system() -> Value {
    json!({ "wellKnownCACertificates": "System" })
}

/// It may not be read, so there may be any number of them.
#[tokio::test]
async fn a_translator_that_starts_publishes_nothing_before_a_protecting_kind_was_listed() {
    let shop = Shop::open().await;
    shop.create_policy("pay", system()).await;
    shop.create_route("pay").await;
    for failure in [Failure::Status(403), Failure::Status(404), Failure::Status(500)] {
        shop.way.fail(POLICIES, failure);
        let mut watched = shop.watched().await;
        let route = shop.key("HTTPRoute", "pay");
        watched.until("what may be read", |watched| watched.has(&route)).await;
        until("a line", async || watched.remarks("BackendTLSPolicy: ")).await;
        let failed = shop.way.failed(POLICIES);
        until("it is tried again", async || shop.way.failed(POLICIES) > failed + 2).await;
        watched.receive_all();
        assert!(!watched.synced, "{failure:?}: {:?}", watched.health.remarks());
        let unwatched = "heliograph_kubernetes_watched{kind=\"BackendTLSPolicy\"} 0\n";
        assert!(watched.metrics().contains(unwatched), "{}", watched.metrics());
        assert!(watched.remarks("publishes nothing"), "{:?}", watched.health.remarks());
        let asking = watched.refresh.ask();
        let awaited = async || watched.refresh.awaited(asking) == ["BackendTLSPolicy"];
        until("it alone is awaited", awaited).await;
        shop.way.pass(POLICIES);
        watched.until_synced().await;
        assert!(shop.is_only_over_tls(&watched, "pay"), "{failure:?}");
    }
}

/// Something in between answers for the API: neither the kind nor discovery is there.
#[tokio::test]
async fn what_discovery_does_not_report_is_not_absent() {
    let shop = Shop::open().await;
    for code in [404, 503] {
        shop.way.fail(POLICIES, Failure::Status(404));
        shop.way.fail(DISCOVERY, Failure::Status(code));
        let mut watched = shop.watched().await;
        until("a line", async || watched.remarks("backendtlspolicies cannot be listed")).await;
        let failed = shop.way.failed(DISCOVERY);
        until("it is tried again", async || shop.way.failed(DISCOVERY) > failed + 2).await;
        watched.receive_all();
        assert!(!watched.synced, "{code}: {:?}", watched.health.remarks());
        shop.way.pass(DISCOVERY);
        shop.way.pass(POLICIES);
        watched.until_synced().await;
    }
}

#[tokio::test]
async fn without_its_crd_there_are_none_and_one_that_is_created_later_counts() {
    let cluster = Kubernetes::start().await;
    let crds = gateway_api_crds();
    let of_policies = |name: &str| name.starts_with(POLICIES);
    for (name, manifest) in crds.iter().filter(|(name, _)| !of_policies(name)) {
        cluster.install_crd(name, manifest).await;
    }
    let shop = Shop::at(Arc::new(cluster)).await;
    shop.create_route("cart").await;
    let mut watched = shop.watched().await;
    watched.until_synced().await;
    assert!(watched.remarks("does not serve BackendTLSPolicy"), "{:?}", watched.health.remarks());
    assert!(watched.has(&shop.key("HTTPRoute", "cart")));
    // It is published without TLS, as nothing can demand it.
    assert!(!shop.is_only_over_tls(&watched, "cart"));

    // Discovery must report it each time.
    shop.way.fail(DISCOVERY, Failure::Status(503));
    until("a line", async || watched.remarks("backendtlspolicies cannot be listed")).await;
    shop.create_route("late").await;
    let late = shop.key("HTTPRoute", "late");
    until("it waits", async || watched.metrics().contains(&waiting("HTTPRoute", 1))).await;
    shop.way.pass(DISCOVERY);
    watched.until("it is absent", |watched| watched.has(&late)).await;

    // One of a version that nothing here reads is not none.
    let (name, manifest) = crds.iter().find(|(name, _)| of_policies(name)).unwrap();
    let older =
        manifest.replace("served: true\n    storage: true\n", "served: false\n    storage: true\n");
    assert_ne!(&older, manifest);
    shop.cluster.install_crd(name, &older).await;
    until("a line", async || {
        watched.remarks("the API server serves BackendTLSPolicy only as v1alpha3")
    })
    .await;
    shop.create_route("later").await;
    until("it waits", async || watched.metrics().contains(&waiting("HTTPRoute", 1))).await;
    watched.receive_all();
    let later = shop.key("HTTPRoute", "later");
    assert!(!watched.has(&later));

    shop.cluster
        .apply(&format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"), manifest)
        .await;
    watched.until("there are none", |watched| watched.has(&later)).await;
    shop.create_policy("pay", system()).await;
    let pay = shop.key("BackendTLSPolicy", "pay");
    watched.until("a policy", |watched| watched.has(&pay)).await;
    shop.create_route("pay").await;
    watched.until("its route", |watched| watched.has(&shop.key("HTTPRoute", "pay"))).await;
    assert!(shop.is_only_over_tls(&watched, "pay"));
}

#[tokio::test]
async fn while_a_protecting_kind_cannot_be_watched_what_is_new_waits_and_endpoints_flow() {
    let shop = Shop::open().await;
    shop.create_policy("cart", system()).await;
    shop.create_route("cart").await;
    shop.create_route("old").await;
    let mut watched = shop.watched().await;
    watched.until_synced().await;
    assert!(shop.is_only_over_tls(&watched, "cart"));

    shop.way.fail(POLICIES, Failure::Status(403));
    until("a line", async || watched.remarks("routes and listeners wait")).await;
    shop.create_policy("pay", system()).await;
    shop.create_route("pay").await;
    shop.create_route("gone").await;
    let labels = json!({ "metadata": { "labels": { "edited": "yes" } } });
    for generation in 0..20 {
        let labels = json!({ "metadata": { "labels": { "edited": generation.to_string() } } });
        shop.cluster.patch(&format!("{}/cart", shop.path("httproutes")), labels).await;
    }
    shop.cluster.patch(&format!("{}/edge", gateways(&shop.namespace)), labels).await;
    shop.create_service("new").await;
    until("they wait", async || {
        let metrics = watched.metrics();
        let counts = [("HTTPRoute", 3), ("Gateway", 1), ("Service", 1)];
        counts.iter().all(|(kind, count)| metrics.contains(&waiting(kind, *count)))
    })
    .await;
    watched.receive_all();
    watched.log.clear();
    let pay = shop.key("HTTPRoute", "pay");
    let remark = format!("{pay}: its last change waits until every BackendTLSPolicy can be listed");
    assert!(watched.remarks(&remark), "{:?}", watched.health.remarks());

    // Endpoints and deletions do not wait, of a route that waits either.
    shop.apply_endpoint("cart", "10.0.0.1").await;
    shop.cluster.delete(&format!("{}/old", shop.path("httproutes"))).await;
    shop.cluster.delete(&format!("{}/gone", shop.path("httproutes"))).await;
    let (slice, old) = (shop.key("EndpointSlice", "cart"), shop.key("HTTPRoute", "old"));
    watched.until("what does not wait", |watched| watched.has(&slice) && !watched.has(&old)).await;
    until("it does not wait", async || watched.metrics().contains(&waiting("HTTPRoute", 2))).await;
    // One that is elected now knows less than the one before, perhaps.
    let asking = watched.refresh.ask();
    until("it is asked", async || watched.refresh.awaited(asking) == ["BackendTLSPolicy"]).await;
    watched.receive_all();
    assert!(!watched.has(&pay) && watched.fresh < asking, "{:?}", watched.log);
    assert!(!watched.log.iter().any(|line| line.starts_with("applied HTTPRoute")));
    watched.log.clear();

    shop.way.pass(POLICIES);
    watched.until("all is known", |watched| watched.fresh >= asking).await;
    assert!(watched.has(&pay));
    let position = |of: &str| watched.log.iter().position(|line| *line == format!("applied {of}"));
    let policy = shop.key("BackendTLSPolicy", "pay");
    assert!(position(&policy).unwrap() < position(&pay).unwrap(), "{:?}", watched.log);
    assert_eq!(watched.log.iter().filter(|line| line.contains("HTTPRoute")).count(), 2);
    assert!(shop.is_only_over_tls(&watched, "pay"));
    assert!(!watched.has(&shop.key("HTTPRoute", "gone")));
    for kind in ["HTTPRoute", "Gateway", "Service"] {
        assert!(watched.metrics().contains(&waiting(kind, 0)), "{}", watched.metrics());
    }
    until("no line", async || !watched.remarks("wait")).await;
}

/// It has to be fetched after the list, and what waited comes later still.
#[tokio::test]
async fn what_waited_comes_behind_a_policy_that_names_what_is_to_be_fetched() {
    let shop = Shop::open().await;
    let mut watched = shop.watched().await;
    watched.until_synced().await;
    shop.way.fail(POLICIES, Failure::Status(500));
    until("a line", async || watched.remarks("routes and listeners wait")).await;
    let ca = rcgen::generate_simple_self_signed(["pay.internal".to_owned()]).unwrap().cert.pem();
    let maps = format!("/api/v1/namespaces/{}/configmaps", shop.namespace);
    let map = json!({ "metadata": { "name": "ca" }, "data": { "ca.crt": ca } });
    shop.cluster.create(&maps, map).await;
    let named = json!([{ "group": "", "kind": "ConfigMap", "name": "ca" }]);
    shop.create_policy("pay", json!({ "caCertificateRefs": named })).await;
    shop.create_route("pay").await;
    until("it waits", async || watched.metrics().contains(&waiting("HTTPRoute", 1))).await;
    shop.way.fail("ca", Failure::Hangs);
    shop.way.pass(POLICIES);
    until("it is fetched", async || shop.way.failed("ca") > 0).await;
    watched.receive_all();
    let (pay, policy) = (shop.key("HTTPRoute", "pay"), shop.key("BackendTLSPolicy", "pay"));
    assert!(!watched.has(&pay) && !watched.has(&policy), "{:?}", watched.log);
    shop.way.pass("ca");
    watched.until("its route", |watched| watched.has(&pay)).await;
    assert!(watched.has(&policy) && shop.is_only_over_tls(&watched, "pay"));
}

/// What a policy names cannot be fetched: what it protects is closed, and not open.
#[tokio::test]
async fn a_policy_whose_content_cannot_be_fetched_closes_its_target() {
    let shop = Shop::open().await;
    let mut watched = shop.watched().await;
    watched.until_synced().await;
    shop.way.fail("ca", Failure::Status(500));
    let maps = format!("/api/v1/namespaces/{}/configmaps", shop.namespace);
    shop.cluster
        .create(&maps, json!({ "metadata": { "name": "ca" }, "data": { "ca.crt": "" } }))
        .await;
    watched.until("all is known", |_| true).await;
    let named = json!([{ "group": "", "kind": "ConfigMap", "name": "ca" }]);
    shop.create_policy("pay", json!({ "caCertificateRefs": named })).await;
    let policy = shop.key("BackendTLSPolicy", "pay");
    watched.until("the policy", |watched| watched.has(&policy)).await;
    shop.create_route("pay").await;
    watched.until("its route", |watched| watched.has(&shop.key("HTTPRoute", "pay"))).await;
    let translated = watched.translated.as_ref().unwrap();
    let of = format!("{}/pay", shop.namespace);
    let open = translated.clusters.iter().filter(|(name, _)| name.contains(&of));
    assert_eq!(open.count(), 0, "{:?}", translated.clusters);
}

/// As each does after a while.
#[tokio::test]
async fn a_watch_that_ends_and_begins_again_holds_nothing_back() {
    let shop = Shop::open().await;
    let mut watched = shop.watched().await;
    watched.until_synced().await;
    until("it is watched", async || shop.way.watches(POLICIES) > 0).await;
    let (lists, watches) = (shop.way.lists(POLICIES), shop.way.watches(POLICIES));
    shop.way.end_watches(POLICIES);
    until("it begins again", async || shop.way.watches(POLICIES) > watches).await;
    shop.create_route("cart").await;
    let cart = shop.key("HTTPRoute", "cart");
    watched.until("nothing failed", |watched| watched.has(&cart)).await;
    assert_eq!(shop.way.lists(POLICIES), lists, "nothing can have been missed");
    assert!(!watched.remarks("BackendTLSPolicy"), "{:?}", watched.health.remarks());
}

/// That it has failed is not known for a while.
#[tokio::test]
async fn a_watch_that_is_not_answered_counts_as_one_that_fails() {
    let shop = Shop::open().await;
    let mut watched = shop.watched().await;
    watched.until_synced().await;
    shop.way.fail(POLICIES, Failure::Hangs);
    until("a line", async || watched.remarks("no answer")).await;
    shop.create_route("cart").await;
    until("it waits", async || watched.metrics().contains(&waiting("HTTPRoute", 1))).await;
    shop.way.pass(POLICIES);
    let cart = shop.key("HTTPRoute", "cart");
    watched.until("all is known", |watched| watched.has(&cart)).await;
    until("no line", async || !watched.remarks("BackendTLSPolicy")).await;
}
