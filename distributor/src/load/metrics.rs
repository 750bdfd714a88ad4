use super::receive::Size;
use super::{Ending, LoadArgs, Refusal};
use heliograph_shared::telemetry::from_zero;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// What was rejected, and what was ended.
#[derive(Clone, Debug)]
pub(crate) struct LoadMetrics {
    rejected: IntCounterVec,
    ended: IntCounterVec,
    slowed: IntCounter,
    subscription_bytes: IntGauge,
    receiving_bytes: IntGaugeVec,
    unauthenticated: IntGauge,
}

impl LoadMetrics {
    pub(crate) fn register(
        registry: &Registry,
        args: &LoadArgs,
    ) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str| {
            IntCounterVec::new(
                Opts::new(format!("heliograph_distributor_{name}"), help),
                &["reason"],
            )
        };
        let metrics = Self {
            rejected: counters(
                "turned_away_total",
                "Connections (reasons connections, address, unauthenticated, identity, namespace, drain) and streams (streams, \
                 address, identity, namespace, rate, drain) that were not let in, and streams that were ended for a flood \
                 (requests), a request among many that are being received (receiving), too many names that fleets do not have, \
                 or requests that wait (identity_memory, namespace_memory, replica_memory) or a fleet that was not published in time (unpublished).",
            )?,
            ended: counters(
                "ended_connections_total",
                "Connections that this replica ended: old (age), at shutdown (drain), without a request (silence), to make room \
                 for others before it was known whose they were (unauthenticated), of clients that did not read (slow_reader), \
                 to rebalance (excess).",
            )?,
            slowed: IntCounter::new(
                "heliograph_distributor_slowed_streams_total",
                "Times that a stream sent too many requests and was read slower from then on.",
            )?,
            subscription_bytes: IntGauge::new(
                "heliograph_distributor_subscription_bytes",
                "Memory that streams keep for names that their fleets do not have, and for requests that wait, as \
                 --subscription-memory counts it.",
            )?,
            receiving_bytes: IntGaugeVec::new(
                Opts::new(
                    "heliograph_distributor_receiving_bytes",
                    "Memory for requests that are being received, of up to 96 KiB (small) and beyond that (large), of 256 MiB each.",
                ),
                &["size"],
            )?,
            unauthenticated: IntGauge::new(
                "heliograph_distributor_unauthenticated_connections",
                "Open connections of clients that have not shown yet who they are.",
            )?,
        };
        let max_streams = IntGauge::new(
            "heliograph_distributor_max_streams",
            "How many ADS streams this replica takes (--max-streams); 0 for any number.",
        )?;
        max_streams.set(i64::try_from(args.max_streams).unwrap_or(i64::MAX));
        registry.register(Box::new(max_streams))?;
        registry.register(Box::new(metrics.rejected.clone()))?;
        registry.register(Box::new(metrics.ended.clone()))?;
        registry.register(Box::new(metrics.slowed.clone()))?;
        registry.register(Box::new(metrics.subscription_bytes.clone()))?;
        registry.register(Box::new(metrics.receiving_bytes.clone()))?;
        registry.register(Box::new(metrics.unauthenticated.clone()))?;
        [Size::Small, Size::Large].into_iter().for_each(|size| metrics.receiving(size, 0));
        from_zero(&metrics.rejected, Refusal::ALL.map(|refusal| [refusal.as_str()]));
        from_zero(&metrics.ended, Ending::ALL.map(|ending| [ending.as_str()]));
        Ok(metrics)
    }

    pub(crate) fn rejected(&self, refusal: Refusal) {
        self.rejected.with_label_values(&[refusal.as_str()]).inc();
    }

    pub(crate) fn slowed(&self) {
        self.slowed.inc();
    }

    pub(crate) fn subscription_bytes(&self, bytes: usize) {
        self.subscription_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn receiving(&self, size: Size, bytes: usize) {
        let gauge = self.receiving_bytes.with_label_values(&[size.as_str()]);
        gauge.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    #[cfg(test)]
    pub(super) fn received_bytes(&self, size: Size) -> i64 {
        self.receiving_bytes.with_label_values(&[size.as_str()]).get()
    }

    pub(crate) fn unauthenticated(&self, connections: usize) {
        self.unauthenticated.set(i64::try_from(connections).unwrap_or(i64::MAX));
    }

    pub(crate) fn ended(&self, ending: Ending) {
        self.ended.with_label_values(&[ending.as_str()]).inc();
    }
}
