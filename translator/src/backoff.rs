use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);

/// How long to wait before trying again what has failed so many times. `jitter`, from 0 to 1, spreads those that failed
/// together.
pub(crate) fn after(attempts: u32, longest: Duration, jitter: f64) -> Duration {
    let doublings = attempts.saturating_sub(1).min(10);
    let whole = FIRST.saturating_mul(1 << doublings).min(longest);
    whole.mul_f64(0.5 + jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound() {
        let longest = Duration::from_secs(2);
        let whole = |attempts| after(attempts, longest, 1.0).as_millis();
        assert_eq!([1, 2, 3, 5, 6, u32::MAX].map(whole), [100, 200, 400, 1600, 2000, 2000]);
        assert_eq!(after(1, longest, 0.0).as_millis(), 50);
    }
}
