use super::shares::Shares;
use super::usage::LimitUsage;
use super::{LoadMetrics, Owner, Refusal};
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

/// The memory for requests that are being received, of which identities and namespaces have shares. Large and small requests
/// have memory of their own, so that where clients have no identities large ones never keep an Envoy from its first request.
#[derive(Debug)]
pub(crate) struct ReceiveQuota {
    small: Mutex<Shares>,
    large: Mutex<Shares>,
    metrics: LoadMetrics,
}

/// The memory of one request. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct ReceivePermit {
    quota: Arc<ReceiveQuota>,
    owner: Owner,
    size: Size,
    bytes: usize,
}

/// Requests that have memory together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Large,
}

/// Requests up to this size need no permit: acknowledgements, which are never refused for what others send. With all 20,000
/// streams they are 80 MB.
const TINY: usize = 4 << 10;
/// Up to this size they are small: the first one of a real Envoy has 61 KB if it holds nothing yet.
const SMALL: usize = 96 << 10;
/// The limit of all small ones together, from their first byte to their last: 4,000 first requests of Envoys.
const SMALL_ROOM: usize = 256 << 20;
/// The limit of all large ones together, from their first byte until they are answered, encoded or decoded, whichever is
/// more: a thousand Envoys at once that come back with 2,000 resources each.
const LARGE_ROOM: usize = 256 << 20;
/// The part of either that one identity or namespace may have if it is alone, in percent. Half is enough for many Envoys
/// of one Gateway that come back at once, because a request takes a moment; a client that sends slowly leaves the other
/// half to others.
const SHARE: u8 = 50;

impl ReceiveQuota {
    pub(crate) fn new(metrics: LoadMetrics) -> Arc<Self> {
        let room = |bytes| Mutex::new(Shares::new(bytes, SHARE, SHARE));
        Arc::new(Self { small: room(SMALL_ROOM), large: room(LARGE_ROOM), metrics })
    }

    /// How much small and large requests have.
    pub(crate) fn usage(&self) -> [LimitUsage; 2] {
        [Size::Small, Size::Large].map(|size| self.room(size).usage())
    }

    /// For a request of so many bytes that begins to arrive.
    pub(crate) fn receive(
        self: &Arc<Self>,
        owner: &Owner,
        bytes: usize,
    ) -> Result<Option<ReceivePermit>, Refusal> {
        if bytes <= TINY {
            return Ok(None);
        }
        let size = if bytes <= SMALL { Size::Small } else { Size::Large };
        self.reserve(owner, size, bytes)?;
        Ok(Some(ReceivePermit { quota: self.clone(), owner: owner.clone(), size, bytes }))
    }

    fn reserve(&self, owner: &Owner, size: Size, bytes: usize) -> Result<(), Refusal> {
        let mut room = self.room(size);
        if !room.fits(bytes) || room.check(owner, bytes).is_err() {
            return Err(Refusal::Receiving);
        }
        room.add(owner, bytes);
        self.metrics.receiving(size, room.usage().now);
        Ok(())
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn room(&self, size: Size) -> MutexGuard<'_, Shares> {
        let room = match size {
            Size::Small => &self.small,
            Size::Large => &self.large,
        };
        room.lock()
    }
}

impl Size {
    /// For metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
        }
    }
}

impl ReceivePermit {
    /// All of the request is there, and decoding it takes so many bytes. A large one keeps its permit until it is answered, with
    /// more room if it needs that. Decoding a small one takes a few megabytes at most, and is done before the thread turns
    /// to another.
    pub(crate) fn received(mut self, bytes: usize) -> Result<Option<Self>, Refusal> {
        if self.size == Size::Small {
            return Ok(None);
        }
        let missing = bytes.saturating_sub(self.bytes);
        if missing > 0 {
            self.quota.reserve(&self.owner, self.size, missing)?;
            self.bytes += missing;
        }
        Ok(Some(self))
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for ReceivePermit {
    fn drop(&mut self) {
        let mut room = self.quota.room(self.size);
        room.remove(&self.owner, self.bytes);
        self.quota.metrics.receiving(self.size, room.usage().now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::load::LoadArgs;
    use prometheus::Registry;
    use std::net::{IpAddr, Ipv4Addr};

    fn quota() -> Arc<ReceiveQuota> {
        let metrics = LoadMetrics::register(&Registry::new(), &LoadArgs::DEFAULT);
        ReceiveQuota::new(metrics.unwrap())
    }

    fn owner(namespace: &str, name: &str) -> Owner {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let identity = Identity::ServiceAccount { namespace, name };
        Owner::new(&identity, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// As many of this size as the owner may have.
    fn fill(quota: &Arc<ReceiveQuota>, owner: &Owner, bytes: usize) -> Vec<ReceivePermit> {
        std::iter::from_fn(|| quota.receive(owner, bytes).ok().flatten()).collect()
    }

    #[test]
    fn one_that_sends_slowly_has_half_and_others_have_half_of_the_rest() {
        let quota = quota();
        let hog = fill(&quota, &owner("one", "a"), 32 << 20);
        assert_eq!(hog.len(), 4);
        assert!(fill(&quota, &owner("one", "b"), 1 << 20).is_empty(), "of the same namespace");
        let second = fill(&quota, &owner("two", "a"), 32 << 20);
        assert_eq!(second.len(), 2);
        let reconnects = fill(&quota, &owner("three", "a"), 600 << 10);
        assert!(reconnects.len() > 50, "{}", reconnects.len());
        drop((hog, second, reconnects));
        assert_eq!(fill(&quota, &owner("three", "a"), 32 << 20).len(), 4);
    }

    #[test]
    fn small_ones_are_counted_apart() {
        let (quota, hog) = (quota(), owner("one", "a"));
        let _large = fill(&quota, &hog, 32 << 20);
        let small = fill(&quota, &hog, SMALL);
        assert_eq!(small.len(), SMALL_ROOM / 2 / SMALL);
        assert_eq!(fill(&quota, &owner("two", "a"), 61 << 10).len(), SMALL_ROOM / 4 / (61 << 10));
        for bytes in [0, TINY] {
            assert!(quota.receive(&hog, bytes).unwrap().is_none(), "never refused");
        }
        let [taken_by_small, taken_by_large] = quota.usage();
        assert_eq!((taken_by_small.limit, taken_by_large.now), (Some(SMALL_ROOM), 128 << 20));
        let gauge = |size| quota.metrics.received_bytes(size);
        assert_eq!(gauge(Size::Small), taken_by_small.now as i64);
        assert_eq!(gauge(Size::Large), 128 << 20);
        assert!(small.into_iter().all(|permit| permit.received(SMALL).unwrap().is_none()));
        assert_eq!(gauge(Size::Small), 0);
        assert!(quota.receive(&hog, SMALL).is_ok());
    }

    #[test]
    fn a_large_one_has_the_room_of_what_it_becomes() {
        let (quota, hog) = (quota(), owner("one", "a"));
        let received = |bytes| {
            let permit = quota.receive(&hog, 32 << 20).unwrap().unwrap();
            permit.received(bytes).map(|permit| permit.unwrap().bytes())
        };
        assert_eq!(received(1), Ok(32 << 20));
        assert_eq!(received(100 << 20), Ok(100 << 20));
        assert_eq!(received(LARGE_ROOM), Err(Refusal::Receiving));
        assert!(quota.room(Size::Large).fits(LARGE_ROOM), "all of it is free again");
    }
}
