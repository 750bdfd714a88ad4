use super::order::{Begin, ClientTotals, Excuse, Spread, StreamFailure};
use super::publish_log::PublishLog;
use super::tracker::ClientTracker;
use super::watcher::Watcher;
use crate::population::{Conduct, Population};
use crate::scenario::Share;
use crate::security::Security;
use crate::workload::{Schedule, Update, Workload};
use heliograph_checker::Violation;
use heliograph_client::{Backoff, Crowd, Member, Server};
use heliograph_report::Figures;
use heliograph_snapshot::{FleetName, Head};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The clients of a worker, and all that is known of them.
pub(super) struct Crew {
    worker: usize,
    spread: Spread,
    security: Security,
    log: Arc<PublishLog>,
    tracker: Arc<ClientTracker>,
    crowd: Arc<Crowd<Watcher, ClientTracker>>,
    recruits: Arc<Mutex<Recruits>>,
}

/// The clients that connect next.
struct Recruits {
    population: Population,
    fleets: Vec<FleetName>,
    /// How many of the population have been looked at.
    seen: usize,
}

impl Crew {
    pub(super) fn new(begin: Begin) -> anyhow::Result<Self> {
        let base: Head = begin.base.parse()?;
        let workload = Workload::new(&begin.resources, begin.fleets);
        let (names, fleets) = match begin.fleet {
            Some(name) => {
                let fleet = name.parse().unwrap_or_else(|_| FleetName::new("fleet", &name));
                (vec![name], vec![fleet])
            }
            None => {
                let fleets = workload.fleets().to_vec();
                (fleets.iter().map(ToString::to_string).collect(), fleets)
            }
        };
        let log = Arc::new(PublishLog::new(workload, begin.knowledge, base));
        let tracker = Arc::new(ClientTracker::new(log.clone()));
        let servers = servers(&begin.security, &begin.servers)?;
        let streams = begin.streams_per_connection;
        let crowd = Crowd::new(servers, streams, Backoff::default(), tracker.clone());
        let population = Population::new(begin.population, begin.protocols, names);
        Ok(Self {
            worker: begin.worker,
            spread: begin.spread,
            security: begin.security,
            log,
            tracker,
            crowd: Arc::new(crowd),
            recruits: Arc::new(Mutex::new(Recruits { population, fleets, seen: 0 })),
        })
    }

    /// Returns at once; clients arrive by and by.
    pub(super) fn connect(&self, clients: usize, rate: Option<f64>) {
        let (worker, spread) = (self.worker, self.spread);
        let (log, tracker, crowd) = (self.log.clone(), self.tracker.clone(), self.crowd.clone());
        let recruits = self.recruits.clone();
        let next = move || {
            let mut recruits = recruits.lock();
            while recruits.seen < clients {
                let number = recruits.seen;
                recruits.seen += 1;
                let Some(person) = recruits.population.next() else { return false };
                if spread.worker_of(number) != worker {
                    continue;
                }
                let Some(fleet) = recruits.fleets.get(person.fleet).cloned() else { return false };
                tracker.arrive(person.name.clone(), person.fleet, person.conduct.clone());
                crowd.add(Member {
                    name: person.name,
                    node: person.node,
                    protocol: person.protocol,
                    server: number,
                    conduct: (&person.conduct).into(),
                    follower: Watcher::new(log.clone(), person.fleet, fleet),
                });
                return true;
            }
            false
        };
        tokio::spawn(at_pace(rate, next));
    }

    pub(super) fn expect(&self, updates: &[Update]) {
        self.log.expect(updates);
    }

    pub(super) fn schedule(&self, schedule: Schedule) {
        self.log.schedule(schedule);
    }

    /// Returns at once.
    pub(super) fn reconnect(&self, share: Share, over: Duration) {
        let crowd = self.crowd.clone();
        let mut chosen = self.chosen(share).into_iter();
        let rate = chosen.len() as f64 / over.as_secs_f64();
        let next = move || match chosen.next() {
            Some(client) => {
                crowd.reconnect(client..client + 1);
                true
            }
            None => false,
        };
        tokio::spawn(at_pace(Some(rate).filter(|rate| rate.is_finite()), next));
    }

    pub(super) fn behave(&self, share: Share, conduct: &Conduct) {
        for client in self.chosen(share) {
            self.tracker.behave(client, conduct);
            self.crowd.behave(client..client + 1, conduct.into());
        }
    }

    pub(super) fn set_servers(&self, addresses: &[String]) -> anyhow::Result<()> {
        self.crowd.set_servers(servers(&self.security, addresses)?);
        Ok(())
    }

    pub(super) fn excuse(&self, excuse: Excuse) {
        self.tracker.excuse(excuse);
    }

    pub(super) fn totals(&self) -> ClientTotals {
        self.tracker.totals()
    }

    pub(super) fn figures(&self) -> Figures {
        self.tracker.figures()
    }

    pub(super) fn failures(&self) -> Vec<StreamFailure> {
        self.tracker.failures()
    }

    /// Examples of what the checker found since the last time; all is counted in the figures.
    pub(super) fn found(&self) -> Vec<String> {
        let (counts, texts) = self.log.found();
        self.tracker.count(&counts);
        texts
    }

    pub(super) fn record(&self, violations: Vec<Violation>) {
        self.log.record(violations);
    }

    /// The violations in the states of clients: each state is checked once, for all clients that share it.
    pub(super) fn violations_at_the_end(&self) -> Vec<Violation> {
        let mut states = HashSet::new();
        let mut violations = Vec::new();
        for client in 0..self.crowd.members() {
            let Some(state) = self.crowd.state(client) else { continue };
            if self.tracker.is_excused(client) || !states.insert(Arc::as_ptr(&state)) {
                continue;
            }
            violations.extend(self.log.end(state.follower().proxy(), &self.tracker.name(client)));
        }
        violations
    }

    /// Spread over all.
    fn chosen(&self, share: Share) -> Vec<usize> {
        let all = self.crowd.members();
        let count = share.of(all);
        (0..count).map(|at| at * all / count).collect()
    }
}

/// Does it so often a second, or as often as it can, until there is no more to do.
async fn at_pace(rate: Option<f64>, mut next: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut done = 0_u32;
    while next() {
        done = done.saturating_add(1);
        match rate {
            Some(rate) => {
                let due = Duration::try_from_secs_f64(f64::from(done) / rate);
                tokio::time::sleep_until(start + due.unwrap_or_default()).await;
            }
            None => tokio::task::yield_now().await,
        }
    }
}

fn servers(security: &Security, addresses: &[String]) -> anyhow::Result<Vec<Server>> {
    addresses.iter().map(|address| security.server(address)).collect()
}
