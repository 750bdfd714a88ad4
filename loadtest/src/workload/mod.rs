//! The resources that the servers under test serve: the same resources and the same changes in every process, from a few
//! numbers.
//!
//! Change `n` can be seen in what it changed ([`mark`]), so a client needs no list of publications, and no resource
//! contains a time.

mod build;
mod mark;
mod schedule;

pub(crate) use build::{MARKED_PATH, addresses};
pub use mark::mark;
pub use schedule::Schedule;

use heliograph_snapshot::{Change, FleetName, Head, ResourceType, Section, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How much there is in each fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Resources {
    /// Each has its endpoints resource.
    pub clusters: usize,
    pub endpoints_per_cluster: usize,
    /// Each has its route table.
    pub listeners: usize,
    /// In all tables together.
    pub routes: usize,
    /// Pins of upstream certificates, which the clusters share.
    pub secrets: usize,
    /// How long the body of a cluster is; it is never shorter than what it says.
    pub cluster_bytes: usize,
    /// Labels by which clients prefer endpoints: those that differ in one are of different classes. Endpoints here have no
    /// labels, so that all classes see the same, and the checker knows it.
    pub preferred_by: Vec<String>,
}

/// All fleets as they are after the newest change.
#[derive(Clone, Debug)]
pub struct Workload {
    resources: Resources,
    names: Vec<FleetName>,
    base: Head,
    snapshots: Vec<Arc<Snapshot>>,
}

/// One change. Numbers begin at 1, and each is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    pub number: u32,
    pub kind: UpdateKind,
    pub reach: Reach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateKind {
    /// The endpoints of one cluster, the next one each time.
    Endpoint,
    /// One route table, the next one each time.
    Route,
    /// All clusters, and nothing else.
    Clusters,
    /// All clusters, endpoints and route tables.
    Full,
}

/// Which fleets a change is made in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    #[default]
    EveryFleet,
    /// The next one each time.
    OneFleet,
}

/// The resources that a change touches, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    pub fleets: Range<usize>,
    pub clusters: Range<usize>,
    pub endpoints: Range<usize>,
    pub tables: Range<usize>,
}

impl Default for Resources {
    /// Clusters of 400 bytes, endpoints of about 250.
    fn default() -> Self {
        Self {
            clusters: 1_000,
            endpoints_per_cluster: 8,
            listeners: 0,
            routes: 0,
            secrets: 0,
            cluster_bytes: 400,
            preferred_by: Vec::new(),
        }
    }
}

impl UpdateKind {
    /// The types in which a change of this kind can be seen.
    pub fn seen_in(self) -> &'static [ResourceType] {
        match self {
            Self::Endpoint => &[ResourceType::Endpoints],
            Self::Route => &[ResourceType::Route],
            Self::Clusters => &[ResourceType::Cluster],
            Self::Full => &[ResourceType::Cluster, ResourceType::Endpoints, ResourceType::Route],
        }
    }
}

impl Workload {
    /// The last number of a change: it has to fit into an address.
    pub const LAST: u32 = (1 << 24) - 1;

    /// All fleets as they are before the first change. They hold the same, and share it.
    pub fn new(resources: &Resources, fleets: usize) -> Self {
        let base = Head { sequence: 1, ..Head::default() };
        let names: Vec<_> = (0..fleets).map(fleet_name).collect();
        let first = Snapshot::empty(fleet_name(0)).with(base, everything(resources));
        let trees: BTreeMap<_, _> =
            Section::all().map(|section| (section, first.section(section).clone())).collect();
        let snapshot = |name: &FleetName| Snapshot::assembled(name.clone(), base, trees.clone());
        let snapshots = names.iter().map(|name| Arc::new(snapshot(name))).collect();
        Self { resources: resources.clone(), names, base, snapshots }
    }

    /// Sets where the history begins, if a store requires it: the first snapshots are at `base`, and change `n` is `n`
    /// later.
    pub fn start_at(&mut self, base: Head) {
        let offset = |head: Head| head.sequence.saturating_sub(self.base.sequence);
        for snapshot in &mut self.snapshots {
            let sequence = base.sequence.saturating_add(offset(snapshot.head));
            *snapshot = Arc::new(snapshot.at(Head { sequence, ..base }));
        }
        self.base = base;
    }

    pub fn base(&self) -> Head {
        self.base
    }

    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    pub fn fleets(&self) -> &[FleetName] {
        &self.names
    }

    /// As they are now, in the order of [`Workload::fleets`].
    pub fn snapshots(&self) -> &[Arc<Snapshot>] {
        &self.snapshots
    }

    /// Makes a change. Returns the snapshots that are new; each costs what changed.
    pub fn change(&mut self, update: Update) -> &[Arc<Snapshot>] {
        let touched = self.touched(update);
        let sequence = self.base.sequence.saturating_add(update.number.into());
        let head = Head { sequence, ..self.base };
        let changes = self.changes(update.number, &touched);
        for snapshot in self.snapshots.get_mut(touched.fleets.clone()).unwrap_or_default() {
            *snapshot = Arc::new(snapshot.with(head, changes.iter().cloned()));
        }
        self.snapshots.get(touched.fleets).unwrap_or_default()
    }

    pub fn touched(&self, update: Update) -> Touched {
        let Resources { clusters, listeners, .. } = self.resources;
        let number = update.number as usize;
        let one = |count: usize| number.checked_rem(count).map_or(0..0, |at| at..at + 1);
        let fleets = match update.reach {
            Reach::EveryFleet => 0..self.names.len(),
            Reach::OneFleet => one(self.names.len()),
        };
        let (none, all_clusters, all_tables) = (0..0, 0..clusters, 0..listeners);
        match update.kind {
            UpdateKind::Endpoint => {
                let endpoints = one(clusters);
                Touched { fleets, clusters: none.clone(), endpoints, tables: none }
            }
            UpdateKind::Route => {
                let tables = one(listeners);
                Touched { fleets, clusters: none.clone(), endpoints: none, tables }
            }
            UpdateKind::Clusters => {
                Touched { fleets, clusters: all_clusters, endpoints: none.clone(), tables: none }
            }
            UpdateKind::Full => Touched {
                fleets,
                clusters: all_clusters.clone(),
                endpoints: all_clusters,
                tables: all_tables,
            },
        }
    }

    fn changes(&self, number: u32, touched: &Touched) -> Vec<Change> {
        let resources = &self.resources;
        let clusters = touched.clusters.clone().map(|at| build::cluster(resources, at, number));
        let endpoints = touched.endpoints.clone().map(|at| build::endpoints(resources, at, number));
        let tables = touched.tables.clone().map(|at| build::table(resources, at, number));
        clusters.chain(endpoints).chain(tables).collect()
    }
}

impl Touched {
    pub fn is_nothing(&self) -> bool {
        let Self { fleets, clusters, endpoints, tables } = self;
        fleets.is_empty() || (clusters.is_empty() && endpoints.is_empty() && tables.is_empty())
    }
}

fn everything(resources: &Resources) -> impl Iterator<Item = Change> {
    let Resources { clusters, listeners, secrets, .. } = *resources;
    let secrets = (0..secrets).map(build::secret);
    let services = (0..clusters)
        .flat_map(|at| [build::cluster(resources, at, 0), build::endpoints(resources, at, 0)]);
    let edges = (0..listeners).flat_map(|at| [build::listener(at), build::table(resources, at, 0)]);
    let rules = (0..clusters).filter_map(|at| build::preference(resources, at));
    secrets.chain(services).chain(edges).chain(rules)
}

fn fleet_name(at: usize) -> FleetName {
    FleetName::new("loadtest", &format!("fleet-{at:04}"))
}

#[cfg(test)]
mod tests;
