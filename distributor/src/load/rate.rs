use super::shares::Shares;
use super::{LoadArgs, Owner};
use std::collections::VecDeque;
use std::time::Duration;

/// A token bucket for new streams, of which identities and namespaces have shares: a token belongs to the owner that took it
/// until it is refilled, and they are refilled in the order in which they were taken. That is more than `TokenBucket` of
/// `heliograph-shared` knows, which only counts.
#[derive(Debug)]
pub(super) struct AdmissionRate {
    per_second: f64,
    /// The tokens that are taken.
    tokens: Shares,
    /// Who took them, oldest first.
    taken: VecDeque<Owner>,
    /// The part of a token that was refilled until `at`.
    part: f64,
    at: Duration,
}

impl AdmissionRate {
    /// `None` without a bound. All tokens are there from the start.
    pub(super) fn new(args: &LoadArgs) -> Option<Self> {
        (args.admission_rate > 0).then(|| Self {
            per_second: f64::from(args.admission_rate),
            tokens: Shares::new(
                usize::try_from(args.admission_rate).unwrap_or(usize::MAX),
                args.max_identity_share,
                args.max_namespace_share,
            ),
            taken: VecDeque::new(),
            part: 0.0,
            at: Duration::ZERO,
        })
    }

    /// Acquires a token, if there is one and the owner may have it. A time before the last one refills nothing.
    pub(super) fn acquire(&mut self, owner: &Owner, now: Duration) -> bool {
        self.refill(now);
        let allowed = self.tokens.fits(1) && self.tokens.check(owner, 1).is_ok();
        if allowed {
            self.tokens.add(owner, 1);
            self.taken.push_back(owner.clone());
        }
        allowed
    }

    /// Gives back a token that was acquired in vain, unless it was refilled meanwhile.
    pub(super) fn give_back(&mut self, owner: &Owner) {
        // From the newest, where it nearly always is.
        if let Some(index) = self.taken.iter().rposition(|it| it == owner) {
            self.taken.remove(index);
            self.tokens.remove(owner, 1);
        }
    }

    fn refill(&mut self, now: Duration) {
        self.part += now.saturating_sub(self.at).as_secs_f64() * self.per_second;
        self.at = self.at.max(now);
        while self.part >= 1.0 {
            let Some(owner) = self.taken.pop_front() else { break };
            self.tokens.remove(&owner, 1);
            self.part -= 1.0;
        }
        // A bucket that is full keeps no part of the next token.
        if self.taken.is_empty() {
            self.part = 0.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use std::net::{IpAddr, Ipv4Addr};

    fn owner(namespace: &str) -> Owner {
        let (namespace, name) = (namespace.to_owned(), "envoy".to_owned());
        let identity = Identity::ServiceAccount { namespace, name };
        Owner::new(&identity, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn anybody() -> Owner {
        Owner::new(&Identity::Anybody, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn rate(per_second: u32) -> AdmissionRate {
        let args = LoadArgs { admission_rate: per_second, ..LoadArgs::default() };
        AdmissionRate::new(&args).unwrap()
    }

    fn taken(rate: &mut AdmissionRate, owner: &Owner, tries: usize, now: Duration) -> usize {
        (0..tries).filter(|_| rate.acquire(owner, now)).count()
    }

    #[test]
    fn so_many_per_second_and_as_many_at_once_after_a_rest() {
        let (mut rate, owner) = (rate(10), anybody());
        let mut take = |millis| taken(&mut rate, &owner, 100, Duration::from_millis(millis));
        assert_eq!([take(0), take(500), take(500), take(400)], [10, 5, 0, 0]);
        let steady: usize = (1..=1000).map(|n| take(500 + 10 * n)).sum();
        assert!((99..=100).contains(&steady), "{steady} in ten seconds");
        assert_eq!([take(3_600_000), take(3_600_000)], [10, 0]);
    }

    #[test]
    fn one_that_takes_all_it_can_leaves_tokens_for_others() {
        let (mut rate, hog) = (rate(2000), owner("one"));
        assert_eq!(taken(&mut rate, &hog, 10_000, Duration::ZERO), 1800);
        assert_eq!(taken(&mut rate, &owner("two"), 10_000, Duration::ZERO), 180);
        assert_eq!(taken(&mut rate, &owner("three"), 10_000, Duration::ZERO), 18);
        assert!(rate.acquire(&owner("four"), Duration::ZERO));
    }

    /// Ten thousand Envoys come back while a client opens streams without an end: in the second second they get as many as it.
    #[test]
    fn two_that_take_all_they_can_soon_have_the_same() {
        let (mut rate, hog, other) = (rate(2000), owner("one"), owner("two"));
        let mut admitted = [[0; 4]; 2];
        taken(&mut rate, &hog, 10_000, Duration::ZERO);
        for milli in 0..4000 {
            let now = Duration::from_millis(milli);
            let second = usize::try_from(milli / 1000).unwrap();
            admitted[0][second] += taken(&mut rate, &hog, 20, now);
            admitted[1][second] += taken(&mut rate, &other, 20, now);
        }
        assert!(admitted[1][0] > 900, "{admitted:?}");
        for second in 1..4 {
            let [hog, other] = admitted.map(|it| it[second]);
            assert!(hog + other > 1800 && other > 800, "{admitted:?}");
        }
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let (mut rate, owner) = (rate(10), anybody());
        rate.give_back(&owner);
        assert_eq!(taken(&mut rate, &owner, 100, Duration::ZERO), 10);
        rate.give_back(&owner);
        assert_eq!(taken(&mut rate, &owner, 100, Duration::ZERO), 1);
        let later = Duration::from_secs(2);
        assert!(rate.acquire(&owner, later));
        rate.give_back(&owner);
        rate.give_back(&owner);
        assert_eq!(taken(&mut rate, &owner, 100, later), 10);
    }
}
