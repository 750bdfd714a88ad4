use crate::log::Log;
use crate::recorded::Recorded;
use crate::world::{DEADLINE, metric};
use heliograph_shared::admin::Readiness;
use heliograph_store::redis::RedisStore;
use heliograph_translator::provider::Input;
use heliograph_translator::{AckReader, TermError, Translator, TranslatorMetrics};
use heliograph_translator_core::Event;
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

impl Leader {
    /// `registry` is that of the store.
    pub(crate) fn begin(store: RedisStore, registry: Registry, fence: u128, log: Log) -> Self {
        let metrics = TranslatorMetrics::register(&registry).unwrap();
        let recorded = Arc::new(Recorded { inner: store.clone(), log });
        let guard = Readiness::new().guard("translation");
        let translator = Translator::new(recorded, Some(fence), metrics, guard);
        let reports = AckReader::new(Arc::new(store.clone()), &translator);
        let (inputs, receiver) = mpsc::channel(INPUTS);
        let stop = CancellationToken::new();
        let task = tokio::spawn(async move {
            // Ends with the term.
            let _over = stop.clone().drop_guard();
            tokio::spawn(reports.run(stop));
            translator.run(receiver, CancellationToken::new()).await
        });
        Self { store, registry, inputs, task }
    }

    /// All objects, at the start.
    pub(crate) fn introduce(&self, events: Vec<Event>) {
        self.tell(events);
        let _ = self.inputs.try_send(Input::Synced);
    }

    /// A translator whose term has ended does not listen any more.
    pub(crate) fn tell(&self, events: Vec<Event>) {
        let _ = self.inputs.try_send(Input::Batch(events));
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        metric(&self.registry, name)
    }

    /// Why its term ended.
    pub(crate) async fn until_ended(self) -> String {
        let ended = timeout(DEADLINE, self.task).await.expect("the term ends").unwrap();
        ended.expect_err("the term was ended by another").to_string()
    }
}
