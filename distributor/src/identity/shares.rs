use crate::load::network;
use heliograph_shared::backoff::Backoff;
use heliograph_shared::token_bucket::TokenBucket;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Shares the reviews of new tokens out among the addresses that ask for them. Decides, and knows no clock and no socket.
///
/// An address may acquire a turn while it had fewer in the last second than are left. One that asks alone gets all of them, a
/// few get equal parts, and what is left is always enough for an address that comes new.
#[derive(Debug)]
pub(super) struct ReviewShares {
    /// As many at once as in a second.
    turns: TokenBucket<Duration>,
    /// So many are for tokens that a key of the cluster has signed.
    reserved: f64,
    /// An address is here from its first turn until it has been quiet for a while: as many entries as turns in that time,
    /// and never more than `MOST_SOURCES`.
    sources: HashMap<IpAddr, Source>,
    /// All addresses that come while that many are here.
    others: Source,
    swept: Duration,
}

/// The result of checking a token before Kubernetes reviews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precheck {
    /// A key of the cluster has signed it.
    Signed,
    /// It names a key that is none of those that are known.
    UnknownKey,
    /// There are no keys to check it with.
    NoKeys,
}

/// Why a token is not reviewed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Withheld {
    /// Others have their share.
    Share,
    /// Too many tokens from this address were refused.
    Penalty,
}

/// The recent use of one address.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    /// Turns, which count less as they get older. Made-up tokens take no turns from signed ones, also behind the same
    /// address.
    signed: f64,
    unchecked: f64,
    /// When they were counted.
    at: Duration,
    /// Tokens refused in a row.
    refused: u32,
    penalties: u32,
    blocked_until: Duration,
}

/// After so many refused tokens in a row an address waits.
const REFUSED_BEFORE_PENALTY: u32 = 10;
/// How long the first time; then twice as long each time. Short at most, because proxies may have the same address, and
/// for one that comes back this must be no outage.
const PENALTY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// An address that was quiet for so long after that is taken for a new one.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// A turn counts for nothing when so little is left of it, after four seconds.
const NOTHING: f64 = 0.02;
const MOST_SOURCES: usize = 20_000;
/// How often addresses that are quiet are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

impl ReviewShares {
    /// `rate` is of turns per second, of all addresses together.
    pub(super) fn new(rate: u32) -> Self {
        let per_second = f64::from(rate);
        Self {
            turns: TokenBucket::new(per_second, per_second, Duration::ZERO),
            reserved: f64::from(rate / 2),
            sources: HashMap::new(),
            others: Source::default(),
            swept: Duration::ZERO,
        }
    }

    /// Acquires a turn, if this address may have one. `now` counts from the start of the replica.
    pub(super) fn acquire(
        &mut self,
        address: IpAddr,
        precheck: Precheck,
        now: Duration,
    ) -> Result<(), Withheld> {
        self.sweep(now);
        let address = network(address);
        let mut source = self.source(address).at(now);
        if precheck != Precheck::Signed && now < source.blocked_until {
            return Err(Withheld::Penalty);
        }
        let reserved = if precheck == Precheck::UnknownKey { self.reserved } else { 0.0 };
        let left = self.turns.available(now) - reserved;
        let taken = source.taken(precheck);
        if left < 1.0 || *taken >= left || self.turns.acquire(now).is_err() {
            return Err(Withheld::Share);
        }
        *taken += 1.0;
        self.set(address, source);
        Ok(())
    }

    /// Gives back a turn that was not needed.
    pub(super) fn give_back(&mut self, address: IpAddr, precheck: Precheck) {
        self.turns.give_back();
        self.change(address, |source| {
            let taken = source.taken(precheck);
            *taken = (*taken - 1.0).max(0.0);
        });
    }

    /// A token from this address is good. So a sender of made-up tokens shares the address with other clients, which
    /// must not wait because of it.
    pub(super) fn accepted(&mut self, address: IpAddr) {
        self.change(address, |source| {
            (source.refused, source.penalties) = (0, 0);
            source.blocked_until = Duration::ZERO;
        });
    }

    /// Kubernetes refused a token from this address, which had taken a turn.
    pub(super) fn refused(&mut self, address: IpAddr, precheck: Precheck, now: Duration) {
        // A token that the cluster has signed is of a pod or an account that is gone, and not made up.
        if precheck != Precheck::Signed {
            self.change(address, |source| source.refused(now));
        }
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Source)) {
        // All addresses that there is no room for are not punished for one of them.
        if let Some(source) = self.sources.get_mut(&network(address)) {
            change(source);
        }
    }

    fn source(&self, address: IpAddr) -> Source {
        match self.sources.get(&address) {
            Some(source) => *source,
            None if self.sources.len() < MOST_SOURCES => Source::default(),
            None => self.others,
        }
    }

    fn set(&mut self, address: IpAddr, source: Source) {
        if self.sources.len() < MOST_SOURCES || self.sources.contains_key(&address) {
            self.sources.insert(address, source);
        } else {
            self.others = source;
        }
    }

    fn sweep(&mut self, now: Duration) {
        if now.saturating_sub(self.swept) >= SWEEP_EVERY {
            self.swept = now;
            self.sources.retain(|_, source| !source.at(now).is_quiet(now));
        }
    }
}

impl Source {
    /// The same, later.
    fn at(mut self, now: Duration) -> Self {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.signed *= (-passed).exp();
        self.unchecked *= (-passed).exp();
        self
    }

    fn taken(&mut self, precheck: Precheck) -> &mut f64 {
        match precheck {
            Precheck::Signed => &mut self.signed,
            Precheck::UnknownKey | Precheck::NoKeys => &mut self.unchecked,
        }
    }

    fn refused(&mut self, now: Duration) {
        // What was under way when the penalty began belongs to it.
        if now < self.blocked_until {
            return;
        }
        self.refused += 1;
        if self.refused >= REFUSED_BEFORE_PENALTY {
            self.penalties = self.penalties.saturating_add(1);
            self.blocked_until = now + PENALTY.pause(self.penalties);
            self.refused = 0;
        }
    }

    fn is_quiet(&self, now: Duration) -> bool {
        let is_forgotten = self.penalties == 0 || now >= self.blocked_until + FORGOTTEN_AFTER;
        self.signed < NOTHING && self.unchecked < NOTHING && is_forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Precheck::{NoKeys, Signed, UnknownKey};

    const FLOODING: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const NEW: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1));

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// How many turns it gets of so many that it asks for.
    fn taken(shares: &mut ReviewShares, address: IpAddr, asked: usize, now: Duration) -> usize {
        (0..asked).filter(|_| shares.acquire(address, NoKeys, now).is_ok()).count()
    }

    #[test]
    fn one_address_alone_gets_all_turns() {
        let mut shares = ReviewShares::new(500);
        let taken: usize = (0..10_000).map(|ms| taken(&mut shares, FLOODING, 10, at(ms))).sum();
        assert!((4_700..=5_500).contains(&taken), "{taken} in ten seconds");
    }

    #[test]
    fn an_address_that_comes_new_finds_turns_left() {
        for flooding in [1, 20, 100] {
            let mut shares = ReviewShares::new(500);
            for ms in 0..5_000 {
                for last in 0..flooding {
                    taken(&mut shares, IpAddr::from([192, 0, 2, last]), 2, at(ms));
                }
                // Again and again another one.
                if ms % 100 == 50 {
                    let new = IpAddr::from([198, 51, 100, (ms / 100) as u8]);
                    assert_eq!(
                        shares.acquire(new, NoKeys, at(ms)),
                        Ok(()),
                        "{flooding} flood, {ms}"
                    );
                }
            }
        }
    }

    #[test]
    fn all_together_take_no_more_than_the_rate() {
        let mut shares = ReviewShares::new(50);
        let mut sum = 0;
        for ms in 0..10_000 {
            sum +=
                taken(&mut shares, IpAddr::from([192, 0, (ms / 250) as u8, ms as u8]), 1, at(ms));
        }
        assert!(sum <= 11 * 50, "{sum} in ten seconds");
    }

    #[test]
    fn what_the_cluster_signed_has_turns_of_its_own() {
        let mut shares = ReviewShares::new(10);
        for last in 0..=255 {
            let _ = shares.acquire(IpAddr::from([192, 0, 2, last]), UnknownKey, at(0));
        }
        assert_eq!(shares.acquire(NEW, UnknownKey, at(0)), Err(Withheld::Share));
        assert_eq!(shares.acquire(NEW, Signed, at(0)), Ok(()));
        assert_eq!(shares.acquire(FLOODING, Signed, at(0)), Ok(()), "also behind the same address");
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let mut shares = ReviewShares::new(4);
        for host in 0..100_u16 {
            let address = IpAddr::from([0x2001, 0xdb8, 0, 1, host, 2, 3, 4]);
            let _ = shares.acquire(address, NoKeys, at(0));
        }
        assert_eq!(shares.sources.len(), 1);
        let new = IpAddr::from([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1]);
        assert_eq!(shares.acquire(new, NoKeys, at(0)), Ok(()));
    }

    fn refuse(shares: &mut ReviewShares, count: u32, precheck: Precheck, now: Duration) {
        for _ in 0..count {
            shares.acquire(FLOODING, precheck, now).unwrap();
            shares.refused(FLOODING, precheck, now);
        }
    }

    #[test]
    fn who_is_refused_again_and_again_waits_longer_each_time() {
        let mut shares = ReviewShares::new(500);
        let mut now = at(0);
        for seconds in [1, 2, 4, 8, 10, 10, 10] {
            refuse(&mut shares, REFUSED_BEFORE_PENALTY, NoKeys, now);
            let end = now + Duration::from_secs(seconds);
            let penalty = Err(Withheld::Penalty);
            assert_eq!(shares.acquire(FLOODING, NoKeys, end - at(1)), penalty, "{seconds}");
            assert_eq!(
                shares.acquire(FLOODING, Signed, end - at(1)),
                Ok(()),
                "what is signed goes on"
            );
            assert_eq!(shares.acquire(NEW, NoKeys, end - at(1)), Ok(()));
            now = end;
        }
        shares.acquire(FLOODING, NoKeys, now).unwrap();
    }

    #[test]
    fn a_good_token_ends_the_penalty_of_its_address() {
        let mut shares = ReviewShares::new(500);
        refuse(&mut shares, REFUSED_BEFORE_PENALTY, NoKeys, at(0));
        assert_eq!(shares.acquire(FLOODING, NoKeys, at(1)), Err(Withheld::Penalty));
        shares.accepted(FLOODING);
        refuse(&mut shares, REFUSED_BEFORE_PENALTY - 1, NoKeys, at(1));
        shares.accepted(FLOODING);
        refuse(&mut shares, REFUSED_BEFORE_PENALTY, NoKeys, at(2));
        assert_eq!(shares.acquire(FLOODING, NoKeys, at(1_001)), Err(Withheld::Penalty));
        assert_eq!(shares.acquire(FLOODING, NoKeys, at(1_002)), Ok(()), "the first again");
    }

    #[test]
    fn signed_tokens_that_are_refused_are_not_held_against_their_address() {
        let mut shares = ReviewShares::new(500);
        refuse(&mut shares, 5 * REFUSED_BEFORE_PENALTY, Signed, at(0));
        assert_eq!(shares.acquire(FLOODING, NoKeys, at(0)), Ok(()));
    }

    #[test]
    fn a_turn_that_is_given_back_can_be_taken_again() {
        let mut shares = ReviewShares::new(1);
        for _ in 0..10 {
            assert_eq!(shares.acquire(FLOODING, NoKeys, at(0)), Ok(()));
            shares.give_back(FLOODING, NoKeys);
        }
        assert_eq!(shares.acquire(NEW, NoKeys, at(0)), Ok(()));
        assert_eq!(shares.acquire(FLOODING, NoKeys, at(0)), Err(Withheld::Share));
    }

    #[test]
    fn addresses_that_are_quiet_are_forgotten() {
        let mut shares = ReviewShares::new(500);
        refuse(&mut shares, REFUSED_BEFORE_PENALTY, NoKeys, at(0));
        shares.acquire(NEW, NoKeys, at(0)).unwrap();
        let third = IpAddr::from([203, 0, 113, 1]);
        shares.acquire(third, NoKeys, at(5_000)).unwrap();
        assert_eq!(shares.sources.len(), 2, "one has a penalty to be remembered");
        shares.acquire(third, NoKeys, at(61_000)).unwrap();
        assert_eq!(shares.sources.len(), 1);
    }

    #[test]
    fn no_more_than_so_many_addresses_are_told_apart() {
        let mut shares = ReviewShares::new(1_000_000);
        let address = |number: usize| IpAddr::V4((number as u32).into());
        for number in 0..MOST_SOURCES + 1_000 {
            assert_eq!(shares.acquire(address(number), NoKeys, at(0)), Ok(()));
        }
        assert_eq!(shares.sources.len(), MOST_SOURCES);
        assert!(shares.others.unchecked > 999.0);
        shares.acquire(address(7), NoKeys, at(5_000)).unwrap();
        assert_eq!(shares.sources.len(), 1);
    }
}
