use std::time::Duration;
use tokio::time::Instant;

/// Limits the requests of one stream: so many per second for as long as it likes, and many more after a rest. A
/// stream that asks for more is read slower, and one that continues for long is ended. It knows no clock.
///
/// Not a `TokenBucket` of `heliograph-shared`: what a request costs is known once it is read, so that a stream may owe more than
/// it has, and how much it owes decides when it is read again.
#[derive(Debug)]
pub(crate) struct RequestLimiter {
    /// The time that one request takes of those that a stream has; zero for none.
    each: Duration,
    /// When all requests so far have had their time.
    even_at: Instant,
    /// Since when the stream asks for more than it may.
    over_since: Option<Instant>,
}

/// Whether the next request may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRead {
    Now,
    /// Not before then. The first of a row is worth counting.
    At {
        time: Instant,
        first: bool,
    },
    /// It went on for too long.
    Never,
}

/// After a rest, as much as in this time may be asked at once: an Envoy that acknowledges a large configuration, or asks for
/// thousands of names one by one, is not slowed.
const BURST: Duration = Duration::from_secs(10);
/// How long a stream may ask for more than it may before it is ended.
const OVERUSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The cost of a request grows with its size: this many bytes count as one more request.
const PIECE: usize = 16 << 10;
/// The same for names that the client asks for: each change of them costs as much as there are.
const NAMES: usize = 4 << 10;

impl RequestLimiter {
    /// Zero is no bound.
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        let each = match per_second {
            0 => Duration::ZERO,
            some => Duration::from_secs(1) / some,
        };
        Self { each, even_at: now, over_since: None }
    }

    /// Charges a request of so many bytes that was read.
    pub(crate) fn charge_request(&mut self, bytes: usize, now: Instant) {
        self.even_at = self.even_at.max(now);
        self.add(1 + bytes / PIECE);
    }

    /// Charges the names that the last request was about.
    pub(crate) fn charge_names(&mut self, names: usize) {
        self.add(names / NAMES);
    }

    pub(crate) fn next_read(&mut self, now: Instant) -> NextRead {
        let debt = self.even_at.saturating_duration_since(now);
        if debt <= BURST {
            // Who waits for each turn is at the edge all the time; half of it is free only after a rest.
            if debt < BURST / 2 {
                self.over_since = None;
            }
            return NextRead::Now;
        }
        let first = self.over_since.is_none();
        let since = *self.over_since.get_or_insert(now);
        if now.duration_since(since) > OVERUSE_TIMEOUT {
            return NextRead::Never;
        }
        NextRead::At { time: now + (debt - BURST), first }
    }

    fn add(&mut self, requests: usize) {
        let requests = u32::try_from(requests).unwrap_or(u32::MAX);
        self.even_at += self.each.saturating_mul(requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = 100;

    /// How many requests are read at once.
    fn at_once(limiter: &mut RequestLimiter, bytes: usize, now: Instant) -> usize {
        let mut count = 0;
        while count < 1_000_000 && limiter.next_read(now) == NextRead::Now {
            limiter.charge_request(bytes, now);
            count += 1;
        }
        count
    }

    #[test]
    fn many_may_come_at_once_and_then_so_many_per_second() {
        let start = Instant::now();
        let mut limiter = RequestLimiter::new(1000, start);
        assert_eq!(at_once(&mut limiter, SMALL, start), 10_001);
        assert_eq!(at_once(&mut limiter, SMALL, start + Duration::from_secs(1)), 1000);
        let rested = start + Duration::from_secs(3600);
        assert_eq!(at_once(&mut limiter, SMALL, rested), 10_001, "rest is not saved up");
    }

    #[test]
    fn large_requests_count_for_more() {
        let now = Instant::now();
        assert_eq!(at_once(&mut RequestLimiter::new(1000, now), 32 << 20, now), 5);
        assert_eq!(at_once(&mut RequestLimiter::new(1000, now), usize::MAX, now), 1);
    }

    #[test]
    fn requests_about_many_names_count_for_more() {
        let now = Instant::now();
        for (names, expected) in [(0, 10_001), (4000, 10_001), (5000, 5001), (200_000, 205)] {
            let mut limiter = RequestLimiter::new(1000, now);
            let mut count = 0;
            while limiter.next_read(now) == NextRead::Now {
                limiter.charge_request(SMALL, now);
                limiter.charge_names(names);
                count += 1;
            }
            assert_eq!(count, expected, "with {names} names");
        }
    }

    #[test]
    fn who_waits_for_each_turn_is_told_when_and_in_the_end_never() {
        let start = Instant::now();
        let mut limiter = RequestLimiter::new(10, start);
        let (mut now, mut firsts, mut read) = (start, 0, 0);
        loop {
            match limiter.next_read(now) {
                NextRead::Now => {
                    limiter.charge_request(SMALL, now);
                    read += 1;
                }
                NextRead::At { time, first } => {
                    assert!(time > now);
                    now = time;
                    firsts += u32::from(first);
                }
                NextRead::Never => break,
            }
        }
        assert_eq!(firsts, 1, "one row");
        assert!((700..=702).contains(&read), "{read} in the time that it had");
        assert!(
            now - start > OVERUSE_TIMEOUT && now - start < OVERUSE_TIMEOUT + Duration::from_secs(1)
        );
    }

    #[test]
    fn a_rest_makes_good_what_was_too_much() {
        let start = Instant::now();
        let mut limiter = RequestLimiter::new(10, start);
        let mut now = start;
        for _ in 0..20 {
            (0..=100).for_each(|_| limiter.charge_request(SMALL, now));
            assert!(matches!(limiter.next_read(now), NextRead::At { first: true, .. }));
            now += BURST;
            assert_eq!(limiter.next_read(now), NextRead::Now);
        }
    }

    #[test]
    fn zero_is_no_bound() {
        let now = Instant::now();
        assert_eq!(at_once(&mut RequestLimiter::new(0, now), 32 << 20, now), 1_000_000);
    }
}
