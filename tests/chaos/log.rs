//! The history of a run, as it is gathered.

use heliograph_checker::{Content, Event, Outcome, Response, Violation, check};
use heliograph_snapshot::{FleetName, Head, ResourceType};
use heliograph_testing::stress;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

/// Clones write to the same.
#[derive(Clone)]
pub(crate) struct Log {
    history: Arc<Mutex<History>>,
}

/// Goes with the test, and leaves its history behind if that fails.
pub(crate) struct Kept(Log);

struct History {
    started: Instant,
    events: Vec<Event>,
    /// Of each event.
    times: Vec<Duration>,
}

impl Default for Log {
    fn default() -> Self {
        let history = History { started: Instant::now(), events: Vec::new(), times: Vec::new() };
        Self { history: Arc::new(Mutex::new(history)) }
    }
}

/// The log of all programs of this run, beside the histories, where `scripts/stress` looks for causes. Lines of tests that
/// run at once are mixed; ports tell them apart.
fn keep_lines() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(file) = stress::file("log.txt") {
            tracing_subscriber::fmt()
                .with_env_filter("warn,heliograph=debug")
                .with_ansi(false)
                .with_writer(Mutex::new(file))
                .init();
        }
    });
}

impl Drop for Kept {
    fn drop(&mut self) {
        stress::keep_if_failing("history.txt", || self.0.in_lines());
    }
}

impl Log {
    /// As long as the test runs.
    pub(crate) fn keep(&self) -> Kept {
        keep_lines();
        Kept(self.clone())
    }

    pub(crate) fn record(&self, event: Event) {
        let mut history = self.history();
        let time = history.started.elapsed();
        history.times.push(time);
        history.events.push(event);
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        let events = self.history().events.clone();
        check(&events)
    }

    /// The heads that a writer was told are published, with their content.
    pub(crate) fn published(&self, fleet: &FleetName) -> BTreeMap<Head, Option<Arc<Content>>> {
        let events = &self.history().events;
        let mut asked = BTreeMap::new();
        let mut published = BTreeMap::new();
        for event in events.iter() {
            match event {
                Event::Asked { fleet: of, head, content } if of == fleet => {
                    asked.insert(*head, content.clone());
                }
                Event::Answered { fleet: of, head, outcome: Outcome::Acknowledged }
                    if of == fleet =>
                {
                    published.insert(*head, asked[head].clone());
                }
                _ => {}
            }
        }
        published
    }

    pub(crate) fn newest(&self, fleet: &FleetName) -> Option<Head> {
        self.published(fleet).keys().max().copied()
    }

    /// How often a writer asked for this head.
    pub(crate) fn asks(&self, wanted: Head) -> usize {
        let events = &self.history().events;
        let asks =
            events.iter().filter(|it| matches!(it, Event::Asked { head, .. } if *head == wanted));
        asks.count()
    }

    /// All responses to proxies; of one type, or of all.
    pub(crate) fn responses(&self, kind: Option<ResourceType>) -> usize {
        let events = &self.history().events;
        let of_kind = |it: &&Event| match it {
            Event::Responded(Response { kind: of, .. }) => kind.is_none_or(|kind| *of == kind),
            _ => false,
        };
        events.iter().filter(of_kind).count()
    }

    /// Those to the proxies of a Gateway that told more than endpoints.
    pub(crate) fn held_responses(&self, gateway: &str) -> usize {
        let of = format!(" of {gateway} ");
        let events = &self.history().events;
        let is_held = |it: &&Event| match it {
            Event::Responded(Response { client, kind, .. }) => {
                client.contains(&of) && *kind != ResourceType::Endpoints
            }
            _ => false,
        };
        events.iter().filter(is_held).count()
    }

    fn in_lines(&self) -> String {
        let history = self.history();
        let mut lines = String::new();
        for (time, event) in history.times.iter().zip(&history.events) {
            let _ = writeln!(lines, "{:.3} {event:?}", time.as_secs_f64());
        }
        lines
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap()
    }
}
