//! When a failure that lasts is logged: once when it begins, and once when it is over. The caller writes the lines.
//!
//! Where many things fail independently, a set of those that fail does the same: `insert` and `remove` answer the same.

use std::time::Duration;
use tokio::time::Instant;

/// A failure that is logged at once, and again when it turns into another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureLog<F = ()> {
    /// What was logged and is not over.
    logged: Option<F>,
}

/// A failure that is logged only if it lasts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutageLog {
    since: Option<Instant>,
    log: FailureLog,
}

/// A shorter outage is not logged.
const LOG_AFTER: Duration = Duration::from_secs(3);

impl<F: Clone + PartialEq> FailureLog<F> {
    /// It failed. Whether to log that.
    pub fn failed(&mut self, failure: &F) -> bool {
        let is_news = self.logged.as_ref() != Some(failure);
        if is_news {
            self.logged = Some(failure.clone());
        }
        is_news
    }

    /// It worked. The failure that was logged last, if it is now to be logged that it is over.
    pub fn worked(&mut self) -> Option<F> {
        self.logged.take()
    }
}

impl<F> Default for FailureLog<F> {
    fn default() -> Self {
        Self { logged: None }
    }
}

impl OutageLog {
    /// It failed. `is_known`: the cause was logged elsewhere. Whether to log the outage.
    pub fn failed(&mut self, now: Instant, is_known: bool) -> bool {
        let since = *self.since.get_or_insert(now);
        let lasts = now.saturating_duration_since(since) >= LOG_AFTER;
        lasts && !is_known && self.log.failed(&())
    }

    /// It worked. Whether to log that the outage is over.
    pub fn worked(&mut self) -> bool {
        self.since = None;
        self.log.worked().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_failure_is_logged_once_and_so_is_its_end() {
        let mut log = FailureLog::<&str>::default();
        assert_eq!(log.worked(), None);
        assert!(log.failed(&"missing"));
        assert!(!log.failed(&"missing"));
        assert!(log.failed(&"too large"), "this is another");
        assert_eq!(log.worked(), Some("too large"));
        assert_eq!(log.worked(), None);
        assert!(log.failed(&"too large"), "it is back");
    }

    #[test]
    fn an_outage_that_lasts_is_logged_once_and_so_is_its_end() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        let logged = [0, 2, 3, 4, 60].map(|seconds| log.failed(after(start, seconds), false));
        assert_eq!(logged, [false, false, true, false, false]);
        assert!(log.worked());
        assert!(!log.worked());
        assert!(!log.failed(after(start, 61), false), "this is another");
    }

    #[test]
    fn a_short_outage_is_not_logged() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        assert!(!log.failed(start, false));
        assert!(!log.worked());
        assert!(!log.failed(after(start, 5), false));
    }

    #[test]
    fn what_is_known_is_logged_only_if_it_turns_into_something_else() {
        let (mut log, start) = (OutageLog::default(), Instant::now());
        for seconds in 0..60 {
            assert!(!log.failed(after(start, seconds), true));
        }
        assert!(log.failed(after(start, 60), false));
    }
}
