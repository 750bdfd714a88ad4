//! The program and a Redis beside it, each in a process of its own.

use heliograph_store::keys::KeyRing;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A program that is killed when the test ends before it.
pub(crate) struct Running(Child);

/// A distributor whose ports are its own choice.
pub(crate) struct Distributor {
    program: Running,
    log: PathBuf,
    pub(crate) keys: PathBuf,
    _directory: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Distributor {
    pub(crate) fn start(redis: u16, flags: &[&str]) -> Self {
        Self::start_after("", redis, flags)
    }

    /// `before` is what a shell does first.
    pub(crate) fn start_after(before: &str, redis: u16, flags: &[&str]) -> Self {
        Self::start_with_keys(before, &KeyRing::generate("one").unwrap(), redis, flags)
    }

    /// With the key ring of another.
    pub(crate) fn start_with_keys(before: &str, keys: &str, redis: u16, flags: &[&str]) -> Self {
        let (text, directory) = (keys, tempfile::tempdir().unwrap());
        let (keys, log) = (directory.path().join("keys.yaml"), directory.path().join("log"));
        fs::write(&keys, text).unwrap();
        let mut command = distributor_after(before);
        command.args(["--store", &format!("redis://127.0.0.1:{redis}"), "--store-keys"]).arg(&keys);
        command
            .args(["--xds-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"])
            .args(flags);
        command.stderr(File::create(&log).unwrap());
        Self { program: Running(command.spawn().unwrap()), log, keys, _directory: directory }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Where it says that it serves.
    pub(crate) fn address(&self, name: &str) -> Option<String> {
        let log = self.log();
        Some(log.split(name).nth(1)?.split_whitespace().next()?.to_owned())
    }

    /// The answer of the admin port, once it serves.
    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address("admin=")?).await.ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    pub(crate) async fn responds_with(&self, path: &str, expected: &str) -> bool {
        self.get(path).await.is_some_and(|answer| answer.contains(expected))
    }

    /// A number of `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let page = self.get("/metrics").await.unwrap_or_default();
        let found = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        found.unwrap_or_default()
    }

    /// How much memory it has, in MiB.
    pub(crate) fn memory(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most that it had so far.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let id = self.program.0.id();
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
    }

    pub(crate) fn terminate(&self) {
        let id = self.program.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        self.terminate();
        let mut status = None;
        let mut ticker = tokio::time::interval(Duration::from_millis(5));
        let ending = async {
            while status.is_none() {
                ticker.tick().await;
                status = self.program.0.try_wait().unwrap();
            }
        };
        tokio::time::timeout(DEADLINE, ending).await.unwrap();
        status.unwrap()
    }
}

pub(crate) fn distributor() -> Command {
    distributor_after("")
}

fn distributor_after(before: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before} exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_distributor"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.env_remove("HELIO_STORE").env_remove("HELIO_STORE_KEYS");
    command
}

/// The program at this port, as the tests of the store find it.
pub(crate) fn redis(port: u16) -> Running {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let port = port.to_string();
    let mut command = Command::new(program);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]).stdout(Stdio::null());
    Running(command.spawn().expect("redis-server, or what REDIS_SERVER names"))
}

pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let mut ticker = tokio::time::interval(Duration::from_millis(10));
    let looking = async {
        while !condition().await {
            ticker.tick().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, looking).await.is_ok(), "not in time: {what}");
}
