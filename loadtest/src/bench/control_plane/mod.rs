//! Compares Heliograph and Envoy Gateway, each over a Kubernetes API of its own with the same objects: the cost of a
//! change until a proxy has it. The proxy is simulated, except where a request has to go through it. The memory of our translator is also measured
//! over directories.

mod attach;
mod churn;
mod memory;
mod objects;
mod probe;
mod proxy;
mod status;
mod testbed;

use super::{Bench, BenchError, Contender, Figure, Results};
use crate::servers::ControlPlane;
use futures::future::try_join_all;
use heliograph_report::Sampler;
use heliograph_snapshot::ResourceType;
use heliograph_store::{Notice, Watch};
use objects::{App, GATEWAY};
use proxy::Proxy;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use testbed::{CONTROL_PLANE_TIMEOUT, Testbed, World};

/// Some figures that belong to one stretch of a control plane's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// Routes and endpoints change among 5,000, and then all the time: rows 6, 7 and 8.
    Changes,
    /// Many Gateways, one of which is changed: row 6, without Envoy Gateway.
    Gateways,
    /// Requests through an Envoy: row 9.
    Probe,
    /// Many routes at once: row 10.
    Attach,
    /// The translator alone over directories of different sizes: row 13.
    Memory,
}

/// How many times a change is made, in full.
const CHANGES: usize = 20;
/// Of routes that are added together.
const BURST: u32 = 10;
const BURST_WITHIN: Duration = Duration::from_millis(90);

impl Trial {
    pub(super) const ALL: [Self; 5] =
        [Self::Attach, Self::Memory, Self::Changes, Self::Gateways, Self::Probe];

    pub(super) fn is_for(self, rows: &[u8]) -> bool {
        let own: &[u8] = match self {
            Self::Changes => &[6, 7, 8],
            Self::Gateways => &[6],
            Self::Probe => &[9],
            Self::Attach => &[10],
            Self::Memory => &[13],
        };
        rows.is_empty() || rows.iter().any(|row| own.contains(row))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Changes => "changes among 5,000 routes",
            Self::Gateways => "a change among 1,000 Gateways",
            Self::Probe => "3,000 routes one by one, through an Envoy",
            Self::Attach => "1,000 routes at once",
            Self::Memory => "directories of 1,000, 5,000 and 20,000 routes",
        }
    }

    pub(super) fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Gateways | Self::Memory => &[Contender::Ours, Contender::Before],
            _ => &[Contender::Ours, Contender::Before, Contender::EnvoyGateway],
        }
    }

    pub(super) async fn measure(
        self,
        bench: &Bench,
        contender: Contender,
        results: &mut Results,
    ) -> Result<(), BenchError> {
        let part = if bench.brief { 10 } else { 1 };
        match self {
            Self::Changes => {
                let (apps, count) = (5_000 / part, CHANGES / part);
                let churn = bench.churn / part as u32;
                Changes { bench, contender, apps, count, churn, results }.measure().await
            }
            Self::Gateways => gateways(bench, contender, 1_000 / part, results).await,
            Self::Probe => probe::measure(bench, contender, bench.probes / part, results).await,
            Self::Attach => attach::measure(bench, contender, 1_000 / part, results).await,
            Self::Memory => memory::measure(bench, contender, part, results).await,
        }
    }
}

struct Changes<'a> {
    bench: &'a Bench,
    contender: Contender,
    apps: usize,
    /// How many times a change is made.
    count: usize,
    churn: Duration,
    results: &'a mut Results,
}

impl Changes<'_> {
    async fn measure(mut self) -> Result<(), BenchError> {
        let (few, settled_few) = self.among_few().await?;
        let world = World::imagined(self.apps, self.spare());
        let mut testbed = Testbed::start(self.bench, self.contender, world).await?;
        self.cold_start(&testbed).await?;
        let proxy = testbed.proxy().await?;
        testbed.until_quiet(Duration::from_secs(5)).await?;
        let before = translated(&testbed).await;
        let many = testbed.add_routes(&proxy, self.count).await?;
        let settled = since(before, translated(&testbed).await);
        self.record(vec![
            (Figure::RouteCpu, many.cpu * 1e6),
            (Figure::RouteTime, many.median()),
            (Figure::RouteBytes, many.bytes),
            (Figure::RouteGrowth, many.cpu / few.cpu),
        ]);
        if let (Some(many), Some(few)) = (settled, settled_few) {
            self.record(vec![(Figure::UnitsGrowth, many / few)]);
        }
        let responses = burst(&mut testbed, &proxy).await?;
        self.record(vec![(Figure::BurstResponses, responses)]);
        let moved = testbed.move_endpoints(&proxy, self.count).await?;
        let found =
            vec![(Figure::EndpointCpu, moved.cpu * 1e6), (Figure::EndpointTime, moved.median())];
        self.record(found);
        self.stored(&mut testbed).await?;
        let (cpu, memory) = churn::measure(&mut testbed, self.churn).await?;
        self.record(vec![(Figure::ChurnCpu, cpu), (Figure::ChurnMemory, memory)]);
        self.results.add_note(format!("row 8 lasted {:?}", self.churn));
        self.memory(&testbed)?;
        self.results.add_versions(self.contender, testbed.plane.versions().await);
        Ok(())
    }

    fn record(&mut self, found: Vec<(Figure, f64)>) {
        self.results.add(self.contender, found);
    }

    fn spare(&self) -> usize {
        self.count + BURST as usize + churn::ROUTES
    }

    /// The cost of a route among a tenth of all, and how much of the translation is computed again for it.
    async fn among_few(&self) -> Result<(testbed::Cost, Option<f64>), BenchError> {
        let world = World::imagined(self.apps / 10, self.spare());
        let mut testbed = Testbed::start(self.bench, self.contender, world).await?;
        let proxy = testbed.proxy().await?;
        testbed.until_quiet(Duration::from_secs(5)).await?;
        let before = translated(&testbed).await;
        let cost = testbed.add_routes(&proxy, self.count).await?;
        Ok((cost, since(before, translated(&testbed).await)))
    }

    /// From all objects known to the first snapshot in the store.
    async fn cold_start(&mut self, testbed: &Testbed) -> Result<(), BenchError> {
        let ControlPlane::Heliograph(ours) = &testbed.plane else { return Ok(()) };
        let mut watch = ours.store().watch();
        let published = async {
            loop {
                if let Notice::Fleet(_) = watch.next().await {
                    return Instant::now();
                }
            }
        };
        let (synced, published) = tokio::join!(
            ours.synced(CONTROL_PLANE_TIMEOUT),
            tokio::time::timeout(CONTROL_PLANE_TIMEOUT, published)
        );
        let published = published.map_err(|_| BenchError::Busy(CONTROL_PLANE_TIMEOUT))?;
        let took = published.saturating_duration_since(synced?).as_secs_f64();
        self.record(vec![(Figure::ColdStart, took)]);
        Ok(())
    }

    /// How long an endpoint takes into the store.
    async fn stored(&mut self, testbed: &mut Testbed) -> Result<(), BenchError> {
        let ControlPlane::Heliograph(ours) = &testbed.plane else { return Ok(()) };
        let mut watch = ours.store().watch();
        while !matches!(watch.next().await, Notice::Synced) {}
        let mut times = Vec::new();
        for _ in 0..self.count {
            let (app, backend) = testbed.next_move();
            let (path, change) = app.moved(backend);
            let begun = Instant::now();
            let published = tokio::time::timeout(CONTROL_PLANE_TIMEOUT, published(&mut *watch));
            let (changed, at) = tokio::join!(testbed.kubernetes.patch(&path, &change), published);
            changed?;
            let at = at.map_err(|_| BenchError::Busy(CONTROL_PLANE_TIMEOUT))?;
            times.push(at.duration_since(begun).as_secs_f64());
            testbed.until_quiet(Duration::from_millis(500)).await?;
        }
        times.sort_by(f64::total_cmp);
        let median = testbed::quantile(&times, 0.5);
        self.record(vec![(Figure::EndpointStored, median)]);
        Ok(())
    }

    fn memory(&mut self, testbed: &Testbed) -> Result<(), BenchError> {
        let ControlPlane::Heliograph(ours) = &testbed.plane else { return Ok(()) };
        let sample = Sampler::pids(ours.translator_pid()).sample(0, 0);
        let sample = sample.map_err(|_| BenchError::NoSample("what the translator uses"))?;
        self.record(vec![(Figure::TranslatorMemory, sample.memory() as f64)]);
        Ok(())
    }
}

async fn published(watch: &mut dyn Watch) -> Instant {
    while !matches!(watch.next().await, Notice::Fleet(_)) {}
    Instant::now()
}

/// How many units of translation were computed, of ours.
async fn translated(testbed: &Testbed) -> Option<f64> {
    let ControlPlane::Heliograph(ours) = &testbed.plane else { return None };
    ours.metric("heliograph_translator_work_total").await
}

fn since(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(after? - before?)
}

/// In how many responses with route tables ten routes come that are added together.
async fn burst(testbed: &mut Testbed, proxy: &Proxy) -> Result<f64, BenchError> {
    let apps: Vec<_> = (0..BURST).map(|_| testbed.next_app()).collect();
    let last = apps.last().map(|app| app.host()).unwrap_or_default();
    proxy.look_for(ResourceType::Route, last);
    let (begun, kubernetes) = (tokio::time::Instant::now(), &testbed.kubernetes);
    let creating = apps.into_iter().zip(0..).map(|(app, number): (App, u32)| async move {
        tokio::time::sleep_until(begun + BURST_WITHIN / (BURST - 1) * number).await;
        let (path, route) = app.route(GATEWAY, app);
        kubernetes.create(&path, &route).await
    });
    try_join_all(creating).await?;
    proxy.found(CONTROL_PLANE_TIMEOUT).await?;
    testbed.until_quiet(Duration::from_secs(3)).await?;
    Ok(proxy.observed().tables as f64)
}

/// How many fleets are published when a route of one of many Gateways changes.
async fn gateways(
    bench: &Bench,
    contender: Contender,
    count: usize,
    results: &mut Results,
) -> Result<(), BenchError> {
    const ROUTES: usize = 10;
    let mut testbed = Testbed::start(bench, contender, World::imagined(0, 0)).await?;
    testbed.kubernetes.create_all(objects::namespaces_of_apps(count * ROUTES)).await?;
    let name = |gateway: usize| format!("gateway-{gateway}");
    let gateways = (0..count).map(|gateway| objects::gateway(&name(gateway), 10_080));
    testbed.kubernetes.create_all(gateways).await?;
    // One Service for all in a namespace: there are enough objects.
    let services = (0..count * ROUTES).step_by(objects::APPS);
    let services = services.flat_map(|app| App(app).service(objects::Backend::Imagined(0)));
    testbed.kubernetes.create_all(services).await?;
    let routes = (0..count * ROUTES).map(App);
    let routes = routes.map(|app| app.route(&name(app.0 / ROUTES), app.first_of_namespace()));
    testbed.kubernetes.create_all(routes).await?;
    testbed.until_quiet(Duration::from_secs(10)).await?;
    let ControlPlane::Heliograph(ours) = &testbed.plane else { return Ok(()) };
    let mut watch = ours.store().watch();
    while !matches!(watch.next().await, Notice::Synced) {}
    let app = App(count * ROUTES / 2);
    let path = format!("{}/{}", app.routes(), app.name());
    let change = serde_json::json!({ "spec": { "hostnames": ["other.example.com"] } });
    testbed.kubernetes.patch(&path, &change).await?;
    let mut touched = BTreeSet::new();
    let quiet = Duration::from_secs(5);
    while let Ok(notice) = tokio::time::timeout(quiet, watch.next()).await {
        if let Notice::Fleet(record) = notice {
            touched.insert(record.fleet.clone());
        }
    }
    results.add(contender, vec![(Figure::TouchedFleets, touched.len() as f64)]);
    Ok(())
}
