use crate::worker::{ClientTotals, MOST_CLIENTS, StreamFailure, WorkerMessage};
use heliograph_report::Figures;
use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The latest that each worker has reported. There is no queue: what is newer takes the place of what was before.
#[derive(Debug)]
pub(super) struct WorkerReports {
    latest: Mutex<Latest>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Latest {
    workers: Vec<Worker>,
    stream_failures: Vec<StreamFailure>,
    violations: Vec<String>,
    first_stream_failure: Option<Instant>,
    failure: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    figures: Figures,
    totals: ClientTotals,
    /// How many orders it has answered.
    answers: u64,
    done: bool,
}

/// Workers report a few of each kind; this is for all of them together.
const EXAMPLES: usize = 50;
/// A server that has not answered any client by then, while clients fail, counts as missing.
const NO_SERVER_AFTER_LASTING_FAILURE: Duration = Duration::from_millis(500);
const NO_SERVER_AFTER_PASSING_FAILURE: Duration = Duration::from_secs(10);

impl WorkerReports {
    pub(super) fn new(workers: usize) -> Self {
        let workers = vec![Worker::default(); workers];
        let (stream_failures, violations) = (Vec::new(), Vec::new());
        let latest = Latest {
            workers,
            stream_failures,
            violations,
            first_stream_failure: None,
            failure: None,
        };
        Self { latest: Mutex::new(latest), changed: watch::Sender::new(()) }
    }

    pub(super) fn receive(&self, worker: usize, message: WorkerMessage) {
        let mut latest = self.latest();
        let Latest { workers, stream_failures, violations, first_stream_failure, failure } =
            &mut *latest;
        let Some(worker) = workers.get_mut(worker) else { return };
        match message {
            WorkerMessage::Ready => worker.answers += 1,
            WorkerMessage::Standing(totals) => worker.totals = totals,
            WorkerMessage::Figures(figures) => worker.figures = *figures,
            WorkerMessage::Trouble(stream_failure) => {
                first_stream_failure.get_or_insert_with(Instant::now);
                if stream_failures.len() < EXAMPLES {
                    stream_failures.push(stream_failure);
                }
            }
            WorkerMessage::Violation(violation) => {
                if violations.len() < EXAMPLES {
                    violations.push(violation);
                }
            }
            WorkerMessage::Done(figures) => (worker.figures, worker.done) = (*figures, true),
            WorkerMessage::Failed(reason) => *failure = Some(reason),
        }
        drop(latest);
        self.changed.send_replace(());
    }

    /// A worker reports no more.
    pub(super) fn ended(&self, worker: usize, reason: String) {
        let mut latest = self.latest();
        if latest.workers.get(worker).is_some_and(|worker| !worker.done) && latest.failure.is_none()
        {
            latest.failure = Some(reason);
        }
        drop(latest);
        self.changed.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn figures(&self) -> Figures {
        let latest = self.latest();
        let mut figures = Figures::default();
        latest.workers.iter().for_each(|worker| figures.merge(&worker.figures));
        figures
    }

    pub(super) fn totals(&self) -> ClientTotals {
        let latest = self.latest();
        let mut totals = ClientTotals::default();
        latest.workers.iter().for_each(|worker| totals.add(&worker.totals));
        totals
    }

    /// How many clients each worker has.
    pub(super) fn clients(&self) -> Vec<usize> {
        self.latest().workers.iter().map(|worker| worker.totals.clients).collect()
    }

    /// Of every worker.
    pub(super) fn answers(&self) -> u64 {
        self.latest().workers.iter().map(|worker| worker.answers).min().unwrap_or(0)
    }

    pub(super) fn is_done(&self) -> bool {
        self.latest().workers.iter().all(|worker| worker.done)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.latest().failure.clone()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.latest().violations.clone()
    }

    pub(super) fn errors(&self) -> Vec<String> {
        self.latest()
            .stream_failures
            .iter()
            .map(|stream_failure| stream_failure.text.clone())
            .collect()
    }

    /// Why no server can be reached, if no client has received anything and none will.
    pub(super) fn no_server(&self) -> Option<String> {
        let latest = self.latest();
        let since = latest.first_stream_failure?.elapsed();
        if latest.workers.iter().any(|worker| worker.totals.responses > 0) {
            return None;
        }
        let lasting = latest.stream_failures.iter().find(|stream_failure| stream_failure.lasting);
        let stream_failure = match lasting {
            Some(stream_failure) if since >= NO_SERVER_AFTER_LASTING_FAILURE => stream_failure,
            _ => latest
                .stream_failures
                .first()
                .filter(|_| since >= NO_SERVER_AFTER_PASSING_FAILURE)?,
        };
        // One client stands for all.
        let text =
            stream_failure.text.split_once(": ").map_or(&*stream_failure.text, |(_, text)| text);
        Some(text.to_owned())
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock()
    }
}

/// How many processes so many clients need.
pub(super) fn processes(clients: usize, wanted: usize) -> usize {
    clients.div_ceil(MOST_CLIENTS).max(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_failure(text: &str, lasting: bool) -> WorkerMessage {
        WorkerMessage::Trouble(StreamFailure { text: text.to_owned(), lasting })
    }

    #[test]
    fn clients_are_spread_over_as_many_processes_as_they_need() {
        assert_eq!([1, 15_000, 15_001, 30_000, 30_001].map(|it| processes(it, 1)), [1, 1, 2, 2, 3]);
        assert_eq!(processes(10, 4), 4);
    }

    #[test]
    fn what_workers_report_adds_up() {
        let reports = WorkerReports::new(2);
        let totals =
            |up, lacking| ClientTotals { clients: 10, up, lacking, ..ClientTotals::default() };
        reports.receive(0, WorkerMessage::Standing(totals(9, 1)));
        reports.receive(1, WorkerMessage::Standing(totals(7, 3)));
        let expected = ClientTotals { clients: 20, up: 16, lacking: 4, ..ClientTotals::default() };
        assert_eq!(reports.totals(), expected);
        reports.receive(0, WorkerMessage::Ready);
        assert_eq!(reports.answers(), 0, "the other has not answered");
        reports.receive(1, WorkerMessage::Ready);
        assert_eq!(reports.answers(), 1);
        assert!(!reports.is_done());
        for worker in [0, 1] {
            reports.receive(worker, WorkerMessage::Done(Box::default()));
        }
        reports.ended(0, "it has ended".to_owned());
        assert_eq!((reports.is_done(), reports.failure()), (true, None));
    }

    #[test]
    fn a_worker_that_ends_before_it_is_done_has_failed() {
        let reports = WorkerReports::new(1);
        reports.ended(0, "killed".to_owned());
        assert_eq!(reports.failure().as_deref(), Some("killed"));
    }

    #[test]
    fn a_server_is_none_only_while_no_client_has_an_answer_from_it() {
        let reports = WorkerReports::new(1);
        reports.receive(0, stream_failure("client-1: it may pass", false));
        reports.receive(0, stream_failure("client-2: nothing listens", true));
        assert_eq!(reports.no_server(), None, "it is too early to say");
        let since = Instant::now().checked_sub(NO_SERVER_AFTER_LASTING_FAILURE);
        reports.latest().first_stream_failure = since;
        assert_eq!(reports.no_server().as_deref(), Some("nothing listens"));
        let totals = ClientTotals { responses: 1, ..ClientTotals::default() };
        reports.receive(0, WorkerMessage::Standing(totals));
        assert_eq!(reports.no_server(), None);
    }
}
