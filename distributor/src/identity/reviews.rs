use super::Identity;
use super::review::{ReviewRefused, Reviewed};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// What the API server said of tokens, by their hash, no more than [`MOST`] of them.
pub(super) struct Reviews {
    /// How long an answer spares a question.
    fresh: Duration,
    /// Moved to `older` whole when it is full, so that the oldest are forgotten without being looked for.
    newer: HashMap<blake3::Hash, Judged>,
    older: HashMap<blake3::Hash, Judged>,
}

/// What was said, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) verdict: Result<Identity, String>,
    pub(super) at: SystemTime,
}

/// Some hundred bytes each.
const MOST: usize = 60_000;
/// How long at most a refusal does: its owner may hammer, and a new account may need a moment to be known.
const FRESH_REFUSAL: Duration = Duration::from_secs(10);
/// How long who was known is taken to be so while the API server is away.
pub(super) const TRUSTED: Duration = Duration::from_secs(3600);

impl Reviews {
    pub(super) fn new(fresh: Duration) -> Self {
        Self { fresh, newer: HashMap::new(), older: HashMap::new() }
    }

    pub(super) fn remember(&mut self, key: blake3::Hash, judged: Judged) {
        if self.newer.len() >= MOST / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, judged);
    }

    /// What need not be asked again.
    pub(super) fn fresh(&self, key: &blake3::Hash, now: SystemTime) -> Option<Judged> {
        let refusal = self.fresh.min(FRESH_REFUSAL);
        self.within(key, now, |judged| if judged.verdict.is_ok() { self.fresh } else { refusal })
    }

    /// What holds where nobody can be asked.
    pub(super) fn trusted(&self, key: &blake3::Hash, now: SystemTime) -> Option<Judged> {
        self.within(
            key,
            now,
            |judged| if judged.verdict.is_ok() { TRUSTED } else { Duration::ZERO },
        )
    }

    fn within(
        &self,
        key: &blake3::Hash,
        now: SystemTime,
        longest: impl Fn(&Judged) -> Duration,
    ) -> Option<Judged> {
        let judged = self.newer.get(key).or_else(|| self.older.get(key))?;
        // A clock that was set back makes nothing older, but must not make it last.
        let age = now.duration_since(judged.at).unwrap_or(TRUSTED);
        (age < longest(judged)).then(|| judged.clone())
    }
}

impl Judged {
    pub(super) fn into_outcome(self) -> Result<Reviewed, ReviewRefused> {
        let Self { verdict, at } = self;
        match verdict {
            Ok(identity) => Ok(Reviewed { identity, valid_until: at + TRUSTED }),
            Err(reason) => Err(ReviewRefused::Refused(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> blake3::Hash {
        blake3::hash(&number.to_le_bytes())
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn known(seconds: u64) -> Judged {
        let identity = Identity::ServiceAccount { namespace: "edge".into(), name: "envoy".into() };
        Judged { verdict: Ok(identity), at: at(seconds) }
    }

    #[test]
    fn an_answer_is_fresh_for_a_while_and_trusted_for_longer() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        reviews.remember(key(1), known(0));
        assert_eq!(reviews.fresh(&key(1), at(29)), Some(known(0)));
        assert_eq!(reviews.fresh(&key(1), at(30)), None);
        assert_eq!(reviews.trusted(&key(1), at(3599)), Some(known(0)));
        assert_eq!(reviews.trusted(&key(1), at(3600)), None);
        assert_eq!(reviews.fresh(&key(2), at(0)), None);
        assert_eq!(
            reviews.trusted(&key(1), at(0) - Duration::from_secs(9)),
            None,
            "a clock set back"
        );
    }

    #[test]
    fn a_refusal_is_fresh_for_a_moment_and_never_trusted() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        let refused = Judged { verdict: Err("no".into()), at: at(0) };
        reviews.remember(key(1), refused.clone());
        assert_eq!(reviews.fresh(&key(1), at(9)), Some(refused.clone()));
        assert_eq!(reviews.fresh(&key(1), at(10)), None);
        assert_eq!(reviews.trusted(&key(1), at(0)), None);
        assert!(matches!(refused.into_outcome(), Err(ReviewRefused::Refused(_))));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        for number in 0..3 * MOST {
            reviews.remember(key(number), known(0));
        }
        assert!(reviews.newer.len() + reviews.older.len() <= MOST);
        assert!(reviews.fresh(&key(3 * MOST - 1), at(0)).is_some());
        assert!(reviews.fresh(&key(3 * MOST - MOST / 2), at(0)).is_some());
        assert!(reviews.fresh(&key(0), at(0)).is_none());
    }
}
