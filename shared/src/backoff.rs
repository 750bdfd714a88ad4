//! How long to wait before trying again what has failed. Randomness enters as a value: `jitter` is from 0 to 1.

use std::time::Duration;

/// Pauses that double with each failure in a row, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// After so many failures in a row, where nothing else has failed at the same time. No failure counts as one.
    pub fn pause(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }

    /// The upper half of the pause: several that fail together do not try again together.
    pub fn jittered(&self, failures: u32, jitter: f64) -> Duration {
        upper_half(self.pause(failures), jitter)
    }

    /// Anywhere between the first pause and the next one: many that fail together are spread over all that time, and none
    /// tries again sooner than after the first pause. Without a failure, the first pause.
    pub fn spread(&self, failures: u32, jitter: f64) -> Duration {
        let most = self.pause(failures.saturating_add(1));
        self.first + most.saturating_sub(self.first).mul_f64(jitter.clamp(0.0, 1.0))
    }
}

/// A duration that is shortened by up to a half.
pub fn upper_half(whole: Duration, jitter: f64) -> Duration {
    whole.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));

    #[test]
    fn pauses_double_up_to_a_limit() {
        let pause = |failures| BACKOFF.pause(failures).as_millis();
        assert_eq!([0, 1, 2, 3, 5, 6].map(pause), [100, 100, 200, 400, 1600, 2000]);
        assert_eq!([32, 33, 34, u32::MAX].map(pause), [2000; 4]);
        let endless = Backoff::new(Duration::from_secs(1), Duration::MAX);
        assert!(endless.pause(u32::MAX) > endless.pause(32));
    }

    #[test]
    fn jitter_chooses_within_the_upper_half() {
        let pause = |failures, jitter| BACKOFF.jittered(failures, jitter).as_millis();
        assert_eq!([0.0, 0.5, 1.0].map(|jitter| pause(1, jitter)), [50, 75, 100]);
        assert_eq!([0.0, 1.0].map(|jitter| pause(u32::MAX, jitter)), [1000, 2000]);
        assert_eq!([-1.0, 2.0].map(|jitter| pause(1, jitter)), [50, 100]);
    }

    #[test]
    fn a_spread_pause_stays_between_the_first_and_the_longest() {
        let pause = |failures, jitter| BACKOFF.spread(failures, jitter).as_millis();
        assert_eq!([0.0, 1.0].map(|jitter| pause(0, jitter)), [100, 100]);
        assert_eq!([0.0, 0.5, 1.0].map(|jitter| pause(1, jitter)), [100, 150, 200]);
        assert_eq!([0.0, 1.0].map(|jitter| pause(2, jitter)), [100, 400]);
        assert_eq!([0.0, 1.0].map(|jitter| pause(u32::MAX, jitter)), [100, 2000]);
        let constant = Backoff::new(BACKOFF.first, BACKOFF.first);
        assert_eq!(constant.spread(7, 1.0), BACKOFF.first);
    }
}
