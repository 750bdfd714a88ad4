//! The ways in which Redis can be deployed, and what a test does to them.

use crate::scene::{GATEWAYS, fleet};
use crate::servers::{self, Cluster, Sentinels, Server};
use crate::world::{RedisLocation, World};
use heliograph_snapshot::Head;
use redis::{Cmd, FromRedisValue, cmd};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) enum Site {
    Single(Server),
    Sentinels(Sentinels),
    Cluster(Cluster),
}

/// For a test at each kind of site, of functions that are given one.
macro_rules! at_every_site {
    ($($row:ident,)*) => {
        mod single {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $row() {
                    super::$row(crate::site::Site::single().await).await;
                }
            )*
        }

        mod sentinels {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $row() {
                    super::$row(crate::site::Site::sentinels().await).await;
                }
            )*
        }

        mod cluster {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $row() {
                    super::$row(crate::site::Site::cluster().await).await;
                }
            )*
        }
    };
}
pub(crate) use at_every_site;

/// A server that never saves does not care for its disk, and only such a command takes one back to what it saved.
const LINES: [&str; 2] = ["save 3600 1", "enable-debug-command yes"];
const INDEX: &str = "heliograph:{index}:heads";
const BELL: &str = "heliograph:{index}:bell";

/// A key of a fleet.
pub(crate) fn key_of(gateway: &str, what: &str) -> String {
    format!("heliograph:{{{}}}:{what}", fleet(gateway))
}

impl Site {
    pub(crate) async fn single() -> Self {
        Self::Single(Server::start(&LINES).await)
    }

    pub(crate) async fn sentinels() -> Self {
        Self::Sentinels(Sentinels::start_with(&LINES, &[]).await)
    }

    pub(crate) async fn cluster() -> Self {
        Self::Cluster(Cluster::start_with(&LINES).await)
    }

    /// Everything together, with connections that have followed a failover where there are any.
    pub(crate) async fn world(&self) -> World {
        let mut world = World::at(self.location(), 0).await;
        self.fail_over().await;
        world.settle().await;
        world
    }

    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Self::Single(_))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Where a long outage is not to be seen, a short one is enough.
    pub(crate) fn outage(&self) -> Vec<Duration> {
        let seconds: &[u64] = if matches!(self, Self::Single(_)) { &[20, 40, 60] } else { &[5] };
        seconds.iter().copied().map(Duration::from_secs).collect()
    }

    /// With a way to each server, and to each Sentinel.
    fn location(&self) -> RedisLocation {
        let url = match self {
            Self::Single(server) => server.url(),
            Self::Sentinels(sentinels) => sentinels.url(),
            Self::Cluster(cluster) => cluster.url(),
        };
        let sentinels = match self {
            Self::Sentinels(Sentinels { sentinels, .. }) => sentinels.as_slice(),
            _ => &[],
        };
        let ports = self.servers().iter().chain(sentinels).map(Server::port).collect();
        RedisLocation { url, ports }
    }

    /// All that have data.
    fn servers(&self) -> &[Server] {
        match self {
            Self::Single(server) => std::slice::from_ref(server),
            Self::Sentinels(sentinels) => &sentinels.servers,
            Self::Cluster(cluster) => &cluster.nodes,
        }
    }

    pub(crate) async fn master_of(&self, key: &str) -> &Server {
        match self {
            Self::Single(server) => server,
            Self::Sentinels(sentinels) => sentinels.master().await,
            Self::Cluster(cluster) => cluster.master_of(key).await,
        }
    }

    /// What the master of this key answers.
    pub(crate) async fn ask<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> T {
        servers::ask(command, async || self.master_of(key).await).await
    }

    /// Replicas become the masters of everything, where there are any.
    pub(crate) async fn fail_over(&self) {
        match self {
            Self::Single(_) => {}
            Self::Sentinels(sentinels) => sentinels.fail_over().await,
            Self::Cluster(cluster) => {
                for key in self.key_of_each_master().await {
                    cluster.fail_over(&key).await;
                }
            }
        }
    }

    /// What is written from now on is forgotten by [`Self::go_back`].
    pub(crate) async fn remember(&self) {
        match self {
            Self::Single(server) => server.query(&["SAVE"]).await.unwrap(),
            Self::Sentinels(sentinels) => sentinels.part().await,
            Self::Cluster(cluster) => cluster.part().await,
        }
    }

    /// By a failover to replicas that have not heard of the last writes, where there are any.
    pub(crate) async fn go_back(&self) {
        match self {
            Self::Single(server) => server.query(&["DEBUG", "RELOAD", "NOSAVE"]).await.unwrap(),
            Self::Sentinels(sentinels) => sentinels.fail_over_to_parted().await,
            Self::Cluster(cluster) => cluster.fail_over_to_parted().await,
        }
    }

    /// Everything, everywhere.
    pub(crate) async fn empty(&self) {
        for key in self.key_of_each_master().await {
            loop {
                let master = self.master_of(&key).await.port();
                self.ask::<()>(&key, &cmd("FLUSHALL")).await;
                // A master that is replaced at this moment may have been emptied alone.
                if self.master_of(&key).await.port() == master {
                    break;
                }
            }
        }
    }

    /// Of those masters that have something of ours.
    async fn key_of_each_master(&self) -> Vec<String> {
        let fleets = GATEWAYS.iter().map(|gateway| key_of(gateway, "head"));
        let mut keys = BTreeMap::new();
        for key in fleets.chain([INDEX.to_owned()]) {
            keys.insert(self.master_of(&key).await.port(), key);
        }
        keys.into_values().collect()
    }

    pub(crate) async fn configure(&self, name: &str, value: &str) {
        for server in self.servers() {
            server.configure(name, value).await;
        }
    }

    /// Of those who are masters now. To Sentinels a master that cannot save is down, and so they look for another one; a
    /// Cluster does not care.
    pub(crate) async fn break_disks(&self) {
        for key in self.key_of_each_master().await {
            self.master_of(&key).await.break_disk().await;
        }
    }

    pub(crate) async fn repair_disks(&self) {
        for server in self.servers() {
            if server.is_disk_broken() {
                server.repair_disk().await;
            }
        }
    }

    /// Makes the master of a fleet refuse writes.
    ///
    /// A single server and one under Sentinels become replicas of a master that does not exist, which answer READONLY;
    /// Sentinels make another one the master soon. A node of a Cluster never answers that, as it names the master
    /// instead. There both nodes of the fleet's shard are silent, and with it the others answer CLUSTERDOWN.
    pub(crate) async fn forbid_writes(&self, gateway: &str) {
        if let Self::Cluster(cluster) = self {
            let master = cluster.master_of(&key_of(gateway, "head")).await;
            return cluster.shard_of(master).into_iter().for_each(Server::pause);
        }
        // No program listens at this port.
        let master = self.master_of(&key_of(gateway, "head")).await;
        master.query::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await.unwrap();
    }

    pub(crate) async fn allow_writes(&self) {
        match self {
            Self::Single(server) => server.query(&["REPLICAOF", "NO", "ONE"]).await.unwrap(),
            Self::Sentinels(sentinels) => {
                sentinels.master().await;
            }
            Self::Cluster(cluster) => cluster.nodes.iter().for_each(Server::resume),
        }
    }

    /// Writes down a head as if it were the newest, and tells everybody.
    pub(crate) async fn ring(&self, gateway: &str, head: Head) {
        let (fleet, head) = (fleet(gateway), head.to_string());
        let clock = "heliograph:{index}:clock";
        let rung = format!("{fleet} {head}");
        let bell = if self.is_cluster() { "SPUBLISH" } else { "PUBLISH" };
        for command in [
            cmd("HSET").arg(INDEX).arg(fleet.as_str()).arg(head),
            cmd("SET").arg(clock).arg(format!("rung for {rung}")),
            cmd(bell).arg(BELL).arg(rung),
        ] {
            self.ask::<()>(INDEX, command).await;
        }
    }
}
