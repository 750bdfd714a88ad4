use super::Proven;
use super::review::{ReviewRefused, Reviewed};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// The results of token reviews, by the hash of the token. Refusals are apart: made-up tokens must not push out those that
/// are known.
pub(super) struct Reviews {
    /// How long an answer spares a question.
    fresh: Duration,
    known: RecentReviews,
    refused: RecentReviews,
}

/// The result of a review, and when it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CachedReview {
    pub(super) result: Result<Proven, String>,
    pub(super) at: SystemTime,
    /// When the token ends, as it claims. The result holds no longer than that.
    pub(super) expires: Option<SystemTime>,
}

/// The newest of many.
#[derive(Default)]
struct RecentReviews {
    /// Becomes `older` whole when it is full, so that the oldest are forgotten without being looked for.
    newer: HashMap<blake3::Hash, CachedReview>,
    older: HashMap<blake3::Hash, CachedReview>,
}

/// Of each kind at most; some hundred bytes each.
const MAX_REVIEWS: usize = 60_000;
/// How long at most a refusal does: its owner may hammer, and a new account may need a moment to be known.
const FRESH_REFUSAL: Duration = Duration::from_secs(10);
/// How long a cached identity stays valid while the API server is unreachable.
const TRUSTED: Duration = Duration::from_secs(3600);

impl Reviews {
    pub(super) fn new(fresh: Duration) -> Self {
        Self { fresh, known: RecentReviews::default(), refused: RecentReviews::default() }
    }

    pub(super) fn insert(&mut self, key: blake3::Hash, cached: CachedReview) {
        if cached.result.is_ok() {
            self.refused.forget(&key);
            self.known.insert(key, cached);
        } else {
            self.known.forget(&key);
            self.refused.insert(key, cached);
        }
    }

    /// The cached review, if it is recent enough to need no request.
    pub(super) fn fresh(&self, key: &blake3::Hash, now: SystemTime) -> Option<CachedReview> {
        let known = self.known.younger(key, now, self.fresh);
        known.or_else(|| self.refused.younger(key, now, self.fresh.min(FRESH_REFUSAL)))
    }

    /// The cached review that is valid while the API server is unreachable.
    pub(super) fn trusted(&self, key: &blake3::Hash, now: SystemTime) -> Option<CachedReview> {
        self.known.younger(key, now, TRUSTED)
    }
}

impl RecentReviews {
    fn insert(&mut self, key: blake3::Hash, cached: CachedReview) {
        if self.newer.len() >= MAX_REVIEWS / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(key, cached);
    }

    fn forget(&mut self, key: &blake3::Hash) {
        self.newer.remove(key);
        self.older.remove(key);
    }

    fn younger(&self, key: &blake3::Hash, now: SystemTime, age: Duration) -> Option<CachedReview> {
        let cached = self.newer.get(key).or_else(|| self.older.get(key))?;
        // What is from the future, because a clock was set back, must not last.
        let found = now.duration_since(cached.at).unwrap_or(TRUSTED);
        let has_ended = cached.expires.is_some_and(|expires| expires <= now);
        (found < age && !has_ended).then(|| cached.clone())
    }
}

impl CachedReview {
    pub(super) fn into_outcome(self) -> Result<Reviewed, ReviewRefused> {
        let Self { result, at, expires } = self;
        let trusted = at + TRUSTED;
        let valid_until = expires.map_or(trusted, |expires| expires.min(trusted));
        match result {
            Ok(proven) => Ok(Reviewed { proven, valid_until }),
            Err(reason) => Err(ReviewRefused::Refused(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Identity;
    use super::*;

    fn key(number: usize) -> blake3::Hash {
        blake3::hash(&number.to_le_bytes())
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    fn known(seconds: u64) -> CachedReview {
        let identity = Identity::ServiceAccount { namespace: "edge".into(), name: "envoy".into() };
        CachedReview { result: Ok(identity.into()), at: at(seconds), expires: None }
    }

    fn refused(seconds: u64) -> CachedReview {
        CachedReview { result: Err("no".into()), at: at(seconds), expires: None }
    }

    #[test]
    fn nothing_holds_for_longer_than_the_token() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        let short = CachedReview { expires: Some(at(20)), ..known(0) };
        reviews.insert(key(1), short.clone());
        assert_eq!(reviews.fresh(&key(1), at(19)), Some(short.clone()));
        assert_eq!(reviews.fresh(&key(1), at(20)), None);
        assert_eq!(reviews.trusted(&key(1), at(20)), None, "nor while nobody can be asked");
        assert_eq!(short.into_outcome().unwrap().valid_until, at(20));
        // A token cannot make itself be trusted for longer.
        let long = CachedReview { expires: Some(at(1_000_000)), ..known(0) };
        assert_eq!(long.into_outcome().unwrap().valid_until, at(3600));
    }

    #[test]
    fn an_answer_is_fresh_for_a_while_and_trusted_for_longer() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        reviews.insert(key(1), known(0));
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
        let refused = refused(0);
        reviews.insert(key(1), refused.clone());
        assert_eq!(reviews.fresh(&key(1), at(9)), Some(refused.clone()));
        assert_eq!(reviews.fresh(&key(1), at(10)), None);
        assert_eq!(reviews.trusted(&key(1), at(0)), None);
        assert!(matches!(refused.into_outcome(), Err(ReviewRefused::Refused(_))));
    }

    #[test]
    fn who_is_refused_later_is_no_longer_trusted() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        reviews.insert(key(1), known(0));
        let refused = refused(40);
        reviews.insert(key(1), refused.clone());
        assert_eq!(reviews.fresh(&key(1), at(41)), Some(refused));
        assert_eq!(reviews.trusted(&key(1), at(41)), None);
        reviews.insert(key(1), known(60));
        assert_eq!(reviews.fresh(&key(1), at(61)), Some(known(60)));
    }

    #[test]
    fn no_more_than_so_many_are_remembered() {
        let mut reviews = Reviews::new(Duration::from_secs(30));
        for number in 0..2 * MAX_REVIEWS {
            reviews.insert(key(number), known(0));
        }
        let count = |kind: &RecentReviews| kind.newer.len() + kind.older.len();
        assert!(count(&reviews.known) <= MAX_REVIEWS);
        let newest = key(2 * MAX_REVIEWS - 1);
        assert!(reviews.fresh(&newest, at(0)).is_some());
        assert!(reviews.fresh(&key(2 * MAX_REVIEWS - MAX_REVIEWS / 2), at(0)).is_some());
        assert!(reviews.fresh(&key(0), at(0)).is_none());
        for number in 2 * MAX_REVIEWS..4 * MAX_REVIEWS {
            reviews.insert(key(number), refused(0));
        }
        assert!(count(&reviews.refused) <= MAX_REVIEWS);
        assert!(reviews.trusted(&newest, at(0)).is_some(), "made-up tokens push nobody out");
    }
}
