use std::time::Duration;
use tokio::time::Instant;

/// When changes are worked off: the first one at once, one that follows it closely a moment later, and if more come in that
/// moment, a storm has begun and ever more of them go together. No change waits for longer than [`LONGEST`] because of it, so
/// what follows from one is out within a second.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// How long changes are gathered after the last time.
    hold: Duration,
    last: Option<Instant>,
}

/// Long enough to see whether more is coming, too short to be noticed by somebody who makes one change after the other.
const SHORTEST: Duration = Duration::from_millis(25);

/// What is applied together comes within this, and every route table costs every proxy: it is to be sent once.
const STORM: Duration = Duration::from_millis(120);

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

    /// When to work off changes that are due now, if that is to be later: so many have come since one was put off.
    pub(crate) fn put_off(&mut self, now: Instant, changes: usize) -> Option<Instant> {
        if self.hold != SHORTEST || changes < 2 {
            return None;
        }
        self.hold = STORM;
        Some(now + STORM)
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
        let quiet = start + SHORTEST + MS;
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
        assert_eq!(waits, [25, 50, 100, 200, 400, 500, 500, 500]);
    }

    /// Ten within 100 ms: the first, and all others.
    #[test]
    fn what_is_applied_together_goes_in_two_parts() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let (mut due, mut pending, mut parts) = (None, 0, 0);
        for now in (0..400).map(|ms| start + ms * MS) {
            if now < start + 100 * MS && (now - start).as_millis().is_multiple_of(10) {
                due = due.or_else(|| Some(pace.due(now)));
                pending += 1;
            }
            if due.is_some_and(|due| due <= now) {
                due = pace.put_off(now, pending);
                if due.is_none() {
                    pace.worked(now);
                    (pending, parts) = (0, parts + 1);
                }
            }
        }
        assert_eq!((pending, parts), (0, 2));
    }

    #[test]
    fn one_change_after_the_other_waits_for_a_moment_only() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.worked(now);
        let due = pace.due(now + MS);
        assert_eq!(due, now + SHORTEST);
        assert_eq!(pace.put_off(due, 1), None);
        now = due + SHORTEST + MS;
        pace.worked(due);
        assert_eq!(pace.due(now), now);
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
