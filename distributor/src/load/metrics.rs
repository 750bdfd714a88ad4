use super::{Ending, LoadArgs, Refusal};
use heliograph_shared::telemetry::from_zero;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Who was turned away, and who was sent away.
#[derive(Clone, Debug)]
pub(crate) struct LoadMetrics {
    turned_away: IntCounterVec,
    ended: IntCounterVec,
    slowed: IntCounter,
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
            turned_away: counters(
                "turned_away_total",
                "Connections (reasons connections, address, drain) and streams (streams, address, rate, drain) that were \
                 not let in, and streams that were ended for a flood (requests) or a large request among many (receiving).",
            )?,
            ended: counters(
                "ended_connections_total",
                "Connections that this replica ended: old (age), at shutdown (drain), without a request (silence), of clients \
                 that did not read (slow_reader), to rebalance (excess).",
            )?,
            slowed: IntCounter::new(
                "heliograph_distributor_slowed_streams_total",
                "Times that a stream sent too many requests and was read slower from then on.",
            )?,
        };
        let max_streams = IntGauge::new(
            "heliograph_distributor_max_streams",
            "How many ADS streams this replica takes (--max-streams); 0 for any number.",
        )?;
        max_streams.set(i64::try_from(args.max_streams).unwrap_or(i64::MAX));
        registry.register(Box::new(max_streams))?;
        registry.register(Box::new(metrics.turned_away.clone()))?;
        registry.register(Box::new(metrics.ended.clone()))?;
        registry.register(Box::new(metrics.slowed.clone()))?;
        from_zero(&metrics.turned_away, Refusal::ALL.map(|refusal| [refusal.as_str()]));
        from_zero(&metrics.ended, Ending::ALL.map(|ending| [ending.as_str()]));
        Ok(metrics)
    }

    pub(crate) fn turned_away(&self, refusal: Refusal) {
        self.turned_away.with_label_values(&[refusal.as_str()]).inc();
    }

    pub(crate) fn slowed(&self) {
        self.slowed.inc();
    }

    pub(crate) fn ended(&self, ending: Ending) {
        self.ended.with_label_values(&[ending.as_str()]).inc();
    }
}
