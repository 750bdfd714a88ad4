//! So many at once, and then so many per second.

use std::ops::Sub;
use std::time::Duration;

/// A token bucket. Time enters as a value: an `Instant` of some clock, or a [`Duration`] since some moment.
#[derive(Clone, Debug)]
pub struct TokenBucket<T> {
    per_second: f64,
    /// How many tokens there are at most. At least one, so that what is given back can be used.
    capacity: f64,
    tokens: f64,
    /// When the tokens were counted.
    at: T,
}

impl<T: Copy + Ord + Sub<Output = Duration>> TokenBucket<T> {
    /// Full from the start.
    pub fn new(per_second: f64, burst: f64, now: T) -> Self {
        Self { per_second, capacity: burst.max(1.0), tokens: burst, at: now }
    }

    /// How many tokens there are. Times only grow; one that does not adds nothing.
    pub fn available(&mut self, now: T) -> f64 {
        let now = now.max(self.at);
        let earned = (now - self.at).as_secs_f64() * self.per_second;
        self.at = now;
        self.tokens = (self.tokens + earned).min(self.capacity);
        self.tokens
    }

    /// Acquires a token. If there is none, fails with the time until there is one.
    pub fn acquire(&mut self, now: T) -> Result<(), Duration> {
        if self.available(now) >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        let wait = Duration::try_from_secs_f64((1.0 - self.tokens) / self.per_second);
        Err(wait.unwrap_or(Duration::MAX))
    }

    /// Gives back a token that was acquired in vain.
    pub fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.capacity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(per_second: u32) -> TokenBucket<Duration> {
        TokenBucket::new(per_second.into(), per_second.into(), Duration::ZERO)
    }

    fn acquired(bucket: &mut TokenBucket<Duration>, tries: usize, now: Duration) -> usize {
        (0..tries).filter(|_| bucket.acquire(now).is_ok()).count()
    }

    #[test]
    fn so_many_per_second_and_no_more() {
        let mut bucket = bucket(10);
        assert_eq!(acquired(&mut bucket, 100, Duration::ZERO), 10);
        assert_eq!(acquired(&mut bucket, 100, Duration::from_millis(500)), 5);
        assert_eq!(acquired(&mut bucket, 100, Duration::from_millis(500)), 0);
        let steady: usize =
            (1..=1000).map(|n| acquired(&mut bucket, 9, Duration::from_millis(500 + 10 * n))).sum();
        assert!((99..=100).contains(&steady), "{steady} in ten seconds");
    }

    #[test]
    fn rest_is_not_saved_up_for_longer_than_the_burst() {
        assert_eq!(acquired(&mut bucket(10), 100, Duration::from_secs(3600)), 10);
        let mut bucket = TokenBucket::new(1.0, 25.0, Duration::ZERO);
        assert_eq!(acquired(&mut bucket, 100, Duration::from_secs(3600)), 25);
        assert_eq!(acquired(&mut bucket, 100, Duration::from_secs(3602)), 2);
    }

    #[test]
    fn what_is_given_back_can_be_acquired_again_and_no_more() {
        let mut bucket = bucket(10);
        bucket.give_back();
        assert_eq!(acquired(&mut bucket, 100, Duration::ZERO), 10);
        bucket.give_back();
        assert_eq!(acquired(&mut bucket, 100, Duration::ZERO), 1);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let mut bucket = bucket(1);
        assert!(bucket.acquire(Duration::from_secs(10)).is_ok());
        assert!(bucket.acquire(Duration::from_secs(9)).is_err());
        assert!(bucket.acquire(Duration::from_millis(10_500)).is_err());
        assert!(bucket.acquire(Duration::from_secs(11)).is_ok());
    }

    #[test]
    fn who_finds_none_learns_when_there_is_one() {
        let mut bucket = TokenBucket::new(4.0, 1.0, Duration::ZERO);
        assert_eq!(bucket.acquire(Duration::ZERO), Ok(()));
        assert_eq!(bucket.acquire(Duration::ZERO), Err(Duration::from_millis(250)));
        assert_eq!(bucket.acquire(Duration::from_millis(125)), Err(Duration::from_millis(125)));
        assert_eq!(bucket.acquire(Duration::from_millis(250)), Ok(()));
    }

    #[test]
    fn without_a_rate_there_is_none_but_what_is_given_back() {
        let mut bucket = bucket(0);
        assert_eq!(bucket.acquire(Duration::from_secs(1)), Err(Duration::MAX));
        bucket.give_back();
        assert_eq!(bucket.acquire(Duration::from_secs(2)), Ok(()));
        assert_eq!(bucket.acquire(Duration::from_secs(3)), Err(Duration::MAX));
    }
}
