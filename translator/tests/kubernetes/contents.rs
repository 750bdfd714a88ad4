//! Secrets and ConfigMaps that objects name are fetched, and no others.

use crate::kubernetes::{Kubernetes, until};
use crate::watches::{Watched, choose, gateway, gateways, route, selecting};
use crate::{client, client_of};
use heliograph_gateway::objects::Object;
use heliograph_gateway::{CONTROLLER_NAME, Event, Limits, World};
use heliograph_snapshot::{Change, ResourceType};
use heliograph_translator::provider::kubernetes::Scope;
use rcgen::CertifiedKey;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const GATEWAY_API: &str = "/apis/gateway.networking.k8s.io/v1";

/// What is translated and published, if it were after every batch.
#[derive(Default)]
pub(crate) struct Translated {
    world: World,
    /// What there ever was to say of objects, by their names.
    problems: BTreeMap<String, Vec<String>>,
    /// What there is to say now.
    now: BTreeMap<String, Vec<String>>,
    /// The secrets that proxies would have, as text.
    secrets: BTreeMap<String, String>,
    /// Whether each version of a cluster that was published calls its backend over TLS.
    pub(crate) clusters: BTreeMap<String, Vec<bool>>,
    /// Chains of certificates that are held, as text.
    chains: BTreeMap<String, String>,
}

impl Translated {
    pub(crate) fn apply(&mut self, events: &[Event], synced: bool) {
        for event in events {
            match event {
                Event::Applied(Object::Secret(secret)) => {
                    let chain = secret.data.as_ref().and_then(|data| data.get("tls.crt"));
                    let chain = chain.map(|chain| String::from_utf8_lossy(&chain.0).into_owned());
                    let key = Object::Secret(secret.clone()).key().to_string();
                    self.chains.insert(key, chain.unwrap_or_default());
                }
                Event::Deleted(key) => drop(self.chains.remove(&key.to_string())),
                Event::Applied(_) => {}
            }
            self.world.apply(event.clone());
        }
        if !synced {
            return;
        }
        let outcome = self.world.settle();
        for (key, status) in outcome.statuses {
            let problems = status.map(|status| status.problems(&key)).unwrap_or_default();
            let words = problems.iter().map(|it| format!("{}: {}", it.reason, it.message));
            let words: Vec<String> = words.collect();
            self.problems.entry(key.to_string()).or_default().extend(words.clone());
            self.now.insert(key.to_string(), words);
        }
        for change in outcome.changes.into_values().flatten() {
            match change {
                Change::Set(ResourceType::Secret, secret) => {
                    let text = String::from_utf8_lossy(&secret.body).into_owned();
                    self.secrets.insert(secret.name.to_string(), text);
                }
                Change::Remove(ResourceType::Secret, name) => {
                    self.secrets.remove(&*name);
                }
                Change::Set(ResourceType::Cluster, cluster) => {
                    let text = String::from_utf8_lossy(&cluster.body);
                    let is_over_tls = text.contains("envoy.transport_sockets.tls");
                    let versions = self.clusters.entry(cluster.name.to_string()).or_default();
                    versions.push(is_over_tls);
                }
                Change::Remove(ResourceType::Cluster, name) => {
                    self.clusters.remove(&*name);
                }
                _ => {}
            }
        }
    }

    /// What there is to say of an object now.
    pub(crate) fn problems_of(&self, object: &str) -> &[String] {
        self.now.get(object).map_or(&[], Vec::as_slice)
    }
}

struct Pair {
    chain: String,
    secret: Value,
}

fn pair(name: &str) -> Pair {
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    let chain = cert.pem();
    let data = json!({ "tls.crt": chain, "tls.key": signing_key.serialize_pem(), "more": "x".repeat(1000) });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
        "type": "kubernetes.io/tls", "stringData": data,
    });
    Pair { chain, secret }
}

/// A namespace with a class of its name, which watches may choose by its label.
pub(crate) async fn site(cluster: &Arc<Kubernetes>) -> String {
    let namespace = cluster.create_namespace("contents").await;
    choose(cluster, &namespace, json!(namespace)).await;
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": { "name": namespace }, "spec": { "controllerName": CONTROLLER_NAME },
    });
    cluster.create(&format!("{GATEWAY_API}/gatewayclasses"), class).await;
    namespace
}

fn start(client: kube::Client, namespace: &str) -> Watched {
    let mut watched = Watched::start(client, selecting(&format!("team={namespace}")));
    watched.translated = Some(Translated::default());
    watched
}

fn translated(watched: &Watched) -> &Translated {
    watched.translated.as_ref().unwrap()
}

#[tokio::test]
async fn a_gateway_never_lacks_a_secret_that_exists_and_what_nothing_names_is_not_held() {
    let cluster = Kubernetes::shared().await;
    let shop = site(&cluster).await;
    let secrets = format!("/api/v1/namespaces/{shop}/secrets");
    let first = pair("pair");
    cluster.create(&secrets, first.secret).await;
    cluster.create(&secrets, pair("unnamed").secret).await;
    let mut watched = start(client(&cluster).await, &shop);
    watched.until_synced().await;
    assert!(
        !watched.objects.iter().any(|object| object.starts_with("Secret")),
        "{:?}",
        watched.log
    );

    let names = json!([{ "name": "pair" }]);
    cluster.create(&gateways(&shop), gateway("edge", &shop, names.clone())).await;
    let (edge, key) = (format!("Gateway {shop}/edge"), format!("Secret {shop}/pair"));
    watched.until("a Gateway", |watched| watched.has(&edge)).await;
    assert!(watched.has(&key) && !watched.has(&format!("Secret {shop}/unnamed")));
    let problems = &translated(&watched).problems[&edge];
    assert_eq!(problems[..], [""; 0], "it was never without its certificate");
    let has = |watched: &Watched, chain: &str| {
        translated(watched).secrets.values().any(|secret| secret.contains(chain))
    };
    assert!(has(&watched, &first.chain));
    let held = "heliograph_kubernetes_fetched_objects{kind=\"Secret\"}";
    assert!(watched.metrics().contains(&format!("{held} 1\n")), "{}", watched.metrics());

    // It is rotated, as who applies a manifest does.
    let second = pair("pair");
    cluster.apply(&format!("{secrets}/pair"), second.secret).await;
    watched.until("the new certificate", |watched| has(watched, &second.chain)).await;
    assert!(!has(&watched, &first.chain));
    assert_eq!(translated(&watched).problems[&edge][..], [""; 0]);

    // A note on it is no change of what is served.
    watched.log.clear();
    let note = json!({ "metadata": { "annotations": { "note": "hello" } } });
    cluster.patch(&format!("{secrets}/pair"), note).await;
    let asking = watched.refresh.ask();
    watched.until("all is known", |watched| watched.fresh >= asking).await;
    assert!(!watched.log.iter().any(|line| line.contains("Secret")), "{:?}", watched.log);

    let edit = async |certificates| {
        let spec = json!({ "spec": gateway("edge", &shop, certificates)["spec"] });
        cluster.patch(&format!("{}/edge", gateways(&shop)), spec).await;
    };
    edit(Value::Null).await;
    watched.until("nothing names it", |watched| !watched.has(&key)).await;
    assert_eq!(translated(&watched).chains.len(), 0);
    assert!(watched.metrics().contains(&format!("{held} 0\n")), "{}", watched.metrics());

    edit(names).await;
    watched.until("it is named again", |watched| watched.has(&key)).await;
    cluster.delete(&format!("{secrets}/pair")).await;
    let is_missed = |watched: &Watched| {
        translated(watched).now.get(&edge).is_some_and(|problems| {
            problems
                .iter()
                .any(|it| it.contains("InvalidCertificateRef") && it.contains("does not exist"))
        })
    };
    watched.until("it is missed", is_missed).await;
    assert!(!watched.has(&key));
    cluster.create(&secrets, pair("pair").secret).await;
    watched.until("it is back", |watched| watched.has(&key) && !is_missed(watched)).await;
}

#[tokio::test]
async fn a_secret_that_is_too_large_is_said_on_the_gateway_and_little_of_it_is_held() {
    let cluster = Kubernetes::shared().await;
    let shop = site(&cluster).await;
    let secrets = format!("/api/v1/namespaces/{shop}/secrets");
    let mut large = pair("large").secret;
    large["stringData"]["tls.crt"] = json!("x".repeat(500_000));
    cluster.create(&secrets, large).await;
    cluster.create(&gateways(&shop), gateway("edge", &shop, json!([{ "name": "large" }]))).await;
    let mut watched = start(client(&cluster).await, &shop);
    watched.until_synced().await;
    let problems = &translated(&watched).now[&format!("Gateway {shop}/edge")];
    let is_said =
        |it: &String| it.contains("InvalidCertificateRef") && it.contains("more than 64 KiB");
    assert!(problems.iter().any(is_said), "{problems:?}");
    let held = translated(&watched).chains[&format!("Secret {shop}/large")].len();
    assert!(held < 70_000, "{held}");
}

/// There is room for one certificate.
#[tokio::test]
async fn secrets_beyond_the_budget_are_said_on_the_gateway_and_fetched_when_there_is_room() {
    let cluster = Kubernetes::shared().await;
    let shop = site(&cluster).await;
    let secrets = format!("/api/v1/namespaces/{shop}/secrets");
    let second = pair("b");
    cluster.create(&secrets, pair("a").secret).await;
    cluster.create(&secrets, second.secret).await;
    for (gateway_name, secret) in [("edge", "a"), ("late", "b")] {
        let named = json!([{ "name": secret }]);
        cluster.create(&gateways(&shop), gateway(gateway_name, &shop, named)).await;
    }
    let limits = Limits { content_bytes: second.chain.len() as u64 * 2, ..Limits::default() };
    let scope = selecting(&format!("team={shop}"));
    let mut watched = Watched::with_limits(client(&cluster).await, scope, &limits);
    let world = World::with_limits(limits);
    watched.translated = Some(Translated { world, ..Translated::default() });
    watched.until_synced().await;
    let problems = |watched: &Watched, name: &str| {
        translated(watched).now[&format!("Gateway {shop}/{name}")].clone()
    };
    assert_eq!(problems(&watched, "edge"), [""; 0]);
    let said = problems(&watched, "late");
    let expected = format!("Secret {shop}/b: the named Secrets and ConfigMaps of namespace {shop}");
    let is_said = |it: &String| it.contains("InvalidCertificateRef") && it.contains(&expected);
    assert!(said.iter().any(is_said), "{said:?}");
    assert_eq!(translated(&watched).chains[&format!("Secret {shop}/b")], "", "nothing is kept");
    for (metric, kind) in [("fetched", "Secret"), ("withheld", "Secret")] {
        let line = format!("heliograph_kubernetes_{metric}_objects{{kind=\"{kind}\"}} 1\n");
        assert!(watched.metrics().contains(&line), "{}", watched.metrics());
    }

    cluster.delete(&format!("{}/edge", gateways(&shop))).await;
    watched.until("there is room", |watched| problems(watched, "late").is_empty()).await;
    assert!(translated(&watched).secrets.values().any(|it| it.contains(&second.chain)));
}

/// An account that may list and watch, as was enough before contents were fetched.
#[tokio::test]
async fn what_may_not_be_fetched_is_said_and_holds_up_what_names_it_alone() {
    let cluster = Kubernetes::shared().await;
    let shop = site(&cluster).await;
    cluster.create_account(&shop, "translator").await;
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let role = |of_secrets: &[&str]| {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
        let read = ["list", "watch"];
        let rules = [
            rule(&[""], &["namespaces", "services", "configmaps"], &read),
            rule(&[""], &["secrets"], of_secrets),
            rule(&["discovery.k8s.io"], &["endpointslices"], &read),
            rule(&["gateway.networking.k8s.io"], &["*"], &read),
        ];
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": shop }, "rules": rules,
        })
    };
    let path = format!("{roles}/clusterroles/{shop}");
    cluster.apply(&path, role(&["list", "watch"])).await;
    let binding = json!({
        "metadata": { "name": shop },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": shop },
        "subjects": [{ "kind": "ServiceAccount", "namespace": shop, "name": "translator" }],
    });
    cluster.create(&format!("{roles}/clusterrolebindings"), binding).await;
    let token = cluster.token(&shop, "translator", &[]).await;
    cluster.write_kubeconfig("fetching", &token);
    let secrets = format!("/api/v1/namespaces/{shop}/secrets");
    cluster.create(&secrets, pair("pair").secret).await;

    let scope = || Scope { namespace_selector: Some(format!("team={shop}")), ..Scope::default() };
    let limited = client_of(&cluster, "fetching").await;
    let mut watched = Watched::start(limited.clone(), scope());
    watched.until_synced().await;
    cluster.create(&gateways(&shop), gateway("edge", &shop, json!([{ "name": "pair" }]))).await;
    until("a line", async || watched.remarks("there is no permission to fetch it")).await;
    let open = "heliograph_kubernetes_unfetched_objects{kind=\"Secret\"}";
    assert!(watched.metrics().contains(&format!("{open} 1\n")), "{}", watched.metrics());
    let routes = format!("{GATEWAY_API}/namespaces/{shop}/httproutes");
    cluster.create(&routes, route("cart")).await;
    cluster.create(&gateways(&shop), gateway("plain", &shop, Value::Null)).await;
    let (cart, plain) = (format!("HTTPRoute {shop}/cart"), format!("Gateway {shop}/plain"));
    watched.until("others", |watched| watched.has(&cart) && watched.has(&plain)).await;
    let edge = format!("Gateway {shop}/edge");
    assert!(!watched.has(&edge));
    // Who is elected now leads with what it has, and who starts now does not begin.
    let asking = watched.refresh.ask();
    watched.until("an answer", |watched| watched.fresh >= asking).await;
    let mut other = Watched::start(limited, scope());
    other.until("what does not wait", |other| other.has(&plain)).await;
    until("a line", async || other.remarks("there is no permission to fetch it")).await;
    other.receive_all();
    // The Gateway may have come before the watch told of its Secret; nothing is translated before all is known.
    let pair = format!("Secret {shop}/pair");
    assert!(!other.synced && !other.has(&pair), "{:?}", other.log);

    cluster.apply(&path, role(&["get", "list", "watch"])).await;
    watched.until("the Gateway", |watched| watched.has(&edge)).await;
    other.until_synced().await;
    assert!(other.has(&edge) && other.has(&pair), "{:?}", other.log);
    assert!(
        !watched.remarks("there is no permission to fetch it"),
        "{:?}",
        watched.health.remarks()
    );
    assert!(watched.metrics().contains(&format!("{open} 0\n")), "{}", watched.metrics());
}
