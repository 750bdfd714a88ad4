use super::certificates::Certificates;
use super::{Program, Programs, ServersError, Start, Stop, reserve_port, url, version};
use crate::drive::StoreDriver;
use crate::http1;
use crate::scenario::Balance;
use heliograph_store::StoreArgs;
use heliograph_store::keys::KeyRing;
use heliograph_store::redis::link::RedisArgs;
use http::StatusCode;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A Redis, and distributors over it.
#[derive(Debug)]
pub(super) struct Heliograph {
    programs: Programs,
    distributor: PathBuf,
    redis_server: PathBuf,
    cpu: Option<usize>,
    balance: Balance,
    /// How replicas serve TLS, if they do.
    tls: Vec<(&'static str, PathBuf)>,
    replicas: Vec<Replica>,
    /// How many there ever were: none has the name of another.
    started: usize,
    redis: Program,
    store: String,
    keys: PathBuf,
    /// Last, so that it goes after those who use it.
    _scratch: TempDir,
}

#[derive(Debug)]
struct Replica {
    program: Program,
    xds: SocketAddr,
    admin: SocketAddr,
}

/// Replicas to which no client is directed any more.
#[derive(Debug)]
pub(crate) struct Retired {
    replicas: Vec<Replica>,
    drain_time: Duration,
}

/// The metric that an autoscaler reads.
const STREAMS: &str = "heliograph_distributor_streams{";

impl Heliograph {
    pub(super) async fn start(
        programs: &Programs,
        count: usize,
        cpu: Option<usize>,
        certificates: Option<&Certificates>,
        balance: Balance,
    ) -> Result<(Self, StoreDriver), ServersError> {
        let build = "build it with `cargo build --release -p heliograph-distributor`";
        let distributor = programs.find_own("distributor", "DISTRIBUTOR", build)?;
        let install = "install Redis 7 or newer, or take that of `scripts/tools redis-server`";
        let redis_server = programs.find("redis-server", "REDIS_SERVER", install)?;
        let prepare = |cause| ServersError::Prepare { path: std::env::temp_dir(), cause };
        let scratch = tempfile::Builder::new().prefix("loadtest-").tempdir().map_err(prepare)?;
        let keys = scratch.path().join("keys.yaml");
        write_keys(&keys)?;
        let (redis, port) = start_redis(programs, &redis_server, scratch.path(), cpu).await?;
        let store = format!("redis://127.0.0.1:{port}");
        let driver = StoreDriver::open(&arguments(&store, &keys))?;
        let programs = programs.clone();
        let replicas = Vec::new();
        let tls = certificates.map(|Certificates { authority, server, .. }| {
            let files = [&server.certificate, &server.key, authority].map(Clone::clone);
            ["--xds-cert", "--xds-key", "--xds-client-ca"].into_iter().zip(files).collect()
        });
        let mut servers = Self {
            programs,
            distributor,
            redis_server,
            cpu,
            balance,
            tls: tls.unwrap_or_default(),
            replicas,
            started: 0,
            redis,
            store,
            keys,
            _scratch: scratch,
        };
        servers.add(count).await?;
        Ok((servers, driver))
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        let tls = !self.tls.is_empty();
        self.replicas.iter().map(|replica| url(tls, replica.xds)).collect()
    }

    /// The address of its Redis, as the programs get it.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    /// The file with the key ring of its store.
    pub(super) fn keys(&self) -> &Path {
        &self.keys
    }

    pub(super) fn name(&self, server: usize) -> Option<&str> {
        self.replicas.get(server).map(|replica| replica.program.name())
    }

    pub(super) fn programs(&self) -> Vec<&Program> {
        let replicas = self.replicas.iter().map(|replica| &replica.program);
        replicas.chain([&self.redis]).collect()
    }

    pub(super) async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for (name, program) in
            [("distributor", &self.distributor), ("redis-server", &self.redis_server)]
        {
            versions.extend(version(program).await.map(|version| (name.to_owned(), version)));
        }
        versions
    }

    pub(super) async fn stop(&mut self, server: usize, stop: Stop) -> Result<(), ServersError> {
        match self.replicas.get_mut(server) {
            Some(replica) => replica.program.stop(stop).await,
            None => Ok(()),
        }
    }

    pub(super) async fn restart(&mut self, server: usize) -> Result<(), ServersError> {
        let Some(before) = self.replicas.get(server) else { return Ok(()) };
        let replica = self.replica(before.program.name().to_owned(), before.xds).await?;
        if let Some(place) = self.replicas.get_mut(server) {
            *place = replica;
        }
        Ok(())
    }

    pub(super) async fn add(&mut self, count: usize) -> Result<(), ServersError> {
        for _ in 0..count {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let name = format!("distributor-{}", self.started);
            self.started += 1;
            let replica = self.replica(name, any).await?;
            self.replicas.push(replica);
        }
        Ok(())
    }

    pub(super) fn retire(&mut self, count: usize) -> Retired {
        let replicas = self.replicas.split_off(self.replicas.len().saturating_sub(count));
        Retired { replicas, drain_time: self.balance.drain_time.0 }
    }

    pub(super) async fn streams(&self) -> Option<Vec<u64>> {
        let mut all = Vec::new();
        for replica in &self.replicas {
            let page = get(replica.admin, "/metrics").await?;
            let values = page.lines().filter_map(|line| line.strip_prefix(STREAMS));
            let values = values.map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
            all.push(values.sum::<Option<u64>>()?);
        }
        Some(all)
    }

    async fn replica(&self, name: String, xds: SocketAddr) -> Result<Replica, ServersError> {
        let address = xds.to_string();
        let rebalance_rate = self.balance.rebalance_rate.to_string();
        let drain_time = format!("{}ms", self.balance.drain_time.0.as_millis());
        let flags = [
            ("--store", OsStr::new(&self.store)),
            ("--store-keys", self.keys.as_os_str()),
            ("--xds-address", OsStr::new(&address)),
            ("--admin-address", OsStr::new("127.0.0.1:0")),
            ("--replica", OsStr::new(&name)),
            ("--log-level", OsStr::new("info")),
            // All clients come from one machine, as fast as they can, and what is measured is not how they are kept out.
            ("--max-connections", OsStr::new("0")),
            ("--max-connections-per-address", OsStr::new("0")),
            ("--max-unauthenticated", OsStr::new("0")),
            ("--max-streams", OsStr::new("0")),
            ("--admission-rate", OsStr::new("0")),
            ("--rebalance-rate", OsStr::new(&rebalance_rate)),
            ("--drain-time", OsStr::new(&drain_time)),
        ];
        let tls = self.tls.iter().map(|(flag, file)| (*flag, file.as_os_str()));
        let flags = flags.into_iter().chain(tls);
        let arguments = flags.flat_map(|(flag, value)| [OsStr::new(flag), value]);
        let (arguments, cpu) = (arguments.collect(), self.cpu);
        let start = Start { name: &name, program: &self.distributor, arguments, cpu };
        let mut program = Program::start(&self.programs, start)?;
        let addresses = |line: &str| Some((address_in(line, "xds=")?, address_in(line, "admin=")?));
        let (xds, admin) = program.printed("it listens", addresses).await?;
        program.is("it is ready", async || is_ready(admin).await).await?;
        Ok(Replica { program, xds, admin })
    }
}

impl Retired {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.replicas.iter().map(|replica| replica.program.name())
    }

    /// Asks all of them to end, and waits until they have let all streams go.
    pub(crate) async fn end(mut self) -> Result<(), ServersError> {
        let drain_time = self.drain_time;
        let ends = self.replicas.iter_mut().map(|replica| replica.program.drain(drain_time));
        futures::future::try_join_all(ends).await.map(drop)
    }
}

async fn start_redis(
    programs: &Programs,
    redis_server: &Path,
    scratch: &Path,
    cpu: Option<usize>,
) -> Result<(Program, u16), ServersError> {
    let port = reserve_port("redis")?;
    let text = port.to_string();
    let flags = [
        ("--port", OsStr::new(&text)),
        ("--bind", OsStr::new("127.0.0.1")),
        ("--save", OsStr::new("")),
        ("--appendonly", OsStr::new("no")),
        ("--maxmemory-policy", OsStr::new("noeviction")),
        ("--dir", scratch.as_os_str()),
    ];
    let arguments = flags.into_iter().flat_map(|(flag, value)| [OsStr::new(flag), value]);
    let start = Start { name: "redis", program: redis_server, arguments: arguments.collect(), cpu };
    let mut redis = Program::start(programs, start)?;
    redis.is("it answers", async || answers(port).await).await?;
    Ok((redis, port))
}

fn arguments(store: &str, keys: &Path) -> StoreArgs {
    StoreArgs {
        redis: RedisArgs { store: store.parse().ok(), ..RedisArgs::default() },
        store_keys: Some(keys.to_owned()),
        store_prefix: "heliograph".to_owned(),
        store_history: 10,
    }
}

/// Only its owner may read it, as the programs ask for.
fn write_keys(path: &Path) -> Result<(), ServersError> {
    let ring =
        KeyRing::generate("loadtest").map_err(|error| ServersError::Keys(error.to_string()))?;
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(ring.as_bytes()))
        .map_err(|cause| ServersError::Prepare { path: path.to_owned(), cause })
}

/// The address behind some text in a line of a log.
pub(super) fn address_in(line: &str, before: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(before)?;
    rest.split(|char: char| char.is_whitespace() || char == '\u{1b}').next()?.parse().ok()
}

pub(super) async fn is_ready(admin: SocketAddr) -> bool {
    http1::get(admin, "/readyz").await.is_ok_and(|(status, _)| status == StatusCode::OK)
}

/// A page of an admin port.
pub(super) async fn get(admin: SocketAddr, path: &str) -> Option<String> {
    let (_, page) = http1::get(admin, path).await.ok()?;
    String::from_utf8(page.into()).ok()
}

/// Whether a Redis answers.
async fn answers(port: u16) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).await?;
        io::Result::Ok(answer)
    };
    exchange.await.is_ok_and(|answer| &answer == b"+PONG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_a_log() {
        let line = "2026-01-01T00:00:00Z  INFO serving xds=127.0.0.1:4001 admin=127.0.0.1:4002";
        assert_eq!(address_in(line, "xds="), "127.0.0.1:4001".parse().ok());
        assert_eq!(address_in(line, "admin="), "127.0.0.1:4002".parse().ok());
        assert_eq!(address_in("INFO xds=nowhere", "xds="), None);
        assert_eq!(address_in("INFO ready", "xds="), None);
    }
}
