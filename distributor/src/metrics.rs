use heliograph_distributor_protocol::{Event, Protocol};
use heliograph_shared::telemetry::from_zero;
use heliograph_snapshot::ResourceType;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use std::time::SystemTime;

/// Metrics of the distributor.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    fleets: IntGaugeVec,
    connections: IntGauge,
    streams: IntGaugeVec,
    responses: IntCounterVec,
    response_bytes: IntCounter,
    acknowledgements: IntCounterVec,
    rejections: IntCounterVec,
    unknown_types: IntCounter,
    refused: IntCounter,
    stale_read_fallbacks: IntCounter,
    classes: IntGauge,
    fleet_bytes: IntGauge,
    fleet_loads: IntCounterVec,
    fleet_drops: IntCounter,
    unserved: IntCounter,
    pub(crate) class_limit_exceeded: IntCounter,
    pub(crate) report_failures: IntCounter,
    apply_to_ack: Histogram,
}

/// Why a fleet is loaded, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadReason {
    /// Because it fits.
    Ahead,
    /// Because a client asks for it.
    Asked,
}

/// Adds one to a gauge, for as long as this lives.
#[derive(Debug)]
pub(crate) struct GaugeCount(IntGauge);

/// From what one machine can do to what is a fault.
const APPLY_TO_ACK: [f64; 13] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = |name: &str, help: &str| {
            IntCounterVec::new(Opts::new(format!("heliograph_distributor_{name}"), help), &["type"])
        };
        let counter = |name: &str, help: &str| {
            IntCounter::new(format!("heliograph_distributor_{name}"), help)
        };
        let metrics = Self {
            fleets: IntGaugeVec::new(
                Opts::new(
                    "heliograph_distributor_fleets",
                    "Fleets: all (known), those in memory (loaded), those whose newest snapshot cannot be loaded (damaged) or has secrets that cannot \
                     be opened (unopened).",
                ),
                &["state"],
            )?,
            connections: IntGauge::new("heliograph_distributor_connections", "Open connections.")?,
            streams: IntGaugeVec::new(
                Opts::new("heliograph_distributor_streams", "Open ADS streams."),
                &["protocol"],
            )?,
            responses: counters("responses_total", "Responses sent, by type of resource.")?,
            response_bytes: counter("response_bytes_total", "Bytes of the responses sent.")?,
            acknowledgements: counters(
                "acknowledgements_total",
                "Responses that clients accepted.",
            )?,
            rejections: counters("rejections_total", "Responses that clients rejected.")?,
            unknown_types: counter(
                "unknown_types_total",
                "Requests for types that are not served; they get no response.",
            )?,
            refused: counter("refused_streams_total", "Streams that ended because of an invalid request.")?,
            stale_read_fallbacks: counter(
                "stale_read_fallbacks_total",
                "Streams that were served without a comparison with the store, although the client may have something newer than this replica.",
            )?,
            classes: IntGauge::new(
                "heliograph_distributor_classes",
                "Classes of clients that have a view of their own, in all fleets.",
            )?,
            fleet_bytes: IntGauge::new(
                "heliograph_distributor_fleet_bytes",
                "Approximate memory of the snapshots of loaded fleets, as --fleet-memory counts it.",
            )?,
            fleet_loads: IntCounterVec::new(
                Opts::new(
                    "heliograph_distributor_fleet_loads_total",
                    "Fleets that were loaded: in advance (ahead), or for a client's request (asked).",
                ),
                &["occasion"],
            )?,
            fleet_drops: counter(
                "fleet_drops_total",
                "Fleets that were removed from memory because no client used them.",
            )?,
            unserved: counter(
                "unserved_streams_total",
                "Streams that ended because their fleet was not in memory and could not be loaded.",
            )?,
            class_limit_exceeded: counter(
                "class_limit_exceeded_total",
                "Times that a client got the view without any policy, because its fleet has too many classes.",
            )?,
            report_failures: counter(
                "report_failures_total",
                "Reports of clients' acknowledgements that could not be written to the store.",
            )?,
            apply_to_ack: Histogram::with_opts(
                HistogramOpts::new(
                    "heliograph_apply_to_ack_seconds",
                    "Time from a change's publication, by the translator's clock, until a connected client had acknowledged all of it.",
                )
                .buckets(APPLY_TO_ACK.to_vec()),
            )?,
        };
        registry.register(Box::new(metrics.fleets.clone()))?;
        registry.register(Box::new(metrics.connections.clone()))?;
        registry.register(Box::new(metrics.streams.clone()))?;
        registry.register(Box::new(metrics.responses.clone()))?;
        registry.register(Box::new(metrics.response_bytes.clone()))?;
        registry.register(Box::new(metrics.acknowledgements.clone()))?;
        registry.register(Box::new(metrics.rejections.clone()))?;
        registry.register(Box::new(metrics.unknown_types.clone()))?;
        registry.register(Box::new(metrics.refused.clone()))?;
        registry.register(Box::new(metrics.stale_read_fallbacks.clone()))?;
        registry.register(Box::new(metrics.classes.clone()))?;
        registry.register(Box::new(metrics.fleet_bytes.clone()))?;
        registry.register(Box::new(metrics.fleet_loads.clone()))?;
        registry.register(Box::new(metrics.fleet_drops.clone()))?;
        registry.register(Box::new(metrics.unserved.clone()))?;
        registry.register(Box::new(metrics.class_limit_exceeded.clone()))?;
        registry.register(Box::new(metrics.report_failures.clone()))?;
        registry.register(Box::new(metrics.apply_to_ack.clone()))?;
        for by_type in [&metrics.responses, &metrics.acknowledgements, &metrics.rejections] {
            from_zero(by_type, ResourceType::ALL.map(|kind| [kind.as_str()]));
        }
        from_zero(
            &metrics.fleet_loads,
            [LoadReason::Ahead, LoadReason::Asked].map(|it| [it.as_str()]),
        );
        for protocol in [Protocol::Delta, Protocol::StateOfTheWorld] {
            metrics.streams.with_label_values(&[label_of(protocol)]);
        }
        metrics.fleets(0, 0, 0, 0);
        Ok(metrics)
    }

    pub(crate) fn fleets(&self, known: usize, loaded: usize, damaged: usize, unopened: usize) {
        let states = ["known", "loaded", "damaged", "unopened"];
        for (state, count) in states.into_iter().zip([known, loaded, damaged, unopened]) {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.fleets.with_label_values(&[state]).set(count);
        }
    }

    pub(crate) fn fleet_bytes(&self, bytes: u64) {
        self.fleet_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn load(&self, reason: LoadReason) {
        self.fleet_loads.with_label_values(&[reason.as_str()]).inc();
    }

    pub(crate) fn dropped(&self) {
        self.fleet_drops.inc();
    }

    pub(crate) fn unserved(&self) {
        self.unserved.inc();
    }

    pub(crate) fn classes(&self, count: usize) {
        self.classes.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn connection(&self) -> GaugeCount {
        GaugeCount::new(self.connections.clone())
    }

    pub(crate) fn stream(&self, protocol: Protocol) -> GaugeCount {
        GaugeCount::new(self.streams.with_label_values(&[label_of(protocol)]))
    }

    pub(crate) fn response(&self, kind: ResourceType, bytes: usize) {
        self.responses.with_label_values(&[kind.as_str()]).inc();
        self.response_bytes.inc_by(bytes as u64);
    }

    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Acknowledged(kind) => {
                self.acknowledgements.with_label_values(&[kind.as_str()]).inc();
            }
            Event::Rejected(rejection) => {
                self.rejections.with_label_values(&[rejection.kind.as_str()]).inc();
            }
            Event::UnknownType => self.unknown_types.inc(),
        }
    }

    /// A client has acknowledged a change of that time. Where this clock is behind, it took no time.
    pub(crate) fn applied(&self, time: SystemTime) {
        self.apply_to_ack.observe(time.elapsed().unwrap_or_default().as_secs_f64());
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    pub(crate) fn stale_read_fallback(&self) {
        self.stale_read_fallbacks.inc();
    }
}

impl LoadReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Asked => "asked",
        }
    }
}

fn label_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Delta => "delta",
        Protocol::StateOfTheWorld => "sotw",
    }
}

impl GaugeCount {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for GaugeCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}
