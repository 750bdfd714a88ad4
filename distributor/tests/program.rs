//! The program as operators run it: what it says, when it is ready, how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use heliograph_store::keys::KeyRing;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(30);

/// A program that is killed when the test ends before it.
struct Running(Child);

/// A distributor whose ports are its own choice.
struct Distributor {
    program: Running,
    log: PathBuf,
    _directory: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Distributor {
    fn start(redis: u16, flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (keys, log) = (directory.path().join("keys.yaml"), directory.path().join("log"));
        fs::write(&keys, &*KeyRing::generate("one").unwrap()).unwrap();
        let mut command = distributor();
        command.args(["--store", &format!("redis://127.0.0.1:{redis}"), "--store-keys"]).arg(&keys);
        command
            .args(["--xds-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"])
            .args(flags);
        command.stderr(File::create(&log).unwrap());
        Self { program: Running(command.spawn().unwrap()), log, _directory: directory }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Where it says that it serves.
    fn address(&self, name: &str) -> Option<String> {
        let log = self.log();
        Some(log.split(name).nth(1)?.split_whitespace().next()?.to_owned())
    }

    /// The answer of the admin port, once it serves.
    async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address("admin=")?).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    async fn says(&self, path: &str, expected: &str) -> bool {
        self.get(path).await.is_some_and(|answer| answer.contains(expected))
    }

    fn terminate(&self) {
        let id = self.program.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    async fn end(&mut self) -> ExitStatus {
        self.terminate();
        let mut status = None;
        let mut look = tokio::time::interval(Duration::from_millis(5));
        let ending = async {
            while status.is_none() {
                look.tick().await;
                status = self.program.0.try_wait().unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, ending).await.unwrap();
        status.unwrap()
    }
}

fn distributor() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distributor"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.env_remove("HELIO_STORE").env_remove("HELIO_STORE_KEYS");
    command
}

/// The program at this port, as the tests of the store find it.
fn redis(port: u16) -> Running {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let port = port.to_string();
    let mut command = Command::new(program);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]).stdout(Stdio::null());
    Running(command.spawn().expect("redis-server, or what REDIS_SERVER names"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(10));
    let looking = async {
        while !condition().await {
            look.tick().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, looking).await.is_ok(), "not in time: {what}");
}

#[tokio::test]
async fn it_starts_without_redis_and_is_ready_once_it_is_there() {
    let port = free_port();
    let mut distributor = Distributor::start(port, &[]);
    let awaits = "not ready, awaiting: snapshots";
    until("not ready", async || distributor.says("/readyz", awaits).await).await;
    assert!(distributor.says("/livez", "200 OK").await);
    let place = format!("127.0.0.1:{port}");
    until("a line", async || distributor.log().contains(&place)).await;
    assert_eq!(distributor.log().matches(&place).count(), 1, "{}", distributor.log());

    let server = redis(port);
    until("ready", async || distributor.says("/readyz", "200 OK").await).await;
    assert!(distributor.says("/fleets", "{}").await);
    drop(server);
    until("a second line", async || distributor.log().matches(&place).count() > 1).await;
    assert!(distributor.says("/readyz", "200 OK").await, "what it has it can serve");
    assert!(distributor.end().await.success(), "{}", distributor.log());
}

#[tokio::test]
async fn while_it_drains_it_is_not_ready_and_takes_nobody() {
    let port = free_port();
    let _server = redis(port);
    let mut distributor = Distributor::start(port, &["--drain-time", "3s"]);
    until("ready", async || distributor.says("/readyz", "200 OK").await).await;
    let xds = distributor.address("xds=").unwrap();
    let mut connections = Vec::new();
    for _ in 0..20 {
        connections.push(TcpStream::connect(&xds).await.unwrap());
    }
    let open = "heliograph_distributor_connections 20";
    until("connections", async || distributor.says("/metrics", open).await).await;
    distributor.terminate();
    until("not ready", async || distributor.says("/readyz", "awaiting: shutdown").await).await;
    assert!(distributor.says("/livez", "200 OK").await);
    assert!(TcpStream::connect(&xds).await.is_err(), "nobody listens any more");
    assert!(distributor.end().await.success(), "{}", distributor.log());
}

#[test]
fn what_is_missing_is_one_line() {
    let refused = |args: &[&str], expected: &str| {
        let Output { status, stderr, .. } = distributor().args(args).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(!status.success());
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    };
    let store = ["--store", "redis://127.0.0.1:1"];
    refused(&[], "--store");
    refused(&store, "helio store keys new");
    refused(&[&store[..], &["--store-keys", "/nowhere"]].concat(), "/nowhere");
    let same = ["--admin-address", "127.0.0.1:18000"];
    refused(&[&store[..], &same].concat(), "--xds-address");
}
