use super::receive::Size;
use super::{Ending, LoadArgs, Refusal};
use heliograph_shared::telemetry::from_zero;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Counts connections, streams and requests that were rejected or ended.
#[derive(Clone, Debug)]
pub(crate) struct LoadMetrics {
    rejected_clients: IntCounterVec,
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
            rejected_clients: counters(
                "rejected_clients_total",
                "Rejected connections (reasons connections, address, unauthenticated, identity, namespace, drain) and streams (streams, address, \
                 identity, namespace, rate, drain), and streams that were ended: too many requests (requests), too many requests that are being \
                 received (receiving), too much memory for names that fleets do not have or for waiting requests (identity_memory, \
                 namespace_memory, replica_memory), or a fleet that was not published in time (unpublished).",
            )?,
            ended: counters(
                "ended_connections_total",
                "Connections that this replica closed: too old (age), at shutdown (drain), without a request (silence), not yet authenticated when \
                 others needed the room (unauthenticated), of clients that did not read (slow_reader), to rebalance (excess).",
            )?,
            slowed: IntCounter::new(
                "heliograph_distributor_slowed_streams_total",
                "Times that a stream was slowed down because it sent too many requests.",
            )?,
            subscription_bytes: IntGauge::new(
                "heliograph_distributor_subscription_bytes",
                "Memory of subscriptions to names that fleets do not have, and of waiting requests, as --subscription-memory counts it.",
            )?,
            receiving_bytes: IntGaugeVec::new(
                Opts::new(
                    "heliograph_distributor_receiving_bytes",
                    "Memory of requests that are being received, of up to 96 KiB (small) and larger ones (large); at most 256 MiB each.",
                ),
                &["size"],
            )?,
            unauthenticated: IntGauge::new(
                "heliograph_distributor_unauthenticated_connections",
                "Open connections of clients that have not authenticated yet.",
            )?,
        };
        let max_streams = IntGauge::new(
            "heliograph_distributor_max_streams",
            "Maximum number of ADS streams of this replica (--max-streams); 0 for no limit.",
        )?;
        max_streams.set(i64::try_from(args.max_streams).unwrap_or(i64::MAX));
        registry.register(Box::new(max_streams))?;
        registry.register(Box::new(metrics.rejected_clients.clone()))?;
        registry.register(Box::new(metrics.ended.clone()))?;
        registry.register(Box::new(metrics.slowed.clone()))?;
        registry.register(Box::new(metrics.subscription_bytes.clone()))?;
        registry.register(Box::new(metrics.receiving_bytes.clone()))?;
        registry.register(Box::new(metrics.unauthenticated.clone()))?;
        [Size::Small, Size::Large].into_iter().for_each(|size| metrics.receiving(size, 0));
        from_zero(&metrics.rejected_clients, Refusal::ALL.map(|refusal| [refusal.as_str()]));
        from_zero(&metrics.ended, Ending::ALL.map(|ending| [ending.as_str()]));
        Ok(metrics)
    }

    pub(crate) fn rejected_clients(&self, refusal: Refusal) {
        self.rejected_clients.with_label_values(&[refusal.as_str()]).inc();
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
