use super::link::LinkErrorKind;
use crate::codec::CodecError;
use heliograph_shared::telemetry::from_zero;
use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use std::time::Duration;

/// From a local read to a bulk load over a slow network.
const SECONDS: [f64; 9] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

/// The outcome of what did not fail, as a label.
const OK: &str = "ok";

/// Which way bytes went, as a label.
const WRITTEN: &str = "written";
const READ: &str = "read";

/// Metrics of the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreMetrics {
    operations: IntCounterVec,
    seconds: HistogramVec,
    bytes: IntCounterVec,
    objects: IntCounterVec,
    staleness: Gauge,
    refused_writes: IntCounterVec,
    refused_records: IntCounterVec,
    damaged_objects: IntCounter,
    deleted_objects: IntCounter,
    resealed: IntCounter,
    sealing_keys: IntGauge,
}

/// The operation of a call to the store, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Claim,
    Upload,
    Commit,
    Announce,
    Compare,
    Load,
    Inspect,
    Clean,
    Measure,
    History,
    Pin,
    Report,
    Reports,
    Presence,
    Adopt,
}

/// Why a write was refused, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedWrite {
    Fenced,
    Conflict,
    NotNewer,
}

/// Why a record was refused, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedRecord {
    Forged,
    Undecodable,
    Older,
    /// It does not know of an order of an operator that was obeyed before.
    Unordered,
}

impl StoreMetrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let options = |name: &str, help: &str| Opts::new(format!("heliograph_store_{name}"), help);
        let metrics = Self {
            operations: IntCounterVec::new(
                options("operations_total", "Operations on Redis, by outcome."),
                &["operation", "outcome"],
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new(
                    "heliograph_store_operation_seconds",
                    "Duration of operations on Redis, including the network.",
                )
                .buckets(SECONDS.to_vec()),
                &["operation"],
            )?,
            bytes: IntCounterVec::new(
                options("bytes_total", "Bytes of objects and records that were written and read."),
                &["direction"],
            )?,
            objects: IntCounterVec::new(
                options(
                    "objects_total",
                    "Objects (parts of trees, and bodies) that were written and read.",
                ),
                &["direction"],
            )?,
            staleness: Gauge::with_opts(options(
                "staleness_seconds",
                "Time since this process last compared its state with Redis.",
            ))?,
            refused_writes: IntCounterVec::new(
                options(
                    "refused_writes_total",
                    "Writes that the store rejected: of an earlier term (fenced), on another head than expected (conflict), not newer than the head (not_newer).",
                ),
                &["reason"],
            )?,
            refused_records: IntCounterVec::new(
                options(
                    "refused_records_total",
                    "Records in Redis that this process rejected: not signed with its keys (forged), undecodable, older than what it has (older), or \
                     without a pin that was in force before (unordered).",
                ),
                &["reason"],
            )?,
            damaged_objects: IntCounter::with_opts(options(
                "damaged_objects_total",
                "Objects that were missing, or whose content did not match their address.",
            ))?,
            deleted_objects: IntCounter::with_opts(options(
                "deleted_objects_total",
                "Objects that were deleted because nothing referred to them any more.",
            ))?,
            resealed: IntCounter::with_opts(options(
                "resealed_total",
                "Secrets that were sealed again with a newer key.",
            ))?,
            sealing_keys: IntGauge::with_opts(options(
                "sealing_keys",
                "Sealing keys in this process's key ring; 0 means that secrets cannot be opened.",
            ))?,
        };
        registry.register(Box::new(metrics.operations.clone()))?;
        registry.register(Box::new(metrics.seconds.clone()))?;
        registry.register(Box::new(metrics.bytes.clone()))?;
        registry.register(Box::new(metrics.objects.clone()))?;
        registry.register(Box::new(metrics.staleness.clone()))?;
        registry.register(Box::new(metrics.refused_writes.clone()))?;
        registry.register(Box::new(metrics.refused_records.clone()))?;
        registry.register(Box::new(metrics.damaged_objects.clone()))?;
        registry.register(Box::new(metrics.deleted_objects.clone()))?;
        registry.register(Box::new(metrics.resealed.clone()))?;
        registry.register(Box::new(metrics.sealing_keys.clone()))?;
        for operation in Operation::ALL {
            let outcomes = LinkErrorKind::ALL.map(LinkErrorKind::as_str).into_iter().chain([OK]);
            let labels = outcomes.map(|outcome| [operation.as_str(), outcome]);
            from_zero(&metrics.operations, labels);
        }
        for by_direction in [&metrics.bytes, &metrics.objects] {
            from_zero(by_direction, [[WRITTEN], [READ]]);
        }
        from_zero(&metrics.refused_writes, RefusedWrite::ALL.map(|reason| [reason.as_str()]));
        from_zero(&metrics.refused_records, RefusedRecord::ALL.map(|reason| [reason.as_str()]));
        Ok(metrics)
    }

    pub(crate) fn operation(
        &self,
        operation: Operation,
        took: Duration,
        failed: Option<LinkErrorKind>,
    ) {
        let outcome = failed.map_or(OK, LinkErrorKind::as_str);
        self.operations.with_label_values(&[operation.as_str(), outcome]).inc();
        self.seconds.with_label_values(&[operation.as_str()]).observe(took.as_secs_f64());
    }

    pub(crate) fn written(&self, objects: usize, bytes: usize) {
        self.objects.with_label_values(&[WRITTEN]).inc_by(objects as u64);
        self.bytes.with_label_values(&[WRITTEN]).inc_by(bytes as u64);
    }

    pub(crate) fn read(&self, objects: usize, bytes: usize) {
        self.objects.with_label_values(&[READ]).inc_by(objects as u64);
        self.bytes.with_label_values(&[READ]).inc_by(bytes as u64);
    }

    pub(crate) fn staleness(&self, since: Duration) {
        self.staleness.set(since.as_secs_f64());
    }

    pub(crate) fn refused_write(&self, reason: RefusedWrite) {
        self.refused_writes.with_label_values(&[reason.as_str()]).inc();
    }

    pub(crate) fn refused_record(&self, reason: RefusedRecord) {
        self.refused_records.with_label_values(&[reason.as_str()]).inc();
    }

    pub(crate) fn damaged_object(&self) {
        self.damaged_objects.inc();
    }

    pub(crate) fn deleted(&self, objects: usize) {
        self.deleted_objects.inc_by(objects as u64);
    }

    pub(crate) fn resealed(&self, secrets: usize) {
        self.resealed.inc_by(secrets as u64);
    }

    pub(crate) fn sealing_keys(&self, keys: usize) {
        self.sealing_keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }
}

impl Operation {
    const ALL: [Self; 15] = [
        Self::Claim,
        Self::Upload,
        Self::Commit,
        Self::Announce,
        Self::Compare,
        Self::Load,
        Self::Inspect,
        Self::Clean,
        Self::Measure,
        Self::History,
        Self::Pin,
        Self::Report,
        Self::Reports,
        Self::Presence,
        Self::Adopt,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Upload => "upload",
            Self::Commit => "commit",
            Self::Announce => "announce",
            Self::Compare => "compare",
            Self::Load => "load",
            Self::Inspect => "inspect",
            Self::Clean => "clean",
            Self::Measure => "measure",
            Self::History => "history",
            Self::Pin => "pin",
            Self::Report => "report",
            Self::Reports => "reports",
            Self::Presence => "presence",
            Self::Adopt => "adopt",
        }
    }
}

impl RefusedWrite {
    const ALL: [Self; 3] = [Self::Fenced, Self::Conflict, Self::NotNewer];

    fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "fenced",
            Self::Conflict => "conflict",
            Self::NotNewer => "not_newer",
        }
    }
}

impl RefusedRecord {
    const ALL: [Self; 4] = [Self::Forged, Self::Undecodable, Self::Older, Self::Unordered];

    pub(crate) fn of(error: &CodecError) -> Self {
        match error {
            CodecError::Forged => Self::Forged,
            _ => Self::Undecodable,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Forged => "forged",
            Self::Undecodable => "undecodable",
            Self::Older => "older",
            Self::Unordered => "unordered",
        }
    }
}
