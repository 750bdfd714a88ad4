use crate::provider::file::RemarkList;
use heliograph_gateway::objects::Kind;
use heliograph_gateway::{Event, OverBudget, Work};
use heliograph_shared::telemetry::from_zero;
use heliograph_store::StoreError;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};
use std::time::Duration;

/// From a tenth of a millisecond, which one endpoint takes, to the first translation of a large cluster.
const SETTLE_SECONDS: [f64; 9] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];

/// The event of an object, as a label.
const APPLIED: &str = "applied";
const DELETED: &str = "deleted";

/// Why the store did not do something, as a label.
const STORE_FAILURES: [&str; 6] =
    ["fenced", "conflict", "not_newer", "unavailable", "damaged", "refused"];

/// Metrics of the translator.
#[derive(Clone, Debug)]
pub struct TranslatorMetrics {
    events: IntCounterVec,
    settle: Histogram,
    work: IntCounterVec,
    publishes: IntCounter,
    repairs: IntCounter,
    store_failures: IntCounterVec,
    fleets: IntGauge,
    pending: IntGauge,
    pinned: IntGauge,
    left_out: IntGauge,
    delayed: IntGauge,
    refused: IntGaugeVec,
    oversized: IntGauge,
    claimed: IntGauge,
}

/// Metrics of the file provider.
#[derive(Clone, Debug)]
pub struct FileMetrics {
    faults: IntGauge,
    duplicates: IntGauge,
}

/// Metrics of the Kubernetes provider.
#[derive(Clone, Debug)]
pub struct KubernetesMetrics {
    objects: IntGaugeVec,
    unreadable: IntGaugeVec,
    watched: IntGaugeVec,
    failures: IntCounterVec,
    fetched: IntGaugeVec,
    withheld: IntGaugeVec,
    unfetched: IntGaugeVec,
    waiting: IntGaugeVec,
}

/// Metrics of the election.
#[derive(Clone, Debug)]
pub struct ElectionMetrics {
    leader: IntGauge,
    transitions: IntCounter,
    failures: IntCounter,
}

impl TranslatorMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let events = IntCounterVec::new(
            Opts::new("heliograph_translator_events_total", "Objects applied and deleted."),
            &["event"],
        )?;
        let settle = Histogram::with_opts(
            HistogramOpts::new(
                "heliograph_translator_settle_seconds",
                "Time to compute the results of a batch of events.",
            )
            .buckets(SETTLE_SECONDS.to_vec()),
        )?;
        let work = IntCounterVec::new(
            Opts::new(
                "heliograph_translator_work_total",
                "Units of translation that were computed, by stage.",
            ),
            &["stage"],
        )?;
        let publishes = IntCounter::new(
            "heliograph_translator_publishes_total",
            "Snapshots written to the store.",
        )?;
        let repairs = IntCounter::new(
            "heliograph_translator_repairs_total",
            "Fleets that were written again because the store had lost or damaged them, or had content that no translator wrote.",
        )?;
        let store_failures = IntCounterVec::new(
            Opts::new(
                "heliograph_translator_store_failures_total",
                "Operations that the store did not execute, by reason. The translator retries all of them.",
            ),
            &["reason"],
        )?;
        let fleets = IntGauge::new("heliograph_translator_fleets", "Fleets that have a snapshot.")?;
        let pending = IntGauge::new(
            "heliograph_translator_pending_fleets",
            "Fleets whose newest snapshot is not in the store yet.",
        )?;
        let pinned = IntGauge::new(
            "heliograph_translator_pinned_fleets",
            "Fleets that an operator pinned to an earlier snapshot.",
        )?;
        let left_out = IntGauge::new(
            "heliograph_translator_left_out_objects",
            "Routes and policies that are left out, fully or in part, because more proxies reject them than accept them; counted for each fleet.",
        )?;
        let delayed = IntGauge::new(
            "heliograph_translator_delayed_routes",
            "Routes whose last change waits, because proxies recently rejected routes of their namespace several times.",
        )?;
        let refused = IntGaugeVec::new(
            Opts::new(
                "heliograph_translator_refused_routes",
                "Routes that are not served because they exceed a budget: that of a regular expression (expression), of the route (route), of all routes of the namespace (namespace), of the namespace's expressions for one hostname (hostname), or the namespace's share of a table (table). The last one includes routes that are only not served at hostnames of other namespaces.",
            ),
            &["budget"],
        )?;
        let oversized = IntGauge::new(
            "heliograph_translator_oversized_resources",
            "Resources that are too large for the store, so that proxies keep their previous version; counted for each fleet.",
        )?;
        let claimed = IntGauge::new(
            "heliograph_translator_claimed",
            "1 while this translator is the writer of the store.",
        )?;
        registry.register(Box::new(events.clone()))?;
        registry.register(Box::new(settle.clone()))?;
        registry.register(Box::new(work.clone()))?;
        registry.register(Box::new(publishes.clone()))?;
        registry.register(Box::new(repairs.clone()))?;
        registry.register(Box::new(store_failures.clone()))?;
        registry.register(Box::new(fleets.clone()))?;
        registry.register(Box::new(pending.clone()))?;
        registry.register(Box::new(pinned.clone()))?;
        registry.register(Box::new(left_out.clone()))?;
        registry.register(Box::new(delayed.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        registry.register(Box::new(oversized.clone()))?;
        registry.register(Box::new(claimed.clone()))?;
        from_zero(&events, [[APPLIED], [DELETED]]);
        from_zero(&store_failures, STORE_FAILURES.map(|reason| [reason]));
        let metrics = Self {
            events,
            settle,
            work,
            publishes,
            repairs,
            store_failures,
            fleets,
            pending,
            pinned,
            left_out,
            delayed,
            refused,
            oversized,
            claimed,
        };
        metrics.over_budget(OverBudget::default());
        Ok(metrics)
    }

    pub(crate) fn event(&self, event: &Event) {
        let label = match event {
            Event::Applied(_) => APPLIED,
            Event::Deleted(_) => DELETED,
        };
        self.events.with_label_values(&[label]).inc();
    }

    pub(crate) fn settled(&self, took: Duration, work: &Work) {
        self.settle.observe(took.as_secs_f64());
        for (stage, count) in work.by_stage() {
            self.work.with_label_values(&[stage]).inc_by(count);
        }
    }

    pub(crate) fn published(&self) {
        self.publishes.inc();
    }

    pub(crate) fn repairs(&self, count: usize) {
        self.repairs.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        let [fenced, conflict, not_newer, unavailable, damaged, refused] = STORE_FAILURES;
        let reason = match error {
            StoreError::Fenced { .. } => fenced,
            StoreError::Conflict { .. } => conflict,
            StoreError::NotNewer { .. } => not_newer,
            StoreError::Unavailable(_) | StoreError::Full(_) => unavailable,
            StoreError::Damaged { .. } => damaged,
            StoreError::Refused(_) => refused,
        };
        self.store_failures.with_label_values(&[reason]).inc();
    }

    pub(crate) fn fleets(&self, count: usize) {
        self.fleets.set(gauge(count));
    }

    pub(crate) fn left_out(&self, count: usize) {
        self.left_out.set(gauge(count));
    }

    pub(crate) fn delayed(&self, routes: usize) {
        self.delayed.set(gauge(routes));
    }

    pub(crate) fn over_budget(&self, over: OverBudget) {
        let OverBudget { expression, route, namespace, hostname, table } = over;
        let counts = [
            ("expression", expression),
            ("route", route),
            ("namespace", namespace),
            ("hostname", hostname),
            ("table", table),
        ];
        for (budget, count) in counts {
            self.refused.with_label_values(&[budget]).set(gauge(count));
        }
    }

    pub(crate) fn oversized(&self, count: usize) {
        self.oversized.set(gauge(count));
    }

    pub(crate) fn pinned(&self, count: usize) {
        self.pinned.set(gauge(count));
    }

    /// How many fleets are behind, and whether there is a term at all.
    pub(crate) fn standing(&self, pending: usize, claimed: bool) {
        self.pending.set(gauge(pending));
        self.claimed.set(claimed.into());
    }
}

impl FileMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let faults = IntGauge::new(
            "heliograph_file_faults",
            "Files and YAML documents that cannot be decoded.",
        )?;
        let duplicates = IntGauge::new(
            "heliograph_file_duplicates",
            "Objects that are ignored because another file defines the same object.",
        )?;
        registry.register(Box::new(faults.clone()))?;
        registry.register(Box::new(duplicates.clone()))?;
        Ok(Self { faults, duplicates })
    }

    pub(crate) fn remarks(&self, remarks: &RemarkList) {
        self.faults.set(gauge(remarks.faults()));
        self.duplicates.set(gauge(remarks.duplicates()));
    }
}

impl KubernetesMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let by_kind = |name: &str, help: &str| IntGaugeVec::new(Opts::new(name, help), &["kind"]);
        let objects = by_kind("heliograph_kubernetes_objects", "Objects in the Kubernetes API.")?;
        let unreadable = by_kind(
            "heliograph_kubernetes_unreadable_objects",
            "Objects that cannot be decoded. Their previous versions stay in force.",
        )?;
        let watched = by_kind(
            "heliograph_kubernetes_watched",
            "1 while a kind is watched; 0 if its CRD or the permission is missing, or the API server does not respond.",
        )?;
        let failures = IntCounterVec::new(
            Opts::new(
                "heliograph_kubernetes_watch_failures_total",
                "Lists and watches that failed. The translator retries all of them.",
            ),
            &["kind", "reason"],
        )?;
        let fetched = by_kind(
            "heliograph_kubernetes_fetched_objects",
            "Secrets and ConfigMaps whose content is in memory because an object refers to them.",
        )?;
        let withheld = by_kind(
            "heliograph_kubernetes_withheld_objects",
            "Secrets and ConfigMaps that an object refers to and that are not used, because their namespace exceeds its budget.",
        )?;
        let unfetched = by_kind(
            "heliograph_kubernetes_unfetched_objects",
            "Secrets and ConfigMaps that an object refers to and that could not be fetched. The translator retries.",
        )?;
        let waiting = by_kind(
            "heliograph_kubernetes_waiting_objects",
            "Objects whose last change waits, because a kind that protects something cannot be listed or watched.",
        )?;
        registry.register(Box::new(waiting.clone()))?;
        registry.register(Box::new(fetched.clone()))?;
        registry.register(Box::new(withheld.clone()))?;
        registry.register(Box::new(unfetched.clone()))?;
        registry.register(Box::new(objects.clone()))?;
        registry.register(Box::new(unreadable.clone()))?;
        registry.register(Box::new(watched.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        Ok(Self { objects, unreadable, watched, failures, fetched, withheld, unfetched, waiting })
    }

    pub(crate) fn objects(&self, kind: Kind, all: usize, unreadable: usize) {
        self.objects.with_label_values(&[kind.as_str()]).set(gauge(all));
        self.unreadable.with_label_values(&[kind.as_str()]).set(gauge(unreadable));
    }

    pub(crate) fn watched(&self, kind: Kind, is_watched: bool) {
        self.watched.with_label_values(&[kind.as_str()]).set(is_watched.into());
    }

    pub(crate) fn fetched(&self, kind: Kind, held: usize, withheld: usize) {
        self.fetched.with_label_values(&[kind.as_str()]).set(gauge(held));
        self.withheld.with_label_values(&[kind.as_str()]).set(gauge(withheld));
    }

    pub(crate) fn unfetched(&self, kind: Kind, count: usize) {
        self.unfetched.with_label_values(&[kind.as_str()]).set(gauge(count));
    }

    pub(crate) fn waiting(&self, kind: Kind, count: usize) {
        self.waiting.with_label_values(&[kind.as_str()]).set(gauge(count));
    }

    /// For these reasons and no others.
    pub(crate) fn may_fail(&self, kind: Kind, reasons: impl IntoIterator<Item = &'static str>) {
        from_zero(&self.failures, reasons.into_iter().map(|reason| [kind.as_str(), reason]));
    }

    pub(crate) fn failed(&self, kind: Kind, reason: &'static str) {
        self.failures.with_label_values(&[kind.as_str(), reason]).inc();
    }
}

impl ElectionMetrics {
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let leader = IntGauge::new(
            "heliograph_election_leader",
            "1 while this translator is the elected leader.",
        )?;
        let transitions = IntCounter::new(
            "heliograph_election_transitions_total",
            "How often this translator became the leader or stopped being the leader.",
        )?;
        let failures = IntCounter::new(
            "heliograph_election_failures_total",
            "Requests for the Lease that failed or got no response in time.",
        )?;
        registry.register(Box::new(leader.clone()))?;
        registry.register(Box::new(transitions.clone()))?;
        registry.register(Box::new(failures.clone()))?;
        Ok(Self { leader, transitions, failures })
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
        self.transitions.inc();
    }

    pub(crate) fn failed(&self) {
        self.failures.inc();
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
