//! A real Redis beside the distributors of a test.

use heliograph_store::keys::{KeyFile, KeyRing};
use heliograph_store::redis::link::Link;
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_testing::Port;
use prometheus::Registry;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// A Redis of this test's own, which can be killed and started again, empty.
pub(crate) struct Redis {
    server: Child,
    port: u16,
    directory: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let port = Port::reserve().unwrap().number();
        let directory = tempfile::tempdir().unwrap();
        let keys = directory.path().join("keys.yaml");
        std::fs::write(keys, KeyRing::generate("one").unwrap()).unwrap();
        Self { server: Self::run(port), port, directory }
    }

    fn run(port: u16) -> Child {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        let server = command.stdout(Stdio::null()).spawn();
        server.expect("redis-server, or what REDIS_SERVER names")
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    pub(crate) fn start_again(&mut self) {
        self.server = Self::run(self.port);
    }

    pub(crate) fn store(&self, registry: &Registry) -> Arc<RedisStore> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let keys = KeyFile::open(self.directory.path().join("keys.yaml")).unwrap();
        let link = Link::new(url.parse().unwrap());
        Arc::new(RedisStore::new(link, keys, RedisOptions::default(), registry).unwrap())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
