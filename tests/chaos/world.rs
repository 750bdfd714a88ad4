//! Everything together: objects, a translator, replicas, Envoys, and the way they are watched.

use crate::leader::Leader;
use crate::log::{Kept, Log};
use crate::proxies::Envoy;
use crate::replica::Replica;
use crate::scene::{GATEWAYS, GUEST, Scene, fleet};
use crate::servers::{Proxy, until_found};
use crate::standby::Standby;
use heliograph_checker::Violation;
use heliograph_client::Protocol;
use heliograph_gateway::Event;
use heliograph_snapshot::FleetName;
use heliograph_store::StoreError;
use heliograph_store::keys::{KeyFile, KeyRing};
use heliograph_store::redis::link::{Link, RedisArgs, RedisSettings};
use heliograph_store::redis::{RedisOptions, RedisStore};
use prometheus::Registry;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Long enough for a busy machine; nothing waits for it but a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

const REPLICAS: usize = 3;
pub(crate) const PENDING: &str = "heliograph_translator_pending_fleets";

pub(crate) struct World {
    pub(crate) scene: Scene,
    pub(crate) log: Log,
    pub(crate) leader: Leader,
    /// The leader's way to Redis.
    pub(crate) way: Proxy,
    /// Who hears of the same objects, and leads if it is elected.
    pub(crate) standby: Option<Standby>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) envoys: Vec<Envoy>,
    location: RedisLocation,
    directory: TempDir,
    fence: u128,
    /// How many Envoys there have been.
    named: usize,
    /// Replicas, also those that have ended.
    started: usize,
    _kept: Kept,
}

/// Where Redis is.
#[derive(Clone)]
pub(crate) struct RedisLocation {
    pub(crate) url: String,
    /// Of the servers to which everybody gets by a way that can be cut.
    pub(crate) ports: Vec<u16>,
}

impl World {
    /// With proxies of both protocols in each fleet at every replica.
    pub(crate) async fn at(location: RedisLocation, seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("keys"), KeyRing::generate("first").unwrap()).unwrap();
        let (log, scene) = (Log::default(), Scene::new(seed));
        let kept = log.keep();
        let (registry, fence) = (Registry::new(), 100);
        let (store, way) = open(&location, &directory, &registry).await;
        let leader = Leader::begin(store, registry, fence, log.clone());
        leader.introduce(scene.all());
        let mut world = Self {
            scene,
            log,
            leader,
            way,
            standby: None,
            replicas: Vec::new(),
            envoys: Vec::new(),
            location,
            directory,
            fence,
            named: 0,
            started: 0,
            _kept: kept,
        };
        for _ in 0..REPLICAS {
            world.add_replica().await;
            world.add_envoys(world.replicas.len() - 1);
        }
        world.settle().await;
        world
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.directory.path().join("keys")
    }

    pub(crate) fn fleets(&self) -> Vec<FleetName> {
        GATEWAYS.map(fleet).to_vec()
    }

    pub(crate) async fn add_replica(&mut self) {
        let name = format!("replica {}", self.started);
        self.started += 1;
        let registry = Registry::new();
        let (store, way) = open(&self.location, &self.directory, &registry).await;
        let replica = Replica::start(&name, store, registry, way, self.log.clone()).await;
        self.replicas.push(replica);
    }

    /// One of each protocol and fleet, at a replica.
    pub(crate) fn add_envoys(&mut self, at: usize) {
        for gateway in GATEWAYS {
            for protocol in [Protocol::Delta, Protocol::StateOfTheWorld] {
                self.add_envoy(at, gateway, protocol);
            }
        }
    }

    pub(crate) fn add_envoy(&mut self, at: usize, gateway: &str, protocol: Protocol) {
        self.named += 1;
        let replica = &self.replicas[at];
        let name = format!("envoy {} of {gateway} at replica {at} ({protocol:?})", self.named);
        let (server, store) = ((at, replica.server.as_str()), replica.store.clone());
        let log = self.log.clone();
        self.envoys.push(Envoy::connect(name, protocol, fleet(gateway), server, store, log));
    }

    /// By all Envoys that there are.
    pub(crate) fn lost_streams(&self) -> usize {
        self.envoys.iter().map(Envoy::lost_streams).sum()
    }

    /// Another writer, with a connection of its own, that has no objects yet.
    pub(crate) async fn candidate(&self, fence: u128) -> (Leader, Proxy) {
        let registry = Registry::new();
        let (store, way) = open(&self.location, &self.directory, &registry).await;
        (Leader::begin(store, registry, fence, self.log.clone()), way)
    }

    /// Another leader takes over, with a newer token. The one before is not asked.
    pub(crate) async fn succeed(&mut self) -> (Leader, Proxy) {
        self.fence += 1;
        let (leader, way) = self.candidate(self.fence).await;
        leader.introduce(self.scene.all());
        (std::mem::replace(&mut self.leader, leader), std::mem::replace(&mut self.way, way))
    }

    /// From now on, another translator stands by.
    pub(crate) async fn stand_by(&mut self) {
        let registry = Registry::new();
        let (store, way) = open(&self.location, &self.directory, &registry).await;
        let standby = Standby::begin(store, registry, way, self.log.clone());
        standby.leader.introduce(self.scene.all());
        self.standby = Some(standby);
    }

    pub(crate) fn standby(&self) -> &Standby {
        self.standby.as_ref().expect("a translator stands by")
    }

    /// The one that stands by takes over, with a newer token. The one before is not asked.
    pub(crate) async fn elect(&mut self) -> (Leader, Proxy) {
        self.fence += 1;
        let standby = self.standby.take().expect("a translator stands by");
        let (leader, way) = standby.elect(self.fence).await;
        (std::mem::replace(&mut self.leader, leader), std::mem::replace(&mut self.way, way))
    }

    /// Some changes, one after the other.
    pub(crate) fn churn(&mut self, changes: usize) {
        for _ in 0..changes {
            self.change(Scene::change);
        }
    }

    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Scene) -> Vec<Event>) {
        let before = self.scene.has_guest();
        let events = change(&mut self.scene);
        let is_wanted = self.scene.has_guest();
        if before != is_wanted {
            self.log.record(heliograph_checker::Event::Wanted { fleet: fleet(GUEST), is_wanted });
        }
        if let Some(standby) = &self.standby {
            standby.leader.send_events(events.clone());
        }
        self.leader.send_events(events);
    }

    /// A change that all can be waited for to have.
    pub(crate) fn mark(&mut self) -> u32 {
        let mut mark = 0;
        self.change(|scene| {
            let events;
            (mark, events) = scene.mark();
            events
        });
        mark
    }

    /// New endpoints for every fleet that stays. Returns the address of one.
    pub(crate) fn move_endpoints(&mut self) -> String {
        let mut address = String::new();
        self.change(|scene| {
            let events;
            (address, events) = scene.move_endpoints();
            events
        });
        address
    }

    /// Until the reader and the proxies of these replicas have the mark.
    pub(crate) async fn until_marked(&self, replicas: &[usize], mark: u32) {
        for replica in replicas {
            self.replicas[*replica].until_read(&self.fleets(), mark).await;
        }
        for envoy in self.envoys.iter().filter(|envoy| replicas.contains(&envoy.at)) {
            envoy.until_marked(mark).await;
        }
    }

    /// Until everybody has what there is now, and nothing more is on its way.
    pub(crate) async fn settle(&mut self) {
        self.until_settled().await;
    }

    /// Everybody gets to the newest, and the history shows nothing that must not be.
    pub(crate) async fn end(mut self) {
        let found = self.until_settled().await;
        assert!(found.is_empty(), "{} violations:\n  {}", found.len(), in_lines(&found));
    }

    /// Returns what the history shows then. A look at a later one might find somebody behind again, as a leader that finds
    /// something lost publishes on its own.
    async fn until_settled(&mut self) -> Vec<Violation> {
        let mark = self.mark();
        let all: Vec<_> = (0..self.replicas.len()).collect();
        self.until_marked(&all, mark).await;
        // A fleet without a mark may be published after those that have it.
        comes_true("all is published", || self.leader.metric(PENDING) == 0.0).await;
        let mut found = Vec::new();
        let mut look = tokio::time::interval(Duration::from_millis(50));
        let looking = async {
            loop {
                found = self.log.violations();
                if !found.iter().any(Violation::may_pass) {
                    return;
                }
                look.tick().await;
            }
        };
        let caught_up = tokio::time::timeout(DEADLINE, looking).await;
        found.retain(|it| caught_up.is_ok() || it.may_pass());
        assert!(caught_up.is_ok(), "not in time:\n  {}", in_lines(&found));
        found
    }
}

fn in_lines(violations: &[Violation]) -> String {
    violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("\n  ")
}

/// The sum over all labels of a metric, or one of them: `name` or `name{label="value"}`.
pub(crate) fn metric(registry: &Registry, name: &str) -> f64 {
    let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = rest
            .strip_prefix(' ')
            .or_else(|| rest.starts_with('{').then(|| rest.rsplit(' ').next())?)?;
        value.parse::<f64>().ok()
    };
    text.lines().filter_map(value).sum()
}

/// Waits for what happens in this process.
pub(crate) async fn comes_true(what: &str, mut condition: impl FnMut() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(10));
    let looking = async {
        while !condition() {
            look.tick().await;
        }
    };
    let came = tokio::time::timeout(DEADLINE, looking).await;
    assert!(came.is_ok(), "not in time: {what}");
}

/// Of the store, to what the test itself asks. A Redis that does not answer in time, or a Cluster that misses a node, is asked
/// again.
pub(crate) async fn answer<T>(
    what: &str,
    ask: impl AsyncFn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let is_final = |it: &Result<T, StoreError>| !it.as_ref().is_err_and(StoreError::is_temporary);
    until_found(what, async || Some(ask().await).filter(is_final)).await
}

async fn open(
    location: &RedisLocation,
    directory: &TempDir,
    registry: &Registry,
) -> (RedisStore, Proxy) {
    let way = Proxy::start_all(&location.ports).await;
    let url = way.along(&location.url);
    let args = RedisArgs { store: Some(url.parse().unwrap()), ..RedisArgs::default() };
    // A way that is stalled is given up after the second, so that tests of it do not take long.
    let settings = RedisSettings::from_args(&args)
        .unwrap()
        .with_timeouts(Duration::from_secs(1), Duration::from_secs(3));
    let keys = KeyFile::open(directory.path().join("keys")).unwrap();
    let store = RedisStore::new(Link::new(settings), keys, RedisOptions::default(), registry);
    (store.unwrap(), way)
}
