use crate::ir::Hostname;
use crate::objects::Seniority;
use std::collections::{BTreeMap, BTreeSet};

/// The sizes of a route table. A route is in the virtual host of each host that it names, and in those of all narrower
/// ones, whoever named them.
#[derive(Debug, Default)]
pub(super) struct Table {
    routes: BTreeMap<Seniority, (u64, BTreeSet<Hostname>)>,
    sizes: Sizes,
    /// The youngest, which do not fit.
    over: BTreeSet<Seniority>,
}

#[derive(Debug, Default)]
struct Sizes {
    hosts: BTreeMap<Hostname, Host>,
    total: u64,
}

/// What there is at a host, which need not be named by any route itself.
#[derive(Debug, Default)]
struct Host {
    /// How many routes name it.
    routes: u64,
    /// How much those take.
    size: u64,
    /// How many hosts are named that it covers, itself included.
    covered: u64,
}

/// What a virtual host takes beside its routes and, twice, its name.
const FRAME: u64 = 16;

impl Table {
    pub(super) fn enter(&mut self, age: &Seniority, size: u64, host: &Hostname) {
        self.sizes.add(size, host);
        let (_, hosts) = self.routes.entry(age.clone()).or_insert((size, BTreeSet::new()));
        hosts.insert(host.clone());
    }

    pub(super) fn leave(&mut self, age: &Seniority, size: u64, host: &Hostname) {
        self.sizes.remove(size, host);
        if let Some((_, hosts)) = self.routes.get_mut(age) {
            hosts.remove(host);
            if hosts.is_empty() {
                self.routes.remove(age);
            }
        }
    }

    /// Finds out who does not fit. Returns those of whom that is news.
    pub(super) fn settle(&mut self, most: u64) -> Vec<Seniority> {
        let over = match self.sizes.total <= most {
            true => BTreeSet::new(),
            false => self.youngest(most),
        };
        let before = std::mem::replace(&mut self.over, over);
        before.symmetric_difference(&self.over).cloned().collect()
    }

    pub(super) fn is_over(&self, age: &Seniority) -> bool {
        self.over.contains(age)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Who has to go, so that the others fit. This is work in proportion to the table, and only where one is full.
    fn youngest(&self, most: u64) -> BTreeSet<Seniority> {
        let mut sizes = Sizes::default();
        let fits = |(_, (size, hosts)): &(&Seniority, &(u64, BTreeSet<Hostname>))| {
            hosts.iter().for_each(|host| sizes.add(*size, host));
            sizes.total <= most
        };
        self.routes.iter().skip_while(fits).map(|(age, _)| age.clone()).collect()
    }
}

impl Sizes {
    fn add(&mut self, size: u64, host: &Hostname) {
        if self.hosts.get(host).is_none_or(|at| at.routes == 0) {
            self.total += frame(host);
            for wider in host.covering() {
                let at = self.hosts.entry(wider).or_default();
                at.covered += 1;
                self.total += at.size;
            }
        }
        if let Some(at) = self.hosts.get_mut(host) {
            at.routes += 1;
            at.size += size;
            self.total += at.covered * size;
        }
    }

    fn remove(&mut self, size: u64, host: &Hostname) {
        let Some(at) = self.hosts.get_mut(host) else { return };
        at.routes -= 1;
        at.size -= size;
        self.total -= at.covered * size;
        if at.routes > 0 {
            return;
        }
        self.total -= frame(host);
        for wider in host.covering() {
            if let Some(at) = self.hosts.get_mut(&wider) {
                at.covered -= 1;
                self.total -= at.size;
                if at.covered == 0 {
                    self.hosts.remove(&wider);
                }
            }
        }
    }
}

fn frame(host: &Hostname) -> u64 {
    FRAME + 2 * host.to_string().len() as u64
}
