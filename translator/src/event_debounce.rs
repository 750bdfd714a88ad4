use std::time::Duration;
use tokio::time::Instant;

/// When changes are translated: one that comes alone at once, and those that come close behind one another together, when
/// no more come. None waits for longer than [`LONGEST_DELAY`], so what follows from one is out within a second.
#[derive(Debug, Default)]
pub(crate) struct EventDebounce {
    /// When changes were translated last.
    last: Option<Instant>,
    /// Whether one of them had waited and others had come meanwhile.
    were_many: bool,
    /// Since when the oldest that is not translated waits.
    waiting: Option<Instant>,
    /// Whether others have come since.
    are_many: bool,
}

/// An event so soon after another may be followed by more: a directory that is applied, a deployment. A user who waits
/// for each change to take effect before the next is slower, and is not delayed.
const CLOSE_INTERVAL: Duration = Duration::from_millis(15);

/// After this pause no more events are expected. A busy API server sends changes with pauses, but rarely with longer
/// ones. An event that comes sooner after many that were merged is likely to belong to them, too.
const QUIET_INTERVAL: Duration = Duration::from_millis(60);

pub(crate) const LONGEST_DELAY: Duration = Duration::from_millis(500);

impl EventDebounce {
    /// When to translate a change that came now, with all that wait.
    pub(crate) fn due(&mut self, now: Instant) -> Instant {
        if let Some(since) = self.waiting {
            self.are_many = true;
            return (now + QUIET_INTERVAL).min(since + LONGEST_DELAY);
        }
        let close = if self.were_many { QUIET_INTERVAL } else { CLOSE_INTERVAL };
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= close) {
            return now;
        }
        self.waiting = Some(now);
        now + QUIET_INTERVAL
    }

    /// All that had come has been translated.
    pub(crate) fn flushed(&mut self, now: Instant) {
        *self = Self { last: Some(now), were_many: self.are_many, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Works off changes that come at these times, in milliseconds. Returns when they were worked off.
    fn worked_at(changes: impl IntoIterator<Item = u32>) -> Vec<u128> {
        let (start, mut debounce) = (Instant::now(), EventDebounce::default());
        let (mut due, mut worked): (Option<Instant>, Vec<u128>) = (None, Vec::new());
        let mut work = |debounce: &mut EventDebounce, at: Instant| {
            debounce.flushed(at);
            worked.push((at - start).as_millis());
        };
        for change in changes {
            let now = start + change * MS;
            if let Some(at) = due.take_if(|at| *at < now) {
                work(&mut debounce, at);
            }
            due = Some(debounce.due(now));
        }
        if let Some(at) = due {
            work(&mut debounce, at);
        }
        worked
    }

    #[test]
    fn a_change_that_comes_alone_goes_at_once() {
        assert_eq!(worked_at([0, 100, 1100, 1250]), [0, 100, 1100, 1250]);
    }

    /// Also after one that was too close.
    #[test]
    fn whoever_waits_for_each_change_before_the_next_does_not_wait() {
        assert_eq!(worked_at([0, 15, 35, 60]), [0, 15, 35, 60]);
        assert_eq!(worked_at([0, 14, 89, 109]), [0, 74, 89, 109]);
    }

    #[test]
    fn what_is_applied_together_goes_in_two_parts() {
        assert_eq!(worked_at((0..100).step_by(10)), [0, 150]);
        assert_eq!(worked_at([0, 10, 60, 100, 155]), [0, 215], "with pauses");
    }

    #[test]
    fn many_that_come_further_apart_are_merged_once_two_of_them_were_close() {
        let storm = (0..40).map(|number| number * 30);
        assert_eq!(worked_at(storm.clone()).len(), 40);
        let merged = worked_at([0, 14].into_iter().chain(storm.map(|at| at + 40)));
        assert_eq!(merged, [0, 514, 1020, 1270]);
    }

    #[test]
    fn a_storm_is_merged_up_to_a_bound() {
        assert_eq!(worked_at((0..1900).step_by(5)), [0, 505, 1010, 1515, 1955]);
    }
}
