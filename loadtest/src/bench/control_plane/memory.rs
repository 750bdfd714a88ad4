use super::objects::{self, App};
use super::testbed::{CONTROL_PLANE_TIMEOUT, QUIET};
use crate::bench::{Bench, BenchError, Contender, Figure, Results};
use crate::servers::{HELIOGRAPH, ObjectSource, Ours, ServersError};
use heliograph_report::{Sample, Sampler};
use std::path::Path;
use std::time::{Duration, Instant};

/// How many routes there are, each with a Service and an EndpointSlice.
const ROUTES: [usize; 3] = [1_000, 5_000, 20_000];
/// Of the routes.
const NAMESPACES: usize = 50;
const PORT: u16 = 10_080;
/// A file provider walks through its directory every few seconds. So long that this does not look like work.
const IDLE_FOR: Duration = Duration::from_secs(10);

/// The memory of a translator that has published all routes of a directory, and what one more route adds.
pub(super) async fn measure(
    bench: &Bench,
    contender: Contender,
    part: usize,
    results: &mut Results,
) -> Result<(), BenchError> {
    let mut points = Vec::new();
    for routes in ROUTES {
        let memory = memory(bench, contender, routes / part).await? as f64;
        results.add(contender, vec![(Figure::DirectoryMemory(routes), memory)]);
        points.push(((routes / part) as f64, memory));
    }
    if let (Some((few, least)), Some((many, most))) = (points.first(), points.last()) {
        let slope = (most - least) / (many - few);
        results.add(contender, vec![(Figure::RouteMemory, slope)]);
    }
    Ok(())
}

/// In bytes.
async fn memory(bench: &Bench, contender: Contender, routes: usize) -> Result<u64, BenchError> {
    let failed = |cause| ServersError::Prepare { path: std::env::temp_dir(), cause };
    let directory = tempfile::Builder::new().prefix("loadtest-").tempdir().map_err(failed)?;
    fill(directory.path(), routes)?;
    let source = ObjectSource::Directory(directory.path());
    let ours = Ours::start(bench.programs_of(contender), source, bench.server_cpu).await?;
    ours.synced(CONTROL_PLANE_TIMEOUT).await?;
    let mut sampler = Sampler::pids(ours.translator_pid());
    let window = if bench.brief { IDLE_FOR / 10 } else { IDLE_FOR };
    until_idle(&ours, &mut sampler, routes, window).await?;
    Ok(sample(&mut sampler)?.memory())
}

/// A file for each route, and one for their Gateway.
fn fill(directory: &Path, routes: usize) -> Result<(), ServersError> {
    let write = |name: String, text: String| {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|cause| ServersError::Prepare { path, cause })
    };
    write("gateway.yaml".to_owned(), objects::gateway_manifests(HELIOGRAPH, PORT))?;
    for app in 0..routes {
        let namespace = format!("apps-{}", app % NAMESPACES);
        write(format!("{}.yaml", App(app).name()), App(app).manifests(&namespace))?;
    }
    Ok(())
}

/// How far a translator is, as its metrics say.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Progress {
    /// Objects that were read.
    objects: f64,
    units: f64,
    publishes: f64,
    fleets: f64,
    pending: f64,
}

impl Progress {
    async fn of(ours: &Ours) -> Option<Self> {
        Some(Self {
            objects: ours.metric("heliograph_translator_events_total").await?,
            units: ours.metric("heliograph_translator_work_total").await?,
            publishes: ours.metric("heliograph_translator_publishes_total").await?,
            fleets: ours.metric("heliograph_translator_fleets").await?,
            pending: ours.metric("heliograph_translator_pending_fleets").await?,
        })
    }

    /// Whether all that follows from so many routes is in the store.
    fn is_published(self, routes: usize) -> bool {
        // With the class and the Gateway.
        let objects = (3 * routes + 2) as f64;
        self.objects >= objects && self.fleets >= 1.0 && self.pending == 0.0
    }
}

/// Waits until everything is published, and the translator has done nothing for so long.
async fn until_idle(
    ours: &Ours,
    sampler: &mut Sampler,
    routes: usize,
    window: Duration,
) -> Result<(), BenchError> {
    let begun = Instant::now();
    let mut before = Progress::of(ours).await;
    while begun.elapsed() < CONTROL_PLANE_TIMEOUT {
        let (since, used_before) = (Instant::now(), sample(sampler)?.cpu_us);
        tokio::time::sleep(window).await;
        let used = (sample(sampler)?.cpu_us - used_before) as f64;
        let is_quiet = used <= QUIET * since.elapsed().as_micros() as f64;
        let now = Progress::of(ours).await;
        if is_quiet && now == before && now.is_some_and(|it| it.is_published(routes)) {
            return Ok(());
        }
        before = now;
    }
    Err(BenchError::Busy(CONTROL_PLANE_TIMEOUT))
}

fn sample(sampler: &mut Sampler) -> Result<Sample, BenchError> {
    sampler.sample(0, 0).map_err(|_| BenchError::NoSample("what the translator uses"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::Message;
    use heliograph_envoy::envoy::config::endpoint::v3::ClusterLoadAssignment;
    use heliograph_gateway::World;
    use heliograph_snapshot::ResourceType;
    use heliograph_translator::provider::file::{read_once, refuse_faults};

    #[test]
    fn every_file_is_a_route_with_two_endpoints_of_its_own() {
        const APPS: usize = NAMESPACES + 10;
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path(), APPS).unwrap();
        let read = read_once(&[directory.path().to_owned()]).unwrap();
        refuse_faults(&read.remarks).unwrap();
        assert_eq!(read.events.len(), 3 * APPS + 2);
        let mut world = World::new();
        read.events.into_iter().for_each(|event| world.apply(event));
        world.settle();
        let problems: Vec<_> = world.problems().map(|problem| format!("{problem:?}")).collect();
        assert_eq!(problems, [""; 0]);
        let fleet = objects::fleet(objects::GATEWAY).parse().unwrap();
        let (mut clusters, mut endpoints) = (0, Vec::new());
        for (kind, resource) in world.resources(&fleet) {
            clusters += usize::from(kind == ResourceType::Cluster);
            if kind == ResourceType::Endpoints {
                let assignment = ClusterLoadAssignment::decode(&*resource.body).unwrap();
                let localities = assignment.endpoints.iter();
                endpoints.push(localities.map(|it| it.lb_endpoints.len()).sum::<usize>());
            }
        }
        assert_eq!((clusters, endpoints), (APPS, vec![2; APPS]));
    }
}
