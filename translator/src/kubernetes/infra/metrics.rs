use prometheus::{IntCounter, IntGauge, Registry};

/// Metrics of the infrastructure of Gateways.
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
            "Objects that run Envoys and were created, updated or deleted.",
        )?;
        let failures = IntCounter::new(
            "heliograph_translator_infra_failures_total",
            "Failed attempts to set up or update a Gateway's Envoys. The translator retries all of them.",
        )?;
        let failing = IntGauge::new(
            "heliograph_translator_infra_failing_gateways",
            "Gateways whose Envoys could not be set up at the last attempt.",
        )?;
        registry.register(Box::new(calls.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        registry.register(Box::new(failing.clone()))?;
        Ok(Self { calls, failures, failing })
    }
}
