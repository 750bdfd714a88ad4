//! A real Envoy with generated files.

use crate::kubernetes::until;
use crate::site::get;
use heliograph_testing::Port;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub(crate) struct Proxy {
    child: Child,
    log: PathBuf,
    /// In place of the ports that are the same in every pod.
    own: [(u16, u16); 3],
}

impl Proxy {
    /// `dir` has its files; `args` are those of its container.
    pub(crate) fn start(dir: PathBuf, args: &[String]) -> Self {
        let own = [19000, 19001, 19002].map(|port| (port, Port::reserve().unwrap().number()));
        let config = dir.join("envoy.json");
        let bootstrap = fs::read_to_string(&config).unwrap();
        fs::write(&config, with_ports(&bootstrap, &own)).unwrap();
        let log = dir.join("log");
        let program = std::env::var("ENVOY").expect("ENVOY is to name an Envoy");
        let mut command = Command::new(program);
        if args.is_empty() {
            command.arg("--disable-hot-restart").arg("--config-path").arg(&config);
        }
        let child = command
            .args(args)
            .args(["--concurrency", "1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log, own }
    }

    pub(crate) async fn is_ready(&self) -> bool {
        get(self.own[1].1, "/ready").await.starts_with("HTTP/1.1 200")
    }

    pub(crate) async fn until_ready(&self) {
        until("the Envoy is ready", async || self.is_ready().await).await;
    }

    pub(crate) async fn admin(&self, path: &str) -> String {
        get(self.own[0].1, path).await
    }

    pub(crate) async fn stats(&self) -> String {
        get(self.own[2].1, "/stats/prometheus").await
    }

    pub(crate) async fn total_connections(&self) -> u64 {
        let said = self.admin("/stats?filter=^server.total_connections$").await;
        let value = said.split("server.total_connections: ").nth(1).unwrap_or_default();
        // The answer may come in chunks.
        let value = value.split_whitespace().next().unwrap_or_default();
        value.parse().unwrap_or(u64::MAX)
    }

    /// The command that its container runs before it is terminated.
    pub(crate) fn pre_stop(&self, command: &[String]) -> Child {
        let command: Vec<String> = command.iter().map(|word| with_ports(word, &self.own)).collect();
        Command::new(&command[0]).args(&command[1..]).stdout(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // What it said is what a failing test is about.
            println!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

fn with_ports(text: &str, ports: &[(u16, u16)]) -> String {
    let replace =
        |text: String, (from, to): &(u16, u16)| text.replace(&from.to_string(), &to.to_string());
    ports.iter().fold(text.to_owned(), replace)
}
