use super::order::{ClientTotals, Excuse, StreamFailure};
use super::publish_log::{PublishLog, Tally};
use super::watcher::Watcher;
use crate::population::Conduct;
use heliograph_client::{Ended, Observer, Transition};
use heliograph_report::{Figures, ReceivedResponse, RequestKind};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Records everything that happens to the clients of a worker.
#[derive(Debug)]
pub(super) struct ClientTracker {
    log: Arc<PublishLog>,
    /// The same moment on both clocks.
    origin: (Instant, SystemTime),
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    figures: Figures,
    clients: Vec<Client>,
    excuse: Excuse,
    /// How often each kind of failure was reported.
    counts: BTreeMap<&'static str, usize>,
    failures: Vec<StreamFailure>,
}

#[derive(Debug)]
struct Client {
    name: Arc<str>,
    fleet: usize,
    conduct: Conduct,
    /// When it began to connect for the first time.
    began: Instant,
    /// When it began to, this time.
    since: Instant,
    up: bool,
    warm: bool,
    /// The changes up to these were received and answered.
    received: u32,
    answered: u32,
}

/// How many failures of each kind are reported.
const EXAMPLES: usize = 3;

const UNAVAILABLE: &str = "unavailable";

impl ClientTracker {
    pub(super) fn new(log: Arc<PublishLog>) -> Self {
        let origin = (Instant::now(), SystemTime::now());
        Self { log, origin, records: Mutex::default() }
    }

    /// A client begins to connect. Clients are numbered in this order.
    pub(super) fn arrive(&self, name: Arc<str>, fleet: usize, conduct: Conduct) {
        self.records().clients.push(Client::new(name, fleet, conduct, Instant::now()));
    }

    pub(super) fn behave(&self, client: usize, conduct: &Conduct) {
        if let Some(client) = self.records().clients.get_mut(client) {
            client.conduct = conduct.clone();
        }
    }

    pub(super) fn excuse(&self, excuse: Excuse) {
        self.records().excuse = excuse;
    }

    pub(super) fn is_excused(&self, client: usize) -> bool {
        self.records().clients.get(client).is_some_and(|client| client.conduct.is_excused())
    }

    pub(super) fn name(&self, client: usize) -> Arc<str> {
        self.records().clients.get(client).map(|client| client.name.clone()).unwrap_or_default()
    }

    pub(super) fn totals(&self) -> ClientTotals {
        let last = self.log.last();
        let records = self.records();
        let mut totals = ClientTotals {
            clients: records.clients.len(),
            opened: records.figures.counters.opened,
            responses: records.figures.counters.responses,
            ..ClientTotals::default()
        };
        for client in &records.clients {
            totals.up += usize::from(client.up);
            totals.warm += usize::from(client.warm);
            let last = last.get(client.fleet).copied().unwrap_or(0);
            let lacks = match &client.conduct {
                conduct if conduct.is_excused() => false,
                conduct if conduct.takes_everything() => {
                    !client.up || !client.warm || client.answered < last
                }
                _ => !client.up,
            };
            totals.lacking += usize::from(lacks);
        }
        totals
    }

    /// All since the start.
    pub(super) fn figures(&self) -> Figures {
        self.records().figures.clone()
    }

    pub(super) fn count(&self, violations: &Tally) {
        let mut records = self.records();
        violations.iter().for_each(|(kind, count)| records.figures.violations.add_n(kind, *count));
    }

    /// Since the last time.
    pub(super) fn failures(&self) -> Vec<StreamFailure> {
        std::mem::take(&mut self.records().failures)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }

    fn time(&self, at: Instant) -> SystemTime {
        self.origin.1 + at.saturating_duration_since(self.origin.0)
    }

    fn second(&self, at: Instant) -> u64 {
        let since = self.time(at).duration_since(SystemTime::UNIX_EPOCH);
        since.unwrap_or_default().as_secs()
    }

    /// The changes that have come to a client beyond `known`, and how late each is. Only of one that was warm: what a
    /// client receives at first is no push.
    fn pushes(&self, client: &Client, known: u32, had: u32, at: Instant) -> Vec<(u32, Duration)> {
        if !client.warm || had <= known {
            return Vec::new();
        }
        self.log.late(client.fleet, known + 1..=had, self.time(at))
    }
}

impl Observer<Watcher> for ClientTracker {
    fn connected(&self, member: usize) {
        let now = Instant::now();
        let mut records = self.records();
        let Some(client) = records.clients.get_mut(member) else { return };
        let took = client.connected(now);
        records.figures.opened(self.second(now), took);
    }

    fn received(&self, member: usize, step: &Transition<Watcher>, bytes: usize, at: Instant) {
        let (second, had) = (self.second(at), step.to.follower().had());
        let mut records = self.records();
        let Records { figures, clients, .. } = &mut *records;
        let Some(client) = clients.get_mut(member) else { return };
        let (resources, resent) = (step.resources as u64, step.resent as u64);
        figures.received(second, ReceivedResponse { bytes: bytes as u64, resources, resent });
        for (_, late) in self.pushes(client, client.received, had, at) {
            figures.receipt(late);
        }
        client.received = client.received.max(had);
    }

    fn asked(&self, _: usize, bytes: usize, at: Instant) {
        self.records().figures.sent(self.second(at), bytes as u64, RequestKind::Ask);
    }

    fn answered(&self, member: usize, step: &Transition<Watcher>, bytes: usize, at: Instant) {
        let (second, had) = (self.second(at), step.to.follower().had());
        let mut records = self.records();
        let Records { figures, clients, .. } = &mut *records;
        let Some(client) = clients.get_mut(member) else { return };
        let answer = if step.accepted { RequestKind::Ack } else { RequestKind::Nack };
        figures.sent(second, bytes as u64, answer);
        for (number, late) in self.pushes(client, client.answered, had, at) {
            figures.answered(number, late);
        }
        client.answered = client.answered.max(had);
        if let Some(took) = client.answered_at(step.to.is_warm(), at) {
            figures.first_state(second, took);
        }
    }

    fn ended(&self, member: usize, how: &Ended) {
        let now = Instant::now();
        let second = self.second(now);
        let mut records = self.records();
        let Records { figures, clients, excuse, counts, failures } = &mut *records;
        let Some(client) = clients.get_mut(member) else { return };
        let was_up = client.ended(now);
        if was_up {
            figures.closed(second);
        }
        if matches!(how, Ended::Requested) {
            return;
        }
        let (kind, lasting) = describe(how);
        let is_excused = match excuse {
            Excuse::Nothing => false,
            Excuse::SentAway => kind == UNAVAILABLE,
            Excuse::Anything => true,
        };
        match (was_up, is_excused || client.conduct.is_excused()) {
            (true, true) => return,
            (false, true) => return figures.counters.failed += 1,
            (true, false) => figures.error(second, kind),
            (false, false) => figures.failed(second, kind),
        }
        let count = counts.entry(kind).or_default();
        *count += 1;
        if *count <= EXAMPLES {
            failures.push(StreamFailure { text: format!("{}: {how}", client.name), lasting });
        }
    }
}

impl Client {
    fn new(name: Arc<str>, fleet: usize, conduct: Conduct, now: Instant) -> Self {
        let (began, since, up, warm, received, answered) = (now, now, false, false, 0, 0);
        Self { name, fleet, conduct, began, since, up, warm, received, answered }
    }

    /// How long it took.
    fn connected(&mut self, now: Instant) -> Duration {
        self.up = true;
        now.saturating_duration_since(self.since)
    }

    /// The time until it had everything for the first time. The time for resources that it lost on the way counts, too.
    fn answered_at(&mut self, warm: bool, now: Instant) -> Option<Duration> {
        let first = warm && !std::mem::replace(&mut self.warm, true);
        first.then(|| now.saturating_duration_since(self.began))
    }

    /// Whether it had a stream.
    fn ended(&mut self, now: Instant) -> bool {
        let was_up = std::mem::take(&mut self.up);
        if was_up {
            self.since = now;
        }
        was_up
    }
}

/// As it is counted, and whether it will be the same next time.
fn describe(ended: &Ended) -> (&'static str, bool) {
    match ended {
        Ended::Refused(_) => ("nothing listens", true),
        Ended::NotFound { .. } => ("name not found", true),
        Ended::Unreachable { .. } => ("unreachable", true),
        Ended::Certificate { .. } => ("wrong certificate", true),
        Ended::Tls { .. } => ("no TLS", true),
        Ended::NotHttp2 { .. } => ("no HTTP/2", true),
        Ended::NotGrpc { .. } => ("no gRPC", true),
        Ended::Status { code, .. } => match i32::from(*code) {
            0 => ("stream ended by the server", false),
            7 => ("permission denied", true),
            8 => ("resource exhausted", false),
            12 => ("unimplemented", true),
            14 => (UNAVAILABLE, false),
            16 => ("unauthenticated", true),
            _ => ("stream failed", false),
        },
        Ended::Closed(_) => ("connection lost", false),
        Ended::Unreadable(_) => ("unreadable response", true),
        Ended::Requested => ("told", false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_lost_on_the_way_does_not_make_the_first_state_quicker() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut client = Client::new("me".into(), 0, Conduct::Well, start);
        assert_eq!(client.connected(at(1)), Duration::from_secs(1));
        assert_eq!(client.answered_at(false, at(2)), None);
        assert!(client.ended(at(10)));
        assert!(!client.ended(at(11)), "this time it never was up");
        assert_eq!(client.connected(at(13)), Duration::from_secs(3), "since it lost its stream");
        assert_eq!(client.answered_at(true, at(14)), Some(Duration::from_secs(14)));
        assert_eq!(client.answered_at(true, at(15)), None, "only the first time");
    }
}
