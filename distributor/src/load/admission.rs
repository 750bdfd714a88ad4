use super::rate::AdmissionRate;
use super::shares::Shares;
use super::usage::{Holder, LimitUsage, Usage, UsageByHolder};
use super::{LoadArgs, Owner, spread_delay};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Decides which connections and streams are admitted, without a clock and without sockets. The caller reports each admitted
/// one again when it ends.
#[derive(Debug)]
pub(crate) struct Admission {
    max_connections_per_address: usize,
    rate: Option<AdmissionRate>,
    /// All of them.
    connections: usize,
    /// Those of which it is known whose they are.
    authenticated: Shares,
    streams: Shares,
    /// Addresses with open connections and streams: no more entries than there are of both.
    addresses: HashMap<IpAddr, Open>,
    drain: Option<Drain>,
}

/// Why a connection, a stream or a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Refusal {
    Connections,
    Address,
    /// Too many unauthenticated connections, all of which came just now.
    Unauthenticated,
    Streams,
    /// Its identity has too much of what there is.
    Identity,
    /// Its namespace has.
    Namespace,
    Rate,
    /// An admitted stream that asked for too much.
    Requests,
    /// A request of an admitted stream, while many others are being received, or many of its identity.
    Receiving,
    /// An admitted stream that makes its identity keep too many names that its fleet does not have, or requests that wait.
    IdentityMemory,
    /// The same of all identities of a namespace.
    NamespaceMemory,
    /// And of all identities.
    ReplicaMemory,
    /// An admitted stream whose fleet was not published in time.
    Unpublished,
    Drain,
}

/// The open connections and streams of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Open {
    connections: usize,
    streams: usize,
}

/// The connections that there were when the replica began to leave, and how many have asked for their turn.
#[derive(Debug)]
struct Drain {
    all: usize,
    asked: usize,
}

impl Admission {
    pub(crate) fn new(args: &LoadArgs) -> Self {
        let bound = |count: usize| if count == 0 { usize::MAX } else { count };
        let shares = |limit| Shares::new(limit, args.max_identity_share, args.max_namespace_share);
        Self {
            max_connections_per_address: bound(args.max_connections_per_address),
            rate: AdmissionRate::new(args),
            connections: 0,
            authenticated: shares(args.max_connections),
            streams: shares(args.max_streams),
            addresses: HashMap::new(),
            drain: None,
        }
    }

    /// A connection before authentication.
    pub(crate) fn connect(&mut self, from: IpAddr) -> Result<(), Refusal> {
        let from = network(from);
        if self.drain.is_some() {
            return Err(Refusal::Drain);
        }
        if !self.authenticated.fits(1) {
            return Err(Refusal::Connections);
        }
        if self.open(from).connections >= self.max_connections_per_address {
            return Err(Refusal::Address);
        }
        self.addresses.entry(from).or_default().connections += 1;
        self.connections += 1;
        Ok(())
    }

    /// A connection turns out to be of this one.
    pub(crate) fn authenticate(&mut self, owner: &Owner) -> Result<(), Refusal> {
        if !self.authenticated.fits(1) {
            return Err(Refusal::Connections);
        }
        self.authenticated.check(owner, 1)?;
        self.authenticated.add(owner, 1);
        Ok(())
    }

    /// It was authenticated twice.
    pub(crate) fn release(&mut self, owner: &Owner) {
        self.authenticated.remove(owner, 1);
    }

    /// `owner`: if it was authenticated.
    pub(crate) fn disconnect(&mut self, from: IpAddr, owner: Option<&Owner>) {
        self.connections = self.connections.saturating_sub(1);
        owner.into_iter().for_each(|owner| self.authenticated.remove(owner, 1));
        self.closed(from, |open| &mut open.connections);
    }

    /// `now` counts from the start of the replica. An address may have as many streams as connections: an Envoy has one
    /// of each, and a connection with many is as much work as many with one.
    pub(crate) fn open_stream(
        &mut self,
        from: IpAddr,
        owner: &Owner,
        now: Duration,
    ) -> Result<(), Refusal> {
        let from = network(from);
        if self.drain.is_some() {
            return Err(Refusal::Drain);
        }
        if !self.streams.fits(1) {
            return Err(Refusal::Streams);
        }
        self.streams.check(owner, 1)?;
        if self.open(from).streams >= self.max_connections_per_address {
            return Err(Refusal::Address);
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.acquire(owner, now)) {
            return Err(Refusal::Rate);
        }
        self.addresses.entry(from).or_default().streams += 1;
        self.streams.add(owner, 1);
        Ok(())
    }

    /// A stream that was sent nothing gives its token back: otherwise one client that opens streams
    /// and drops them would keep all others out.
    pub(crate) fn close_stream(&mut self, from: IpAddr, owner: &Owner, was_set_up: bool) {
        self.streams.remove(owner, 1);
        self.closed(from, |open| &mut open.streams);
        if let (Some(rate), false) = (&mut self.rate, was_set_up) {
            rate.give_back(owner);
        }
    }

    /// How much is in use, and by which owners. Other modules know the rest.
    pub(crate) fn usage(
        &self,
        unauthenticated_connections: LimitUsage,
        [small_request_bytes, large_request_bytes]: [LimitUsage; 2],
        (subscription_bytes, [bytes, namespace_bytes]): (LimitUsage, [UsageByHolder; 2]),
    ) -> Usage {
        let (streams, connections) = (&self.streams, &self.authenticated);
        let (identities, namespaces) = (streams.identities(), streams.namespaces());
        Usage {
            streams: streams.usage(),
            connections: connections.usage(),
            unauthenticated_connections,
            subscription_bytes,
            small_request_bytes,
            large_request_bytes,
            identities: Holder::largest(identities, connections.identities(), &bytes),
            namespaces: Holder::largest(namespaces, connections.namespaces(), &namespace_bytes),
        }
    }

    /// Admits nothing from now on. Returns how long the connection that asks may stay: each asks once, and gets another part
    /// of the time. `jitter` is from 0 to 1.
    pub(crate) fn drain_delay(&mut self, time: Duration, jitter: f64) -> Duration {
        let drain = self.drain.get_or_insert(Drain { all: self.connections, asked: 0 });
        let delay = spread_delay(drain.asked, drain.all, time, jitter);
        drain.asked += 1;
        delay
    }

    fn open(&self, from: IpAddr) -> Open {
        self.addresses.get(&from).copied().unwrap_or_default()
    }

    /// One less of something that an address has.
    fn closed(&mut self, from: IpAddr, what: fn(&mut Open) -> &mut usize) {
        if let Entry::Occupied(mut entry) = self.addresses.entry(network(from)) {
            let count = what(entry.get_mut());
            *count = count.saturating_sub(1);
            if *entry.get() == Open::default() {
                entry.remove();
            }
        }
    }
}

impl Refusal {
    pub(super) const ALL: [Self; 14] = [
        Self::Connections,
        Self::Address,
        Self::Unauthenticated,
        Self::Streams,
        Self::Identity,
        Self::Namespace,
        Self::Rate,
        Self::Requests,
        Self::Receiving,
        Self::IdentityMemory,
        Self::NamespaceMemory,
        Self::ReplicaMemory,
        Self::Unpublished,
        Self::Drain,
    ];

    /// For metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Address => "address",
            Self::Unauthenticated => "unauthenticated",
            Self::Streams => "streams",
            Self::Identity => "identity",
            Self::Namespace => "namespace",
            Self::Rate => "rate",
            Self::Requests => "requests",
            Self::Receiving => "receiving",
            Self::IdentityMemory => "identity_memory",
            Self::NamespaceMemory => "namespace_memory",
            Self::ReplicaMemory => "replica_memory",
            Self::Unpublished => "unpublished",
            Self::Drain => "drain",
        }
    }

    /// For the client, and for the operator who reads its log.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Connections => {
                "this replica has the maximum number of connections (--max-connections)"
            }
            Self::Address => {
                "this address has too many connections or streams (--max-connections-per-address)"
            }
            Self::Streams => {
                "this replica has the maximum number of streams (--max-streams): connect again"
            }
            Self::Unauthenticated => {
                "too many connections are not authenticated (--max-unauthenticated): connect again"
            }
            Self::Identity => {
                "this identity has too many of the connections or streams of this replica (--max-identity-share): \
                 connect again"
            }
            Self::Namespace => {
                "this namespace has too many of the connections or streams of this replica (--max-namespace-share): \
                 connect again"
            }
            Self::Rate => {
                "too many new streams in this second, of all clients or of this identity (--admission-rate): try again \
                 after a pause"
            }
            Self::Requests => "this stream sent too many requests for too long (--request-rate)",
            Self::Receiving => {
                "too many requests are being received at once, from all clients or from this identity: try again after a pause"
            }
            Self::IdentityMemory => {
                "the streams of this identity keep too many names that their fleets do not have, or requests that wait \
                 (--subscription-memory-per-identity)"
            }
            Self::NamespaceMemory => {
                "the streams of this namespace keep too many names that their fleets do not have, or requests that wait: half of \
                 --subscription-memory, or as much as is left"
            }
            Self::ReplicaMemory => {
                "the streams of this replica keep too many names that their fleets do not have, or requests that wait \
                 (--subscription-memory)"
            }
            Self::Unpublished => {
                "this fleet is not published yet (--unpublished-timeout): try again after a pause"
            }
            Self::Drain => "this replica is shutting down: connect again",
        }
    }
}

/// The network of one host: with IPv6 a host has 2^64 addresses.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn admission(change: impl FnOnce(&mut LoadArgs)) -> Admission {
        let mut args = LoadArgs::default();
        change(&mut args);
        Admission::new(&args)
    }

    fn of(address: IpAddr) -> Owner {
        Owner::new(&Identity::Anybody, address)
    }

    #[test]
    fn so_many_connections_and_no_more() {
        let mut admission = admission(|args| args.max_connections = 2);
        // Three before authentication, of which two can be authenticated.
        (0..3).for_each(|_| admission.connect(ONE).unwrap());
        assert_eq!(admission.authenticate(&of(ONE)), Ok(()));
        assert_eq!(admission.authenticate(&of(ONE)), Ok(()));
        assert_eq!(admission.authenticate(&of(ONE)), Err(Refusal::Connections));
        assert_eq!(admission.connect(TWO), Err(Refusal::Connections), "in vain");
        admission.disconnect(ONE, None);
        assert_eq!(admission.connect(TWO), Err(Refusal::Connections), "it had no part in it");
        admission.disconnect(ONE, Some(&of(ONE)));
        assert_eq!(admission.connect(TWO), Ok(()));
        assert_eq!(admission.authenticate(&of(TWO)), Ok(()));
    }

    #[test]
    fn one_address_cannot_take_all_connections() {
        let mut admission = admission(|args| args.max_connections_per_address = 2);
        assert_eq!(admission.connect(ONE), Ok(()));
        assert_eq!(admission.connect(ONE), Ok(()));
        assert_eq!(admission.connect(ONE), Err(Refusal::Address));
        assert_eq!(admission.connect(TWO), Ok(()));
        admission.disconnect(ONE, None);
        assert_eq!(admission.connect(ONE), Ok(()));
    }

    #[test]
    fn nor_all_streams_over_few_connections() {
        let mut admission = admission(|args| args.max_connections_per_address = 2);
        admission.connect(ONE).unwrap();
        for _ in 0..2 {
            assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
        }
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Err(Refusal::Address));
        assert_eq!(admission.open_stream(TWO, &of(TWO), Duration::ZERO), Ok(()));
        admission.close_stream(ONE, &of(ONE), true);
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
    }

    #[test]
    fn addresses_that_left_are_forgotten() {
        let mut admission = admission(|_| {});
        for last in 0..=255 {
            let address = IpAddr::from([192, 0, 2, last]);
            admission.connect(address).unwrap();
            admission.open_stream(address, &of(address), Duration::ZERO).unwrap();
            admission.disconnect(address, None);
            admission.close_stream(address, &of(address), true);
        }
        assert!(admission.addresses.is_empty());
    }

    #[test]
    fn so_many_streams_and_no_more() {
        let mut admission = admission(|args| args.max_streams = 1);
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Err(Refusal::Streams));
        admission.close_stream(ONE, &of(ONE), true);
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
    }

    #[test]
    fn who_opens_streams_in_vain_keeps_nobody_out() {
        let mut admission = admission(|args| args.admission_rate = 2);
        for _ in 0..1000 {
            assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
            admission.close_stream(ONE, &of(ONE), false);
        }
        for _ in 0..2 {
            assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
            admission.close_stream(ONE, &of(ONE), true);
        }
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Err(Refusal::Rate));
    }

    #[test]
    fn a_stream_that_is_refused_takes_nothing() {
        let mut admission = admission(|args| args.admission_rate = 1);
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Ok(()));
        for _ in 0..100 {
            assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Err(Refusal::Rate));
        }
        assert_eq!(admission.streams.usage().now, 1);
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::from_secs(1)), Ok(()));
    }

    #[test]
    fn zero_is_no_bound() {
        let mut admission = admission(|args| {
            args.max_connections = 0;
            args.max_connections_per_address = 0;
            args.max_streams = 0;
            args.admission_rate = 0;
        });
        for _ in 0..50_000 {
            admission.connect(ONE).unwrap();
            admission.authenticate(&of(ONE)).unwrap();
            admission.open_stream(ONE, &of(ONE), Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn a_drain_lets_nobody_in_and_gives_each_its_own_turn() {
        let mut admission = admission(|_| {});
        for _ in 0..4 {
            admission.connect(ONE).unwrap();
        }
        let time = Duration::from_secs(20);
        let mut turns: Vec<_> = (0..4)
            .map(|_| {
                let turn = admission.drain_delay(time, 0.5);
                admission.disconnect(ONE, None);
                turn.as_secs_f64()
            })
            .collect();
        turns.sort_by(f64::total_cmp);
        assert_eq!(turns, [2.5, 7.5, 12.5, 17.5]);
        assert_eq!(admission.connect(TWO), Err(Refusal::Drain));
        assert_eq!(admission.open_stream(ONE, &of(ONE), Duration::ZERO), Err(Refusal::Drain));
    }
}
