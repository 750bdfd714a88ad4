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
            let is_synced = async || replica.is_synced_with(&servers[0]).await;
            until("the replica has its master's data", is_synced).await;
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
        // One that has lost sight of the master for seconds before it died is no successor, ever.
        let port = self.until_synced().await;
        self.servers.iter_mut().find(|server| server.port() == port).unwrap().stop();
        self.until_other_than(port).await;
        self.until_synced().await;
    }

    /// Makes a replica the master, and waits until all others are its replicas: for a moment two take writes, and one
    /// that has not got the new master's data yet may have none at all.
    pub(crate) async fn fail_over(&self) {
        let port = self.until_synced().await;
        self.replace(port).await;
    }

    async fn replace(&self, port: u16) {
        let asked = &self.sentinels[0];
        until("there is another master", async || {
            // It is refused while one is under way and while no replica is known to be good, and it can come to nothing.
            // Asked again after it was done, it would be undone; so only the word of the one that does it counts, and only now.
            if named_by(asked).await == Some(port) {
                let _ = asked.query::<()>(&["SENTINEL", "FAILOVER", NAME]).await;
                return false;
            }
            self.agreed().await.is_some_and(|agreed| agreed != port)
        })
        .await;
        self.until_synced().await;
    }

    /// From now on, one replica does not hear of what is written, and the other one will not be the master.
    pub(crate) async fn part(&self) {
        for sentinel in &self.sentinels {
            // A replica that has been parted for ten times as long is not made the master; and none is before it is asked
            // for, should the master be silent for a moment.
            let patience = ["SENTINEL", "SET", NAME, "down-after-milliseconds", "60000"];
            sentinel.query::<()>(&patience).await.unwrap();
        }
        self.until_synced().await;
        let (stale, other) = self.replicas().await;
        other.configure("replica-priority", "0").await;
        stale.part_from_master().await;
        for sentinel in &self.sentinels {
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
        self.replace(self.master().await.port()).await;
        self.end_parting(stale, other).await;
    }

    /// The same, because the master dies. It stays dead until it is restarted.
    pub(crate) async fn kill_master_and_fail_over_to_parted(&mut self) {
        let port = self.master().await.port();
        self.servers.iter_mut().find(|server| server.port() == port).unwrap().stop();
        let (stale, other) = self.replicas_of(port);
        // On their own, they would look for a minute first.
        self.replace(port).await;
        self.end_parting(stale, other).await;
    }

    async fn end_parting(&self, stale: &Server, other: &Server) {
        assert_eq!(self.master().await.port(), stale.port());
        other.configure("replica-priority", "100").await;
        stale.rejoin().await;
    }

    async fn replicas(&self) -> (&Server, &Server) {
        self.replicas_of(self.master().await.port())
    }

    /// Always in the same order.
    fn replicas_of(&self, master: u16) -> (&Server, &Server) {
        let mut replicas = self.servers.iter().filter(|server| server.port() != master);
        (replicas.next().unwrap(), replicas.next().unwrap())
    }

    /// All servers that run follow the one that the Sentinels agree on, and have its data. Returns its port.
    async fn until_synced(&self) -> u16 {
        until_found("all replicas have their master's data", async || {
            let port = self.agreed().await?;
            let (masters, replicas): (Vec<_>, Vec<_>) = self
                .servers
                .iter()
                .filter(|server| !server.is_stopped())
                .partition(|server| server.port() == port);
            for replica in replicas {
                if !replica.is_synced_with(masters[0]).await {
                    return None;
                }
            }
            Some(port)
        })
        .await
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
            ports.push(named_by(sentinel).await?);
        }
        ports.dedup();
        let [port] = ports[..] else { return None };
        let server = self.servers.iter().find(|server| server.port() == port)?;
        server.is_master().await.then_some(port)
    }

    /// Everybody knows everybody. Sentinels look around every few seconds; here they hurry.
    pub(crate) async fn settle(&self) {
        for period in ["INFO-PERIOD", "PING-PERIOD", "ASK-PERIOD", "PUBLISH-PERIOD"] {
            self.set_period(period, "100").await;
        }
        for sentinel in &self.sentinels {
            until("the Sentinel knows all others", async || {
                let told = sentinel.field(&["INFO", "sentinel"], "master0").await;
                told.is_some_and(|told| told.contains("slaves=2,sentinels=3"))
            })
            .await;
        }
        // One that stood still for two seconds distrusts its clock, and does nothing for this long; by default half a minute.
        self.set_period("TILT-PERIOD", "1000").await;
        // While a master is down they ask its replicas for news once a second, and a replica whose news are older than five of
        // these cannot be its successor: in a hurry that would be chance.
        self.set_period("PING-PERIOD", "500").await;
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

async fn named_by(sentinel: &Server) -> Option<u16> {
    let asked = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
    sentinel.query::<(String, u16)>(&asked).await.ok().map(|(_, port)| port)
}
