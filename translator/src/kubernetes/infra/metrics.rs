use prometheus::{IntCounter, IntGauge, Registry};

/// What is counted of what runs for Gateways.
#[derive(Clone, Debug)]
pub struct InfraMetrics {
    pub(super) calls: IntCounter,
    pub(super) failures: IntCounter,
    pub(super) failing: IntGauge,
}

impl InfraMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let calls = IntCounter::new(
            "heliograph_translator_infra_changes_total",
            "Objects of Gateways that were applied or deleted.",
        )?;
        let failures = IntCounter::new(
            "heliograph_translator_infra_failures_total",
            "Attempts to bring what runs for a Gateway up to date that failed. All are made again.",
        )?;
        let failing = IntGauge::new(
            "heliograph_translator_infra_failing_gateways",
            "Gateways for which the last attempt failed.",
        )?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        registry.register(Box::new(failing.clone()))?;
        Ok(Self { calls, failures, failing })
    }
}
