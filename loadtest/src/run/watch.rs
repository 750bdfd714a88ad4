use super::reports::WorkerReports;
use heliograph_report::{Sample, SampleError, Sampler, Watched, total};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::SystemTime;

/// Looks at what servers and clients use, now and then and when asked to.
#[derive(Debug)]
pub(super) struct Watch {
    reports: Arc<WorkerReports>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    servers: Vec<Server>,
    clients: Server,
}

#[derive(Clone, Debug)]
struct Server {
    sampler: Arc<Mutex<Sampler>>,
    watched: Watched,
    /// One that is not there for a moment is no mistake.
    away: bool,
    /// It does not come back.
    gone: bool,
}

impl Watch {
    pub(super) fn new(
        reports: Arc<WorkerReports>,
        servers: Vec<(String, Sampler)>,
        clients: Vec<u32>,
    ) -> Self {
        let servers = servers.into_iter().map(|(name, sampler)| Server::new(name, sampler));
        let mut clients = Server::new("clients".to_owned(), Sampler::pids(clients));
        // Other code reports that a worker has ended, with more detail.
        clients.away = true;
        let seen = Seen { servers: servers.collect(), clients };
        Self { reports, seen: Mutex::new(seen) }
    }

    /// Looks at all servers at once. The sum, if all are there and there is any.
    pub(super) async fn sample(self: &Arc<Self>) -> Result<Option<Sample>, SampleError> {
        let at = unix_ms();
        let streams = self.reports.totals().up as u64;
        let samplers: Vec<_> = {
            let seen = self.seen();
            let all = seen.servers.iter().chain([&seen.clients]);
            all.map(|server| server.sampler.clone()).collect()
        };
        // The kernel takes its time to add up the memory of a large process.
        let sampled = tokio::task::spawn_blocking(move || {
            let sample = |sampler: &Arc<Mutex<Sampler>>| sampler.lock().sample(at, streams);
            samplers.iter().map(sample).collect::<Vec<_>>()
        });
        let samples = sampled.await.unwrap_or_default();
        let mut seen = self.seen();
        let Seen { servers, clients } = &mut *seen;
        for (server, sample) in servers.iter_mut().chain([clients]).zip(samples) {
            match sample {
                Ok(sample) => server.push(sample),
                Err(SampleError::Gone(_)) if server.gone => server.rest(at, streams),
                Err(SampleError::Gone(_)) if server.away => {}
                Err(error) => return Err(error),
            }
        }
        let now = total(&watched(servers));
        // A look that began later may have ended before: what it saw is as good.
        Ok(now.last().filter(|sample| sample.at_ms >= at).copied())
    }

    /// A server will not be there for a moment.
    pub(super) fn leaves(&self, name: &str) {
        self.each(name, |server| server.away = true);
    }

    /// A server will not come back. Its usage stays counted.
    pub(super) fn retires(&self, name: &str) {
        self.each(name, |server| server.gone = true);
    }

    /// It is there again, as another process.
    pub(super) fn returns(&self, name: &str, old: u32, new: u32) {
        self.each(name, |server| {
            server.away = false;
            server.sampler.lock().replace(old, new);
        });
    }

    /// Another server. Before it was there it used nothing.
    pub(super) fn add(&self, name: String, sampler: Sampler) {
        let mut seen = self.seen();
        let mut server = Server::new(name, sampler);
        let moments = seen.servers.first().map(|first| first.watched.samples().to_vec());
        for Sample { at_ms, streams, .. } in moments.unwrap_or_default() {
            let nothing =
                Sample { at_ms, streams, pss: Some(0), open_files: Some(0), ..Sample::default() };
            server.watched.push(nothing);
        }
        seen.servers.push(server);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.seen().servers.iter().map(|server| server.watched.name.clone()).collect()
    }

    pub(super) fn servers(&self) -> Vec<Watched> {
        watched(&self.seen().servers)
    }

    pub(super) fn clients(&self) -> Watched {
        self.seen().clients.watched.clone()
    }

    fn each(&self, name: &str, change: impl Fn(&mut Server)) {
        let mut seen = self.seen();
        seen.servers.iter_mut().filter(|server| server.watched.name == name).for_each(change);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}

impl Server {
    fn new(name: String, sampler: Sampler) -> Self {
        let sampler = Arc::new(Mutex::new(sampler));
        Self { sampler, watched: Watched::new(name), away: false, gone: false }
    }

    /// As it is after it has ended.
    fn rest(&mut self, at_ms: u64, streams: u64) {
        let before = self.watched.samples().last().copied().unwrap_or_default();
        let (pss, rss, open_files) = (Some(0), 0, Some(0));
        self.push(Sample { at_ms, streams, pss, rss, open_files, ..before });
    }

    /// Two looks that overlap may end in the other order.
    fn push(&mut self, sample: Sample) {
        if self.watched.samples().last().is_none_or(|last| last.at_ms < sample.at_ms) {
            self.watched.push(sample);
        }
    }
}

fn watched(servers: &[Server]) -> Vec<Watched> {
    servers.iter().map(|server| server.watched.clone()).collect()
}

pub(super) fn unix_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_comes_later_used_nothing_before() {
        let me = std::process::id();
        let reports = Arc::new(WorkerReports::new(1));
        let servers = vec![("one".to_owned(), Sampler::pids([me]))];
        let watch = Arc::new(Watch::new(reports, servers, vec![me]));
        let first = watch.sample().await.unwrap().unwrap();
        watch.add("two".to_owned(), Sampler::pids([me]));
        assert_eq!(total(&watch.servers()), [first]);
        assert_eq!(watch.names(), ["one", "two"]);
    }

    #[tokio::test]
    async fn a_sample_that_is_overtaken_by_another_still_sees() {
        let me = std::process::id();
        let servers = vec![("one".to_owned(), Sampler::pids([me]))];
        let watch = Arc::new(Watch::new(Arc::new(WorkerReports::new(1)), servers, vec![me]));
        let later = Sample { at_ms: unix_ms() + 60_000, ..Sample::default() };
        watch.each("one", |server| server.push(later));
        assert_eq!(watch.sample().await.unwrap(), Some(later));
    }

    #[tokio::test]
    async fn a_server_that_is_gone_is_a_mistake_unless_it_is_being_restarted() {
        let nobody = u32::MAX;
        let reports = Arc::new(WorkerReports::new(1));
        let servers = vec![("one".to_owned(), Sampler::pids([nobody]))];
        let watch = Arc::new(Watch::new(reports, servers, vec![nobody]));
        assert!(matches!(watch.sample().await, Err(SampleError::Gone(_))));
        watch.leaves("one");
        assert_eq!(watch.sample().await.unwrap(), None);
        watch.returns("one", nobody, std::process::id());
        assert!(watch.sample().await.unwrap().is_some());
    }
}
