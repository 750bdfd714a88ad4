use super::shares::Losses;
use heliograph_engine::Members;
use heliograph_model::{HostMap, Hostname, RouteAge};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Each with its size at a host, and the hosts that it names. The oldest first.
pub(super) type Routes = BTreeMap<RouteAge, (u64, Members<Hostname>)>;

/// The sizes of a route table. A route is in the virtual host of each host that it names, and in those of all narrower
/// ones, whichever route named them.
#[derive(Debug, Default)]
pub(super) struct Table {
    routes: Routes,
    sizes: Sizes,
    losses: Losses,
}

#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// Those that routes name.
    hosts: HostMap<Host>,
    total: u64,
}

#[derive(Debug, Default)]
struct Host {
    /// How many routes name it.
    routes: u64,
    /// How much those take.
    size: u64,
    /// How many hosts are named that it covers, itself included.
    covered: u64,
}

/// The size of a virtual host without its routes and, twice, its name.
const FRAME: u64 = 16;

impl Table {
    pub(super) fn enter(&mut self, age: &RouteAge, size: u64, host: &Hostname) {
        self.sizes.add(size, host);
        let (_, hosts) =
            self.routes.entry(age.clone()).or_insert_with(|| (size, Members::default()));
        hosts.insert(host.clone());
    }

    pub(super) fn leave(&mut self, age: &RouteAge, size: u64, host: &Hostname) {
        self.sizes.remove(size, host);
        if let Some((_, hosts)) = self.routes.get_mut(age) {
            hosts.remove(host);
            if hosts.is_empty() {
                self.routes.remove(age);
            }
        }
    }

    /// Finds what does not fit. Returns the routes, and the hosts, of which that has changed.
    pub(super) fn settle(&mut self, most: u64) -> (Vec<RouteAge>, Vec<Hostname>) {
        let losses = match self.sizes.total <= most {
            true => Losses::default(),
            false => Losses::of(&self.routes, most),
        };
        let before = std::mem::replace(&mut self.losses, losses);
        let refused = before.refused.symmetric_difference(&self.losses.refused).cloned();
        let not_copied = changed(&before.not_copied, &self.losses.not_copied);
        let hosts = changed(&before.at_hosts, &self.losses.at_hosts);
        (refused.chain(not_copied.cloned()).collect(), hosts.cloned().collect())
    }

    pub(super) fn is_refused(&self, age: &RouteAge) -> bool {
        self.losses.refused.contains(age)
    }

    /// The other namespaces whose hosts are without a copy of a route.
    pub(super) fn not_copied(&self, age: &RouteAge) -> Option<&BTreeSet<Arc<str>>> {
        self.losses.not_copied.get(age)
    }

    /// Of each namespace, the first of the routes that a host has no copies of.
    pub(super) fn not_copied_to(&self, host: &Hostname) -> Option<&BTreeMap<Arc<str>, RouteAge>> {
        self.losses.at_hosts.get(host)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }
}

impl Sizes {
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The size of the routes that name a host, without copies.
    pub(super) fn at(&self, host: &Hostname) -> u64 {
        self.hosts.get(host).map_or(0, |at| at.size)
    }

    pub(super) fn names(&self, host: &Hostname) -> bool {
        self.hosts.get(host).is_some()
    }

    pub(super) fn named(&self) -> impl Iterator<Item = &Hostname> {
        self.hosts.iter().map(|(host, _)| host)
    }

    /// The hosts that are named and that cover this one, itself included.
    pub(super) fn covering(&self, host: &Hostname) -> impl Iterator<Item = &Hostname> + use<'_> {
        self.hosts.covering(host).map(|(host, _)| host)
    }

    pub(super) fn add(&mut self, size: u64, host: &Hostname) {
        if !self.names(host) {
            self.total += frame(host);
            self.update_wider(host, |at, total| {
                at.covered += 1;
                *total += at.size;
            });
            let covered = 1 + self.hosts.covered(host).count() as u64;
            self.hosts.insert(host.clone(), Host { covered, ..Host::default() });
        }
        if let Some(at) = self.hosts.get_mut(host) {
            at.routes += 1;
            at.size += size;
            self.total += at.covered * size;
        }
    }

    pub(super) fn remove(&mut self, size: u64, host: &Hostname) {
        let Some(at) = self.hosts.get_mut(host) else { return };
        at.routes -= 1;
        at.size -= size;
        self.total -= at.covered * size;
        if at.routes > 0 {
            return;
        }
        self.total -= frame(host);
        self.hosts.remove(host);
        self.update_wider(host, |at, total| {
            at.covered -= 1;
            *total -= at.size;
        });
    }

    /// Of a host that is not named, those that cover it.
    fn update_wider(&mut self, host: &Hostname, mut update: impl FnMut(&mut Host, &mut u64)) {
        let wider: Vec<Hostname> = self.covering(host).cloned().collect();
        for wider in wider {
            if let Some(at) = self.hosts.get_mut(&wider) {
                update(at, &mut self.total);
            }
        }
    }
}

fn frame(host: &Hostname) -> u64 {
    FRAME + 2 * host.to_string().len() as u64
}

/// The keys whose values are not the same in both.
pub(super) fn changed<'a, K: Ord, V: PartialEq>(
    before: &'a BTreeMap<K, V>,
    after: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    let gone = before.keys().filter(|key| !after.contains_key(key));
    let other = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    gone.chain(other.map(|(key, _)| key))
}
