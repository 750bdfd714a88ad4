//! Limits log lines that clients can cause.

use heliograph_snapshot::FleetName;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The lines with one cause: one in a minute, which says how many were suppressed since the one before.
#[derive(Debug, Default)]
pub(crate) struct LineLimit {
    last: Option<Instant>,
    suppressed: u64,
}

/// The lines with one cause about each of many fleets, whose names are the clients' to choose.
#[derive(Debug, Default)]
pub(crate) struct FleetLimits(Mutex<BTreeMap<FleetName, LineLimit>>);

const EVERY: Duration = Duration::from_secs(60);
/// How many fleets have a log line of their own within that time. Further ones have none.
const FLEETS: usize = 1000;

impl LineLimit {
    /// If a line may be written: how many were suppressed.
    pub(crate) fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.is_recent(now) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }

    fn is_recent(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.duration_since(last) < EVERY)
    }
}

impl FleetLimits {
    pub(crate) fn allow(&self, fleet: &FleetName, now: Instant) -> Option<u64> {
        let mut limits = self.0.lock();
        if limits.len() >= FLEETS && !limits.contains_key(fleet) {
            limits.retain(|_, limit| limit.is_recent(now));
            if limits.len() >= FLEETS {
                return None;
            }
        }
        limits.entry(fleet.clone()).or_default().allow(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_a_minute_says_how_many_there_were_not() {
        let (mut limit, start) = (LineLimit::default(), Instant::now());
        assert_eq!(limit.allow(start), Some(0));
        for seconds in 0..60 {
            assert_eq!(limit.allow(start + Duration::from_secs(seconds)), None);
        }
        assert_eq!(limit.allow(start + EVERY), Some(60));
        assert_eq!(limit.allow(start + EVERY), None);
        assert_eq!(limit.allow(start + 3 * EVERY), Some(1));
    }

    #[test]
    fn fleets_have_lines_of_their_own_and_there_are_not_too_many() {
        let (limits, start) = (FleetLimits::default(), Instant::now());
        let fleet = |number: usize| FleetName::new("default", &number.to_string());
        for number in 0..2 * FLEETS {
            let expected = (number < FLEETS).then_some(0);
            assert_eq!(limits.allow(&fleet(number), start), expected);
            assert_eq!(limits.allow(&fleet(number), start), None);
        }
        assert_eq!(limits.0.lock().len(), FLEETS);
        assert_eq!(limits.allow(&fleet(FLEETS), start + EVERY), Some(0));
        assert_eq!(limits.0.lock().len(), 1);
    }
}
