use std::time::Duration;
use tokio::time::Instant;

/// When changes are worked off: the first one at once, and in a storm ever more of them together. No change waits for
/// longer than [`LONGEST`] because of it, so what follows from one is out within a second.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// How long changes are gathered after the last time.
    hold: Duration,
    last: Option<Instant>,
}

/// What a busy minute of a deployment is merged into: too short to be noticed.
const SHORTEST: Duration = Duration::from_millis(10);

pub(crate) const LONGEST: Duration = Duration::from_millis(500);

impl Pace {
    /// When to work off a change that came now, with all that come until then.
    pub(crate) fn due(&mut self, now: Instant) -> Instant {
        let Some(last) = self.last else { return now };
        // Quiet for as long as changes were held before: the storm is over.
        if now.saturating_duration_since(last) > self.hold.max(SHORTEST) {
            self.hold = Duration::ZERO;
            return now;
        }
        self.hold = (self.hold * 2).clamp(SHORTEST, LONGEST);
        now.max(last + self.hold)
    }

    /// All that had come has been worked off.
    pub(crate) fn worked(&mut self, now: Instant) {
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_change_goes_at_once_also_after_a_storm() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.due(start), start);
        pace.worked(start);
        let quiet = start + 11 * MS;
        assert_eq!(pace.due(quiet), quiet);
        pace.worked(quiet);
        let mut now = quiet;
        for _ in 0..10 {
            now = pace.due(now + MS);
            pace.worked(now);
        }
        let quiet = now + LONGEST + MS;
        assert_eq!(pace.due(quiet), quiet);
    }

    #[test]
    fn a_storm_is_merged_more_and_more_up_to_a_bound() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.worked(now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let came = now + MS;
            now = pace.due(came);
            pace.worked(now);
            waits.push((now - came).as_millis() + 1);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 500, 500]);
    }

    /// Once a second is no storm.
    #[test]
    fn changes_that_come_slowly_never_wait() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        for _ in 0..5 {
            assert_eq!(pace.due(now), now);
            pace.worked(now + 5 * MS);
            now += Duration::from_secs(1);
        }
    }
}
