use super::write::Outcome;
use heliograph_gateway::objects::Kind;
use heliograph_shared::telemetry::from_zero;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry};

/// How a write ends, as a label.
const WRITES: [&str; 4] = ["written", "conflict", "gone", "failed"];

/// What becomes of a Kubernetes event, as a label.
const NOTICES: [&str; 3] = ["told", "failed", "dropped"];

/// What the writer of statuses counts.
#[derive(Clone, Debug)]
pub struct StatusMetrics {
    writes: IntCounterVec,
    waiting: IntGauge,
    notices: IntCounterVec,
}

impl StatusMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let writes = IntCounterVec::new(
            Opts::new(
                "heliograph_translator_status_writes_total",
                "Writes of statuses, by kind and outcome: written, conflict, gone, failed. All but those that are gone are tried again.",
            ),
            &["kind", "outcome"],
        )?;
        let waiting = IntGauge::new(
            "heliograph_translator_status_waiting",
            "Objects whose status is to be looked at or written.",
        )?;
        let notices = IntCounterVec::new(
            Opts::new(
                "heliograph_translator_notices_total",
                "Kubernetes events for what is wrong with objects, by outcome: told, failed, dropped because there were too many.",
            ),
            &["outcome"],
        )?;
        registry.register(Box::new(writes.clone()))?;
        registry.register(Box::new(waiting.clone()))?;
        registry.register(Box::new(notices.clone()))?;
        // Kubernetes' own kinds have statuses of others.
        for kind in Kind::ALL.iter().filter(|kind| kind.has_status() && !kind.group().is_empty()) {
            from_zero(&writes, WRITES.map(|outcome| [kind.as_str(), outcome]));
        }
        from_zero(&notices, NOTICES.map(|outcome| [outcome]));
        Ok(Self { writes, waiting, notices })
    }

    pub(super) fn wrote(&self, kind: Kind, outcome: &Outcome) {
        let [written, conflict, gone, failed] = WRITES;
        let outcome = match outcome {
            Outcome::Written(_) => written,
            Outcome::Conflict(_) => conflict,
            Outcome::Gone => gone,
            Outcome::Forbidden(_) | Outcome::Failed(_) => failed,
        };
        self.writes.with_label_values(&[kind.as_str(), outcome]).inc();
    }

    pub(super) fn waiting(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn told_notice(&self, is_told: bool) {
        let [told, failed, _] = NOTICES;
        self.notices.with_label_values(&[if is_told { told } else { failed }]).inc();
    }

    pub(super) fn dropped_notice(&self) {
        let [.., dropped] = NOTICES;
        self.notices.with_label_values(&[dropped]).inc();
    }
}
