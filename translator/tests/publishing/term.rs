//! A whole term of the translator: objects in, snapshots and a report out.

use crate::DEADLINE;
use crate::faulty::Faulty;
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Document, Object, ObjectKey, parse};
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{FleetName, Head, ResourceType};
use heliograph_store::{TranslatorStore, Writer};
use heliograph_translator::election::{Lead, Resign};
use heliograph_translator::provider::Input;
use heliograph_translator::provider::kubernetes::Refresh;
use heliograph_translator::{Report, TermError, Translator, TranslatorMetrics};
use prometheus::Registry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

const CLASS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
";

fn gateway(port: u16) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  gatewayClassName: heliograph
  listeners: [{{name: http, protocol: HTTP, port: {port}}}]
"
    )
}

fn object(text: &str) -> Object {
    match parse(text).remove(0) {
        Document::Object(object) => object,
        other => panic!("{other:?}"),
    }
}

fn applied(texts: &[&str]) -> Input {
    Input::Batch(texts.iter().map(|text| Event::Applied(object(text))).collect())
}

struct Term {
    inputs: mpsc::Sender<Input>,
    readiness: Readiness,
    registry: Registry,
    report: watch::Receiver<Report>,
    damage: watch::Sender<BTreeMap<FleetName, Head>>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), TermError>>,
}

impl Term {
    fn begin(store: Arc<Faulty>, fence: u128) -> Self {
        let (readiness, registry) = (Readiness::new(), Registry::new());
        let metrics = TranslatorMetrics::register(&registry).unwrap();
        let guard = readiness.token("translation");
        let translator = Translator::new(TranslatorStore::new(store), Some(fence), metrics, guard);
        let (report, damage) = (translator.report(), translator.damage());
        let (inputs, receiver) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let task = tokio::spawn(translator.run(receiver, stop.clone()));
        Self { inputs, readiness, registry, report, damage, stop, task }
    }

    async fn send(&self, input: Input) {
        self.inputs.send(input).await.unwrap();
    }

    /// Waits until the report is as expected.
    async fn reports(&mut self, expected: impl Fn(&Report) -> bool) -> Report {
        let wait = self.report.wait_for(|report| expected(report));
        timeout(DEADLINE, wait).await.expect("in time").unwrap().clone()
    }

    async fn end(self) -> Result<(), TermError> {
        timeout(DEADLINE, self.task).await.expect("in time").unwrap()
    }
}

/// What a route changes of a Gateway's status, proxies need not answer to; what the Gateway itself says they must.
#[tokio::test(start_paused = true)]
async fn since_which_head_a_generation_is_published_is_known() {
    let generation = |number: u32, port| {
        gateway(port).replace("{name: edge}", &format!("{{name: edge, generation: {number}}}"))
    };
    let route = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart}
spec: {parentRefs: [{name: edge}]}
";
    let store = Faulty::new();
    let mut term = Term::begin(store.clone(), 1);
    let (fleet, key) = (FleetName::new("default", "edge"), object(&gateway(1)).key());
    let published = |report: &Report| {
        let published = report.published.get(&fleet)?.get(&key)?;
        Some((published.generation, published.head?.sequence))
    };
    term.send(applied(&[CLASS, &generation(1, 8080)])).await;
    term.send(Input::Synced).await;
    term.reports(|report| published(report) == Some((1, 1))).await;
    let read = term.report.borrow().changed.count();
    term.send(applied(&[route])).await;
    let report = term.reports(|report| report.heads[&fleet].sequence == 2).await;
    assert_eq!(published(&report), Some((1, 1)), "it was published before");
    let changed: BTreeSet<_> = report.changed.since(read).unwrap().cloned().collect();
    assert_eq!(changed, BTreeSet::from([key.clone(), object(route).key()]));

    term.send(applied(&[&generation(2, 9090)])).await;
    term.reports(|report| published(report) == Some((2, 3))).await;
    // What does not reach the proxies is published already.
    term.send(applied(&[&generation(3, 9090)])).await;
    term.reports(|report| published(report) == Some((3, 3))).await;
    term.stop.cancel();
    term.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_everything_is_known() {
    let store = Faulty::new();
    let mut term = Term::begin(store.clone(), 1);
    term.send(applied(&[&gateway(8080)])).await;
    term.send(applied(&[CLASS])).await;
    assert!(!term.readiness.is_ready());
    term.send(Input::Synced).await;
    timeout(DEADLINE, term.readiness.ready()).await.unwrap();
    let fleet = FleetName::new("default", "edge");
    let snapshot = store.live().await.remove(&fleet).unwrap();
    assert_eq!(snapshot.head.sequence, 1, "all of it in one step");
    assert_eq!(snapshot.tree(ResourceType::Listener).len(), 1);

    let report = term.reports(|report| !report.heads.is_empty()).await;
    assert_eq!(report.heads[&fleet], snapshot.head);
    assert_eq!(report.infra[&fleet].ports[0].port, 8080);
    assert_eq!(report.statuses.len(), 2);

    term.send(applied(&[&gateway(9090)])).await;
    let report = term.reports(|report| report.heads[&fleet].sequence == 2).await;
    assert_eq!(report.infra[&fleet].ports[0].port, 9090);
    assert_eq!(&*store.records().await[&fleet].cause, "1 object changed");

    term.send(Input::Batch(vec![Event::Deleted(object(&gateway(1)).key())])).await;
    let report = term.reports(|report| report.heads.is_empty()).await;
    assert!(store.live().await.is_empty());
    assert!(report.infra.is_empty());
    assert_eq!(report.statuses.len(), 1, "the class is left");

    let text = prometheus::TextEncoder::new().encode_to_string(&term.registry.gather()).unwrap();
    for line in [
        "heliograph_translator_events_total{event=\"applied\"} 3",
        "heliograph_translator_events_total{event=\"deleted\"} 1",
        "heliograph_translator_publishes_total 2",
        "heliograph_translator_fleets 0",
        "heliograph_translator_repairs_total 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    term.stop.cancel();
    term.end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_holds_up_no_translation() {
    let store = Faulty::new();
    store.set_away(true);
    let mut term = Term::begin(store.clone(), 1);
    let fleet = FleetName::new("default", "edge");
    term.send(applied(&[CLASS, &gateway(8000)])).await;
    term.send(Input::Synced).await;
    // More than the channel holds, so somebody takes them.
    for port in 8001..8100 {
        term.send(applied(&[&gateway(port)])).await;
    }
    let report = term.reports(|report| is_on(report, &fleet, 8099)).await;
    assert!(report.heads.is_empty(), "what is not in the store is not said to be");
    assert!(!term.readiness.is_ready());
    store.set_away(false);
    timeout(DEADLINE, term.readiness.ready()).await.unwrap();
    assert_eq!(term.report.borrow().heads[&fleet].sequence, 1, "all of it in one step");

    store.set_away(true);
    term.send(applied(&[&gateway(9001)])).await;
    term.send(applied(&[&gateway(9002)])).await;
    let report = term.reports(|report| is_on(report, &fleet, 9002)).await;
    assert_eq!(report.heads[&fleet].sequence, 1);
    store.set_away(false);
    term.reports(|report| report.heads[&fleet].sequence > 1).await;
    store.noted().versions();
    term.stop.cancel();
    term.end().await.unwrap();
}

fn is_on(report: &Report, fleet: &FleetName, port: u16) -> bool {
    report.infra.get(fleet).is_some_and(|infra| infra.ports[0].port == port)
}

#[tokio::test(start_paused = true)]
async fn a_newer_term_ends_an_older_one() {
    let store = Faulty::new();
    let term = Term::begin(store.clone(), 1);
    term.send(applied(&[CLASS, &gateway(8080)])).await;
    term.send(Input::Synced).await;
    timeout(DEADLINE, term.readiness.ready()).await.unwrap();
    store.claim(Some(2)).await.unwrap();
    term.send(applied(&[&gateway(9090)])).await;
    let error = term.end().await.unwrap_err().to_string();
    assert!(error.contains("a newer term has begun"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_ends_leaves_what_was_published() {
    let store = Faulty::new();
    let Term { inputs, readiness, stop, task, .. } = Term::begin(store.clone(), 1);
    inputs.send(applied(&[CLASS, &gateway(8080)])).await.unwrap();
    inputs.send(Input::Synced).await.unwrap();
    drop(inputs);
    timeout(DEADLINE, readiness.ready()).await.unwrap();
    assert_eq!(store.live().await.len(), 1);
    stop.cancel();
    timeout(DEADLINE, task).await.expect("in time").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_said_to_be_damaged_is_published_again() {
    let store = Faulty::new();
    let mut term = Term::begin(store.clone(), 1);
    let fleet = FleetName::new("default", "edge");
    term.send(applied(&[CLASS, &gateway(8080)])).await;
    term.send(Input::Synced).await;
    term.reports(|report| !report.heads.is_empty()).await;
    let head = term.report.borrow().heads[&fleet];
    term.damage.send_replace(BTreeMap::from([(fleet.clone(), head)]));
    term.reports(|report| report.heads[&fleet].sequence == 2).await;
    term.stop.cancel();
    term.end().await.unwrap();
}

/// Who is elected stands by until it leads, and again when it does not, with a world that is kept.
#[tokio::test(start_paused = true)]
async fn an_elected_one_publishes_in_its_terms_only() {
    let store = Faulty::new();
    let (readiness, registry) = (Readiness::new(), Registry::new());
    let metrics = TranslatorMetrics::register(&registry).unwrap();
    let guard = readiness.token("objects");
    let translator = Translator::new(TranslatorStore::new(store.clone()), None, metrics, guard);
    let (mut report, stop) = (translator.report(), CancellationToken::new());
    let (inputs, receiver) = mpsc::channel(16);
    let (leadership, refresh, resign) =
        (watch::Sender::new(None), Refresh::default(), Resign::default());
    let running = translator.run_elected(
        receiver,
        leadership.subscribe(),
        refresh.clone(),
        resign.clone(),
        stop.clone(),
    );
    let task = tokio::spawn(running);
    let (fleet, mut asked) = (FleetName::new("default", "edge"), refresh.asked());
    let lead = |fence| Some(Lead { fence, until: Instant::now() + Duration::from_secs(1000) });

    inputs.send(applied(&[CLASS, &gateway(8080)])).await.unwrap();
    inputs.send(Input::Synced).await.unwrap();
    timeout(DEADLINE, readiness.ready()).await.expect("who stands by is ready");
    assert_eq!(store.noted().claims, 0, "it does not touch the store");

    // It leads once it knows that what it has is all there is.
    leadership.send_replace(lead(7));
    timeout(DEADLINE, asked.changed()).await.unwrap().unwrap();
    inputs.send(applied(&[&gateway(8081)])).await.unwrap();
    assert_eq!(store.noted().claims, 0);
    inputs.send(Input::Fresh(*asked.borrow_and_update())).await.unwrap();
    let published = timeout(DEADLINE, report.wait_for(|report| !report.heads.is_empty()));
    let first = published.await.unwrap().unwrap().clone();
    assert_eq!((first.heads[&fleet].fence, first.heads[&fleet].sequence), (7, 1));
    assert_eq!(first.infra[&fleet].ports[0].port, 8081);

    // What is lost is forgotten, and what comes meanwhile is not published.
    leadership.send_replace(None);
    timeout(DEADLINE, report.wait_for(|report| report.statuses.is_empty())).await.unwrap().unwrap();
    inputs.send(applied(&[&gateway(8082)])).await.unwrap();
    leadership.send_replace(lead(9));
    timeout(DEADLINE, asked.changed()).await.unwrap().unwrap();
    inputs.send(Input::Fresh(*asked.borrow_and_update())).await.unwrap();
    let published = timeout(DEADLINE, report.wait_for(|report| !report.heads.is_empty()));
    let second = published.await.unwrap().unwrap().clone();
    assert_eq!(second.heads[&fleet].fence, 9);
    assert_eq!(second.infra[&fleet].ports[0].port, 8082);
    assert_eq!(store.live().await.len(), 1);

    // A term that the store refuses is given up, and not the program.
    store.claim(Some(11)).await.unwrap();
    inputs.send(applied(&[&gateway(8083)])).await.unwrap();
    timeout(DEADLINE, resign.asked()).await.expect("it resigns");
    leadership.send_replace(lead(13));
    timeout(DEADLINE, asked.changed()).await.unwrap().unwrap();
    inputs.send(Input::Fresh(*asked.borrow_and_update())).await.unwrap();
    let is_out = |report: &Report| report.heads.get(&fleet).is_some_and(|head| head.fence == 13);
    timeout(DEADLINE, report.wait_for(is_out)).await.unwrap().unwrap();
    stop.cancel();
    timeout(DEADLINE, task).await.unwrap().unwrap().unwrap();
}

/// Who starts while a Gateway cannot be read knows nothing of it, and takes nothing down.
#[tokio::test(start_paused = true)]
async fn a_gateway_that_cannot_be_read_keeps_its_fleet_until_it_is_gone() {
    let store = Faulty::new();
    let fleet = FleetName::new("default", "edge");
    let mut first = Term::begin(store.clone(), 1);
    first.send(applied(&[CLASS, &gateway(8080)])).await;
    first.send(Input::Synced).await;
    first.reports(|report| !report.heads.is_empty()).await;
    first.stop.cancel();
    first.end().await.unwrap();

    // Its class cannot be read, and then it cannot itself.
    let gateway = object(&gateway(8080)).key();
    let class = object(CLASS).key();
    let unread = |key: &ObjectKey| Input::Unread(key.kind, BTreeSet::from([key.name.clone()]));
    let mut next = Term::begin(store.clone(), 2);
    next.send(applied(&[&self::gateway(8080)])).await;
    next.send(unread(&class)).await;
    next.send(Input::Synced).await;
    let report = next.reports(|report| report.complete).await;
    assert!(report.infra[&fleet].proxies.is_none(), "what runs is left alone");
    until(async || store.noted().claims == 2).await;
    assert!(store.live().await.contains_key(&fleet));
    next.send(unread(&gateway)).await;
    next.send(Input::Unread(class.kind, BTreeSet::new())).await;
    next.send(Input::Batch(vec![Event::Deleted(gateway.clone())])).await;
    let read = next.report.borrow().statuses.len();
    next.reports(|report| report.statuses.len() < read).await;
    assert!(store.live().await.contains_key(&fleet));

    // It is gone.
    next.send(Input::Unread(gateway.kind, BTreeSet::new())).await;
    next.reports(|report| !report.infra.contains_key(&fleet)).await;
    until(async || !store.live().await.contains_key(&fleet)).await;
    next.stop.cancel();
    next.end().await.unwrap();
}

async fn until(is_so: impl AsyncFn() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(10));
    let waiting = async {
        while !is_so().await {
            look.tick().await;
        }
    };
    timeout(DEADLINE, waiting).await.expect("in time");
}
