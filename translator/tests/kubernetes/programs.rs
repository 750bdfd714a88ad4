//! Translators as operators run them: several, over a real API and a real Redis.

mod memory;

use crate::kubernetes::{Kubernetes, Running, until};
use clap::Parser;
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::Reader;
use heliograph_store::keys::KeyRing;
use heliograph_testing::{Port, Stopwatch};
use heliograph_translator::program::Program;
use prometheus::Registry;
use serde_json::json;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LEASE: Duration = Duration::from_secs(5);

struct Site {
    cluster: Arc<Kubernetes>,
    namespace: String,
    folder: TempDir,
    /// What all translators have.
    flags: Vec<OsString>,
    store: Box<dyn Reader>,
    _redis: Running,
}

struct Translator {
    program: Running,
    log: PathBuf,
}

impl Site {
    /// With a Gateway.
    async fn new() -> Self {
        Self::over(Kubernetes::shared().await).await
    }

    async fn over(cluster: Arc<Kubernetes>) -> Self {
        let namespace = cluster.create_namespace("edge").await;
        let labels = json!({ "metadata": { "labels": { "site": namespace } } });
        cluster.patch(&format!("/api/v1/namespaces/{namespace}"), labels).await;
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys.yaml");
        fs::write(&keys, &*KeyRing::generate("one").unwrap()).unwrap();
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
        let port = Port::reserve().unwrap().number();
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut redis = Command::new(program);
        redis.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        redis.stdout(Stdio::null());
        let flags: Vec<OsString> = vec![
            "--store".into(),
            format!("redis://127.0.0.1:{port}").into(),
            "--store-keys".into(),
            keys.into(),
        ];
        let parsed = ["translator".into()].into_iter().chain(flags.clone());
        let store = Program::try_parse_from(parsed).unwrap().store.open(&Registry::new()).unwrap();
        let _redis = Running::start(redis);
        let site = Self { cluster, namespace, folder, flags, store: Box::new(store), _redis };
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": { "name": "heliograph" },
            "spec": { "controllerName": "heliograph.dev/gateway-controller" },
        });
        let classes = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
        site.cluster.apply(&format!("{classes}/heliograph"), class).await;
        site.listen_at(8080).await;
        site
    }

    /// Changes the Gateway, and with it what is published.
    async fn listen_at(&self, port: u16) {
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": { "name": "edge" },
            "spec": {
                "gatewayClassName": "heliograph",
                "listeners": [{ "name": "http", "protocol": "HTTP", "port": port }],
            },
        });
        self.cluster.apply(&self.gateway(), gateway).await;
    }

    fn gateway(&self) -> String {
        let api = "/apis/gateway.networking.k8s.io/v1";
        format!("{api}/namespaces/{}/gateways/edge", self.namespace)
    }

    /// Waits until the status of the Gateway tells of the generation that it has.
    async fn until_status_is_current(&self) {
        until("the status tells of this generation", async || {
            let gateway = self.cluster.get(&self.gateway()).await;
            let conditions = gateway["status"]["conditions"].as_array().cloned();
            conditions.unwrap_or_default().iter().any(|found| {
                found["type"] == "Programmed"
                    && found["message"] == "No proxy is connected yet"
                    && found["observedGeneration"] == gateway["metadata"]["generation"]
            })
        })
        .await;
    }

    fn translator(&self, name: &str) -> Translator {
        let log = self.folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_translator"));
        command.args(&self.flags);
        command.arg("--kubernetes").arg("--kubeconfig").arg(self.cluster.file("kubeconfig"));
        command.args(["--namespace-selector", &format!("site={}", self.namespace)]);
        command.args(["--lease-namespace", &self.namespace]);
        command.args(["--lease-duration", &format!("{}s", LEASE.as_secs())]);
        command.args(["--admin-address", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Translator { program: Running::start(command), log }
    }

    async fn head(&self) -> Option<Head> {
        let fleet = FleetName::new(&self.namespace, "edge");
        let newest = self.store.newest(vec![fleet.clone()]).await.ok()?;
        newest.get(&fleet).filter(|record| record.is_live()).map(|record| record.head)
    }

    /// Waits for a head that is newer than one.
    async fn newer(&self, than: Option<Head>) -> Head {
        until("a newer head", async || self.head().await > than).await;
        self.head().await.unwrap()
    }
}

impl Translator {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The answer of the admin port has these words.
    async fn says(&self, path: &str, expected: &str) -> bool {
        let asking = async {
            let log = self.log();
            let address = log.split("admin=").nth(1)?.split_whitespace().next()?.to_owned();
            let mut stream = TcpStream::connect(address).await.ok()?;
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            Some(answer)
        };
        asking.await.is_some_and(|answer| answer.contains(expected))
    }

    async fn leads(&self) {
        let leads = "heliograph_election_leader 1";
        until("it leads", async || self.says("/metrics", leads).await).await;
    }

    async fn stands_by(&self) {
        let stands_by = "heliograph_election_leader 0";
        until("it stands by", async || self.says("/metrics", stands_by).await).await;
    }

    async fn is_ready(&self) {
        until("it is ready", async || self.says("/readyz", "200 OK").await).await;
    }
}

#[tokio::test]
async fn a_leader_that_is_stopped_or_killed_is_followed_by_another() {
    let site = Site::new().await;
    let first = site.translator("first");
    first.leads().await;
    let published = site.newer(None).await;
    let second = site.translator("second");
    second.is_ready().await;
    assert!(second.says("/metrics", "heliograph_election_leader 0").await, "it stands by, ready");
    assert!(second.says("/metrics", "heliograph_translator_claimed 0").await);

    // Stopped for three times as long as its Lease lasts: what it does then is refused.
    first.program.signal("STOP");
    let stopped = Instant::now();
    site.listen_at(8081).await;
    second.leads().await;
    let by_second = site.newer(Some(published)).await;
    assert!(by_second.fence > published.fence, "{by_second} after {published}");
    until("three Leases", async || stopped.elapsed() > 3 * LEASE).await;
    first.program.signal("CONT");
    first.stands_by().await;
    assert_eq!(site.head().await, Some(by_second), "it changed nothing\n{}", first.log());

    // Killed: the one that was stopped leads again, and knows what changed meanwhile.
    site.listen_at(8082).await;
    let before = site.newer(Some(by_second)).await;
    assert_eq!(before.fence, by_second.fence);
    let killed = Stopwatch::start();
    drop(second);
    first.leads().await;
    assert!(killed.elapsed() < 4 * LEASE, "{:?}", killed.elapsed());
    site.listen_at(8083).await;
    let by_first = site.newer(Some(before)).await;
    assert!(by_first.fence > before.fence, "{by_first} after {before}");

    // Terminated: it releases the Lease, so the next leader need not wait until it expires.
    let third = site.translator("third");
    third.is_ready().await;
    first.program.signal("TERM");
    third.leads().await;
    assert!(first.log().contains("does not lead any more"), "{}", first.log());
}

#[tokio::test]
async fn who_leads_writes_statuses() {
    let site = Site::new().await;
    let first = site.translator("first");
    site.until_status_is_current().await;
    let second = site.translator("second");
    second.is_ready().await;
    let writes = "heliograph_translator_status_writes_total{kind=\"Gateway\",outcome=\"written\"} ";
    let none = &format!("{writes}0\n");
    until("it is counted", async || {
        first.says("/metrics", writes).await && !first.says("/metrics", none).await
    })
    .await;
    first.program.signal("TERM");
    second.leads().await;
    site.newer(None).await;
    assert!(second.says("/metrics", none).await, "there is nothing else to say");
    site.listen_at(8081).await;
    site.until_status_is_current().await;
    // What is written is counted once its answer is there.
    until("it is counted", async || !second.says("/metrics", none).await).await;
}
