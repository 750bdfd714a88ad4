use heliograph_shared::telemetry::from_zero;
use prometheus::{Gauge, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// Metrics of the cache.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    bytes: IntGauge,
    fleets: IntGauge,
    unconfirmed: IntGauge,
    age: Gauge,
    writes: IntCounterVec,
    ignored: IntCounter,
}

const OK: &str = "ok";
const FAILED: &str = "failed";
/// There is no room for it.
const SKIPPED: &str = "skipped";

impl Metrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let name = |name: &str, help: &str| Opts::new(format!("heliograph_store_{name}"), help);
        let metrics = Self {
            bytes: IntGauge::with_opts(name(
                "cache_bytes",
                "Size of the files of the snapshot cache, in bytes.",
            ))?,
            fleets: IntGauge::with_opts(name(
                "cache_fleets",
                "Fleets that are in the snapshot cache.",
            ))?,
            unconfirmed: IntGauge::with_opts(name(
                "cache_unconfirmed_fleets",
                "Fleets that this process serves from its snapshot cache and that Redis has not confirmed since it started.",
            ))?,
            age: Gauge::with_opts(name(
                "cache_age_seconds",
                "Time since Redis confirmed what this process serves from its snapshot cache; 0 when it serves nothing from there.",
            ))?,
            writes: IntCounterVec::new(
                name(
                    "cache_writes_total",
                    "Writes to the snapshot cache, by outcome; skipped if there is no room.",
                ),
                &["outcome"],
            )?,
            ignored: IntCounter::with_opts(name(
                "cache_ignored_files_total",
                "Files in the snapshot cache that were ignored: damaged, foreign, or older than what was written last.",
            ))?,
        };
        registry.register(Box::new(metrics.bytes.clone()))?;
        registry.register(Box::new(metrics.fleets.clone()))?;
        registry.register(Box::new(metrics.unconfirmed.clone()))?;
        registry.register(Box::new(metrics.age.clone()))?;
        registry.register(Box::new(metrics.writes.clone()))?;
        registry.register(Box::new(metrics.ignored.clone()))?;
        from_zero(&metrics.writes, [[OK], [FAILED], [SKIPPED]]);
        Ok(metrics)
    }

    pub(super) fn content(&self, fleets: usize, bytes: u64) {
        self.fleets.set(i64::try_from(fleets).unwrap_or(i64::MAX));
        self.bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(super) fn serving(&self, unconfirmed: usize, age: f64) {
        self.unconfirmed.set(i64::try_from(unconfirmed).unwrap_or(i64::MAX));
        self.age.set(age);
    }

    pub(super) fn written(&self) {
        self.writes.with_label_values(&[OK]).inc();
    }

    pub(super) fn failed(&self) {
        self.writes.with_label_values(&[FAILED]).inc();
    }

    pub(super) fn skipped(&self) {
        self.writes.with_label_values(&[SKIPPED]).inc();
    }

    pub(super) fn ignored(&self) {
        self.ignored.inc();
    }
}
