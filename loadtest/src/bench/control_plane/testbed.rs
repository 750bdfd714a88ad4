use super::objects::{self, App, Backend, GATEWAY};
use super::proxy::Proxy;
use crate::bench::{Bench, BenchError, Contender};
use crate::servers::{
    ControlPlane, ENVOY_GATEWAY, EnvoyGateway, HELIOGRAPH, Kubernetes, ObjectSource, Ours,
};
use heliograph_report::{Sample, Sampler};
use heliograph_snapshot::ResourceType;
use std::time::{Duration, Instant};

/// A control plane over an API, with what is known of its costs.
pub(super) struct Testbed {
    // Before the API that it would miss.
    pub(super) plane: ControlPlane,
    pub(super) kubernetes: Kubernetes,
    sampler: Sampler,
    /// The first application that has no route.
    next: usize,
    /// How often endpoints have moved: each time to addresses that nothing had before.
    moves: u8,
    idle_for: Duration,
}

/// The objects before the control plane starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    /// With a Service, endpoints and a route.
    pub(super) apps: usize,
    /// With a Service and endpoints, for routes that come later.
    pub(super) spare: usize,
    pub(super) backend: Backend,
    /// Of the Gateway's listener.
    pub(super) port: u16,
}

/// The average cost of some changes, and the time of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    /// Seconds of CPU.
    pub(super) cpu: f64,
    /// Seconds, in order.
    pub(super) times: Vec<f64>,
    /// Sent to a proxy.
    pub(super) bytes: f64,
}

/// Long enough for the slowest; nothing waits for it but one that hangs.
pub(super) const CONTROL_PLANE_TIMEOUT: Duration = Duration::from_secs(600);
/// A control plane that used less than this part of a core for so long has nothing left to do.
pub(super) const QUIET: f64 = 0.1;
const QUIET_FOR: Duration = Duration::from_secs(3);
/// Between two changes.
const CALM_FOR: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long its usage is measured without changes: as long as some changes take, from whose usage it is subtracted.
const IDLE: Duration = Duration::from_secs(30);

impl World {
    pub(super) fn imagined(apps: usize, spare: usize) -> Self {
        Self { apps, spare, backend: Backend::Imagined(0), port: 10_080 }
    }
}

impl Testbed {
    /// Fills an API, and starts a control plane over it.
    pub(super) async fn start(
        bench: &Bench,
        contender: Contender,
        world: World,
    ) -> Result<Self, BenchError> {
        let kubernetes = Kubernetes::start(&bench.programs, bench.clients_cpu).await?;
        let World { apps, spare, backend, port } = world;
        kubernetes.create_all(objects::namespaces(apps + spare)).await?;
        let controller =
            if contender == Contender::EnvoyGateway { ENVOY_GATEWAY } else { HELIOGRAPH };
        kubernetes.create_all([objects::class(controller)]).await?;
        kubernetes.create_all([objects::gateway(GATEWAY, port)]).await?;
        let services = (0..apps + spare).flat_map(|app| App(app).service(backend));
        kubernetes.create_all(services).await?;
        let routes = (0..apps).map(|app| App(app).route(GATEWAY, App(app)));
        kubernetes.create_all(routes).await?;
        Self::over(kubernetes, bench, contender, apps).await
    }

    pub(super) async fn over(
        kubernetes: Kubernetes,
        bench: &Bench,
        contender: Contender,
        apps: usize,
    ) -> Result<Self, BenchError> {
        let (programs, cpu) = (bench.programs_of(contender), bench.server_cpu);
        let plane = if contender == Contender::EnvoyGateway {
            let started = EnvoyGateway::start(programs, &kubernetes, cpu).await?;
            ControlPlane::EnvoyGateway(Box::new(started))
        } else {
            let started = Ours::start(programs, ObjectSource::Api(&kubernetes), cpu).await?;
            ControlPlane::Heliograph(Box::new(started))
        };
        let sampler = Sampler::pids(plane.pids());
        let idle_for = if bench.brief { IDLE / 10 } else { IDLE };
        Ok(Self { plane, kubernetes, sampler, next: apps, moves: 0, idle_for })
    }

    pub(super) async fn proxy(&self) -> Result<Proxy, BenchError> {
        let (address, security) = (self.plane.address(), self.plane.security());
        Proxy::connect(&address, &security, &objects::fleet(GATEWAY), CONTROL_PLANE_TIMEOUT).await
    }

    /// So many routes, one after the other.
    pub(super) async fn add_routes(
        &mut self,
        proxy: &Proxy,
        count: usize,
    ) -> Result<Cost, BenchError> {
        let change = async |testbed: &mut Self| {
            let app = testbed.next_app();
            let (path, route) = app.route(GATEWAY, app);
            proxy.look_for(ResourceType::Route, app.host());
            let begun = Instant::now();
            testbed.kubernetes.create(&path, &route).await?;
            Ok(begun)
        };
        self.cost(proxy, count, change).await
    }

    /// The endpoints of so many Services, one after the other.
    pub(super) async fn move_endpoints(
        &mut self,
        proxy: &Proxy,
        count: usize,
    ) -> Result<Cost, BenchError> {
        let change = async |testbed: &mut Self| {
            let (app, backend) = testbed.next_move();
            let (path, change) = app.moved(backend);
            proxy.look_for(ResourceType::Endpoints, app.address(backend).to_string());
            let begun = Instant::now();
            testbed.kubernetes.patch(&path, &change).await?;
            Ok(begun)
        };
        self.cost(proxy, count, change).await
    }

    async fn cost(
        &mut self,
        proxy: &Proxy,
        count: usize,
        change: impl AsyncFn(&mut Self) -> Result<Instant, BenchError>,
    ) -> Result<Cost, BenchError> {
        let idle = self.idle().await?;
        let (before, begun) = (self.sample()?, Instant::now());
        let mut cost = Cost::default();
        for _ in 0..count {
            let changed = change(self).await?;
            let (_, found) = proxy.found(CONTROL_PLANE_TIMEOUT).await?;
            cost.times.push(found.duration_since(changed).as_secs_f64());
            self.until_quiet(CALM_FOR).await?;
            // What belongs to the change may come after what was looked for.
            cost.bytes += proxy.observed().bytes as f64;
        }
        self.until_quiet(QUIET_FOR).await?;
        let used = (self.sample()?.cpu_us - before.cpu_us) as f64 / 1e6;
        let own = used - idle * begun.elapsed().as_secs_f64();
        cost.cpu = own.max(0.0) / count as f64;
        cost.bytes /= count as f64;
        cost.times.sort_by(f64::total_cmp);
        Ok(cost)
    }

    /// An application with a Service and without a route, which is to get one.
    pub(super) fn next_app(&mut self) -> App {
        self.next += 1;
        App(self.next - 1)
    }

    /// An application, and where its endpoints are to be.
    pub(super) fn next_move(&mut self) -> (App, Backend) {
        self.moves = if self.moves == u8::MAX { 1 } else { self.moves + 1 };
        // Spread over all of them.
        let app = usize::from(self.moves) * 37 % self.next.max(1);
        (App(app), Backend::Imagined(self.moves))
    }

    /// The part of a core that it uses when nothing happens.
    async fn idle(&mut self) -> Result<f64, BenchError> {
        self.until_quiet(QUIET_FOR).await?;
        let (before, begun) = (self.sample()?, Instant::now());
        tokio::time::sleep(self.idle_for).await;
        let used = (self.sample()?.cpu_us - before.cpu_us) as f64 / 1e6;
        Ok(used / begun.elapsed().as_secs_f64())
    }

    /// Waits until it has had nothing to do for so long.
    pub(super) async fn until_quiet(&mut self, calm: Duration) -> Result<(), BenchError> {
        let begun = Instant::now();
        let (mut since, mut last) = (Instant::now(), Instant::now());
        let mut before = self.sample()?.cpu_us;
        while since.elapsed() < calm {
            tokio::time::sleep(POLL_INTERVAL).await;
            let used = self.sample()?.cpu_us;
            let share = (used - before) as f64 / last.elapsed().as_micros() as f64;
            (before, last) = (used, Instant::now());
            if share > QUIET {
                since = Instant::now();
            }
            if begun.elapsed() > CONTROL_PLANE_TIMEOUT {
                return Err(BenchError::Busy(CONTROL_PLANE_TIMEOUT));
            }
        }
        Ok(())
    }

    pub(super) fn sample(&mut self) -> Result<Sample, BenchError> {
        self.sampler.sample(0, 0).map_err(|_| BenchError::NoSample("what the control plane uses"))
    }
}

impl Cost {
    pub(super) fn median(&self) -> f64 {
        quantile(&self.times, 0.5)
    }
}

/// Of values in order.
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * part).round() as usize).copied().unwrap_or_default()
}
