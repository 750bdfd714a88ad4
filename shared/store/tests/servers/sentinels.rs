use super::{Server, until, until_found};
use std::collections::HashMap;

/// A master, two replicas, and three Sentinels that watch them.
pub(crate) struct Sentinels {
    pub(crate) servers: Vec<Server>,
    pub(crate) sentinels: Vec<Server>,
}

const NAME: &str = "heliograph";

impl Sentinels {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[], &[]).await
    }

    /// With lines for the configuration of the servers, and of the Sentinels.
    pub(crate) async fn start_with(server_lines: &[&str], sentinel_lines: &[&str]) -> Self {
        let master = Server::start(server_lines).await;
        let port = master.port();
        let replica = format!("replicaof 127.0.0.1 {port}");
        let replica_lines = [server_lines, &[replica.as_str()]].concat();
        let mut servers = vec![master];
        for _ in 0..2 {
            servers.push(Server::start(&replica_lines).await);
        }
        for replica in &servers[1..] {
            replica.until_synced().await;
        }
        let lines = [
            format!("sentinel monitor {NAME} 127.0.0.1 {port} 2"),
            format!("sentinel down-after-milliseconds {NAME} 500"),
            format!("sentinel failover-timeout {NAME} 5000"),
            format!("sentinel parallel-syncs {NAME} 2"),
        ];
        let own = sentinel_lines.iter().map(|line| (*line).to_owned());
        let lines: Vec<_> = lines.into_iter().chain(own).collect();
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Server::start_sentinel(lines.clone()).await);
        }
        let all = Self { servers, sentinels };
        all.settle().await;
        all
    }

    pub(crate) fn url(&self) -> String {
        let places: Vec<_> = self
            .sentinels
            .iter()
            .map(|sentinel| format!("127.0.0.1:{}", sentinel.port()))
            .collect();
        format!("redis+sentinel://{}/{NAME}", places.join(","))
    }

    /// The server that the Sentinels agree on.
    pub(crate) async fn master(&self) -> &Server {
        let port = until_found("the Sentinels agree", async || self.agreed().await).await;
        self.servers.iter().find(|server| server.port() == port).unwrap()
    }

    /// Kills the master, and waits for the next one. It stays dead until it is restarted.
    pub(crate) async fn kill_master(&mut self) {
        let port = self.master().await.port();
        // One that has lost sight of the master for seconds before it died is no successor, ever.
        until("a replica follows the master", async || {
            for server in self.servers.iter().filter(|server| server.port() != port) {
                let link = server.told(&["INFO", "replication"], "master_link_status").await;
                if link.as_deref() == Some("up") {
                    return true;
                }
            }
            false
        })
        .await;
        self.servers.iter_mut().find(|server| server.port() == port).unwrap().stop();
        self.until_other_than(port).await;
    }

    /// Makes a replica the master, and waits until the old one is a replica: for a moment both take writes.
    pub(crate) async fn fail_over(&self) {
        let old = self.master().await;
        let port = old.port();
        // It is refused while one is under way and while no replica is known to be good, and it can come to nothing.
        until("there is another master", async || match self.agreed().await {
            Some(agreed) if agreed == port => {
                let _ = self.sentinels[0].query::<()>(&["SENTINEL", "FAILOVER", NAME]).await;
                false
            }
            agreed => agreed.is_some(),
        })
        .await;
        until("the old master is a replica", async || {
            old.told(&["INFO", "replication"], "role").await.as_deref() == Some("slave")
        })
        .await;
    }

    /// From now on, one replica does not hear of what is written, and the other one will not be the master.
    pub(crate) async fn part(&self) {
        let (stale, other) = self.replicas().await;
        other.configure("replica-priority", "0").await;
        stale.part_from_master().await;
        for sentinel in &self.sentinels {
            // A replica that has been parted for ten times as long is not made the master.
            let patience = ["SENTINEL", "SET", NAME, "down-after-milliseconds", "60000"];
            sentinel.query::<()>(&patience).await.unwrap();
            until("the Sentinel knows who may be the master", async || {
                let asked = ["SENTINEL", "REPLICAS", NAME];
                let known: Vec<HashMap<String, String>> = sentinel.query(&asked).await.unwrap();
                let is_out = |it: &&HashMap<_, _>| it["slave-priority"] == "0";
                known.iter().filter(is_out).count() == 1
            })
            .await;
        }
    }

    /// Makes the parted replica the master: what was written since then is lost.
    pub(crate) async fn fail_over_to_parted(&self) {
        let (stale, other) = self.replicas().await;
        self.fail_over().await;
        assert_eq!(self.master().await.port(), stale.port());
        other.configure("replica-priority", "100").await;
        stale.rejoin().await;
    }

    /// Always in the same order.
    async fn replicas(&self) -> (&Server, &Server) {
        let master = self.master().await.port();
        let mut replicas = self.servers.iter().filter(|server| server.port() != master);
        (replicas.next().unwrap(), replicas.next().unwrap())
    }

    async fn until_other_than(&self, port: u16) {
        until("there is another master", async || {
            self.agreed().await.is_some_and(|agreed| agreed != port)
        })
        .await;
    }

    /// The port of the one that all Sentinels name and that takes writes.
    async fn agreed(&self) -> Option<u16> {
        let mut ports = Vec::new();
        for sentinel in &self.sentinels {
            let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
            let (_, port): (String, u16) = sentinel.query(&asked).await.ok()?;
            ports.push(port);
        }
        ports.dedup();
        let [port] = ports[..] else { return None };
        let server = self.servers.iter().find(|server| server.port() == port)?;
        let role = server.told(&["INFO", "replication"], "role").await;
        (role.as_deref() == Some("master")).then_some(port)
    }

    /// Everybody knows everybody. Sentinels look around every few seconds; here they hurry.
    async fn settle(&self) {
        for period in ["INFO-PERIOD", "PING-PERIOD", "ASK-PERIOD", "PUBLISH-PERIOD"] {
            self.set_period(period, "100").await;
        }
        for sentinel in &self.sentinels {
            until("the Sentinel knows all others", async || {
                let told = sentinel.told(&["INFO", "sentinel"], "master0").await;
                told.is_some_and(|told| told.contains("slaves=2,sentinels=3"))
            })
            .await;
        }
        // They put a replica that calls itself master in its place after four of these, which must not happen before
        // all have heard of a failover.
        self.set_period("PUBLISH-PERIOD", "1000").await;
    }

    async fn set_period(&self, period: &str, ms: &str) {
        for sentinel in &self.sentinels {
            sentinel.query::<()>(&["SENTINEL", "DEBUG", period, ms]).await.unwrap();
        }
    }
}
