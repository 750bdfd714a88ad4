use super::usage::LimitUsage;
use super::{Refusal, network};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The connections without an identity yet: in a TLS handshake, without a request, or with a token under review. They
/// have a limit of their own, so that they never displace authenticated ones. When there are too many of them, the
/// oldest is closed for the newest: an honest client authenticates within a moment.
#[derive(Debug)]
pub(crate) struct Unauthenticated<T> {
    limit: usize,
    next: u64,
    /// In the order in which they came.
    all: BTreeMap<u64, Waiting<T>>,
    by_address: BTreeSet<(IpAddr, u64)>,
}

#[derive(Debug)]
struct Waiting<T> {
    from: IpAddr,
    since: Duration,
    connection: T,
}

/// How long a connection is not closed for another. Otherwise, when very many honest clients connect at once, none of
/// them would ever authenticate.
const GRACE: Duration = Duration::from_secs(1);
/// An address that has more than this part of all that there may be makes room for itself. With the defaults it is half of what an
/// address may have, so that this comes before `--max-connections-per-address`.
const PART: usize = 20;

impl<T> Unauthenticated<T> {
    /// `limit`: 0 for any number.
    pub(crate) fn new(limit: usize) -> Self {
        let limit = if limit == 0 { usize::MAX } else { limit };
        Self { limit, next: 0, all: BTreeMap::new(), by_address: BTreeSet::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn usage(&self) -> LimitUsage {
        LimitUsage::new(self.all.len(), self.limit)
    }

    /// Its number, and the connection that is to be closed for it.
    pub(crate) fn enter(
        &mut self,
        from: IpAddr,
        now: Duration,
        connection: T,
    ) -> Result<(u64, Option<T>), Refusal> {
        let from = network(from);
        let mut closed = None;
        if self.all.len() >= self.limit {
            let oldest = self.oldest(from).ok_or(Refusal::Unauthenticated)?;
            closed = self.leave(oldest);
            // It has its grace.
            if let Some(waiting) = closed.take_if(|it| now.saturating_sub(it.since) < GRACE) {
                self.put(oldest, waiting);
                return Err(Refusal::Unauthenticated);
            }
        }
        let number = self.next;
        self.next += 1;
        self.put(number, Waiting { from, since: now, connection });
        Ok((number, closed.map(|waiting| waiting.connection)))
    }

    /// It is known now, or gone.
    pub(crate) fn remove(&mut self, number: u64) {
        self.leave(number);
    }

    fn oldest(&self, from: IpAddr) -> Option<u64> {
        let own = || self.by_address.range((from, 0)..=(from, u64::MAX)).map(|(_, number)| *number);
        // It skips as many as it takes to tell, and counts no further.
        let is_many = own().nth(self.limit / PART).is_some();
        let oldest = if is_many { own().next() } else { None };
        oldest.or_else(|| self.all.keys().next().copied())
    }

    fn put(&mut self, number: u64, waiting: Waiting<T>) {
        self.by_address.insert((waiting.from, number));
        self.all.insert(number, waiting);
    }

    fn leave(&mut self, number: u64) -> Option<Waiting<T>> {
        let waiting = self.all.remove(&number)?;
        self.by_address.remove(&(waiting.from, number));
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadArgs;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    const LATER: Duration = Duration::from_secs(10);

    #[test]
    fn the_oldest_makes_room_for_the_newest() {
        let mut waiting = Unauthenticated::new(3);
        for last in 0..3 {
            assert_eq!(waiting.enter(address(last), Duration::ZERO, last), Ok((last.into(), None)));
        }
        waiting.remove(0);
        assert_eq!(waiting.enter(address(3), LATER, 3), Ok((3, None)));
        assert_eq!(waiting.enter(address(4), LATER, 4), Ok((4, Some(1))));
        assert_eq!(waiting.enter(address(5), LATER, 5), Ok((5, Some(2))));
        assert_eq!(waiting.enter(address(6), LATER, 6), Err(Refusal::Unauthenticated), "in grace");
        assert_eq!(waiting.len(), 3);
        (0..10).for_each(|number| waiting.remove(number));
        assert!(waiting.all.is_empty() && waiting.by_address.is_empty());
    }

    #[test]
    fn who_has_many_makes_room_for_itself() {
        let mut waiting = Unauthenticated::new(20);
        waiting.enter(address(1), Duration::ZERO, 0).unwrap();
        for number in 1..20 {
            waiting.enter(address(2), Duration::ZERO, number).unwrap();
        }
        for number in 20..30 {
            let closed = waiting.enter(address(2), LATER, number).unwrap().1;
            assert_eq!(closed, Some(number - 19), "not the one of another address");
        }
        assert_eq!(waiting.enter(address(3), LATER, 30).unwrap().1, Some(0), "the oldest of all");
    }

    /// An address has as many connections as `--max-connections-per-address` lets in, and no more.
    #[test]
    fn with_the_defaults_an_address_with_many_makes_room_for_itself() {
        let args = LoadArgs::DEFAULT;
        let mut waiting = Unauthenticated::new(args.max_unauthenticated);
        let other = |number: usize| IpAddr::from((number as u32).to_be_bytes());
        for number in 0..args.max_unauthenticated {
            let is_own = (1..args.max_connections_per_address).contains(&number);
            let from = if is_own { address(1) } else { other(number) };
            waiting.enter(from, Duration::ZERO, number).unwrap();
        }
        assert_eq!(waiting.enter(address(1), LATER, 0).unwrap().1, Some(1), "its own");
        assert_eq!(waiting.enter(address(2), LATER, 0).unwrap().1, Some(0), "the oldest of all");
    }

    #[test]
    fn zero_is_no_bound() {
        let mut waiting = Unauthenticated::new(0);
        for number in 0..50_000 {
            assert_eq!(waiting.enter(address(1), Duration::ZERO, ()), Ok((number, None)));
        }
    }
}
