use super::write::WriteOutcome;
use heliograph_gateway::objects::Kind;
use heliograph_shared::telemetry::from_zero;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

/// How a write ends, as a label.
const WRITE_OUTCOMES: [&str; 4] = ["written", "conflict", "gone", "failed"];

/// The outcome of a Kubernetes event, as a label.
const EVENT_OUTCOMES: [&str; 3] = ["sent", "failed", "dropped"];

/// Metrics of the writer of statuses.
#[derive(Clone, Debug)]
pub struct StatusMetrics {
    writes: IntCounterVec,
    waiting: IntGauge,
    events: IntCounterVec,
}

impl StatusMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let writes = IntCounterVec::new(
            Opts::new(
                "heliograph_translator_status_writes_total",
                "Status writes, by kind and outcome: written, conflict, gone, failed. Conflicts and failures are retried.",
            ),
            &["kind", "outcome"],
        )?;
        let waiting = IntGauge::new(
            "heliograph_translator_status_waiting",
            "Objects that are queued for a status check or write.",
        )?;
        let events = IntCounterVec::new(
            Opts::new(
                "heliograph_translator_notices_total",
                "Kubernetes events about problems of objects, by outcome: sent, failed, dropped because there were too many.",
            ),
            &["outcome"],
        )?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(waiting.clone()))?;
        registry.register(Box::new(events.clone()))?;
        // Kubernetes' own kinds have statuses of others.
        for kind in Kind::ALL.iter().filter(|kind| kind.has_status() && !kind.group().is_empty()) {
            from_zero(&writes, WRITE_OUTCOMES.map(|outcome| [kind.as_str(), outcome]));
        }
        from_zero(&events, EVENT_OUTCOMES.map(|outcome| [outcome]));
        Ok(Self { writes, waiting, events })
    }

    pub(super) fn wrote(&self, kind: Kind, outcome: &WriteOutcome) {
        let [written, conflict, gone, failed] = WRITE_OUTCOMES;
        let outcome = match outcome {
            WriteOutcome::Written(_) => written,
            WriteOutcome::Conflict(_) => conflict,
            WriteOutcome::Gone => gone,
            WriteOutcome::Forbidden(_) | WriteOutcome::Failed(_) => failed,
        };
        self.writes.with_label_values(&[kind.as_str(), outcome]).inc();
    }

    pub(super) fn waiting(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn event_sent(&self, is_sent: bool) {
        let [sent, failed, _] = EVENT_OUTCOMES;
        self.events.with_label_values(&[if is_sent { sent } else { failed }]).inc();
    }

    pub(super) fn event_dropped(&self) {
        let [.., dropped] = EVENT_OUTCOMES;
        self.events.with_label_values(&[dropped]).inc();
    }
}
