//! What runs for Gateways: made, kept as it should be, and taken away.

use crate::client;
use crate::kubernetes::{Kubernetes, until};
use heliograph_gateway::infra::{DEFAULT_IMAGE, ProxyIdentity, ProxySettings, RunAs, names};
use heliograph_gateway::objects::{Document, ObjectName, parse};
use heliograph_gateway::{Event, World};
use heliograph_model::FleetOwner;
use heliograph_snapshot::FleetName;
use heliograph_translator::kubernetes::{Infra, InfraMetrics, Observed};
use heliograph_translator::provider::kubernetes::{self as provider, Scope};
use heliograph_translator::{KubernetesMetrics, Report};
use kube::Client;
use prometheus::Registry;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{Mutex, MutexGuard, mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A translator that leads, as far as what runs for Gateways is concerned.
struct Leader {
    report: watch::Sender<Report>,
    /// The kind and the selector of each watch that was begun.
    watches: Watches,
    _stop: DropGuard,
    _alone: MutexGuard<'static, ()>,
}

type Watches = Arc<std::sync::Mutex<BTreeSet<(String, String)>>>;

/// What one leads, another would take for left over.
static ALONE: Mutex<()> = Mutex::const_new(());

const PARTS: [&str; 7] = [
    "api/v1/serviceaccounts",
    "api/v1/configmaps",
    "api/v1/services",
    "apis/apps/v1/deployments",
    "apis/apps/v1/daemonsets",
    "apis/autoscaling/v2/horizontalpodautoscalers",
    "apis/policy/v1/poddisruptionbudgets",
];

impl Leader {
    async fn start(cluster: &Kubernetes) -> Self {
        let alone = ALONE.lock().await;
        let settings = ProxySettings {
            image: DEFAULT_IMAGE.to_owned(),
            host: "distributor.heliograph.svc".to_owned(),
            port: 18000,
            ca_bundle: Some("authorities".to_owned()),
            ca_file: None,
            identity: ProxyIdentity::Token { audience: "heliograph".to_owned() },
            user: RunAs::default(),
            group: RunAs::default(),
        };
        let (report, reports) = watch::channel(Report::default());
        let stop = CancellationToken::new();
        let watches = Watches::default();
        let client = recording(client(cluster).await, watches.clone());
        let metrics = KubernetesMetrics::register(&Registry::new()).unwrap();
        let objects = provider::Kubernetes::new(
            client.clone(),
            Scope::default(),
            Observed::default(),
            metrics,
        );
        let deployed = objects.deployed();
        let (inputs, mut translated) = mpsc::channel(16);
        tokio::spawn(objects.run(inputs, stop.clone()));
        tokio::spawn(async move { while translated.recv().await.is_some() {} });
        let metrics = InfraMetrics::register(&Registry::new()).unwrap();
        let infra = Infra::new(client, reports, deployed, settings, metrics);
        tokio::spawn(infra.run(stop.clone()));
        Self { report, watches, _stop: stop.drop_guard(), _alone: alone }
    }

    /// What the world says with these objects.
    fn translate(&self, objects: &[Value]) {
        let mut world = World::new();
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": { "name": "heliograph" },
            "spec": { "controllerName": "heliograph.dev/gateway-controller" },
        });
        for object in objects.iter().chain([&class]) {
            for document in parse(&object.to_string()) {
                match document {
                    Document::Object(object) => world.apply(Event::Applied(object)),
                    other => panic!("{other:?}"),
                }
            }
        }
        world.settle();
        let infra = world.infra().map(|infra| (infra.fleet.clone(), Arc::new(infra.clone())));
        let infra: std::collections::BTreeMap<FleetName, _> = infra.collect();
        let statuses = world.statuses().map(|(key, it)| (key.clone(), Arc::new(it.clone())));
        self.report.send_modify(|report| {
            (report.infra, report.statuses, report.complete) = (infra, statuses.collect(), true);
            report.statuses.keys().for_each(|key| report.changed.push(key.clone()));
        });
    }
}

/// A client that records which watches are begun with it.
fn recording(client: Client, watches: Watches) -> Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            let kind = request.uri().path().rsplit('/').next().unwrap().to_owned();
            let labels = query.split('&').find_map(|it| it.strip_prefix("labelSelector="));
            watches.lock().unwrap().insert((kind, labels.unwrap_or_default().to_owned()));
        }
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}

/// A Gateway as the API server has it.
async fn gateway(cluster: &Kubernetes, namespace: &str, name: &str) -> Value {
    let path = format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/gateways/{name}");
    cluster
        .apply(
            &path,
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": { "name": name },
                "spec": {
                    "gatewayClassName": "heliograph",
                    "infrastructure": { "labels": { "team": "shop" }, "annotations": { "note": "hello" } },
                    "listeners": [{ "name": "http", "protocol": "HTTP", "port": 80 }],
                },
            }),
        )
        .await;
    let mut gateway = cluster.get(&path).await;
    gateway.as_object_mut().unwrap().remove("status");
    gateway["metadata"].as_object_mut().unwrap().remove("managedFields");
    gateway
}

/// With parameters.
fn with_config(mut gateway: Value, spec: Value) -> [Value; 2] {
    gateway["spec"]["infrastructure"]["parametersRef"] =
        json!({ "group": "heliograph.dev", "kind": "ProxyConfig", "name": "own" });
    let config = json!({
        "apiVersion": "heliograph.dev/v1alpha1", "kind": "ProxyConfig",
        "metadata": { "name": "own", "namespace": gateway["metadata"]["namespace"] },
        "spec": spec,
    });
    [gateway, config]
}

fn path(namespace: &str, part: &str, name: &str) -> String {
    let (group, kind) = part.rsplit_once('/').unwrap();
    format!("/{group}/namespaces/{namespace}/{kind}/{name}")
}

/// `KIND/NAME` of everything of ours in a namespace.
async fn made(cluster: &Kubernetes, namespace: &str) -> Vec<String> {
    let mut made = Vec::new();
    for part in PARTS {
        let (group, kind) = part.rsplit_once('/').unwrap();
        let query = "labelSelector=app.kubernetes.io/managed-by%3Dheliograph";
        let list = cluster.get(&format!("/{group}/namespaces/{namespace}/{kind}?{query}")).await;
        for object in list["items"].as_array().unwrap() {
            made.push(format!("{kind}/{}", object["metadata"]["name"].as_str().unwrap()));
        }
    }
    made
}

async fn until_made(cluster: &Kubernetes, namespace: &str, expected: &[&str]) {
    let what = format!("{expected:?} in {namespace}");
    until(&what, async || made(cluster, namespace).await == expected).await;
}

/// Whether an event of a Gateway says that something of its objects is somebody else's.
async fn has_failed(cluster: &Kubernetes, namespace: &str, name: &str) -> bool {
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let events = cluster.get(&events).await;
    let about = |event: &Value| {
        event["regarding"]["name"] == name
            && event["reason"] == "InfrastructureFailed"
            && event["note"].as_str().unwrap().contains("there is one without the label")
    };
    events["items"].as_array().unwrap().iter().any(about)
}

const PLAIN: [&str; 4] = [
    "serviceaccounts/heliograph-web",
    "configmaps/heliograph-web",
    "services/heliograph-web",
    "deployments/heliograph-web",
];

#[tokio::test]
async fn a_gateway_gets_its_objects_keeps_them_and_leaves_none() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("infra").await;
    let leader = Leader::start(&cluster).await;
    let web = gateway(&cluster, &namespace, "web").await;
    leader.translate(std::slice::from_ref(&web));
    until_made(&cluster, &namespace, &PLAIN).await;

    // Each belongs to its Gateway, and says so.
    for part in &PARTS[..4] {
        let object = cluster.get(&path(&namespace, part, "heliograph-web")).await;
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["gateway.networking.k8s.io/gateway-name"], "web", "{part}");
        assert_eq!(metadata["labels"]["team"], "shop", "{part}");
        assert_eq!(metadata["annotations"]["note"], "hello", "{part}");
        assert_eq!(metadata["ownerReferences"][0]["uid"], web["metadata"]["uid"], "{part}");
    }
    let service = path(&namespace, "api/v1/services", "heliograph-web");
    let before = cluster.get(&service).await;
    assert_eq!(before["spec"]["ports"][0]["targetPort"], 10080);

    // What others change is put right; what they add stays.
    cluster.patch(&service, json!({ "spec": { "type": "ClusterIP" } })).await;
    cluster.patch(&service, json!({ "metadata": { "annotations": { "theirs": "1" } } })).await;
    let mended = async || cluster.get(&service).await["spec"]["type"] == "LoadBalancer";
    until("the type of the Service is mended", mended).await;
    assert_eq!(cluster.get(&service).await["metadata"]["annotations"]["theirs"], "1");
    let deployment = path(&namespace, "apis/apps/v1/deployments", "heliograph-web");
    cluster.patch(&deployment, json!({ "spec": { "replicas": 0 } })).await;
    let mended = async || cluster.get(&deployment).await["spec"]["replicas"] == 1;
    until("the Deployment is mended", mended).await;
    let files = path(&namespace, "api/v1/configmaps", "heliograph-web");
    let before = cluster.get(&files).await["data"].take();
    let name = before.as_object().unwrap().keys().next().unwrap();
    cluster.patch(&files, json!({ "data": { name: "theirs" } })).await;
    let mended = async || cluster.get(&files).await["data"] == before;
    until("the ConfigMap is mended", mended).await;
    cluster.delete(&files).await;
    until_made(&cluster, &namespace, &PLAIN).await;
    let label = "app.kubernetes.io/managed-by";
    cluster.patch(&service, json!({ "metadata": { "labels": { label: null } } })).await;
    // What has lost the label is somebody else's.
    until("an event of the Gateway", async || has_failed(&cluster, &namespace, "web").await).await;
    cluster.patch(&service, json!({ "metadata": { "labels": { label: "heliograph" } } })).await;

    // A listener more is a port more, and one label less is one less everywhere.
    let mut more = web.clone();
    more["spec"]["listeners"] = json!([
        { "name": "http", "protocol": "HTTP", "port": 80 },
        { "name": "more", "protocol": "HTTP", "port": 8080 },
    ]);
    more["spec"]["infrastructure"] = json!({});
    leader.translate(&[more]);
    let ports = async || {
        let found = cluster.get(&service).await;
        found["spec"]["ports"].as_array().unwrap().len() == 2
            && found["metadata"]["labels"]["team"].is_null()
            && found["metadata"]["annotations"]["theirs"] == "1"
    };
    until("the Service has the second port", ports).await;

    // What has our labels and a name of its own is somebody's copy.
    let mut copy = cluster.get(&service).await;
    let metadata = copy["metadata"].take();
    copy["metadata"] = json!({
        "name": "copy", "labels": metadata["labels"], "annotations": metadata["annotations"],
    });
    copy["spec"] = json!({ "ports": [{ "port": 1 }] });
    copy.as_object_mut().unwrap().remove("status");
    cluster.apply(&path(&namespace, "api/v1/services", "copy"), copy).await;

    // A Gateway that is not there any more has nothing deleted: Kubernetes does that. One that says so has.
    leader.translate(&[]);
    leader.translate(&with_config(web, json!({ "selfManaged": true })));
    until_made(&cluster, &namespace, &["services/copy"]).await;
}

/// By the provider, for translation and for what runs for Gateways.
#[tokio::test]
async fn each_kind_is_watched_once() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("infra").await;
    let leader = Leader::start(&cluster).await;
    let web = gateway(&cluster, &namespace, "web").await;
    leader.translate(&[web]);
    until_made(&cluster, &namespace, &PLAIN).await;
    let watched = async || {
        let watches = leader.watches.lock().unwrap();
        PARTS.iter().all(|part| {
            let kind = part.rsplit('/').next().unwrap();
            watches.iter().any(|(watched, _)| watched == kind)
        })
    };
    until("a watch of each part", watched).await;
    // It was made, changed and deleted by others, and all of that was noticed.
    for part in ["api/v1/services", "api/v1/configmaps"] {
        cluster.delete(&path(&namespace, part, "heliograph-web")).await;
        until_made(&cluster, &namespace, &PLAIN).await;
    }
    let watches = leader.watches.lock().unwrap().clone();
    for kind in ["services", "configmaps"] {
        let of_kind: Vec<_> = watches.iter().filter(|(watched, _)| watched == kind).collect();
        assert_eq!(of_kind, [&(kind.to_owned(), String::new())], "{watches:?}");
    }
}

#[tokio::test]
async fn parameters_add_objects_and_take_them_away() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("infra").await;
    let leader = Leader::start(&cluster).await;
    let web = gateway(&cluster, &namespace, "web").await;
    let scaled = with_config(web.clone(), json!({ "hpa": { "maxReplicas": 3 }, "pdb": {} }));
    leader.translate(&scaled);
    let mut expected = PLAIN.to_vec();
    expected.push("horizontalpodautoscalers/heliograph-web");
    expected.push("poddisruptionbudgets/heliograph-web");
    until_made(&cluster, &namespace, &expected).await;

    leader.translate(&with_config(web.clone(), json!({ "kind": "DaemonSet" })));
    let mut expected = PLAIN.to_vec();
    expected[3] = "daemonsets/heliograph-web";
    until_made(&cluster, &namespace, &expected).await;

    // Parameters that are gone change nothing that runs.
    let [refused, _] = with_config(web.clone(), json!({}));
    leader.translate(&[refused]);
    leader.translate(&with_config(web.clone(), json!({ "selfManaged": true })));
    until_made(&cluster, &namespace, &[]).await;
}

/// A Deployment without a number of replicas has one, and most of the traffic's Envoys would be gone.
#[tokio::test]
async fn an_autoscaler_that_comes_later_finds_as_many_replicas_as_there_were() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("infra").await;
    let leader = Leader::start(&cluster).await;
    let web = gateway(&cluster, &namespace, "web").await;
    leader.translate(&with_config(web.clone(), json!({ "replicas": 3 })));
    until_made(&cluster, &namespace, &PLAIN).await;
    let deployment = path(&namespace, "apis/apps/v1/deployments", "heliograph-web");
    let replicas = async || cluster.get(&deployment).await["spec"]["replicas"].clone();
    assert_eq!(replicas().await, 3);

    let scaled = json!({ "hpa": { "minReplicas": 2, "maxReplicas": 8 } });
    leader.translate(&with_config(web.clone(), scaled));
    let mut expected = PLAIN.to_vec();
    expected.push("horizontalpodautoscalers/heliograph-web");
    until_made(&cluster, &namespace, &expected).await;
    let ours = async || {
        let entries = cluster.get(&deployment).await["metadata"]["managedFields"].take();
        let ours = |entry: &&Value| entry["manager"] == "heliograph-infra";
        let entry = entries.as_array().unwrap().iter().find(ours).cloned();
        entry.is_some_and(|entry| !entry["fieldsV1"]["f:spec"]["f:replicas"].is_null())
    };
    until("the number of replicas is not ours", async || !ours().await).await;
    assert_eq!(replicas().await, 3);
    // As an autoscaler does, and it stays.
    let scale = format!("{deployment}/scale");
    cluster.patch(&scale, json!({ "spec": { "replicas": 5 } })).await;
    leader.translate(&with_config(web.clone(), json!({ "hpa": { "maxReplicas": 9 } })));
    let hpa = path(&namespace, "apis/autoscaling/v2/horizontalpodautoscalers", "heliograph-web");
    let most = async || cluster.get(&hpa).await["spec"]["maxReplicas"] == 9;
    until("the autoscaler has its new bound", most).await;
    assert_eq!(replicas().await, 5);

    // Without one, the number is ours again.
    leader.translate(&with_config(web, json!({ "replicas": 2 })));
    until("two replicas", async || replicas().await == 2).await;
}

/// Two Gateways of two namespaces, which had each its own proxies, share those of their class.
#[tokio::test]
async fn gateways_of_a_class_that_merges_them_get_one_set_of_objects() {
    let cluster = Kubernetes::shared().await;
    let infra = cluster.create_namespace("infra").await;
    let (shop, team) =
        (cluster.create_namespace("shop").await, cluster.create_namespace("team").await);
    let leader = Leader::start(&cluster).await;
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": { "name": infra },
        "spec": {
            "controllerName": "heliograph.dev/gateway-controller",
            "parametersRef": { "group": "heliograph.dev", "kind": "ProxyConfig", "name": "edge", "namespace": infra },
        },
    });
    let config = |spec: Value| {
        json!({
            "apiVersion": "heliograph.dev/v1alpha1", "kind": "ProxyConfig",
            "metadata": { "name": "edge", "namespace": infra }, "spec": spec,
        })
    };
    let mut gateways = Vec::new();
    for namespace in [&shop, &team] {
        let mut gateway = gateway(&cluster, namespace, "web").await;
        gateway["spec"]["gatewayClassName"] = json!(infra);
        gateway["spec"]["listeners"][0]["hostname"] = json!(format!("{namespace}.example.org"));
        gateways.push(gateway);
    }
    let all = [vec![class.clone(), config(json!({}))], gateways.clone()].concat();
    leader.translate(&all);
    until_made(&cluster, &shop, &PLAIN).await;
    until_made(&cluster, &team, &PLAIN).await;

    let merging = config(json!({ "mergeGateways": true, "replicas": 2 }));
    let all = [vec![class.clone(), merging], gateways.clone()].concat();
    leader.translate(&all);
    let name = format!("helio-class-{infra}");
    let kinds = ["serviceaccounts", "configmaps", "services", "deployments"];
    let shared = kinds.map(|kind| format!("{kind}/{name}"));
    until_made(&cluster, &infra, &shared.each_ref().map(String::as_str)).await;
    until_made(&cluster, &shop, &[]).await;
    until_made(&cluster, &team, &[]).await;
    let deployment = cluster.get(&path(&infra, "apis/apps/v1/deployments", &name)).await;
    // Whoever replaces the class would otherwise have it deleted.
    assert!(deployment["metadata"]["ownerReferences"].is_null());
    assert_eq!(deployment["spec"]["replicas"], 2);

    // Apart again, each has its own, and what they shared goes.
    leader.translate(&[vec![class, config(json!({}))], gateways].concat());
    until_made(&cluster, &shop, &PLAIN).await;
    until_made(&cluster, &team, &PLAIN).await;
    until_made(&cluster, &infra, &[]).await;
}

/// The name of the one is what that of the other is cut to.
#[tokio::test]
async fn what_runs_for_one_gateway_is_not_replaced_by_another() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("infra").await;
    let leader = Leader::start(&cluster).await;
    let owner = FleetOwner::Gateway(ObjectName::new(&namespace, "a.b"));
    let name = names::object_name(&owner);
    let first = gateway(&cluster, &namespace, name.strip_prefix("heliograph-").unwrap()).await;
    let second = gateway(&cluster, &namespace, "a.b").await;
    leader.translate(&[first.clone(), second.clone()]);
    let kinds = ["serviceaccounts", "configmaps", "services", "deployments"];
    let mut made = kinds.map(|kind| format!("{kind}/{name}"));
    until_made(&cluster, &namespace, &made.each_ref().map(String::as_str)).await;

    // The other one says why it has nothing, and what there is was written once.
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let told = async || {
        let events = cluster.get(&events).await;
        let about = |event: &Value| {
            event["regarding"]["name"] == "a.b"
                && event["note"].as_str().is_some_and(|note| note.contains("rename one of the two"))
        };
        events["items"].as_array().unwrap().iter().any(about)
    };
    until("the event", told).await;
    for part in &PARTS[..4] {
        let object = cluster.get(&path(&namespace, part, &name)).await;
        let metadata = &object["metadata"];
        let of = &metadata["annotations"]["heliograph.dev/gateway"];
        assert_eq!(*of, first["metadata"]["name"], "{part}");
        assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), 1, "{part}");
    }

    // What the first one gives up, the other one gets.
    let [first, config] = with_config(first, json!({ "selfManaged": true }));
    leader.translate(&[first, config, second]);
    made[0] = "serviceaccounts/heliograph-a.b".to_owned();
    until_made(&cluster, &namespace, &made.each_ref().map(String::as_str)).await;
    let service = cluster.get(&path(&namespace, "api/v1/services", &name)).await;
    assert_eq!(service["metadata"]["annotations"]["heliograph.dev/gateway"], "a.b");
}

#[tokio::test]
async fn what_others_made_is_not_touched() {
    let cluster = Kubernetes::shared().await;
    let namespace = cluster.create_namespace("infra").await;
    let theirs = path(&namespace, "api/v1/services", "heliograph-web");
    let spec = json!({ "ports": [{ "port": 1 }] });
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "heliograph-web" }, "spec": spec });
    cluster.apply(&theirs, service).await;
    let leader = Leader::start(&cluster).await;
    let web = gateway(&cluster, &namespace, "web").await;
    leader.translate(&[web]);
    until_made(&cluster, &namespace, &PLAIN[..2]).await;
    assert_eq!(cluster.get(&theirs).await["spec"]["ports"][0]["port"], 1);

    // The Gateway says why, to those who look at it.
    until("an event of the Gateway", async || has_failed(&cluster, &namespace, "web").await).await;

    // Once it is out of the way, things go on.
    cluster.delete(&theirs).await;
    until_made(&cluster, &namespace, &PLAIN).await;
}

#[tokio::test]
async fn our_crds_are_taken_by_an_api_server() {
    // Of its own: others count on these kinds not being served.
    let cluster = Kubernetes::start().await;
    let namespace = cluster.create_namespace("crds").await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/heliograph-crds/files");
    for plural in ["proxyconfigs", "viewpolicies"] {
        let file = folder.join(format!("heliograph.dev_{plural}.yaml"));
        let manifest = std::fs::read_to_string(file).unwrap();
        cluster.install_crd(&format!("{plural}.heliograph.dev"), &manifest).await;
    }
    let of = |plural: &str, name: &str| {
        format!("/apis/heliograph.dev/v1alpha1/namespaces/{namespace}/{plural}/{name}")
    };
    let config = json!({
        "apiVersion": "heliograph.dev/v1alpha1", "kind": "ProxyConfig", "metadata": { "name": "own" },
        "spec": {
            "replicas": 2, "logLevel": "debug", "pdb": { "minAvailable": "50%" },
            "resources": { "limits": { "memory": "1Gi" } },
            "bootstrap": { "stats_config": { "use_all_default_tags": false } },
        },
    });
    let made = cluster.apply(&of("proxyconfigs", "own"), &config).await;
    assert_eq!(made["spec"], config["spec"], "nothing is lost, and nothing added");
    let policy = json!({
        "apiVersion": "heliograph.dev/v1alpha1", "kind": "ViewPolicy", "metadata": { "name": "near" },
        "spec": {
            "targetRef": { "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web" },
            "rules": [
                { "prefer": { "labels": ["topology.kubernetes.io/zone"] } },
                { "overlay": {
                    "type": "Cluster", "name": "service/default/green/80",
                    "jsonPatch": [{ "op": "add", "path": "/connect_timeout", "value": "1s" }],
                } },
            ],
        },
    });
    let made = cluster.apply(&of("viewpolicies", "near"), &policy).await;
    assert_eq!(made["spec"], policy["spec"], "nothing is lost, and nothing added");
    let status = json!({ "status": { "conditions": [{
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "2030-01-01T00:00:00Z",
    }] } });
    let path = of("viewpolicies", "near") + "/status";
    assert_eq!(cluster.patch(&path, status).await["metadata"]["generation"], 1);
}
