//! What the provider tells of a real API.

use crate::contents::Translated;
use crate::kubernetes::{ADMIN_TOKEN, Kubernetes, until};
use crate::{DEADLINE, client, client_of};
use heliograph_gateway::objects::core::Service;
use heliograph_gateway::objects::{Kind, ObjectName, Typed};
use heliograph_gateway::{Event, Limits};
use heliograph_translator::kubernetes::Observed;
use heliograph_translator::provider::Input;
use heliograph_translator::provider::kubernetes::{self as provider, Refresh, Scope, WatchHealth};
use heliograph_translator::{KubernetesArgs, KubernetesMetrics};
use kube::Client;
use prometheus::Registry;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";

pub(crate) fn args(kubeconfig: Option<PathBuf>) -> KubernetesArgs {
    KubernetesArgs {
        kubernetes: true,
        kubeconfig,
        kube_context: None,
        namespace_selector: None,
        ignore_kind: vec![],
    }
}

/// A provider, and what it has told.
pub(crate) struct Watched {
    inputs: mpsc::Receiver<Input>,
    pub(crate) objects: BTreeSet<String>,
    /// Gateways and classes of which nothing is known.
    unread: BTreeSet<String>,
    /// Where Services are reached from outside.
    addresses: BTreeMap<String, String>,
    pub(crate) log: Vec<String>,
    /// What comes of it, where a test asks for that.
    pub(crate) translated: Option<Translated>,
    pub(crate) synced: bool,
    pub(crate) fresh: u64,
    pub(crate) refresh: Refresh,
    pub(crate) health: WatchHealth,
    pub(crate) observed: Observed,
    pub(crate) registry: Registry,
    _stop: DropGuard,
}

impl Watched {
    pub(crate) fn start(client: Client, scope: Scope) -> Self {
        Self::with_limits(client, scope, &Limits::default())
    }

    pub(crate) fn with_limits(client: Client, scope: Scope, limits: &Limits) -> Self {
        let (registry, observed) = (Registry::new(), Observed::default());
        let metrics = KubernetesMetrics::register(&registry).unwrap();
        let provider =
            provider::Kubernetes::new(client, scope, observed.clone(), metrics).with_limits(limits);
        let (refresh, health) = (provider.refresh(), provider.health());
        let (sender, inputs) = mpsc::channel(1024);
        let stop = CancellationToken::new();
        tokio::spawn(provider.run(sender, stop.clone()));
        Self {
            inputs,
            objects: BTreeSet::new(),
            unread: BTreeSet::new(),
            addresses: BTreeMap::new(),
            log: Vec::new(),
            translated: None,
            synced: false,
            fresh: 0,
            refresh,
            health,
            observed,
            registry,
            _stop: stop.drop_guard(),
        }
    }

    /// Takes what comes until it is as expected.
    pub(crate) async fn until(&mut self, what: &str, expected: impl Fn(&Self) -> bool) {
        let taking = async {
            while !expected(self) {
                let input = self.inputs.recv().await.expect("the provider goes on");
                self.receive(input);
            }
        };
        if timeout(DEADLINE, taking).await.is_err() {
            panic!("not in time: {what}; told {:?}; remarks {:?}", self.log, self.health.remarks());
        }
    }

    /// Takes what has come.
    pub(crate) fn receive_all(&mut self) {
        while let Ok(input) = self.inputs.try_recv() {
            self.receive(input);
        }
    }

    pub(crate) async fn until_synced(&mut self) {
        self.until("synced", |watched| watched.synced).await;
    }

    pub(crate) fn has(&self, object: &str) -> bool {
        self.objects.contains(object)
    }

    /// Whether a remark has these words.
    pub(crate) fn remarks(&self, words: &str) -> bool {
        self.health.remarks().iter().any(|remark| remark.to_string().contains(words))
    }

    pub(crate) fn metrics(&self) -> String {
        prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap()
    }

    fn receive(&mut self, input: Input) {
        match input {
            Input::Synced => {
                self.synced = true;
                self.translated.iter_mut().for_each(|it| it.apply(&[], true));
            }
            Input::Fresh(asking) => self.fresh = asking,
            Input::Unread(kind, names) => {
                let keys = names.into_iter().map(|name| name.of(kind).to_string());
                self.unread.retain(|key| !key.starts_with(kind.as_str()));
                self.unread.extend(keys);
            }
            Input::Batch(events) => {
                self.translated.iter_mut().for_each(|it| it.apply(&events, self.synced));
                for event in events {
                    match event {
                        Event::Applied(object) => {
                            let key = object.key().to_string();
                            self.log.push(format!("applied {key}"));
                            if let Some(address) = Service::of(&object).and_then(address) {
                                self.addresses.insert(key.clone(), address);
                            }
                            self.objects.insert(key);
                        }
                        Event::Deleted(key) => {
                            self.log.push(format!("deleted {key}"));
                            self.objects.remove(&key.to_string());
                        }
                    }
                }
            }
        }
    }
}

fn address(service: &Service) -> Option<String> {
    let balancer = service.status.as_ref()?.load_balancer.as_ref()?;
    balancer.ingress.as_ref()?.first()?.ip.clone()
}

pub(crate) fn selecting(selector: &str) -> Scope {
    Scope { namespace_selector: Some(selector.to_owned()), ..Scope::default() }
}

pub(crate) fn route(name: &str) -> Value {
    let parent = json!({ "name": "edge" });
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "name": name }, "spec": { "parentRefs": [parent] },
    })
}

pub(crate) fn gateways(namespace: &str) -> String {
    format!("{GATEWAY_API}/namespaces/{namespace}/gateways")
}

/// With an HTTPS listener, if it has certificates.
pub(crate) fn gateway(name: &str, class: &str, certificates: Value) -> Value {
    let listener = match certificates {
        Value::Null => json!({ "name": "web", "protocol": "HTTP", "port": 80 }),
        certificates => json!({
            "name": "web", "protocol": "HTTPS", "port": 443, "tls": { "certificateRefs": certificates },
        }),
    };
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": name },
        "spec": { "gatewayClassName": class, "listeners": [listener] },
    })
}

pub(crate) async fn choose(cluster: &Kubernetes, namespace: &str, value: Value) {
    let labels = json!({ "metadata": { "labels": { "team": value } } });
    cluster.patch(&format!("/api/v1/namespaces/{namespace}"), labels).await;
}

#[tokio::test]
async fn everything_is_told_and_then_every_change() {
    let cluster = Kubernetes::shared().await;
    let shop = cluster.create_namespace("shop").await;
    choose(&cluster, &shop, json!("shop")).await;
    let other = cluster.create_namespace("other").await;
    let routes = format!("{GATEWAY_API}/namespaces/{shop}/httproutes");
    cluster.create(&routes, route("cart")).await;
    cluster.create(&format!("{GATEWAY_API}/namespaces/{other}/httproutes"), route("far")).await;
    let secrets = format!("/api/v1/namespaces/{shop}/secrets");
    let secret = |name: &str, kind: &str, data: Value| json!({ "metadata": { "name": name }, "type": kind, "data": data });
    let pair = json!({ "tls.crt": "", "tls.key": "" });
    cluster.create(&secrets, secret("pair", "kubernetes.io/tls", pair.clone())).await;
    cluster.create(&secrets, secret("unnamed", "kubernetes.io/tls", pair)).await;
    cluster.create(&secrets, secret("release", "Opaque", json!({}))).await;
    let names = json!([{ "name": "pair" }, { "name": "release" }]);
    cluster.create(&gateways(&shop), gateway("edge", "none", names)).await;

    let mut watched = Watched::start(client(&cluster).await, selecting("team=shop"));
    watched.until_synced().await;
    assert!(watched.has(&format!("Namespace {shop}")), "{:?}", watched.log);
    assert!(watched.has(&format!("HTTPRoute {shop}/cart")));
    assert!(watched.has(&format!("Secret {shop}/pair")));
    assert!(!watched.has(&format!("Secret {shop}/release")), "it can hold no certificate");
    assert!(!watched.has(&format!("Secret {shop}/unnamed")), "nothing names it");
    assert!(!watched.has(&format!("HTTPRoute {other}/far")), "its namespace is not chosen");
    let key = ObjectName::new(&shop, "cart").of(Kind::HTTPRoute);
    assert_eq!(watched.observed.get(&key).unwrap().generation, 1);

    cluster.create(&routes, route("new")).await;
    let new = format!("HTTPRoute {shop}/new");
    watched.until("a new route", |watched| watched.has(&new)).await;
    cluster.delete(&format!("{routes}/cart")).await;
    let cart = format!("HTTPRoute {shop}/cart");
    watched.until("a deletion", |watched| !watched.has(&cart)).await;
    assert_eq!(watched.observed.get(&key), None);

    // A namespace that begins to count brings its objects, and one that ceases to takes them.
    choose(&cluster, &other, json!("shop")).await;
    let far = format!("HTTPRoute {other}/far");
    watched.until("a namespace that counts", |watched| watched.has(&far)).await;
    choose(&cluster, &other, Value::Null).await;
    watched.until("a namespace that does not", |watched| !watched.has(&far)).await;
    assert!(watched.has(&new));

    let asking = watched.refresh.ask();
    watched.log.clear();
    watched.until("what it has is all there is", |watched| watched.fresh >= asking).await;
    assert_eq!(watched.log, [""; 0], "nothing had to be fetched again");
}

/// What others write there is not ours to forget.
#[tokio::test]
async fn the_address_of_a_service_is_told() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("addressed").await;
    let services = format!("/api/v1/namespaces/{namespace}/services");
    let spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    cluster.create(&services, json!({ "metadata": { "name": "edge" }, "spec": spec })).await;
    let mut watched = Watched::start(client(&cluster).await, Scope::default());
    watched.until_synced().await;
    let edge = format!("Service {namespace}/edge");
    assert!(watched.has(&edge));
    assert_eq!(watched.addresses.get(&edge), None);

    let ingress = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } });
    cluster.patch(&format!("{services}/edge/status"), json!({ "status": ingress })).await;
    let given =
        |watched: &Watched| watched.addresses.get(&edge).is_some_and(|ip| ip == "192.0.2.7");
    watched.until("an address", given).await;
}

/// A CRD of the kind that allows everything, as one of a newer version allows more.
pub(crate) const LAX: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: httproutes.gateway.networking.k8s.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes-sigs/gateway-api/pull/1}
spec:
  group: gateway.networking.k8s.io
  scope: Namespaced
  names: {kind: HTTPRoute, listKind: HTTPRouteList, plural: httproutes, singular: httproute}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

#[tokio::test]
async fn a_crd_that_appears_is_picked_up_and_an_object_that_cannot_be_read_harms_no_other() {
    let cluster = Kubernetes::start().await;
    let mut watched = Watched::start(client(&cluster).await, Scope::default());
    watched.until_synced().await;
    assert!(watched.has("Namespace default"), "what is served is told");
    assert!(watched.remarks("does not serve HTTPRoute of gateway.networking.k8s.io/v1"));
    assert!(watched.metrics().contains("heliograph_kubernetes_watched{kind=\"HTTPRoute\"} 0"));

    cluster.install_crd("httproutes.gateway.networking.k8s.io", LAX).await;
    let routes = format!("{GATEWAY_API}/namespaces/default/httproutes");
    let mut bad = route("bad");
    bad["spec"]["rules"] = json!([{ "filters": [{ "type": "Sideways" }] }]);
    cluster.apply(&format!("{routes}/bad"), &bad).await;
    cluster.apply(&format!("{routes}/good"), route("good")).await;
    watched.until("the good one", |watched| watched.has("HTTPRoute default/good")).await;
    until("a remark", async || watched.remarks("HTTPRoute default/bad")).await;
    assert!(watched.remarks("spec.rules[0].filters[0].type"), "{:?}", watched.health.remarks());
    assert!(!watched.remarks("does not serve HTTPRoute"));
    let counted = "heliograph_kubernetes_unreadable_objects{kind=\"HTTPRoute\"} 1";
    assert!(watched.metrics().contains(counted), "{}", watched.metrics());

    cluster.apply(&format!("{routes}/bad"), route("bad")).await;
    watched.until("a good version", |watched| watched.has("HTTPRoute default/bad")).await;
    assert!(!watched.remarks("HTTPRoute default/bad"));
    // What was read last counts while what there is cannot be read, for whoever has read it.
    cluster.apply(&format!("{routes}/bad"), &bad).await;
    until("a remark", async || watched.remarks("its previous version stays in force")).await;
    let key = ObjectName::new("default", "bad").of(Kind::HTTPRoute);
    let seen = watched.observed.get(&key).unwrap();
    assert!(seen.unreadable.unwrap().starts_with("spec.rules[0].filters[0].type"));
    cluster.apply(&format!("{routes}/last"), route("last")).await;
    watched.until("what comes later", |watched| watched.has("HTTPRoute default/last")).await;
    assert!(watched.has("HTTPRoute default/bad") && watched.has("HTTPRoute default/good"));

    let gateways = LAX.replace("httproute", "gateway").replace("HTTPRoute", "Gateway");
    cluster.install_crd("gateways.gateway.networking.k8s.io", &gateways).await;
    let mut gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "edge" }, "spec": { "gatewayClassName": "heliograph", "listeners": "many" },
    });
    let edge = format!("{GATEWAY_API}/namespaces/default/gateways/edge");
    cluster.apply(&edge, &gateway).await;
    let is_unread = |watched: &Watched| watched.unread.contains("Gateway default/edge");
    watched.until("a Gateway that was never read is not taken for none", is_unread).await;
    gateway["spec"]["listeners"] = json!([]);
    cluster.apply(&edge, &gateway).await;
    let is_read =
        |watched: &Watched| watched.has("Gateway default/edge") && watched.unread.is_empty();
    watched.until("it can be read", is_read).await;
}

#[tokio::test]
async fn without_permission_it_waits_and_goes_on_when_it_has_it() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("limited").await;
    cluster.create_account(&namespace, "translator").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let role = |routes: &[&str]| {
        let rule = |groups: &[&str], resources: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"] });
        let mut rules = vec![
            rule(&[""], &["namespaces", "services", "secrets", "configmaps"]),
            rule(&["discovery.k8s.io"], &["endpointslices"]),
        ];
        rules.push(rule(&["gateway.networking.k8s.io"], routes));
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": namespace }, "rules": rules,
        })
    };
    let path = format!("{roles}/clusterroles/{namespace}");
    cluster
        .apply(&path, role(&["gateways", "gatewayclasses", "referencegrants", "grpcroutes"]))
        .await;
    let binding = json!({
        "metadata": { "name": namespace },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace },
        "subjects": [{ "kind": "ServiceAccount", "namespace": namespace, "name": "translator" }],
    });
    cluster.create(&format!("{roles}/clusterrolebindings"), binding).await;
    let token = cluster.token(&namespace, "translator", &[]).await;
    cluster.write_kubeconfig("limited", &token);

    let mut watched = Watched::start(client_of(&cluster, "limited").await, Scope::default());
    watched.until("what may be read", |watched| watched.has("Namespace default")).await;
    until("a line", async || {
        watched.remarks("HTTPRoute: there is no permission to read httproutes")
    })
    .await;
    let forbidden = "watch_failures_total{kind=\"HTTPRoute\",reason=\"forbidden\"}";
    assert!(watched.metrics().contains(forbidden), "{}", watched.metrics());
    assert!(!watched.synced, "half of the objects would be half of a configuration");
    cluster.apply(&path, role(&["*"])).await;
    watched.until_synced().await;
    assert!(!watched.remarks("HTTPRoute"), "{:?}", watched.health.remarks());
    // What is not there holds up nothing, though it may not be read either.
    assert!(watched.remarks("does not serve ViewPolicy"), "{:?}", watched.health.remarks());
}

#[tokio::test]
async fn a_kubeconfig_that_is_refused_is_read_again_when_it_is_mended() {
    let cluster = Kubernetes::shared().await;
    cluster.write_kubeconfig("mended", "expired");
    let mut watched = Watched::start(client_of(&cluster, "mended").await, Scope::default());
    until("a line", async || watched.remarks("rejects the translator's credentials")).await;
    assert!(!watched.synced);
    cluster.write_kubeconfig("mended", ADMIN_TOKEN);
    watched.until_synced().await;
    assert!(!watched.remarks("credentials"));
}
