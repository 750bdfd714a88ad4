//! Chooses the routes that a full table leaves out. The use of a namespace is the size of its routes at the hosts that
//! it names itself, which no other namespace can change, and of their copies at the hosts of others. All namespaces get
//! the same share, and the unused part of one goes to the others. A namespace beyond its share loses copies first: the
//! namespace that names the host could answer for all of the host anyway, so more hosts give it no new way to displace
//! the route. Only a namespace that is beyond its share by itself loses routes.

use super::table::{Routes, Sizes};
use heliograph_engine::Members;
use heliograph_model::{HostMap, Hostname, RouteAge};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Losses {
    pub(super) refused: BTreeSet<RouteAge>,
    /// For a route, the other namespaces whose hosts are without a copy of it.
    pub(super) not_copied: BTreeMap<RouteAge, BTreeSet<Arc<str>>>,
    /// The same for a host: of each namespace, the first of the routes that it has no copies of.
    pub(super) at_hosts: BTreeMap<Hostname, BTreeMap<Arc<str>, RouteAge>>,
}

/// Every host that a route names.
struct Hosts<'a> {
    /// The namespace of the oldest route that names it.
    owners: HostMap<&'a Arc<str>>,
    /// How many hosts of each owner it covers.
    covered: BTreeMap<Hostname, BTreeMap<&'a Arc<str>, u64>>,
}

/// The use of a table by one namespace.
#[derive(Default)]
struct Share<'a> {
    /// The oldest first, each with its size at a host.
    routes: Vec<(&'a RouteAge, u64, &'a Members<Hostname>)>,
    /// What they take at the hosts that they name.
    sizes: Sizes,
    copies: Copies<'a>,
}

/// For each owner of hosts, by the hostnames of a namespace: at how many of its hosts a route for that is copied.
#[derive(Default)]
struct Copies<'a>(BTreeMap<&'a Arc<str>, BTreeMap<Hostname, u64>>);

impl Losses {
    /// This is work in proportion to the routes of the table and their hosts, not to the copies.
    pub(super) fn of(routes: &Routes, most: u64) -> Self {
        let hosts = Hosts::of(routes);
        let mut shares: BTreeMap<&Arc<str>, Share<'_>> = BTreeMap::new();
        for (age, (size, named)) in routes {
            shares.entry(&age.of().name.namespace).or_default().add((age, *size, named));
        }
        for share in shares.values_mut() {
            share.copies = hosts.copies(&share.sizes);
        }
        let asked = shares.iter().map(|(namespace, share)| (share.total(), *namespace)).collect();
        let mut losses = Self::default();
        share_out(asked, most, |namespace, most| {
            let share = shares.remove(namespace);
            share.map_or(0, |share| losses.add(&hosts, namespace, share, most))
        });
        losses
    }

    /// Takes from a namespace what is beyond its share. Returns what it has left.
    fn add(&mut self, hosts: &Hosts<'_>, namespace: &Arc<str>, share: Share<'_>, most: u64) -> u64 {
        let (share, refused) = match share.sizes.total() > most {
            true => share.split(hosts, most),
            false => (share, Vec::new()),
        };
        let own = share.sizes.total();
        let (copied, first) = match refused.is_empty() {
            true => share.first_not_copied(most - own),
            // The copies of a namespace go before its routes.
            false => share.first_not_copied(0),
        };
        self.refused.extend(refused.into_iter().cloned());
        for (owner, first) in &first {
            let covered = share.copies.0.get(owner);
            for (age, _, named) in share.routes.iter().filter(|(age, ..)| age >= first) {
                let is_copied = |host: &Hostname| covered.is_some_and(|it| it.contains_key(host));
                if *owner != namespace && named.iter().any(is_copied) {
                    self.not_copied.entry((*age).clone()).or_default().insert((*owner).clone());
                }
            }
        }
        for (host, owner) in hosts.owners.iter() {
            let Some(first) = first.get(owner) else { continue };
            let is_copied_here = || share.sizes.covering(host).next().is_some();
            if !share.sizes.names(host) && is_copied_here() {
                let at = self.at_hosts.entry(host.clone()).or_default();
                at.insert(namespace.clone(), (*first).clone());
            }
        }
        own + copied
    }
}

impl<'a> Hosts<'a> {
    fn of(routes: &'a Routes) -> Self {
        let mut owners: HostMap<&'a Arc<str>> = HostMap::default();
        for (age, (_, named)) in routes {
            for host in named.iter() {
                if owners.get(host).is_none() {
                    owners.insert(host.clone(), &age.of().name.namespace);
                }
            }
        }
        let mut covered: BTreeMap<Hostname, BTreeMap<_, u64>> = BTreeMap::new();
        for (host, owner) in owners.iter() {
            for (wider, _) in owners.covering(host) {
                *covered.entry(wider.clone()).or_default().entry(*owner).or_default() += 1;
            }
        }
        Self { owners, covered }
    }

    /// Where routes of a namespace are copied that takes these sizes: at hosts that it does not name itself.
    fn copies(&self, sizes: &Sizes) -> Copies<'a> {
        let mut copies = Copies::default();
        for host in sizes.named() {
            for (owner, count) in self.covered.get(host).into_iter().flatten() {
                copies.0.entry(*owner).or_default().insert(host.clone(), *count);
            }
        }
        for host in sizes.named() {
            let owner = self.owners.get(host);
            let Some(of_owner) = owner.and_then(|owner| copies.0.get_mut(owner)) else { continue };
            for wider in sizes.covering(host) {
                if let Some(count) = of_owner.get_mut(wider) {
                    *count -= 1;
                }
            }
        }
        copies.0.retain(|_, of_owner| {
            of_owner.retain(|_, count| *count > 0);
            !of_owner.is_empty()
        });
        copies
    }
}

impl<'a> Share<'a> {
    fn add(&mut self, route: (&'a RouteAge, u64, &'a Members<Hostname>)) {
        let (_, size, named) = route;
        named.iter().for_each(|host| self.sizes.add(size, host));
        self.routes.push(route);
    }

    fn total(&self) -> u64 {
        let copied = self.copies.0.values().map(|covered| self.copied(covered));
        copied.fold(self.sizes.total(), u64::saturating_add)
    }

    /// The size of the copies at the hosts of one owner.
    fn copied(&self, covered: &BTreeMap<Hostname, u64>) -> u64 {
        let copied = covered.iter().map(|(host, count)| self.sizes.at(host).saturating_mul(*count));
        copied.fold(0, u64::saturating_add)
    }

    /// The oldest routes, which fit by themselves, and the others.
    fn split(self, hosts: &Hosts<'a>, most: u64) -> (Self, Vec<&'a RouteAge>) {
        let mut fitting = Self::default();
        let mut routes = self.routes.into_iter();
        let mut refused = Vec::new();
        for route in routes.by_ref() {
            let (age, size, named) = route;
            fitting.add(route);
            if fitting.sizes.total() > most {
                fitting.routes.pop();
                named.iter().for_each(|host| fitting.sizes.remove(size, host));
                refused.push(age);
                break;
            }
        }
        refused.extend(routes.map(|(age, ..)| age));
        fitting.copies = hosts.copies(&fitting.sizes);
        (fitting, refused)
    }

    /// The size of the copies that fit, and for each owner whose hosts lack some, the first route that has none there.
    /// All owners get the same share of the copies, so that one with many hosts does not cost a route its copies
    /// elsewhere.
    fn first_not_copied(&self, most: u64) -> (u64, BTreeMap<&'a Arc<str>, &'a RouteAge>) {
        let copies = self.copies.0.iter();
        let asked = copies.map(|(owner, covered)| (self.copied(covered), *owner)).collect();
        let mut first = BTreeMap::new();
        let copied = share_out(asked, most, |owner, most| {
            let covered = self.copies.0.get(owner);
            let mut sum = 0_u64;
            for (age, size, named) in &self.routes {
                let count = |host| covered.and_then(|covered| covered.get(host));
                let count: u64 = named.iter().filter_map(count).sum();
                match sum.saturating_add(size.saturating_mul(count)) {
                    more if more <= most => sum = more,
                    _ => {
                        first.insert(owner, *age);
                        break;
                    }
                }
            }
            sum
        });
        (copied, first)
    }
}

/// Gives each what it asks for, and those that ask for more than their share what `reduce` makes of that. Those that ask for
/// the least come first and what they leave is shared among the others, so a share is never less than an equal one. Returns
/// what is given.
fn share_out<'a>(
    mut asked: Vec<(u64, &'a Arc<str>)>,
    most: u64,
    mut reduce: impl FnMut(&'a Arc<str>, u64) -> u64,
) -> u64 {
    asked.sort_unstable();
    let (mut rest, mut others) = (most, asked.len() as u64);
    for (amount, namespace) in asked {
        let share = rest / others;
        rest -= if amount <= share { amount } else { reduce(namespace, share) };
        others -= 1;
    }
    most - rest
}
