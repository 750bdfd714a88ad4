use super::usage::{LimitUsage, UsageByHolder};
use super::{Owner, Refusal};
use std::collections::HashMap;
use std::sync::Arc;

/// Shares of something that a replica has in a bounded number: connections, streams, tokens of a rate, bytes.
///
/// Ten thousand Envoys of one Gateway are one identity, so no small number would do as a bound. Instead one identity may
/// have a multiple of what is still free: alone it gets its share of all, several get less each, and there is always
/// something free for the next.
#[derive(Debug)]
pub(crate) struct Shares {
    limit: usize,
    taken: usize,
    identities: Holders,
    namespaces: Holders,
}

/// What each holder has. A holder of nothing has no entry, so there are no more entries than things.
#[derive(Debug)]
struct Holders {
    /// What one may have if it is alone, in percent.
    share: usize,
    counts: UsageByHolder,
}

impl Shares {
    /// `limit`: of how many; 0 for any number. The shares are what one identity and one namespace may have if it is alone, in
    /// percent; 0 or 100 for all.
    pub(super) fn new(limit: usize, identity_share: u8, namespace_share: u8) -> Self {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let holders = |share: u8| Holders { share: share.into(), counts: HashMap::new() };
        let (identities, namespaces) = (holders(identity_share), holders(namespace_share));
        Self { limit, taken: 0, identities, namespaces }
    }

    pub(super) fn usage(&self) -> LimitUsage {
        LimitUsage::new(self.taken, self.limit)
    }

    pub(super) fn identities(&self) -> &UsageByHolder {
        &self.identities.counts
    }

    pub(super) fn namespaces(&self) -> &UsageByHolder {
        &self.namespaces.counts
    }

    /// Whether so many are free.
    pub(super) fn fits(&self, count: usize) -> bool {
        count <= self.limit.saturating_sub(self.taken)
    }

    /// Why this one may not have so many more, if so. The caller has seen that they are free.
    pub(super) fn check(&self, owner: &Owner, count: usize) -> Result<(), Refusal> {
        let left = self.limit.saturating_sub(self.taken).saturating_sub(count);
        if !self.identities.allow(owner.identity(), count, left) {
            return Err(Refusal::Identity);
        }
        if !self.namespaces.allow(owner.namespace(), count, left) {
            return Err(Refusal::Namespace);
        }
        Ok(())
    }

    pub(super) fn add(&mut self, owner: &Owner, count: usize) {
        self.taken += count;
        self.identities.add(owner.identity(), count);
        self.namespaces.add(owner.namespace(), count);
    }

    pub(super) fn remove(&mut self, owner: &Owner, count: usize) {
        self.taken = self.taken.saturating_sub(count);
        self.identities.remove(owner.identity(), count);
        self.namespaces.remove(owner.namespace(), count);
    }
}

impl Holders {
    fn allow(&self, name: Option<&Arc<str>>, count: usize, left: usize) -> bool {
        let Some(name) = name.filter(|_| (1..100).contains(&self.share)) else { return true };
        let own = self.counts.get(name).copied().unwrap_or_default() + count;
        // One more than is left, so that of very few the first one can be had.
        let left = left.saturating_add(1);
        own.saturating_mul(100 - self.share) <= left.saturating_mul(self.share)
    }

    fn add(&mut self, name: Option<&Arc<str>>, count: usize) {
        if let Some(name) = name {
            *self.counts.entry(name.clone()).or_default() += count;
        }
    }

    fn remove(&mut self, name: Option<&Arc<str>>, count: usize) {
        let Some(name) = name else { return };
        if let Some(own) = self.counts.get_mut(name) {
            *own = own.saturating_sub(count);
            if *own == 0 {
                self.counts.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use std::net::{IpAddr, Ipv4Addr};

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn account(namespace: &str, name: &str) -> Owner {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Owner::new(&Identity::ServiceAccount { namespace, name }, ADDRESS)
    }

    fn shares(limit: usize) -> Shares {
        Shares::new(limit, 90, 95)
    }

    /// As many as it may have.
    fn fill(shares: &mut Shares, owner: &Owner) -> (usize, Option<Refusal>) {
        for count in 0..100_000 {
            let refusal = shares.check(owner, 1).err();
            if refusal.is_some() || !shares.fits(1) {
                return (count, refusal);
            }
            shares.add(owner, 1);
        }
        (100_000, None)
    }

    #[test]
    fn one_alone_has_nine_tenths_and_others_are_let_in() {
        let mut shares = shares(20_000);
        let hog = account("one", "gateway");
        assert_eq!(fill(&mut shares, &hog), (18_000, Some(Refusal::Identity)));
        // Of the same namespace, and of another.
        assert_eq!(fill(&mut shares, &account("one", "other")), (1000, Some(Refusal::Namespace)));
        assert_eq!(fill(&mut shares, &account("two", "gateway")).0, 900);
        for tenant in 3..100 {
            let tenant = account(&tenant.to_string(), "gateway");
            assert!(shares.fits(1) && shares.check(&tenant, 1).is_ok(), "always one more");
            shares.add(&tenant, 1);
        }
        shares.remove(&hog, 1);
        assert_eq!(shares.check(&hog, 1), Err(Refusal::Identity), "it has more than it may");
    }

    #[test]
    fn many_accounts_of_one_namespace_are_one_tenant() {
        let mut shares = shares(20_000);
        let all: usize =
            (0..100).map(|number| fill(&mut shares, &account("one", &number.to_string())).0).sum();
        assert_eq!(all, 19_000);
        assert!(fill(&mut shares, &account("two", "gateway")).0 > 800);
    }

    #[test]
    fn addresses_have_no_share_and_neither_has_anybody_where_there_is_no_bound() {
        let anybody = Owner::new(&Identity::Anybody, ADDRESS);
        assert_eq!(fill(&mut shares(100), &anybody), (100, None));
        assert_eq!(fill(&mut shares(0), &account("one", "gateway")), (100_000, None));
        let mut shares = Shares::new(100, 100, 0);
        assert_eq!(fill(&mut shares, &account("one", "gateway")), (100, None));
    }

    #[test]
    fn few_are_enough_for_one() {
        assert_eq!(fill(&mut shares(1), &account("one", "gateway")).0, 1);
        assert_eq!(fill(&mut shares(10), &account("one", "gateway")).0, 9);
    }

    #[test]
    fn who_left_is_forgotten() {
        let mut shares = shares(10);
        shares.add(&account("one", "gateway"), 1);
        shares.remove(&account("one", "gateway"), 1);
        assert!(shares.identities.counts.is_empty() && shares.namespaces.counts.is_empty());
    }
}
