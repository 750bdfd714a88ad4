use crate::worker::{MOST_CLIENTS, Standing, Tiding, Trouble};
use heliograph_report::Figures;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What the workers have told, up to now. There is no queue: what is newer takes the place of what was before.
#[derive(Debug)]
pub(super) struct Board {
    notes: Mutex<Notes>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Notes {
    workers: Vec<Worker>,
    troubles: Vec<Trouble>,
    violations: Vec<String>,
    first_trouble: Option<Instant>,
    failure: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct Worker {
    figures: Figures,
    standing: Standing,
    /// How many orders it has answered.
    answers: u64,
    done: bool,
}

/// Workers tell a few of each kind; this is for all of them together.
const EXAMPLES: usize = 50;
/// A server that has not said anything to anyone by then, while clients fail, is none.
const LASTING: Duration = Duration::from_millis(500);
const PASSING: Duration = Duration::from_secs(10);

impl Board {
    pub(super) fn new(workers: usize) -> Self {
        let workers = vec![Worker::default(); workers];
        let (troubles, violations) = (Vec::new(), Vec::new());
        let notes = Notes { workers, troubles, violations, first_trouble: None, failure: None };
        Self { notes: Mutex::new(notes), changed: watch::Sender::new(()) }
    }

    pub(super) fn take(&self, worker: usize, tiding: Tiding) {
        let mut notes = self.notes();
        let Notes { workers, troubles, violations, first_trouble, failure } = &mut *notes;
        let Some(worker) = workers.get_mut(worker) else { return };
        match tiding {
            Tiding::Ready => worker.answers += 1,
            Tiding::Standing(standing) => worker.standing = standing,
            Tiding::Figures(figures) => worker.figures = *figures,
            Tiding::Trouble(trouble) => {
                first_trouble.get_or_insert_with(Instant::now);
                if troubles.len() < EXAMPLES {
                    troubles.push(trouble);
                }
            }
            Tiding::Violation(violation) => {
                if violations.len() < EXAMPLES {
                    violations.push(violation);
                }
            }
            Tiding::Done(figures) => (worker.figures, worker.done) = (*figures, true),
            Tiding::Failed(reason) => *failure = Some(reason),
        }
        drop(notes);
        self.changed.send_replace(());
    }

    /// A worker tells no more.
    pub(super) fn ended(&self, worker: usize, reason: String) {
        let mut notes = self.notes();
        if notes.workers.get(worker).is_some_and(|worker| !worker.done) && notes.failure.is_none() {
            notes.failure = Some(reason);
        }
        drop(notes);
        self.changed.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn figures(&self) -> Figures {
        let notes = self.notes();
        let mut figures = Figures::default();
        notes.workers.iter().for_each(|worker| figures.merge(&worker.figures));
        figures
    }

    pub(super) fn standing(&self) -> Standing {
        let notes = self.notes();
        let mut standing = Standing::default();
        notes.workers.iter().for_each(|worker| standing.add(&worker.standing));
        standing
    }

    /// How many clients each worker has.
    pub(super) fn clients(&self) -> Vec<usize> {
        self.notes().workers.iter().map(|worker| worker.standing.clients).collect()
    }

    /// Of every worker.
    pub(super) fn answers(&self) -> u64 {
        self.notes().workers.iter().map(|worker| worker.answers).min().unwrap_or(0)
    }

    pub(super) fn is_done(&self) -> bool {
        self.notes().workers.iter().all(|worker| worker.done)
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.notes().failure.clone()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.notes().violations.clone()
    }

    pub(super) fn errors(&self) -> Vec<String> {
        self.notes().troubles.iter().map(|trouble| trouble.text.clone()).collect()
    }

    /// Why there is no server, if nobody has got anything yet and it will stay so.
    pub(super) fn no_server(&self) -> Option<String> {
        let notes = self.notes();
        let since = notes.first_trouble?.elapsed();
        if notes.workers.iter().any(|worker| worker.standing.responses > 0) {
            return None;
        }
        let lasting = notes.troubles.iter().find(|trouble| trouble.lasting);
        let trouble = match lasting {
            Some(trouble) if since >= LASTING => trouble,
            _ => notes.troubles.first().filter(|_| since >= PASSING)?,
        };
        // One client stands for all.
        let text = trouble.text.split_once(": ").map_or(&*trouble.text, |(_, text)| text);
        Some(text.to_owned())
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many processes so many clients need.
pub(super) fn processes(clients: usize, wanted: usize) -> usize {
    clients.div_ceil(MOST_CLIENTS).max(wanted).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(text: &str, lasting: bool) -> Tiding {
        Tiding::Trouble(Trouble { text: text.to_owned(), lasting })
    }

    #[test]
    fn clients_are_spread_over_as_many_processes_as_they_need() {
        assert_eq!([1, 15_000, 15_001, 30_000, 30_001].map(|it| processes(it, 1)), [1, 1, 2, 2, 3]);
        assert_eq!(processes(10, 4), 4);
    }

    #[test]
    fn what_workers_tell_adds_up() {
        let board = Board::new(2);
        let standing = |up, lacking| Standing { clients: 10, up, lacking, ..Standing::default() };
        board.take(0, Tiding::Standing(standing(9, 1)));
        board.take(1, Tiding::Standing(standing(7, 3)));
        let expected = Standing { clients: 20, up: 16, lacking: 4, ..Standing::default() };
        assert_eq!(board.standing(), expected);
        board.take(0, Tiding::Ready);
        assert_eq!(board.answers(), 0, "the other has not answered");
        board.take(1, Tiding::Ready);
        assert_eq!(board.answers(), 1);
        assert!(!board.is_done());
        for worker in [0, 1] {
            board.take(worker, Tiding::Done(Box::default()));
        }
        board.ended(0, "it has ended".to_owned());
        assert_eq!((board.is_done(), board.failure()), (true, None));
    }

    #[test]
    fn a_worker_that_ends_before_it_is_done_has_failed() {
        let board = Board::new(1);
        board.ended(0, "killed".to_owned());
        assert_eq!(board.failure().as_deref(), Some("killed"));
    }

    #[test]
    fn a_server_is_none_only_while_nobody_has_heard_from_it() {
        let board = Board::new(1);
        board.take(0, trouble("client-1: it may pass", false));
        board.take(0, trouble("client-2: nothing listens", true));
        assert_eq!(board.no_server(), None, "it is too early to say");
        let since = Instant::now().checked_sub(LASTING);
        board.notes().first_trouble = since;
        assert_eq!(board.no_server().as_deref(), Some("nothing listens"));
        let standing = Standing { responses: 1, ..Standing::default() };
        board.take(0, Tiding::Standing(standing));
        assert_eq!(board.no_server(), None);
    }
}
