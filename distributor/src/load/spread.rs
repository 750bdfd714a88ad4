//! Spreads the ends of streams over time, so that clients do not all reconnect at once. `jitter` is from 0 to 1, and
//! random.

use std::time::Duration;

/// A connection's age may differ by this part of it.
const AGE_SPREAD: f64 = 0.2;

/// How old a connection may become.
pub(crate) fn age(age: Duration, jitter: f64) -> Duration {
    age.mul_f64(1.0 - AGE_SPREAD + 2.0 * AGE_SPREAD * jitter.clamp(0.0, 1.0))
}

/// When the connection with this index among all ends: each has a part of the time for itself, and jitter chooses the moment
/// in it. So they are spread evenly, and two replicas that drain at once do not keep the same beat.
pub(crate) fn spread_delay(index: usize, all: usize, time: Duration, jitter: f64) -> Duration {
    let all = all.max(1) as f64;
    time.mul_f64(((index as f64 + jitter.clamp(0.0, 1.0)) / all).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn ages_differ_by_a_fifth_at_most() {
        assert_eq!(age(HOUR, 0.0), Duration::from_secs(2880));
        assert_eq!(age(HOUR, 0.5), HOUR);
        assert_eq!(age(HOUR, 1.0), Duration::from_secs(4320));
    }

    #[test]
    fn turns_fill_the_time_evenly() {
        let time = Duration::from_secs(20);
        for jitter in [0.0, 0.3, 1.0] {
            let turns: Vec<_> =
                (0..1000).map(|index| spread_delay(index, 1000, time, jitter)).collect();
            for second in 1..=20 {
                let (from, to) = (Duration::from_secs(second - 1), Duration::from_secs(second));
                let within = turns.iter().filter(|turn| **turn >= from && **turn < to).count();
                assert!((49..=51).contains(&within), "{within} in second {second}");
            }
        }
    }

    #[test]
    fn nobody_leaves_later_than_the_time_is_long() {
        // More than were counted when the drain began, or none at all.
        assert_eq!(spread_delay(7, 3, HOUR, 0.9), HOUR);
        assert_eq!(spread_delay(0, 0, HOUR, 0.25), HOUR / 4);
        assert_eq!(spread_delay(3, 10, Duration::ZERO, 0.5), Duration::ZERO);
    }
}
