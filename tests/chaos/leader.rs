use crate::log::Log;
use crate::recorded::Recorded;
use crate::world::{DEADLINE, metric};
use heliograph_gateway::Event;
use heliograph_shared::admin::Readiness;
use heliograph_store::TranslatorStore;
use heliograph_store::redis::RedisStore;
use heliograph_testing::stress;
use heliograph_translator::provider::Input;
use heliograph_translator::{AckReader, TermError, Translator, TranslatorMetrics};
use prometheus::Registry;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A translator at work, told of objects by the test.
pub(crate) struct Leader {
    pub(crate) store: RedisStore,
    registry: Registry,
    inputs: mpsc::Sender<Input>,
    task: JoinHandle<Result<(), TermError>>,
}

/// More than any test tells while a translator is away.
const INPUTS: usize = 4096;

/// If the test fails, its metrics are left: whether it leads, what it waits for and what the store refused.
impl Drop for Leader {
    fn drop(&mut self) {
        let name = format!("leader-{}.metrics.txt", self.task.id());
        stress::keep_if_failing(&name, || {
            prometheus::TextEncoder::new()
                .encode_to_string(&self.registry.gather())
                .unwrap_or_default()
        });
    }
}

impl Leader {
    /// `registry` is that of the store.
    pub(crate) fn begin(store: RedisStore, registry: Registry, fence: u128, log: Log) -> Self {
        Self::start(Recorded::new(store, log), registry, Some(fence), async |translator, inputs| {
            translator.run(inputs, CancellationToken::new()).await
        })
    }

    /// `run` says when it leads.
    pub(crate) fn start<Running>(
        recorded: Recorded,
        registry: Registry,
        fence: Option<u128>,
        run: impl FnOnce(Translator, mpsc::Receiver<Input>) -> Running,
    ) -> Self
    where
        Running: Future<Output = Result<(), TermError>> + Send + 'static,
    {
        let store = recorded.inner.clone();
        let metrics = TranslatorMetrics::register(&registry).unwrap();
        let token = Readiness::new().token("translation");
        let recorded = TranslatorStore::new(Arc::new(recorded));
        let feedback = recorded.feedback.clone();
        let translator = Translator::new(recorded, fence, metrics, token);
        let reports = AckReader::new(feedback, &translator);
        let (inputs, receiver) = mpsc::channel(INPUTS);
        let (running, stop) = (run(translator, receiver), CancellationToken::new());
        let task = tokio::spawn(async move {
            // Ends with the term.
            let _over = stop.clone().drop_guard();
            tokio::spawn(reports.run(stop));
            let ended = running.await;
            tracing::info!("a translator of this test has ended: {ended:?}");
            ended
        });
        Self { store, registry, inputs, task }
    }

    /// All objects, at the start.
    pub(crate) fn introduce(&self, events: Vec<Event>) {
        self.send_events(events);
        let _ = self.inputs.try_send(Input::Synced);
    }

    /// A translator whose term has ended does not listen any more.
    pub(crate) fn send_events(&self, events: Vec<Event>) {
        let _ = self.inputs.try_send(Input::Batch(events));
    }

    /// The answer to one that was elected, and asked whether it was told of all objects.
    pub(crate) fn confirm(&self, asking: u64) {
        let _ = self.inputs.try_send(Input::Fresh(asking));
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        metric(&self.registry, name)
    }

    /// Why its term ended.
    pub(crate) async fn until_ended(mut self) -> String {
        let ended = timeout(DEADLINE, &mut self.task).await.expect("the term ends").unwrap();
        ended.expect_err("the term was ended by another").to_string()
    }
}
