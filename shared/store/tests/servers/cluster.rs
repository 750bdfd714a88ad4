use super::{Server, until, until_found};
use heliograph_testing::Port;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Three masters with a third of the slots each, and a replica of each.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
    /// Where they speak to each other.
    bus_ports: Vec<Port>,
}

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;
/// A replica that was asked to become the master gives up after five seconds, without a word: nodes that were silent for
/// half a second have no connection to each other for a moment, and then its request is lost.
const ATTEMPT: Duration = Duration::from_secs(6);

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With lines for the configuration of each node.
    pub(crate) async fn start_with(lines: &[&str]) -> Self {
        let mut nodes = Vec::new();
        let mut bus_ports = Vec::new();
        for _ in 0..2 * MASTERS {
            let bus_port = Port::reserve().unwrap();
            let bus = format!("cluster-port {bus_port}");
            let own = ["cluster-enabled yes", "cluster-node-timeout 1000", &bus];
            nodes.push(Server::start(&[&own, lines].concat()).await);
            bus_ports.push(bus_port);
        }
        let cluster = Self { nodes, bus_ports };
        cluster.join().await;
        cluster
    }

    pub(crate) fn url(&self) -> String {
        let places: Vec<_> =
            self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis+cluster://{}", places.join(","))
    }

    /// The master that has this key. Keys and shard channels have the same slots.
    pub(crate) async fn master_of(&self, key: &str) -> &Server {
        let port = until_found("the key has a master", async || self.owner(key).await).await;
        self.node(port)
    }

    /// Kills the master of this key, and waits for its replica to take over. It stays dead until it is restarted.
    pub(crate) async fn kill_master_of(&mut self, key: &str) {
        let port = self.master_of(key).await.port();
        self.until_synced().await;
        self.nodes.iter_mut().find(|node| node.port() == port).unwrap().stop();
        self.until_other_than(key, port).await;
    }

    /// Makes the replica the master of this key. The old one goes on as its replica.
    pub(crate) async fn fail_over(&self, key: &str) {
        let master = self.master_of(key).await;
        let port = master.port();
        let [_, other] = self.shard_of(master);
        self.until_synced().await;
        let is_so = async || self.has_other_than(key, port).await;
        until_asked("the key has another master", is_so, async || {
            // Refused by one that is the master already, and not all have heard of it.
            let _ = other.query::<()>(&["CLUSTER", "FAILOVER"]).await;
        })
        .await;
        // Until then the old one may have nothing at all, and so must not be parted or promoted.
        self.until_synced().await;
    }

    /// This node and the one that has the same slots.
    pub(crate) fn shard_of<'a>(&'a self, node: &'a Server) -> [&'a Server; 2] {
        let index = self.nodes.iter().position(|it| it.port() == node.port()).unwrap();
        [node, &self.nodes[(index + MASTERS) % (2 * MASTERS)]]
    }

    /// From now on, no replica hears of what is written.
    pub(crate) async fn part(&self) {
        // Nor does it become the master by itself if its master is silent for a moment.
        self.let_replicas_take_over(false).await;
        self.until_synced().await;
        for replica in self.replicas().await {
            replica.part_from_master().await;
        }
    }

    /// Makes all replicas masters, as they are: what was written since they were parted is lost.
    pub(crate) async fn fail_over_to_parted(&self) {
        for replica in self.replicas().await {
            replica.query::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await.unwrap();
            replica.rejoin().await;
            // The one of before knows of it, and has nothing of its own any more.
            let [_, former] = self.shard_of(replica);
            let is_synced = async || former.is_synced_with(replica).await;
            until("the former master has the data of the parted one", is_synced).await;
        }
        self.until_whole().await;
        self.let_replicas_take_over(true).await;
    }

    async fn let_replicas_take_over(&self, they_may: bool) {
        for node in &self.nodes {
            let no_failover = if they_may { "no" } else { "yes" };
            node.configure("cluster-replica-no-failover", no_failover).await;
        }
    }

    async fn replicas(&self) -> Vec<&Server> {
        let mut replicas = Vec::new();
        for node in &self.nodes {
            if node.field(&["INFO", "replication"], "role").await.as_deref() == Some("slave") {
                replicas.push(node);
            }
        }
        assert_eq!(replicas.len(), MASTERS);
        replicas
    }

    /// In every shard whose nodes both run, one of them follows the other and has its data.
    async fn until_synced(&self) {
        let (some, others) = self.nodes.split_at(MASTERS);
        let both = some.iter().zip(others).filter(|(a, b)| !a.is_stopped() && !b.is_stopped());
        for (one, other) in both {
            until("the replica has its master's data", async || {
                one.is_synced_with(other).await || other.is_synced_with(one).await
            })
            .await;
        }
    }

    pub(crate) async fn until_whole(&self) {
        for node in &self.nodes {
            until("the node knows a whole Cluster", async || whole(node).await.unwrap_or(false))
                .await;
        }
        self.until_synced().await;
    }

    async fn until_other_than(&self, key: &str, port: u16) {
        until("the key has another master", async || self.has_other_than(key, port).await).await;
    }

    async fn has_other_than(&self, key: &str, port: u16) -> bool {
        self.owner(key).await.is_some_and(|owner| owner != port)
    }

    /// The port of the one that all living nodes take for the master of this key, if they are well.
    async fn owner(&self, key: &str) -> Option<u16> {
        let mut owners = Vec::new();
        for node in &self.nodes {
            let Ok(slot) = node.query::<u16>(&["CLUSTER", "KEYSLOT", key]).await else { continue };
            let state = node.field(&["CLUSTER", "INFO"], "cluster_state").await?;
            if state != "ok" {
                return None;
            }
            let map: String = node.query(&["CLUSTER", "NODES"]).await.ok()?;
            owners.push(owner_in(&map, slot)?);
        }
        owners.dedup();
        let [owner] = owners[..] else { return None };
        Some(owner)
    }

    fn node(&self, port: u16) -> &Server {
        self.nodes.iter().find(|node| node.port() == port).unwrap()
    }

    async fn join(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (index, master) in masters.iter().enumerate() {
            let first = (index * SLOTS / MASTERS).to_string();
            let last = ((index + 1) * SLOTS / MASTERS - 1).to_string();
            master.query::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await.unwrap();
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let epoch = (index + 1).to_string();
            node.query::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await.unwrap();
        }
        self.meet().await;
        for (master, replica) in masters.iter().zip(replicas) {
            let id: String = master.query(&["CLUSTER", "MYID"]).await.unwrap();
            // It is refused until the two have met.
            until("the replica knows its master", async || {
                replica.query::<()>(&["CLUSTER", "REPLICATE", &id]).await.is_ok()
            })
            .await;
        }
        self.until_whole().await;
    }

    /// All nodes learn of each other. One that is not answered by a stranger within a second forgets him, and that he in
    /// turn knows it already does not help: so each is asked for all others.
    async fn meet(&self) {
        let strangers = async || {
            let mut strangers = Vec::new();
            for node in &self.nodes {
                let map: String = node.query(&["CLUSTER", "NODES"]).await.unwrap_or_default();
                for (other, bus_port) in self.nodes.iter().zip(&self.bus_ports) {
                    if other.port() != node.port() && !is_known(&map, other.port()) {
                        strangers.push((node, other.port(), bus_port));
                    }
                }
            }
            strangers
        };
        until_asked(
            "the nodes have met",
            async || strangers().await.is_empty(),
            async || {
                for (node, port, bus_port) in strangers().await {
                    let (port, bus_port) = (port.to_string(), bus_port.to_string());
                    let meet = ["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port];
                    node.query::<()>(&meet).await.unwrap();
                }
            },
        )
        .await;
    }
}

/// Waits for what the nodes do when they are asked, and asks again where it came to nothing.
async fn until_asked(what: &str, is_so: impl AsyncFn() -> bool, ask: impl AsyncFn()) {
    let asked = Cell::new(None::<Instant>);
    until(what, async || {
        if is_so().await {
            return true;
        }
        if asked.get().is_none_or(|asked| asked.elapsed() > ATTEMPT) {
            ask().await;
            asked.set(Some(Instant::now()));
        }
        false
    })
    .await;
}

fn is_known(map: &str, port: u16) -> bool {
    let place = format!(" 127.0.0.1:{port}@");
    map.lines().any(|line| line.contains(&place) && !line.contains("handshake"))
}

async fn whole(node: &Server) -> Option<bool> {
    let state = node.field(&["CLUSTER", "INFO"], "cluster_state").await?;
    let map: String = node.query(&["CLUSTER", "NODES"]).await.ok()?;
    let joined = map.lines().filter(|line| line.contains(" connected")).count();
    let replicas = map.lines().filter(|line| line.contains("slave")).count();
    Some(state == "ok" && joined == 2 * MASTERS && replicas == MASTERS)
}

/// A line is: id, host:port@bus, flags, master, ping, pong, epoch, link, ranges of slots.
fn owner_in(map: &str, slot: u16) -> Option<u16> {
    map.lines().find_map(|line| {
        let words: Vec<_> = line.split(' ').collect();
        let has = words.get(8..)?.iter().any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            bounds.is_some_and(|(first, last)| (first..=last).contains(&slot))
        });
        let port = words.get(1)?.split_once('@')?.0.rsplit_once(':')?.1.parse().ok()?;
        has.then_some(port)
    })
}
