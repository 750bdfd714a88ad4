//! The cost of finding the route of a request. Envoy tries the regular expressions of a virtual host one after the
//! other, each in time that follows its instructions and the length of the path, and its worker does nothing else
//! meanwhile. So the instructions that a namespace has at one hostname are bounded.

use super::Cost;
use heliograph_model::{HostMap, Hostname, RouteAge, TableKey};
use std::collections::BTreeMap;

/// The instructions of a namespace, by the hostnames that its routes name.
#[derive(Default)]
struct Sums<'a>(BTreeMap<&'a TableKey, HostMap<Sum>>);

#[derive(Default)]
struct Sum {
    /// Of the routes that name the hostname.
    own: u64,
    /// The same and, of the named hostnames that it covers, those of the one with the most.
    most: u64,
}

/// The routes that do not fit, each with a hostname where it does not. Those that fit take nothing from older ones, and those
/// that do not take nothing at all. `routes` begins with the oldest.
pub(super) fn beyond(routes: &[(&RouteAge, &Cost)], most: u64) -> BTreeMap<RouteAge, Hostname> {
    let mut sums = Sums::default();
    for (table, host) in routes.iter().flat_map(|(_, cost)| &cost.hosts) {
        sums.0.entry(table).or_default().get_or_default(host);
    }
    let mut beyond = BTreeMap::new();
    for (age, cost) in routes {
        let hosts = widest(cost);
        let fits = |(table, host): &&(TableKey, Hostname)| {
            sums.with(table, host).saturating_add(cost.instructions) <= most
        };
        let full = hosts.iter().find(|at| !fits(at)).map(|(_, host)| host.clone());
        match full {
            Some(host) => drop(beyond.insert((*age).clone(), host)),
            None => hosts.iter().for_each(|(table, host)| sums.add(table, host, cost.instructions)),
        }
    }
    beyond
}

/// The hosts of a route without those that another one covers: a virtual host has each route once.
fn widest(cost: &Cost) -> Vec<&(TableKey, Hostname)> {
    let mut named: BTreeMap<&TableKey, HostMap<()>> = BTreeMap::new();
    for (table, host) in &cost.hosts {
        named.entry(table).or_default().insert(host.clone(), ());
    }
    let is_widest = |(table, host): &&(TableKey, Hostname)| {
        named.get(table).is_some_and(|named| named.covering(host).count() == 1)
    };
    cost.hosts.iter().filter(is_widest).collect()
}

impl Sums<'_> {
    /// The instructions at a hostname, plus the most at one that it covers.
    fn with(&self, table: &TableKey, host: &Hostname) -> u64 {
        let Some(hosts) = self.0.get(table) else { return 0 };
        let of = |(it, sum): (&Hostname, &Sum)| if it == host { sum.most } else { sum.own };
        hosts.covering(host).map(of).fold(0, u64::saturating_add)
    }

    fn add(&mut self, table: &TableKey, host: &Hostname, instructions: u64) {
        let Some(hosts) = self.0.get_mut(table) else { return };
        let covering: Vec<_> = hosts.covering(host).map(|(it, _)| it.clone()).collect();
        let mut below = 0;
        for at in covering {
            let Some(sum) = hosts.get_mut(&at) else { continue };
            if at == *host {
                sum.own += instructions;
                sum.most += instructions;
            }
            sum.most = sum.most.max(sum.own + below);
            below = sum.most;
        }
    }
}
