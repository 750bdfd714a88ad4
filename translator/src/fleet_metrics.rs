use crate::feedback::FleetFeedback;
use crate::report::Report;
use heliograph_snapshot::Head;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts, Registry};
use std::sync::Arc;
use tokio::sync::watch;

/// The metrics of each fleet, from the leader alone. They are computed at each scrape, so that a deleted fleet leaves no
/// series behind.
pub struct FleetMetrics {
    report: watch::Receiver<Report>,
    /// How many fleets there are metrics of: the name of a fleet is a label, and labels must be bounded.
    most: usize,
    /// What is described; the values are made anew each time.
    empty: Gauges,
}

/// How many fleets have metrics of their own by default.
pub const FLEETS_WITH_METRICS: usize = 1000;

struct Gauges {
    proxies: IntGaugeVec,
    versions: IntGaugeVec,
    rejected: IntGaugeVec,
    sequence: IntGaugeVec,
}

impl FleetMetrics {
    /// Of `most` fleets, the first by name.
    pub fn register(
        registry: &Registry,
        report: watch::Receiver<Report>,
        most: usize,
    ) -> Result<(), prometheus::Error> {
        registry.register(Box::new(Self { report, most, empty: Gauges::new()? }))
    }
}

impl Collector for FleetMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.empty.all().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // Those that are described could be made once, so these can.
        let Ok(gauges) = Gauges::new() else { return Vec::new() };
        let (report, none) = (self.report.borrow(), Arc::default());
        for (fleet, head) in report.heads.iter().take(self.most) {
            let feedback = report.feedback.as_ref().and_then(|feedback| feedback.fleets.get(fleet));
            gauges.set(fleet.as_str(), *head, feedback.unwrap_or(&none));
        }
        gauges.all().into_iter().flat_map(Collector::collect).collect()
    }
}

impl Gauges {
    fn new() -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(format!("heliograph_fleet_{name}"), help), labels)
        };
        Ok(Self {
            proxies: gauge(
                "proxies",
                "Connected proxies of a fleet: those that have acknowledged its whole newest snapshot (synced), and the others (behind).",
                &["fleet", "state"],
            )?,
            versions: gauge(
                "versions",
                "Number of different snapshots that proxies of a fleet have; 1 when all have the same.",
                &["fleet"],
            )?,
            rejected: gauge(
                "rejected_resources",
                "Resources of a fleet that proxies reject or that are in quarantine.",
                &["fleet"],
            )?,
            sequence: gauge(
                "sequence",
                "Sequence number of a fleet's newest snapshot in the store; each publication adds one.",
                &["fleet"],
            )?,
        })
    }

    fn all(&self) -> [&IntGaugeVec; 4] {
        [&self.proxies, &self.versions, &self.rejected, &self.sequence]
    }

    fn set(&self, fleet: &str, head: Head, feedback: &FleetFeedback) {
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let synced = feedback.have(head).min(feedback.connected);
        let behind = feedback.connected - synced;
        self.proxies.with_label_values(&[fleet, "synced"]).set(gauge(synced));
        self.proxies.with_label_values(&[fleet, "behind"]).set(gauge(behind));
        let versions = feedback.acknowledged.values().filter(|count| **count > 0).count();
        self.versions.with_label_values(&[fleet]).set(gauge(versions as u64));
        let rejected = feedback.rejections.len();
        self.rejected.with_label_values(&[fleet]).set(gauge(rejected as u64));
        self.sequence.with_label_values(&[fleet]).set(gauge(head.sequence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feedback::Feedback;
    use heliograph_snapshot::FleetName;
    use std::collections::BTreeMap;

    fn text(registry: &Registry) -> String {
        prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn a_fleet_has_metrics_for_as_long_as_it_is_there() {
        let head = |sequence| Head { epoch: 0, fence: 7, sequence };
        let fleets = ["one", "two", "three"].map(|name| FleetName::new("default", name));
        let acknowledged = BTreeMap::from([(head(4), 3), (head(5), 2)]);
        let said = FleetFeedback { connected: 7, acknowledged, ..FleetFeedback::default() };
        let report = Report {
            heads: fleets.iter().map(|fleet| (fleet.clone(), head(5))).collect(),
            feedback: Some(Arc::new(Feedback::from([(fleets[0].clone(), said)]))),
            ..Report::default()
        };
        let (sender, receiver) = watch::channel(report);
        let registry = Registry::new();
        FleetMetrics::register(&registry, receiver, 2).unwrap();

        let page = text(&registry);
        for line in [
            "heliograph_fleet_proxies{fleet=\"default/one\",state=\"synced\"} 2",
            "heliograph_fleet_proxies{fleet=\"default/one\",state=\"behind\"} 5",
            "heliograph_fleet_versions{fleet=\"default/one\"} 2",
            "heliograph_fleet_rejected_resources{fleet=\"default/one\"} 0",
            "heliograph_fleet_sequence{fleet=\"default/three\"} 5",
            "heliograph_fleet_proxies{fleet=\"default/three\",state=\"synced\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
        }
        assert!(!page.contains("default/two"), "there are metrics of two:\n{page}");

        sender.send_replace(Report::default());
        assert_eq!(text(&registry), "", "nothing is left of them");
    }
}
