use super::usage::{LimitUsage, UsageByHolder};
use super::{LoadArgs, LoadMetrics, Owner, Refusal};
use heliograph_distributor_protocol::Allocation;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// How much memory streams may keep for what their clients made up: names that their views do not have, and requests that wait:
/// for a fleet which is not published, for their turn, or until it is known whose they are. It has a bound for each owner,
/// for those of one namespace together, and for all of them.
///
/// What several streams share is counted once, for the owner that came first.
#[derive(Debug)]
pub(crate) struct SubscriptionQuota {
    per_owner: usize,
    per_namespace: usize,
    limit: usize,
    kept: Mutex<QuotaState>,
    metrics: LoadMetrics,
}

/// The memory that one stream keeps. It is released when this is dropped.
#[derive(Debug)]
pub(crate) struct SubscriptionPermit {
    quota: Arc<SubscriptionQuota>,
    keys: Box<[QuotaKey]>,
}

/// Something in memory that is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QuotaKey {
    Subscription(Allocation),
    /// Requests that wait, by the number of their stream.
    Request(u64),
    /// What was sent by a call that waits until it is known whose it is, by its number.
    Call(u64),
}

/// Whether more than is allowed can be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The client asks for it.
    Client,
    /// The view changed, or time passed: no request of the client is the cause.
    Replica,
}

#[derive(Debug, Default)]
struct QuotaState {
    used: usize,
    /// An owner that keeps nothing has no entry.
    owners: UsageByHolder,
    namespaces: UsageByHolder,
    all: HashMap<QuotaKey, CountedAllocation>,
}

/// One allocation, and the owner that it counts for.
#[derive(Debug)]
struct CountedAllocation {
    streams: usize,
    bytes: usize,
    owner: Owner,
}

/// One namespace has this part of all memory at most, so that its identities together leave as much to others.
const NAMESPACE_PART: usize = 2;

impl SubscriptionQuota {
    pub(crate) fn new(args: &LoadArgs, metrics: LoadMetrics) -> Arc<Self> {
        let bound = |bytes: u64| match bytes {
            0 => usize::MAX,
            some => usize::try_from(some).unwrap_or(usize::MAX),
        };
        let per_owner = bound(args.subscription_memory_per_identity);
        let limit = bound(args.subscription_memory);
        let per_namespace = limit / NAMESPACE_PART;
        Arc::new(Self { per_owner, per_namespace, limit, kept: Mutex::default(), metrics })
    }

    /// Counts what a stream keeps from now on, in the place of what it kept before. If that is refused, the stream is to end, and nothing is
    /// counted for it any more.
    pub(crate) fn charge(
        self: &Arc<Self>,
        permit: &mut Option<SubscriptionPermit>,
        owner: &Owner,
        kept: &[(QuotaKey, usize)],
        cause: Cause,
    ) -> Result<(), Refusal> {
        // So it is for nearly all streams, nearly always.
        if kept.is_empty() && permit.is_none() {
            return Ok(());
        }
        let old = permit.take().map(SubscriptionPermit::into_keys).unwrap_or_default();
        let mut all = self.kept();
        let before = all.of(owner);
        kept.iter().for_each(|(key, bytes)| all.add(*key, *bytes, owner));
        old.iter().for_each(|key| all.remove(key));
        let after = all.of(owner);
        let refusal = self.refusal(all.used, after, all.of_namespace(owner));
        let refusal = refusal.filter(|_| cause == Cause::Client && after > before);
        if refusal.is_some() {
            kept.iter().for_each(|(key, _)| all.remove(key));
        }
        self.metrics.subscription_bytes(all.used);
        drop(all);
        match refusal {
            Some(refusal) => return Err(refusal),
            None if kept.is_empty() => {}
            None => {
                let keys = kept.iter().map(|(key, _)| *key).collect();
                *permit = Some(SubscriptionPermit { quota: self.clone(), keys });
            }
        }
        Ok(())
    }

    /// How much is kept, and by which identities and namespaces.
    pub(crate) fn usage(&self) -> (LimitUsage, [UsageByHolder; 2]) {
        let kept = self.kept();
        (LimitUsage::new(kept.used, self.limit), [kept.owners.clone(), kept.namespaces.clone()])
    }

    fn refusal(&self, used: usize, own: usize, of_namespace: usize) -> Option<Refusal> {
        if own > self.per_owner {
            return Some(Refusal::IdentityMemory);
        }
        // No client has more than is left for all others: so there is always something left.
        match self.limit.checked_sub(used) {
            Some(left) if own > left => Some(Refusal::ReplicaMemory),
            Some(left) if of_namespace > left.min(self.per_namespace) => {
                Some(Refusal::NamespaceMemory)
            }
            Some(_) => None,
            None => Some(Refusal::ReplicaMemory),
        }
    }

    /// Nothing panics while it holds the lock, and every change is whole.
    fn kept(&self) -> MutexGuard<'_, QuotaState> {
        self.kept.lock()
    }
}

impl SubscriptionPermit {
    /// For who counts them out itself.
    fn into_keys(mut self) -> Box<[QuotaKey]> {
        std::mem::take(&mut self.keys)
    }
}

impl Drop for SubscriptionPermit {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        let mut kept = self.quota.kept();
        self.keys.iter().for_each(|key| kept.remove(key));
        self.quota.metrics.subscription_bytes(kept.used);
    }
}

impl QuotaState {
    fn of(&self, owner: &Owner) -> usize {
        self.owners.get(owner.name()).copied().unwrap_or_default()
    }

    /// The memory that the identities of its namespace keep; 0 where it has none.
    fn of_namespace(&self, owner: &Owner) -> usize {
        let name = owner.namespace();
        name.and_then(|name| self.namespaces.get(name)).copied().unwrap_or_default()
    }

    /// An allocation that is known already has the size that was given last: with the view, names become absent or come to be.
    fn add(&mut self, key: QuotaKey, bytes: usize, owner: &Owner) {
        let new = || CountedAllocation { streams: 0, bytes: 0, owner: owner.clone() };
        let held = self.all.entry(key).or_insert_with(new);
        held.streams += 1;
        let before = std::mem::replace(&mut held.bytes, bytes);
        if before == bytes {
            return;
        }
        self.used = self.used - before + bytes;
        let (name, namespace) = (held.owner.name().clone(), held.owner.namespace().cloned());
        let count = |held: &mut usize| *held = *held - before + bytes;
        count(self.owners.entry(name).or_default());
        namespace.into_iter().for_each(|it| count(self.namespaces.entry(it).or_default()));
    }

    fn remove(&mut self, key: &QuotaKey) {
        let Entry::Occupied(mut entry) = self.all.entry(*key) else { return };
        entry.get_mut().streams -= 1;
        if entry.get().streams > 0 {
            return;
        }
        let CountedAllocation { bytes, owner, .. } = entry.remove();
        self.used -= bytes;
        release(&mut self.owners, owner.name(), bytes);
        owner.namespace().into_iter().for_each(|it| release(&mut self.namespaces, it, bytes));
    }
}

/// Removes the entry of an owner that keeps nothing any more.
fn release(usage_by_holder: &mut UsageByHolder, name: &Arc<str>, bytes: usize) {
    if let Some(held) = usage_by_holder.get_mut(name) {
        *held -= bytes;
        if *held == 0 {
            usage_by_holder.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use prometheus::Registry;
    use std::net::{IpAddr, Ipv4Addr};

    fn quota() -> Arc<SubscriptionQuota> {
        let args = LoadArgs {
            subscription_memory: 1000,
            subscription_memory_per_identity: 300,
            ..LoadArgs::default()
        };
        let metrics = LoadMetrics::register(&Registry::new(), &args).unwrap();
        SubscriptionQuota::new(&args, metrics)
    }

    fn owner(last: u8) -> Owner {
        Owner::new(&Identity::Anybody, IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    fn account(namespace: &str, name: &str) -> Owner {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let identity = Identity::ServiceAccount { namespace, name };
        Owner::new(&identity, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    fn position(id: u64) -> QuotaKey {
        QuotaKey::Subscription(Allocation::Position(id))
    }

    #[test]
    fn what_a_stream_keeps_is_given_back_when_it_moves_on_or_ends() {
        let (quota, mut permit) = (quota(), None);
        for (kept, used) in [(300, 300), (200, 200), (0, 0), (100, 100)] {
            let kept: Vec<_> =
                (kept > 0).then_some((position(kept), kept as usize)).into_iter().collect();
            quota.charge(&mut permit, &owner(1), &kept, Cause::Client).unwrap();
            assert_eq!((quota.kept().used, permit.is_some()), (used, used > 0));
        }
        drop(permit);
        let kept = quota.kept();
        assert!(kept.used == 0 && kept.owners.is_empty() && kept.all.is_empty());
    }

    #[test]
    fn what_streams_share_is_counted_once() {
        let quota = quota();
        let mut permits: Vec<_> = (0..100).map(|_| None).collect();
        for permit in &mut permits {
            quota.charge(permit, &owner(1), &[(position(1), 200)], Cause::Client).unwrap();
        }
        assert_eq!(quota.kept().used, 200);
        let last = permits.pop();
        drop(permits);
        assert_eq!(quota.kept().used, 200, "somebody still holds it");
        drop(last);
        assert_eq!(quota.kept().used, 0);
    }

    /// A view that changes makes names absent, or not, of which the set stays where it is.
    #[test]
    fn what_changes_its_size_is_counted_as_it_is_now() {
        let (quota, mut permit, mut other) = (quota(), None, None);
        let charge = |permit: &mut _, last, bytes, cause| {
            let charged = quota.charge(permit, &owner(last), &[(position(1), bytes)], cause);
            let kept = quota.kept();
            (charged, kept.used, kept.of(&owner(1)), kept.of(&owner(2)))
        };
        assert_eq!(charge(&mut permit, 1, 100, Cause::Client), (Ok(()), 100, 100, 0));
        assert_eq!(charge(&mut permit, 1, 900, Cause::Replica), (Ok(()), 900, 900, 0));
        assert_eq!(charge(&mut other, 2, 200, Cause::Client), (Ok(()), 200, 200, 0));
        assert_eq!(charge(&mut permit, 1, 150, Cause::Replica), (Ok(()), 150, 150, 0));
        let refused = Err(Refusal::IdentityMemory);
        assert_eq!(charge(&mut permit, 1, 301, Cause::Client), (refused, 301, 301, 0));
        drop((permit, other));
        let kept = quota.kept();
        assert!(kept.used == 0 && kept.owners.is_empty() && kept.all.is_empty());
    }

    #[test]
    fn more_than_is_allowed_is_refused_and_only_to_who_asks_for_more() {
        let (quota, mut permit, mut other) = (quota(), None, None);
        let charge = |permit: &mut _, last, kept, cause| {
            quota.charge(permit, &owner(last), &[(position(kept), kept as usize)], cause)
        };
        assert_eq!(charge(&mut permit, 1, 301, Cause::Client), Err(Refusal::IdentityMemory));
        assert_eq!(quota.kept().used, 0);
        // It is no client's fault when the view loses a resource, and a smaller subscription is always allowed.
        assert_eq!(charge(&mut permit, 1, 500, Cause::Replica), Ok(()));
        assert_eq!(charge(&mut permit, 1, 450, Cause::Client), Ok(()));
        assert_eq!(charge(&mut other, 2, 100, Cause::Client), Ok(()));
        assert_eq!(charge(&mut permit, 1, 451, Cause::Client), Err(Refusal::IdentityMemory));
        assert_eq!(quota.kept().used, 100, "the stream ends");
    }

    /// As much as it may have, in KiB.
    fn fill(
        quota: &Arc<SubscriptionQuota>,
        owner: &Owner,
        permits: &mut Vec<Option<SubscriptionPermit>>,
    ) -> usize {
        let mut own = 0;
        loop {
            let (key, mut permit) = (QuotaKey::Request(permits.len() as u64), None);
            let kept = [(key, 61 << 10)];
            if quota.charge(&mut permit, owner, &kept, Cause::Client).is_err() {
                return own;
            }
            own += 61;
            permits.push(permit);
        }
    }

    #[test]
    fn accounts_of_one_namespace_are_one_tenant() {
        let args = LoadArgs::default();
        let metrics = LoadMetrics::register(&Registry::new(), &args).unwrap();
        let (quota, mut permits) = (SubscriptionQuota::new(&args, metrics), Vec::new());
        let all: usize = (0..16)
            .map(|number| fill(&quota, &account("one", &number.to_string()), &mut permits))
            .sum();
        let other = fill(&quota, &account("two", "gateway"), &mut permits);
        assert!((127 << 10..=128 << 10).contains(&all), "{all} KiB");
        assert!(other > 31 << 10, "{other} KiB for another namespace");
        // A third gets something as well, and so on.
        let next: Vec<_> = (3..8)
            .map(|number| {
                let accounts = (0..4).map(|n| account(&number.to_string(), &n.to_string()));
                accounts.map(|account| fill(&quota, &account, &mut permits)).sum::<usize>()
            })
            .collect();
        assert!(next.iter().all(|kib| *kib > 61), "{next:?}");
        let (taken, [owners, namespaces]) = quota.usage();
        assert!(taken.now <= 256 << 20 && owners.len() > 8, "{taken:?} of {}", owners.len());
        assert_eq!((namespaces.len(), namespaces["one"] >> 10), (7, all));
        drop(permits);
        let kept = quota.kept();
        assert!(kept.used == 0 && kept.owners.is_empty() && kept.namespaces.is_empty());
    }

    #[test]
    fn nobody_has_more_than_is_left() {
        let quota = quota();
        let mut permits = Vec::new();
        for last in 0..50 {
            let mut own = 0;
            loop {
                let key = QuotaKey::Request(permits.len() as u64);
                let mut permit = None;
                if let Err(refusal) =
                    quota.charge(&mut permit, &owner(last), &[(key, 10)], Cause::Client)
                {
                    let expected =
                        if own == 300 { Refusal::IdentityMemory } else { Refusal::ReplicaMemory };
                    assert_eq!(refusal, expected);
                    break;
                }
                own += 10;
                permits.push(permit);
            }
            assert!(last > 5 || own > 0, "the {last}. has nothing");
        }
        assert!(quota.kept().used <= 1000);
    }
}
