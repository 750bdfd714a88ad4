use std::time::Duration;
use tokio::time::Instant;

/// Decides when to report that changes cannot be read: once, if it lasts, and once when it is over.
#[derive(Debug, Default)]
pub(super) struct OutageReporter {
    since: Option<Instant>,
    reported: bool,
}

/// A shorter failure is not reported.
const REPORT_AFTER: Duration = Duration::from_secs(3);

impl OutageReporter {
    /// A read failed. `is_known`: the cause was reported already. Whether to report.
    pub(super) fn failed(&mut self, now: Instant, is_known: bool) -> bool {
        let since = *self.since.get_or_insert(now);
        let report =
            !self.reported && !is_known && now.saturating_duration_since(since) >= REPORT_AFTER;
        self.reported |= report;
        report
    }

    /// A read succeeded. Whether to report that the outage is over.
    pub(super) fn worked(&mut self) -> bool {
        self.since = None;
        std::mem::take(&mut self.reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn what_lasts_is_reported_once_and_its_end_too() {
        let (mut reporter, start) = (OutageReporter::default(), Instant::now());
        let reports = [0, 2, 3, 4, 60].map(|seconds| reporter.failed(after(start, seconds), false));
        assert_eq!(reports, [false, false, true, false, false]);
        assert!(reporter.worked());
        assert!(!reporter.worked());
        assert!(!reporter.failed(after(start, 61), false), "this is another");
    }

    #[test]
    fn a_short_failure_is_not_reported() {
        let (mut reporter, start) = (OutageReporter::default(), Instant::now());
        assert!(!reporter.failed(start, false));
        assert!(!reporter.worked());
        assert!(!reporter.failed(after(start, 5), false));
    }

    #[test]
    fn what_is_known_is_reported_only_if_it_turns_into_something_else() {
        let (mut reporter, start) = (OutageReporter::default(), Instant::now());
        for seconds in 0..60 {
            assert!(!reporter.failed(after(start, seconds), true));
        }
        assert!(reporter.failed(after(start, 60), false));
    }
}
