use crate::figures::OTHER;
use crate::{Counters, Figures, Sample, Tally};
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The figures of a run while it lasts. Labels come from closed lists: the kinds of errors and violations are bounded
/// in [`Tally`], and no client, change or text is one.
#[derive(Clone, Debug)]
pub struct RunMetrics {
    counters: Vec<IntCounter>,
    streams: IntGauge,
    latency: GaugeVec,
    latencies: IntCounterVec,
    errors: IntCounterVec,
    violations: IntCounterVec,
    server_cpu: Gauge,
    server_memory: Gauge,
}

const QUANTILES: [(&str, f64); 5] =
    [("0.5", 0.5), ("0.9", 0.9), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];

impl RunMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let vec = |name: &str, help: &str, label| {
            IntCounterVec::new(Opts::new(format!("loadtest_{name}"), help), &[label])
        };
        let counters = Counters::default()
            .named()
            .map(|(name, _)| IntCounter::new(format!("loadtest_{name}_total"), help(name)));
        let metrics = Self {
            counters: counters.into_iter().collect::<Result<_, _>>()?,
            streams: IntGauge::new("loadtest_streams", "Streams that are up.")?,
            latency: GaugeVec::new(
                Opts::new(
                    "loadtest_latency_seconds",
                    "Latencies since the start. Those of pushes count from when the change was due.",
                ),
                &["of", "quantile"],
            )?,
            latencies: vec("latencies_total", "How many latencies were measured.", "of")?,
            errors: vec("errors_total", "Errors, by kind.", "kind")?,
            violations: vec("violations_total", "Broken promises that the checker found.", "kind")?,
            server_cpu: Gauge::new(
                "loadtest_server_cpu_seconds",
                "CPU time that the servers have used, as far as they are watched.",
            )?,
            server_memory: Gauge::new(
                "loadtest_server_memory_bytes",
                "Memory of the servers, as far as they are watched.",
            )?,
        };
        for counter in &metrics.counters {
            registry.register(Box::new(counter.clone()))?;
        }
        registry.register(Box::new(metrics.streams.clone()))?;
        registry.register(Box::new(metrics.latency.clone()))?;
        registry.register(Box::new(metrics.latencies.clone()))?;
        registry.register(Box::new(metrics.errors.clone()))?;
        registry.register(Box::new(metrics.violations.clone()))?;
        registry.register(Box::new(metrics.server_cpu.clone()))?;
        registry.register(Box::new(metrics.server_memory.clone()))?;
        // So that there is a sum while nothing is wrong.
        for kinds in [&metrics.errors, &metrics.violations] {
            kinds.with_label_values(&[OTHER]);
        }
        Ok(metrics)
    }

    /// Takes the figures of the whole run up to now.
    pub fn set(&self, figures: &Figures) {
        for (counter, (_, value)) in self.counters.iter().zip(figures.counters.named()) {
            raise(counter, value);
        }
        self.streams.set(i64::try_from(figures.streams()).unwrap_or(i64::MAX));
        for (name, latencies) in figures.latencies() {
            let label = name.replace(' ', "_");
            raise(&self.latencies.with_label_values(&[&label]), latencies.count());
            for (quantile, share) in QUANTILES.into_iter().filter(|_| !latencies.is_empty()) {
                let seconds = latencies.quantile(share).as_secs_f64();
                self.latency.with_label_values(&[label.as_str(), quantile]).set(seconds);
            }
        }
        raise_kinds(&self.errors, &figures.errors);
        raise_kinds(&self.violations, &figures.violations);
    }

    /// All servers together.
    pub fn set_servers(&self, sample: &Sample) {
        self.server_cpu.set(sample.cpu_us as f64 / 1e6);
        self.server_memory.set(sample.memory() as f64);
    }
}

fn raise_kinds(counters: &IntCounterVec, tally: &Tally) {
    for (kind, count) in tally.iter() {
        raise(&counters.with_label_values(&[kind]), count);
    }
}

/// Counters of Prometheus only grow, and so do the figures.
fn raise(counter: &IntCounter, value: u64) {
    counter.inc_by(value.saturating_sub(counter.get()));
}

fn help(counter: &str) -> &'static str {
    match counter {
        "opened" => "Streams that were opened.",
        "closed" => "Streams that have ended.",
        "failed" => "Attempts to connect that led to no stream.",
        "first_states" => "Clients that have got everything they need to serve.",
        "responses" => "Responses received.",
        "requests" => "Requests sent, acknowledgements among them.",
        "bytes_in" => "Bytes received.",
        "bytes_out" => "Bytes sent.",
        "resources" => "Resources received.",
        "resent" => "Resources received that were equal to what the client held.",
        "acks" => "Responses accepted.",
        _ => "Responses rejected.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn metrics_follow_the_figures() {
        let registry = Registry::new();
        let metrics = RunMetrics::register(&registry).unwrap();
        let mut figures = Figures::default();
        figures.opened(1, Duration::from_millis(2));
        figures.failed(1, "refused");
        metrics.set(&figures);
        figures.opened(2, Duration::from_millis(2));
        figures.closed(2);
        metrics.set(&figures);
        metrics.set_servers(&Sample { cpu_us: 1_500_000, rss: 4096, ..Sample::default() });

        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "loadtest_opened_total 2",
            "loadtest_closed_total 1",
            "loadtest_streams 1",
            "loadtest_errors_total{kind=\"refused\"} 1",
            "loadtest_latencies_total{of=\"connect\"} 2",
            "loadtest_latencies_total{of=\"push_receipt\"} 0",
            "loadtest_latency_seconds{of=\"connect\",quantile=\"0.99\"} 0.002",
            "loadtest_server_cpu_seconds 1.5",
            "loadtest_server_memory_bytes 4096",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        }
        assert!(!text.contains("of=\"push_receipt\",quantile"), "nothing was measured:\n{text}");
    }

    #[test]
    fn every_counter_has_its_own_help() {
        let helps: std::collections::BTreeSet<_> =
            Counters::default().named().iter().map(|(name, _)| help(name)).collect();
        assert_eq!(helps.len(), Counters::default().named().len());
    }
}
