use super::report;
use crate::feed::Fleets;
use heliograph_shared::failure_log::FailureLog;
use heliograph_store::{ACKS_EXPIRY, AckReport, FeedbackSender};
use prometheus::IntCounter;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, sleep, timeout};

/// The task that sends the answers of this replica's clients to the store. No stream waits for it: without the store,
/// clients are served all the same.
pub(crate) struct Reporter {
    store: Arc<dyn FeedbackSender>,
    fleets: Fleets,
    /// A name that no other replica has.
    replica: String,
    failures: IntCounter,
    /// When this began, in milliseconds since 1970, and how many reports were tried since then.
    start: u64,
    sequence: u64,
    /// The last report that the store has, and when it was sent.
    sent: Option<(AckReport, Instant)>,
    log: FailureLog,
}

/// The time between two reports: what changes meanwhile is in one.
const PAUSE: Duration = Duration::from_millis(500);
/// An unchanged report is sent again before it expires, even if two attempts fail.
const REPEAT: Duration = Duration::from_secs(ACKS_EXPIRY.as_secs() / 3);

impl Reporter {
    /// `replica` need not be unique: another replica, or this one before a restart, may have the same.
    pub(crate) fn new(
        store: Arc<dyn FeedbackSender>,
        fleets: Fleets,
        replica: &str,
        failures: IntCounter,
    ) -> Self {
        let replica = format!("{replica}-{:08x}", fastrand::u32(..));
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let start = u64::try_from(start).unwrap_or(u64::MAX);
        Self {
            store,
            fleets,
            replica,
            failures,
            start,
            sequence: 0,
            sent: None,
            log: FailureLog::default(),
        }
    }

    pub(crate) async fn run(mut self) -> Infallible {
        loop {
            let good_for = self.send().await;
            sleep(PAUSE).await;
            // Either way it is looked at again.
            let _ = timeout(good_for, self.fleets.answered()).await;
        }
    }

    /// Sends a report to the store. Returns how long it stays valid if no client answers something else.
    async fn send(&mut self) -> Duration {
        let report = report::of(&self.replica, &self.fleets);
        if let Some((sent, at)) = &self.sent
            && *sent == report
            && at.elapsed() < REPEAT
        {
            return REPEAT.saturating_sub(at.elapsed());
        }
        self.sequence += 1;
        let (start, sequence) = (self.start, self.sequence);
        match self.store.send_report(AckReport { start, sequence, ..report.clone() }).await {
            Ok(()) => {
                self.sent = Some((report, Instant::now()));
                self.log.worked();
                REPEAT
            }
            Err(error) => {
                self.failures.inc();
                // The store itself logs that it is unreachable.
                if !error.is_temporary() && self.log.failed(&()) {
                    tracing::warn!(%error, "cannot report proxies' acknowledgements to the store, retrying");
                }
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Feed;
    use heliograph_store::{Embedded, FeedbackReader};

    #[tokio::test(start_paused = true)]
    async fn what_does_not_change_is_sent_again_before_it_expires() {
        let store = Arc::new(Embedded::new());
        let (_feed, fleets) =
            Feed::new(IntCounter::new("class_limit_exceeded", "in a test").unwrap());
        let failures = IntCounter::new("failures", "Failures.").unwrap();
        let reporter = Reporter::new(store.clone(), fleets, "replica", failures);
        let replica = reporter.replica.clone();
        let task = tokio::spawn(reporter.run());
        tokio::task::yield_now().await;
        for second in 0..5 * ACKS_EXPIRY.as_secs() {
            let reports = store.read_reports().await.unwrap();
            assert_eq!(reports.len(), 1, "after {second} s");
            assert_eq!(reports[0].replica, replica);
            assert!(reports[0].sequence > 0 && reports[0].start > 0);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        task.abort();
    }
}
