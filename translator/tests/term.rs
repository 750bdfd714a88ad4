//! A whole term of the translator: objects in, snapshots and a report out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_shared::admin::Readiness;
use heliograph_shared::store::{Embedded, Store, Subscription, Update};
use heliograph_snapshot::{FleetName, ResourceType, Snapshot};
use heliograph_translator::provider::Input;
use heliograph_translator::{Report, TermError, Translator, TranslatorMetrics};
use heliograph_translator_core::Event;
use heliograph_translator_core::objects::{Document, Object, parse};
use prometheus::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);

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
    stop: CancellationToken,
    task: JoinHandle<Result<(), TermError>>,
}

impl Term {
    async fn begin(store: Arc<Embedded>, fence: u128) -> Self {
        let (readiness, registry) = (Readiness::new(), Registry::new());
        let metrics = TranslatorMetrics::register(&registry).unwrap();
        let guard = readiness.guard("translation");
        let translator = Translator::claim(store, Some(fence), metrics, guard).await.unwrap();
        let report = translator.report();
        let (inputs, receiver) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let task = tokio::spawn(translator.run(receiver, stop.clone()));
        Self { inputs, readiness, registry, report, stop, task }
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

async fn next(subscription: &mut Box<dyn Subscription>) -> Update {
    timeout(DEADLINE, subscription.next()).await.expect("in time").unwrap()
}

async fn published(subscription: &mut Box<dyn Subscription>) -> Arc<Snapshot> {
    match next(subscription).await {
        Update::Published(snapshot) => snapshot,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn nothing_is_published_before_everything_is_known() {
    let store = Arc::new(Embedded::new());
    let mut subscription = store.subscribe();
    assert!(matches!(next(&mut subscription).await, Update::Synced));
    let mut term = Term::begin(store.clone(), 1).await;
    term.send(applied(&[&gateway(8080)])).await;
    term.send(applied(&[CLASS])).await;
    assert!(!term.readiness.is_ready());
    term.send(Input::Synced).await;
    let snapshot = published(&mut subscription).await;
    assert_eq!(snapshot.head.sequence, 1, "all of it in one step");
    assert_eq!(snapshot.tree(ResourceType::Listener).len(), 1);
    timeout(DEADLINE, term.readiness.ready()).await.unwrap();

    let fleet = FleetName::new("default", "edge");
    let report = term.reports(|report| !report.heads.is_empty()).await;
    assert_eq!(report.heads[&fleet], snapshot.head);
    assert_eq!(report.infra[&fleet].ports[0].port, 8080);
    assert_eq!(report.statuses.len(), 2);

    term.send(applied(&[&gateway(9090)])).await;
    assert_eq!(published(&mut subscription).await.head.sequence, 2);
    term.reports(|report| report.infra[&fleet].ports[0].port == 9090).await;

    term.send(Input::Batch(vec![Event::Deleted(object(&gateway(1)).key())])).await;
    assert!(matches!(next(&mut subscription).await, Update::Retired(gone, _) if gone == fleet));
    let report = term.reports(|report| report.heads.is_empty()).await;
    assert!(report.infra.is_empty());
    assert_eq!(report.statuses.len(), 1, "the class is left");

    let text = prometheus::TextEncoder::new().encode_to_string(&term.registry.gather()).unwrap();
    for line in [
        "heliograph_translator_events_total{event=\"applied\"} 3",
        "heliograph_translator_events_total{event=\"deleted\"} 1",
        "heliograph_translator_publishes_total 2",
        "heliograph_translator_fleets 0",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    term.stop.cancel();
    term.end().await.unwrap();
}

#[tokio::test]
async fn a_newer_term_ends_an_older_one() {
    let store = Arc::new(Embedded::new());
    let term = Term::begin(store.clone(), 1).await;
    term.send(applied(&[CLASS, &gateway(8080)])).await;
    term.send(Input::Synced).await;
    timeout(DEADLINE, term.readiness.ready()).await.unwrap();
    store.claim(Some(2)).await.unwrap();
    term.send(applied(&[&gateway(9090)])).await;
    let error = term.end().await.unwrap_err().to_string();
    assert!(error.contains("a newer term has begun"), "{error}");
}

#[tokio::test]
async fn a_provider_that_ends_leaves_what_was_published() {
    let store = Arc::new(Embedded::new());
    let Term { inputs, readiness, stop, task, .. } = Term::begin(store.clone(), 1).await;
    inputs.send(applied(&[CLASS, &gateway(8080)])).await.unwrap();
    inputs.send(Input::Synced).await.unwrap();
    drop(inputs);
    timeout(DEADLINE, readiness.ready()).await.unwrap();
    assert_eq!(published(&mut store.subscribe()).await.head.sequence, 1);
    stop.cancel();
    timeout(DEADLINE, task).await.expect("in time").unwrap().unwrap();
}
