use super::{Reach, Update, UpdateKind};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::time::{Duration, SystemTime};

/// When changes are due. Latency counts from then, not from when the driver came round to it: a driver that a slow
/// server holds up must not make that server look fast.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    pub start: SystemTime,
    pub interval: Duration,
    /// The number of the first change.
    pub first: u32,
    pub count: u32,
    pub kind: UpdateKind,
    pub reach: Reach,
}

impl Schedule {
    pub fn numbers(&self) -> Range<u32> {
        self.first..self.first.saturating_add(self.count)
    }

    pub fn updates(&self) -> impl Iterator<Item = Update> {
        let Self { kind, reach, .. } = *self;
        self.numbers().map(move |number| Update { number, kind, reach })
    }

    /// `None`: the change is not of this schedule.
    pub fn due(&self, number: u32) -> Option<SystemTime> {
        let position = self.numbers().contains(&number).then(|| number - self.first)?;
        self.start.checked_add(self.interval.checked_mul(position)?)
    }

    /// How long after it was due; nothing if clocks disagree.
    pub fn late(&self, number: u32, now: SystemTime) -> Option<Duration> {
        Some(now.duration_since(self.due(number)?).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_late_from_when_it_was_due() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        let interval = Duration::from_millis(250);
        let (kind, reach) = (UpdateKind::Endpoint, Reach::EveryFleet);
        let schedule = Schedule { start, interval, first: 5, count: 3, kind, reach };
        let numbers: Vec<_> = schedule.updates().map(|update| update.number).collect();
        assert_eq!(numbers, [5, 6, 7]);
        assert_eq!(schedule.due(5), Some(start));
        assert_eq!(schedule.due(7), Some(start + 2 * interval));
        assert_eq!((schedule.due(4), schedule.due(8)), (None, None));
        let now = start + 3 * interval;
        assert_eq!(schedule.late(6, now), Some(2 * interval));
        assert_eq!(schedule.late(6, start), Some(Duration::ZERO), "a clock that is behind");
    }
}
