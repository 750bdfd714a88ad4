use std::time::Duration;
use tokio::time::Instant;

/// When changes are worked off: one that comes alone at once, and those that come close behind one another together, when
/// no more come. None waits for longer than [`LONGEST`], so what follows from one is out within a second.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When changes were worked off last.
    last: Option<Instant>,
    /// Since when the oldest that is not worked off waits.
    waiting: Option<Instant>,
}

/// What comes so soon after others were worked off may be followed by more: a directory that is applied, a deployment. Little
/// longer than [`QUIET`]: those that are further apart would not be merged, and whoever waits for each change before the next
/// would wait for nothing.
const CLOSE: Duration = Duration::from_millis(35);

/// No more come.
const QUIET: Duration = Duration::from_millis(25);

/// The same where a change came while another waited: whoever makes them does not wait for each, and an API server that is busy
/// tells of them with pauses.
const QUIET_AFTER_MANY: Duration = Duration::from_millis(60);

pub(crate) const LONGEST: Duration = Duration::from_millis(500);

impl Pace {
    /// When to work off a change that came now, with all that wait.
    pub(crate) fn due(&mut self, now: Instant) -> Instant {
        let is_close = self.last.is_some_and(|last| now.saturating_duration_since(last) < CLOSE);
        match self.waiting {
            None if !is_close => now,
            None => {
                self.waiting = Some(now);
                now + QUIET
            }
            Some(since) => (now + QUIET_AFTER_MANY).min(since + LONGEST),
        }
    }

    /// All that had come has been worked off.
    pub(crate) fn worked(&mut self, now: Instant) {
        (self.last, self.waiting) = (Some(now), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Works off changes that come at these times, in milliseconds. Returns when they were worked off.
    fn worked_at(changes: impl IntoIterator<Item = u32>) -> Vec<u128> {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let (mut due, mut worked): (Option<Instant>, Vec<u128>) = (None, Vec::new());
        let mut work = |pace: &mut Pace, at: Instant| {
            pace.worked(at);
            worked.push((at - start).as_millis());
        };
        for change in changes {
            let now = start + change * MS;
            if let Some(at) = due.take_if(|at| *at < now) {
                work(&mut pace, at);
            }
            due = Some(pace.due(now));
        }
        if let Some(at) = due {
            work(&mut pace, at);
        }
        worked
    }

    #[test]
    fn a_change_that_comes_alone_goes_at_once() {
        assert_eq!(worked_at([0, 100, 1100, 1250]), [0, 100, 1100, 1250]);
    }

    /// Whoever waits for each change and then makes the next is not held up.
    #[test]
    fn those_that_are_too_far_apart_to_be_merged_do_not_wait() {
        assert_eq!(worked_at([0, 35, 75, 115]), [0, 35, 75, 115]);
    }

    #[test]
    fn what_is_applied_together_goes_in_two_parts() {
        assert_eq!(worked_at((0..100).step_by(10)), [0, 150]);
    }

    /// And not more and more.
    #[test]
    fn one_close_behind_the_other_waits_for_a_moment() {
        assert_eq!(worked_at([0, 30, 85, 140]), [0, 55, 110, 165]);
    }

    #[test]
    fn a_storm_is_merged_up_to_a_bound() {
        assert_eq!(worked_at((0..1900).step_by(5)), [0, 505, 1010, 1515, 1955]);
    }
}
