use std::time::Duration;

/// Lets through so many per second on average, and as many at once after a second of rest.
#[derive(Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    tokens: f64,
    /// When the tokens were counted.
    at: Duration,
}

impl Bucket {
    /// Full from the start: a replica that has just begun has done nothing yet.
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, tokens: per_second, at: Duration::ZERO }
    }

    /// Gives back one that was acquired in vain.
    pub(crate) fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.per_second.max(1.0));
    }

    /// How many there are. Times only grow; one that does not adds nothing.
    pub(crate) fn available(&mut self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens =
            (self.tokens + passed.as_secs_f64() * self.per_second).min(self.per_second.max(1.0));
        self.tokens
    }

    /// Acquires one, if there is one.
    pub(crate) fn acquire(&mut self, now: Duration) -> bool {
        self.available(now);
        let enough = self.tokens >= 1.0;
        if enough {
            self.tokens -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut Bucket, tries: usize, now: Duration) -> usize {
        (0..tries).filter(|_| bucket.acquire(now)).count()
    }

    #[test]
    fn so_many_per_second_and_no_more() {
        let mut bucket = Bucket::new(10);
        assert_eq!(taken(&mut bucket, 100, Duration::ZERO), 10);
        assert_eq!(taken(&mut bucket, 100, Duration::from_millis(500)), 5);
        assert_eq!(taken(&mut bucket, 100, Duration::from_millis(500)), 0);
        let steady: usize =
            (1..=1000).map(|n| taken(&mut bucket, 9, Duration::from_millis(500 + 10 * n))).sum();
        assert!((99..=100).contains(&steady), "{steady} in ten seconds");
    }

    #[test]
    fn rest_is_not_saved_up_for_longer_than_a_second() {
        let mut bucket = Bucket::new(10);
        assert_eq!(taken(&mut bucket, 100, Duration::from_secs(3600)), 10);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let mut bucket = Bucket::new(10);
        bucket.give_back();
        assert_eq!(taken(&mut bucket, 100, Duration::ZERO), 10);
        bucket.give_back();
        assert_eq!(taken(&mut bucket, 100, Duration::ZERO), 1);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let mut bucket = Bucket::new(1);
        assert!(bucket.acquire(Duration::from_secs(10)));
        assert!(!bucket.acquire(Duration::from_secs(9)));
        assert!(!bucket.acquire(Duration::from_millis(10_500)));
        assert!(bucket.acquire(Duration::from_secs(11)));
    }
}
