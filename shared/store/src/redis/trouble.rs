use std::time::Duration;
use tokio::time::Instant;

/// When to tell the operator that what is new cannot be read: once, if it lasts, and that it is over.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    since: Option<Instant>,
    told: bool,
}

/// For so long it passes for a hiccup.
const HICCUP: Duration = Duration::from_secs(3);

impl Trouble {
    /// It did not work. `is_known`: the operator knows of it already. Whether to tell.
    pub(super) fn failed(&mut self, now: Instant, is_known: bool) -> bool {
        let since = *self.since.get_or_insert(now);
        let tell = !self.told && !is_known && now.saturating_duration_since(since) >= HICCUP;
        self.told |= tell;
        tell
    }

    /// It worked. Whether to tell.
    pub(super) fn worked(&mut self) -> bool {
        self.since = None;
        std::mem::take(&mut self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn what_lasts_is_told_once_and_its_end_too() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        let told = [0, 2, 3, 4, 60].map(|seconds| trouble.failed(after(start, seconds), false));
        assert_eq!(told, [false, false, true, false, false]);
        assert!(trouble.worked());
        assert!(!trouble.worked());
        assert!(!trouble.failed(after(start, 61), false), "this is another");
    }

    #[test]
    fn a_hiccup_is_not_told() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        assert!(!trouble.failed(start, false));
        assert!(!trouble.worked());
        assert!(!trouble.failed(after(start, 5), false));
    }

    #[test]
    fn what_is_known_is_told_only_if_it_turns_into_something_else() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        for seconds in 0..60 {
            assert!(!trouble.failed(after(start, seconds), true));
        }
        assert!(trouble.failed(after(start, 60), false));
    }
}
