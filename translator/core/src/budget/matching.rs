//! What finding the route of a request costs. Envoy tries the regular expressions of a virtual host one after the other, each
//! in time that follows its instructions and the length of the path, and its worker does nothing else meanwhile. So the
//! instructions that a namespace has at one hostname have a bound.

use super::Cost;
use crate::ir::{Hostname, TableKey};
use crate::objects::Seniority;
use std::collections::BTreeMap;

/// The instructions of a namespace, by the hostnames that its routes name.
#[derive(Default)]
struct Sums<'a>(BTreeMap<&'a TableKey, BTreeMap<&'a Hostname, Sum>>);

#[derive(Default)]
struct Sum {
    /// Of the routes that name the hostname.
    own: u64,
    /// The same and, of the named hostnames that it covers, those of the one with the most.
    most: u64,
}

/// The routes that do not fit, each with a hostname where it does not. Those that fit take nothing from older ones, and those
/// that do not take nothing at all. `routes` begins with the oldest.
pub(super) fn beyond(routes: &[(&Seniority, &Cost)], most: u64) -> BTreeMap<Seniority, Hostname> {
    let mut sums = Sums::default();
    for (table, host) in routes.iter().flat_map(|(_, cost)| &cost.hosts) {
        sums.0.entry(table).or_default().entry(host).or_default();
    }
    let mut beyond = BTreeMap::new();
    for (age, cost) in routes {
        let hosts = || cost.hosts.iter().filter(|at| is_widest(cost, at));
        let fits = |(table, host): &&(TableKey, Hostname)| {
            sums.with(table, host).saturating_add(cost.instructions) <= most
        };
        let full = hosts().find(|at| !fits(at)).map(|(_, host)| host.clone());
        match full {
            Some(host) => drop(beyond.insert((*age).clone(), host)),
            None => hosts().for_each(|(table, host)| sums.add(table, host, cost.instructions)),
        }
    }
    beyond
}

/// Whether the route names no wider hostname: a virtual host has each route once.
fn is_widest(cost: &Cost, (table, host): &(TableKey, Hostname)) -> bool {
    let mut wider = host.covering().into_iter().skip(1);
    !wider.any(|wider| cost.hosts.contains(&(table.clone(), wider)))
}

impl Sums<'_> {
    /// What there is at a hostname, and the most that there is at one that it covers.
    fn with(&self, table: &TableKey, host: &Hostname) -> u64 {
        let Some(hosts) = self.0.get(table) else { return 0 };
        let wider = host.covering().into_iter().skip(1);
        let wider = wider.filter_map(|wider| hosts.get(&wider)).map(|sum| sum.own);
        wider.fold(hosts.get(host).map_or(0, |sum| sum.most), u64::saturating_add)
    }

    fn add(&mut self, table: &TableKey, host: &Hostname, instructions: u64) {
        let Some(hosts) = self.0.get_mut(table) else { return };
        let Some(sum) = hosts.get_mut(host) else { return };
        sum.own += instructions;
        sum.most += instructions;
        let mut below = sum.most;
        for wider in host.covering().into_iter().skip(1) {
            if let Some(sum) = hosts.get_mut(&wider) {
                sum.most = sum.most.max(sum.own + below);
                below = sum.most;
            }
        }
    }
}
