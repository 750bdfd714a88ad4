//! All programs, over a real Kubernetes API and a real Redis, with two proxies; and a load test beside them.

use crate::kubernetes::{Kubernetes, Running, until};
use heliograph_client::{Client, Options, Protocol};
use heliograph_store::keys::KeyRing;
use heliograph_testing::{Port, program};
use rcgen::CertifiedKey;
use serde_json::json;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct Site {
    cluster: Kubernetes,
    namespace: String,
    programs: Vec<Program>,
    _clients: [Client; 2],
    _redis: Running,
    /// Last, so that it goes after those who use it.
    folder: TempDir,
}

/// Something with metrics.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
}

struct Program {
    target: Target,
    log: PathBuf,
    _running: Running,
}

const DEADLINE: Duration = Duration::from_secs(60);

/// Changes for as long as anybody looks.
const SCENARIO: &str = "
about: Endpoints change for as long as anybody looks.
clients: 20
resources: {clusters: 10}
steps: [{change: endpoint, every: 200ms, count: 100000}]
";

impl Site {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (redis_port, loadtest_port) =
            (Port::reserve().unwrap().number(), Port::reserve().unwrap().number());
        let redis = start_redis(redis_port, folder.path());
        let site = Scene { folder: folder.path(), redis: redis_port };
        site.write_files();
        let loadtest = site.start_loadtest(loadtest_port);

        let cluster = Kubernetes::start().await;
        cluster.install_crds().await;
        for (name, manifest) in own_crds() {
            cluster.install_crd(&name, &manifest).await;
        }
        let namespace = cluster.create_namespace("edge").await;
        let class = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": { "name": "heliograph" },
            "spec": { "controllerName": "heliograph.dev/gateway-controller" },
        });
        let classes = "/apis/gateway.networking.k8s.io/v1/gatewayclasses";
        cluster.apply(&format!("{classes}/heliograph"), class).await;

        let kubeconfig = cluster.file("kubeconfig").display().to_string();
        let mut programs = vec![loadtest];
        for name in ["t-0", "t-1"] {
            let flags = ["--kubernetes", "--kubeconfig", &kubeconfig, "--lease-namespace"];
            let proxies = [&namespace, "--proxy-xds", "distributor.example:18000"];
            let flags = flags.into_iter().chain(proxies);
            programs.push(site.start_program(name, "translator", flags).await);
        }
        let (manifests, certificate) = (site.file("manifests"), site.file("tls.crt"));
        let files = ["--dir", &manifests, "--store-prefix", "files"];
        programs.push(site.start_program("t-files", "translator", files).await);
        let cache = site.file("cache");
        let plain =
            ["--xds-address", "127.0.0.1:0", "--replica", "d-0", "--snapshot-cache", &cache];
        programs.push(site.start_program("d-0", "distributor", plain).await);
        let key = site.file("tls.key");
        let tls = ["--xds-cert", &certificate, "--xds-key", &key, "--xds-client-ca", &certificate];
        let tls = ["--xds-address", "127.0.0.1:0", "--replica", "d-1"].into_iter().chain(tls);
        programs.push(site.start_program("d-1", "distributor", tls).await);

        listen_at(&cluster, &namespace, 8080).await;
        let d0 = programs.iter().find(|program| program.target.name == "d-0").unwrap();
        let xds = format!("http://127.0.0.1:{}", port_in(&d0.log, " xds=").unwrap());
        let fleet = format!("{namespace}/edge");
        let clients = [Protocol::Delta, Protocol::StateOfTheWorld]
            .map(|protocol| Client::connect(Options::new(&xds, protocol, &fleet)).unwrap());
        let mut site =
            Self { cluster, namespace, programs, _clients: clients, _redis: redis, folder };
        for client in &mut site._clients {
            client.until("a configuration", DEADLINE, |state| state.is_warm()).await.unwrap();
        }
        site
    }

    /// Changes the configuration of proxies.
    pub(crate) async fn change(&self) {
        listen_at(&self.cluster, &self.namespace, 8081).await;
    }

    pub(crate) fn targets(&self) -> Vec<Target> {
        self.programs.iter().map(|program| program.target.clone()).collect()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Where programs are started.
struct Scene<'a> {
    folder: &'a Path,
    redis: u16,
}

impl Scene<'_> {
    fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn write_files(&self) {
        let keys = self.file("keys.yaml");
        fs::write(&keys, &*KeyRing::generate("one").unwrap()).unwrap();
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
        // It signs itself, so it is its own authority.
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(self.file("tls.crt"), cert.pem()).unwrap();
        fs::write(self.file("tls.key"), signing_key.serialize_pem()).unwrap();
        fs::create_dir(self.file("manifests")).unwrap();
        fs::write(self.file("scenario.yaml"), SCENARIO).unwrap();
    }

    fn start_loadtest(&self, port: u16) -> Program {
        let mut command = Command::new(program("loadtest"));
        command.args(["run", &self.file("scenario.yaml"), "--launch", "heliograph"]);
        command.args(["--metrics", &format!("127.0.0.1:{port}")]);
        // It is killed in the end, and what it leaves behind goes with the folder.
        command.env("TMPDIR", self.folder);
        self.start("loadtest", command, port)
    }

    async fn start_program<'a>(
        &self,
        name: &'static str,
        built: &str,
        flags: impl IntoIterator<Item = &'a str>,
    ) -> Program {
        let mut command = Command::new(program(built));
        command.args(["--store", &format!("redis://127.0.0.1:{}", self.redis)]);
        command.args(["--store-keys", &self.file("keys.yaml"), "--admin-address", "127.0.0.1:0"]);
        command.args(flags);
        let mut started = self.start(name, command, 0);
        until(&format!("{name} listens"), async || port_in(&started.log, " admin=").is_some())
            .await;
        started.target.port = port_in(&started.log, " admin=").unwrap();
        started
    }

    fn start(&self, name: &'static str, mut command: Command, port: u16) -> Program {
        let log = self.folder.join(format!("{name}.log"));
        let output = File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        Program { target: Target { name, port }, log, _running: Running::start(command) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(20).collect();
            println!("{}:", self.target.name);
            last.iter().rev().for_each(|line| println!("  {line}"));
        }
    }
}

/// A page of a port on this machine, without its head. `None` while no program answers.
pub(crate) async fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    // An older version has no chunks.
    let request = format!("GET {path} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await.ok()?;
    Some(page.split_once("\r\n\r\n")?.1.to_owned())
}

async fn listen_at(cluster: &Kubernetes, namespace: &str, port: u16) {
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": { "name": "edge" },
        "spec": {
            "gatewayClassName": "heliograph",
            "listeners": [{ "name": "http", "protocol": "HTTP", "port": port }],
        },
    });
    let gateways = format!("/apis/gateway.networking.k8s.io/v1/namespaces/{namespace}/gateways");
    cluster.apply(&format!("{gateways}/edge"), gateway).await;
}

fn start_redis(port: u16, folder: &Path) -> Running {
    let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"]);
    command.arg(folder).stdout(Stdio::null());
    Running::start(command)
}

fn own_crds() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/heliograph-crds/files");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.filter_map(|entry| {
        let file = entry.file_name().into_string().unwrap();
        let (group, plural) = file.strip_suffix(".yaml")?.split_once('_')?;
        Some((format!("{plural}.{group}"), fs::read_to_string(entry.path()).unwrap()))
    });
    named.collect()
}

/// The port of the last address in a log, behind some text.
fn port_in(log: &Path, before: &str) -> Option<u16> {
    let text = fs::read_to_string(log).ok()?;
    let (_, rest) = text.rsplit_once(&format!("{before}127.0.0.1:"))?;
    rest.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}
