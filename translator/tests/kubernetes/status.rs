//! What is written into the status of objects, and what is left alone.

mod taken_back;

use crate::kubernetes::{Kubernetes, until};
use futures::StreamExt;
use heliograph_gateway::objects::{Kind, Object, ObjectName};
use heliograph_gateway::{CONTROLLER_NAME, Event, World};
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{FleetName, Head, ResourceType, Version};
use heliograph_store::{
    AckReport, Dispute, Embedded, FeedbackSender, FleetReport, RejectionReport, TranslatorStore,
};
use heliograph_testing::Stopwatch;
use heliograph_translator::kubernetes::{Observed, ObservedObject, StatusMetrics, StatusWriter};
use heliograph_translator::provider::Input;
use heliograph_translator::{AckReader, Report, Translator, TranslatorMetrics};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use prometheus::{Registry, TextEncoder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

const API: &str = "/apis/gateway.networking.k8s.io/v1";

/// One leader over a namespace of its own: what a provider, a translator and a writer of statuses do together, with the
/// moment of looking in the hands of the test.
struct Stage {
    cluster: Arc<Kubernetes>,
    client: Client,
    namespace: String,
    class: String,
    store: Arc<Embedded>,
    inputs: mpsc::Sender<Input>,
    observed: Observed,
    report: watch::Receiver<Report>,
    registry: Registry,
    _stop: tokio_util::sync::DropGuard,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl Stage {
    /// A new namespace with a class and a Gateway of it.
    async fn new(name: &str) -> Self {
        let cluster = Kubernetes::shared().await;
        let namespace = cluster.create_namespace(name).await;
        let class = namespace.clone();
        let (client, store) = (crate::client(&cluster).await, Arc::new(Embedded::new()));
        let spec = json!({"controllerName": CONTROLLER_NAME});
        create(&client, object("GatewayClass", "", &class, spec)).await;
        let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
        let spec = json!({"gatewayClassName": class, "listeners": listeners});
        create(&client, object("Gateway", &namespace, "web", spec)).await;
        Self::over(cluster, client, namespace, class, store)
    }

    /// Whoever leads next.
    fn next(&self) -> Self {
        let Self { cluster, client, namespace, class, store, .. } = self;
        let (namespace, class) = (namespace.clone(), class.clone());
        Self::over(cluster.clone(), client.clone(), namespace, class, store.clone())
    }

    fn over(
        cluster: Arc<Kubernetes>,
        client: Client,
        namespace: String,
        class: String,
        store: Arc<Embedded>,
    ) -> Self {
        let (registry, stop) = (Registry::new(), CancellationToken::new());
        let metrics = TranslatorMetrics::register(&registry).unwrap();
        let token = Readiness::new().token("translation");
        let translator = Translator::new(TranslatorStore::new(store.clone()), None, metrics, token);
        let (report, observed) = (translator.report(), Observed::default());
        let metrics = StatusMetrics::register(&registry).unwrap();
        let writer = StatusWriter::new(client.clone(), report.clone(), observed.clone(), metrics);
        let acks = AckReader::new(store.clone(), &translator);
        let (inputs, outputs) = mpsc::channel(16);
        let (heard, translated) = (acks.run(stop.clone()), translator.run(outputs, stop.clone()));
        // How they end is of no interest: a translator may be followed by the next.
        let tasks = [
            tokio::spawn(writer.run(stop.clone())),
            tokio::spawn(async move {
                let _ = heard.await;
            }),
            tokio::spawn(async move {
                let _ = translated.await;
            }),
        ];
        Self {
            cluster,
            client,
            namespace,
            class,
            store,
            inputs,
            observed,
            report,
            registry,
            _stop: stop.drop_guard(),
            _tasks: tasks.into_iter().map(AbortOnDropHandle::new).collect(),
        }
    }

    /// Looks at everything, as a provider does when it begins.
    async fn send_all(&self) {
        self.send_objects(self.list("HTTPRoute").await).await;
    }

    /// The same, with the routes as they were at some time.
    async fn send_objects(&self, routes: Vec<Value>) {
        let class = self.get("GatewayClass", &self.class).await;
        let mut events = vec![self.observed_event(Kind::GatewayClass, class)];
        let gateways = self.list("Gateway").await.into_iter();
        events.extend(gateways.map(|gateway| self.observed_event(Kind::Gateway, gateway)));
        events.extend(routes.into_iter().map(|route| self.observed_event(Kind::HTTPRoute, route)));
        self.inputs.send(Input::Batch(events)).await.unwrap();
        self.inputs.send(Input::Synced).await.unwrap();
    }

    /// Looks at one route.
    async fn send_route(&self, route: &str) {
        let event = self.observed_event(Kind::HTTPRoute, self.get("HTTPRoute", route).await);
        self.inputs.send(Input::Batch(vec![event])).await.unwrap();
    }

    fn observed_event(&self, kind: Kind, value: Value) -> Event {
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = ObjectName::new(&text("namespace"), &text("name")).of(kind);
        let seen = ObservedObject {
            generation: value["metadata"]["generation"].as_i64().unwrap(),
            resource_version: text("resourceVersion"),
            uid: text("uid"),
            unreadable: None,
            status: Arc::new(value["status"].clone()),
        };
        self.observed.record(&key, seen);
        Event::Applied(translatable(kind, value))
    }

    async fn route(&self, name: &str, spec: Value) {
        create(&self.client, object("HTTPRoute", &self.namespace, name, spec)).await;
    }

    fn path(&self, kind: &str, name: &str) -> String {
        let plural = plural(kind);
        match kind {
            "GatewayClass" => format!("{API}/{plural}/{name}"),
            _ => format!("{API}/namespaces/{}/{plural}/{name}", self.namespace),
        }
    }

    async fn get(&self, kind: &str, name: &str) -> Value {
        self.cluster.get(&self.path(kind, name)).await
    }

    async fn list(&self, kind: &str) -> Vec<Value> {
        let mut list = self.cluster.get(self.path(kind, "").trim_end_matches('/')).await;
        list["items"].as_array_mut().map(std::mem::take).unwrap()
    }

    /// A condition of our entry of a route.
    async fn condition(&self, route: &str, of: &str) -> Value {
        let object = self.get("HTTPRoute", route).await;
        let parents = object["status"]["parents"].as_array().cloned().unwrap_or_default();
        let ours = parents.iter().find(|parent| parent["controllerName"] == CONTROLLER_NAME);
        ours.map_or(Value::Null, |ours| condition(&ours["conditions"], of))
    }

    /// What is said of the Gateway and of its listener, which go together.
    async fn programmed(&self) -> Value {
        let status = self.get("Gateway", "web").await["status"].take();
        let (whole, part) = (&status["conditions"], &status["listeners"][0]["conditions"]);
        let (whole, part) = (condition(whole, "Programmed"), condition(part, "Programmed"));
        if whole["message"] == part["message"] { whole } else { Value::Null }
    }

    async fn until_programmed(&self, status: &str, message: &str) {
        until(&format!("Programmed={status}: {message}"), async || {
            let programmed = self.programmed().await;
            programmed["status"] == status && programmed["message"] == message
        })
        .await;
    }

    /// What a distributor would report.
    async fn report(&self, report: FleetReport) {
        let fleets = BTreeMap::from([(self.fleet(), report)]);
        let replica = "one".to_owned();
        let report = AckReport { replica, fleets, ..AckReport::default() };
        self.store.send_report(report).await.unwrap();
    }

    fn fleet(&self) -> FleetName {
        FleetName::new(&self.namespace, "web")
    }

    async fn head(&self) -> Head {
        let (fleet, mut report) = (self.fleet(), self.report.clone());
        let report = report.wait_for(|report| report.heads.contains_key(&fleet)).await.unwrap();
        report.heads[&fleet]
    }

    /// How many writes had this outcome.
    fn writes(&self, kind: &str, outcome: &str) -> u64 {
        let line = format!(
            "heliograph_translator_status_writes_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} "
        );
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let count = text.lines().find_map(|found| found.strip_prefix(&line));
        count.map_or(0, |count| count.parse().unwrap())
    }
}

fn plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    if kind.ends_with('s') { format!("{kind}es") } else { format!("{kind}s") }
}

fn object(kind: &str, namespace: &str, name: &str, spec: Value) -> DynamicObject {
    let resource = resource(kind);
    let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
    if namespace.is_empty() { object } else { object.within(namespace) }
}

fn resource(kind: &str) -> ApiResource {
    let of = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", kind);
    ApiResource::from_gvk_with_plural(&of, &plural(kind))
}

async fn create(client: &Client, object: DynamicObject) {
    let resource = resource(&object.types.as_ref().unwrap().kind);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn translatable(kind: Kind, value: Value) -> Object {
    match kind {
        Kind::GatewayClass => {
            Object::GatewayClass(Arc::new(serde_json::from_value(value).unwrap()))
        }
        Kind::Gateway => Object::Gateway(Arc::new(serde_json::from_value(value).unwrap())),
        Kind::HTTPRoute => Object::HTTPRoute(Arc::new(serde_json::from_value(value).unwrap())),
        Kind::TCPRoute => Object::TCPRoute(Arc::new(serde_json::from_value(value).unwrap())),
        kind => panic!("{kind:?}"),
    }
}

fn condition(conditions: &Value, of: &str) -> Value {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.find(|it| it["type"] == of).cloned().unwrap_or_default()
}

fn to_web() -> Value {
    json!({"parentRefs": [{"name": "web"}], "hostnames": ["a.test"]})
}

fn foreign() -> Value {
    json!({
        "parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "theirs"},
        "controllerName": "example.com/other",
        "conditions": [foreign_condition("Accepted")],
    })
}

fn foreign_condition(of: &str) -> Value {
    json!({
        "type": of, "status": "True", "reason": "Theirs", "message": "",
        "lastTransitionTime": "2024-01-01T00:00:00Z",
    })
}

#[tokio::test]
async fn entries_and_conditions_of_others_survive_and_conflicts_are_retried() {
    let stage = Stage::new("foreign").await;
    stage.route("cart", to_web()).await;
    let status = |kind, name| stage.path(kind, name) + "/status";
    let (route, gateway) = (status("HTTPRoute", "cart"), status("Gateway", "web"));
    stage.cluster.patch(&route, json!({"status": {"parents": [foreign()]}})).await;
    let theirs = foreign_condition("example.com/Checked");
    let checked = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "status": {"conditions": [theirs]},
    });
    stage.cluster.apply(&gateway, checked).await;
    // What is planned with is older than what there is.
    let stale = stage.list("HTTPRoute").await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    stage.cluster.patch(&stage.path("HTTPRoute", "cart"), label).await;
    stage.send_objects(stale).await;
    until("the route is accepted", async || {
        stage.condition("cart", "Accepted").await["status"] == "True"
    })
    .await;
    // What is written is counted once its answer is there.
    until("it is counted", async || stage.writes("HTTPRoute", "written") > 0).await;
    let parents = stage.get("HTTPRoute", "cart").await["status"]["parents"].take();
    assert_eq!((&parents[0], parents.as_array().unwrap().len()), (&foreign(), 2));
    assert_eq!(
        (stage.writes("HTTPRoute", "written"), stage.writes("HTTPRoute", "conflict")),
        (1, 1)
    );
    stage.until_programmed("False", "No proxy is connected yet").await;
    let gateway = stage.get("Gateway", "web").await;
    assert_eq!(condition(&gateway["status"]["conditions"], "example.com/Checked"), theirs);
    let class = async || stage.get("GatewayClass", &stage.class).await["status"].take();
    until("the class is accepted", async || {
        condition(&class().await["conditions"], "Accepted")["status"] == "True"
    })
    .await;
    assert!(!class().await["supportedFeatures"].as_array().unwrap().is_empty());

    // It becomes another controller's.
    let elsewhere = json!({"spec": {"parentRefs": [{"name": "theirs"}]}});
    stage.cluster.patch(&stage.path("HTTPRoute", "cart"), elsewhere).await;
    stage.send_route("cart").await;
    until("our entry is gone", async || {
        stage.get("HTTPRoute", "cart").await["status"]["parents"] == json!([foreign()])
    })
    .await;
}

#[tokio::test]
async fn a_thousand_routes_are_written_once_each_and_the_next_leader_writes_nothing() {
    const ROUTES: usize = 1_000;
    let first = Stage::new("thousand").await;
    let stage = &first;
    futures::stream::iter(0..ROUTES)
        .for_each_concurrent(16, |index| async move {
            stage.route(&format!("route-{index:04}"), to_web()).await;
        })
        .await;
    stage.send_all().await;
    until("all are written", async || stage.writes("HTTPRoute", "written") >= ROUTES as u64).await;
    let all = stage.list("HTTPRoute").await;
    assert_eq!(all.len(), ROUTES);
    for route in &all {
        let conditions = &route["status"]["parents"][0]["conditions"];
        for of in ["Accepted", "ResolvedRefs"] {
            let found = condition(conditions, of);
            assert_eq!(found["status"], "True");
            assert_eq!(found["observedGeneration"], route["metadata"]["generation"]);
        }
    }
    stage.until_programmed("False", "No proxy is connected yet").await;
    let gateway = stage.get("Gateway", "web").await;
    assert_eq!(gateway["status"]["listeners"][0]["attachedRoutes"], ROUTES);

    // Behind all others in the queue, so that when it is written they have been looked at.
    let next = stage.next();
    drop(first);
    next.send_all().await;
    next.head().await;
    next.route("zz-last", to_web()).await;
    next.send_route("zz-last").await;
    until("the last is written", async || next.writes("HTTPRoute", "written") > 0).await;
    let written = ["GatewayClass", "HTTPRoute"].map(|kind| next.writes(kind, "written"));
    assert_eq!(written, [0, 1]);
    assert_eq!(next.writes("HTTPRoute", "conflict"), 0);
}

#[tokio::test]
async fn programmed_follows_the_proxies_and_does_not_flap() {
    let stage = Stage::new("programmed").await;
    stage.send_all().await;
    let head = stage.head().await;
    stage.until_programmed("False", "No proxy is connected yet").await;
    let proxies = |connected, acknowledged: &[(Head, u64)]| FleetReport {
        connected,
        acknowledged: acknowledged.iter().copied().collect(),
        ..FleetReport::default()
    };
    stage.report(proxies(2, &[])).await;
    stage.until_programmed("False", "None of 2 proxies has accepted it yet").await;
    stage.report(proxies(2, &[(head, 1)])).await;
    stage.until_programmed("True", "Accepted by 1 of 2 proxies").await;
    let since = stage.programmed().await["lastTransitionTime"].clone();

    // All proxies go, and somebody else leads.
    stage.report(proxies(0, &[])).await;
    let next = stage.next();
    drop(stage);
    next.send_all().await;
    next.until_programmed("True", "Accepted by a proxy; none is connected now").await;
    assert_eq!(next.programmed().await["lastTransitionTime"], since);

    // Another generation is another matter.
    let other =
        json!({"spec": {"listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}]}});
    next.cluster.patch(&next.path("Gateway", "web"), other).await;
    next.send_all().await;
    next.until_programmed("False", "No proxy is connected yet").await;
}

#[tokio::test]
async fn a_bad_route_says_so_on_itself_and_in_an_event() {
    let stage = Stage::new("bad").await;
    let path = json!({"type": "RegularExpression", "value": "/(unclosed"});
    let mut bad = to_web();
    bad["rules"] = json!([{"matches": [{"path": path}]}]);
    stage.route("bad", bad).await;
    stage.route("good", to_web()).await;
    stage.send_all().await;
    until("the bad route is refused", async || {
        stage.condition("bad", "Accepted").await["status"] == "False"
    })
    .await;
    let refused = stage.condition("bad", "Accepted").await;
    assert!(refused["message"].as_str().unwrap().contains("/(unclosed"), "{refused}");
    until("the good route is accepted", async || {
        stage.condition("good", "Accepted").await["status"] == "True"
    })
    .await;
    let events = format!("/apis/events.k8s.io/v1/namespaces/{}/events", stage.namespace);
    until("an event tells", async || {
        let events = stage.cluster.get(&events).await;
        let mut events = events["items"].as_array().unwrap().iter();
        events.any(|event| {
            event["regarding"]["name"] == "bad"
                && event["reason"] == refused["reason"]
                && event["note"].as_str().unwrap().contains("/(unclosed")
        })
    })
    .await;
}

#[tokio::test]
async fn what_envoy_rejects_is_on_the_route_within_five_seconds_and_goes_when_it_is_mended() {
    let stage = Stage::new("rejected").await;
    stage.route("cart", to_web()).await;
    stage.route("innocent", to_web()).await;
    stage.send_all().await;
    let head = stage.head().await;
    until("the route is accepted", async || {
        stage.condition("cart", "Accepted").await["status"] == "True"
    })
    .await;

    let words = format!("route httproute/{}/cart/0/0: no such thing", stage.namespace);
    let (kind, name, version) = (ResourceType::Route, "http/80", table_of(&stage).await);
    let resources = vec![(name.into(), Some(version))];
    let rejection = RejectionReport { kind, detail: words.clone(), resources, count: 1 };
    let dispute = Dispute::new(kind, name.into(), version, 1, 0);
    let (rejections, disputes) = (vec![rejection], vec![dispute]);
    let rejecting = FleetReport { connected: 1, rejections, disputes, ..Default::default() };
    let started = Stopwatch::start();
    stage.report(rejecting).await;
    until("Envoy's words are on the route", async || {
        stage.condition("cart", "Programmed").await["reason"] == "Invalid"
    })
    .await;
    // A distributor reports within a second of the rejection.
    assert!(started.elapsed() < Duration::from_secs(4), "after {:?}", started.elapsed());
    let told = stage.condition("cart", "Programmed").await;
    assert_eq!(told["message"], format!("Rejected by 1 of 1 proxy: {words}"));
    assert_eq!(stage.condition("cart", "Accepted").await["status"], "True");
    assert_eq!(stage.condition("innocent", "Programmed").await, Value::Null);

    stage.send_route("cart").await;
    until("the route is left out", async || {
        stage.condition("cart", "Programmed").await["reason"] == "LeftOut"
    })
    .await;
    let told = stage.condition("cart", "Programmed").await;
    assert!(told["message"].as_str().unwrap().contains(&words), "{told}");
    assert_eq!(stage.condition("innocent", "Programmed").await, Value::Null);

    let acknowledged = BTreeMap::from([(head, 1)]);
    stage.report(FleetReport { connected: 1, acknowledged, ..FleetReport::default() }).await;
    let rules = json!([{"matches": [{"path": {"type": "PathPrefix", "value": "/other"}}]}]);
    stage.cluster.patch(&stage.path("HTTPRoute", "cart"), json!({"spec": {"rules": rules}})).await;
    stage.send_route("cart").await;
    until("the words are gone", async || {
        stage.condition("cart", "Programmed").await == Value::Null
    })
    .await;
    assert_eq!(stage.condition("innocent", "Programmed").await, Value::Null);
}

/// The version of the Gateway's route table: equal objects give equal versions.
async fn table_of(stage: &Stage) -> Version {
    let mut world = World::new();
    world.apply(Event::Applied(translatable(
        Kind::GatewayClass,
        stage.get("GatewayClass", &stage.class).await,
    )));
    for kind in [Kind::Gateway, Kind::HTTPRoute] {
        for value in stage.list(kind.as_str()).await {
            world.apply(Event::Applied(translatable(kind, value)));
        }
    }
    world.settle();
    let fleet = stage.fleet();
    let mut resources = world.resources(&fleet);
    resources.find(|(_, resource)| &*resource.name == "http/80").unwrap().1.version
}

/// As the API serves them in v1: both are accepted and counted, and the one that comes second says that it has no connections.
#[tokio::test]
async fn tcp_routes_have_their_statuses() {
    let stage = Stage::new("wires").await;
    let listeners = json!([{"name": "tcp", "port": 9000, "protocol": "TCP"}]);
    let spec = json!({"spec": {"listeners": listeners}});
    stage.cluster.patch(&stage.path("Gateway", "web"), spec).await;
    for name in ["a-first", "b-second"] {
        let rules = json!([{"backendRefs": [{"name": "missing", "port": 5432}]}]);
        let spec = json!({"parentRefs": [{"name": "web"}], "rules": rules});
        create(&stage.client, object("TCPRoute", &stage.namespace, name, spec)).await;
    }
    stage.send_all().await;
    let routes = stage.list("TCPRoute").await.into_iter();
    let events = routes.map(|route| stage.observed_event(Kind::TCPRoute, route)).collect();
    stage.inputs.send(Input::Batch(events)).await.unwrap();

    let says = async |route: &str, of: &str| {
        let object = stage.get("TCPRoute", route).await;
        condition(&object["status"]["parents"][0]["conditions"], of)["reason"].take()
    };
    until("they have statuses", async || says("b-second", "Programmed").await == "OlderRoute")
        .await;
    assert_eq!(says("a-first", "Programmed").await, Value::Null);
    for route in ["a-first", "b-second"] {
        assert_eq!(says(route, "Accepted").await, "Accepted");
        assert_eq!(says(route, "ResolvedRefs").await, "BackendNotFound");
    }
    until("both are counted", async || {
        let listeners = stage.get("Gateway", "web").await["status"]["listeners"].take();
        let kinds = &listeners[0]["supportedKinds"];
        listeners[0]["attachedRoutes"] == 2 && kinds[0]["kind"] == "TCPRoute"
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_is_stopped_ends() {
    let stage = Stage::new("stopped").await;
    let (report, stop) = (stage.report.clone(), CancellationToken::new());
    let metrics = StatusMetrics::register(&Registry::new()).unwrap();
    let writer = StatusWriter::new(stage.client.clone(), report, Observed::default(), metrics);
    let task = tokio::spawn(writer.run(stop.clone()));
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
}
