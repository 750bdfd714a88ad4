//! Detects old reports of replicas that an attacker has written to Redis again: decided without IO and without a clock.

use crate::{ACKS_EXPIRY, AckReport};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The reports that were seen of each replica.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    replicas: BTreeMap<String, Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    /// When the replica started, and which of its reports this was.
    at: (u64, u64),
    /// When that came first, and when the replica was last listed.
    since: Instant,
    listed: Instant,
}

/// How long a report counts that no other follows. A replica reports several times as often, and one that is gone is
/// forgotten by Redis itself.
const REPORT_EXPIRY: Duration = Duration::from_secs(2 * ACKS_EXPIRY.as_secs());

/// How long a replica is known after it was last listed.
const REPLICA_EXPIRY: Duration = Duration::from_secs(3600);

impl Freshness {
    /// Whether a report is newer than the last one of its replica, or is that and not too old to count.
    pub(super) fn is_fresh(&mut self, report: &AckReport, now: Instant) -> bool {
        let at = (report.start, report.sequence);
        let seen = self.replicas.entry(report.replica.clone());
        let seen = seen.or_insert(Seen { at, since: now, listed: now });
        seen.listed = now;
        if at > seen.at {
            (seen.at, seen.since) = (at, now);
        }
        at == seen.at && now.duration_since(seen.since) < REPORT_EXPIRY
    }

    pub(super) fn forget(&mut self, now: Instant) {
        self.replicas.retain(|_, seen| now.duration_since(seen.listed) < REPLICA_EXPIRY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(start: u64, sequence: u64) -> AckReport {
        AckReport { replica: "one".into(), start, sequence, ..AckReport::default() }
    }

    #[test]
    fn a_report_that_was_put_back_is_not_fresh() {
        let (mut freshness, now) = (Freshness::default(), Instant::now());
        for (start, sequence, expected) in [
            (7, 1, true),
            (7, 1, true),
            (7, 3, true),
            (7, 2, false),
            (6, 9, false),
            (8, 1, true),
            (7, 4, false),
        ] {
            assert_eq!(freshness.is_fresh(&report(start, sequence), now), expected);
        }
    }

    #[test]
    fn a_report_that_is_there_for_ever_is_not_fresh() {
        let (mut freshness, start) = (Freshness::default(), Instant::now());
        assert!(freshness.is_fresh(&report(7, 1), start));
        assert!(freshness.is_fresh(&report(7, 1), start + ACKS_EXPIRY));
        assert!(!freshness.is_fresh(&report(7, 1), start + REPORT_EXPIRY));
        assert!(freshness.is_fresh(&report(7, 2), start + REPORT_EXPIRY), "it goes on");
    }

    #[test]
    fn who_is_gone_for_long_is_forgotten() {
        let (mut freshness, start) = (Freshness::default(), Instant::now());
        freshness.is_fresh(&report(7, 1), start);
        freshness.forget(start + REPLICA_EXPIRY);
        assert!(freshness.replicas.is_empty());
    }
}
