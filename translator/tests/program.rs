//! The program as operators run it, over a real Redis: what it says, when it is ready, how it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use clap::Parser;
use heliograph_snapshot::FleetName;
use heliograph_store::keys::KeyRing;
use heliograph_store::redis::RedisStore;
use heliograph_store::{AckReport, FeedbackSender, Reader};
use heliograph_testing::Port;
use heliograph_translator::program::Program;
use prometheus::Registry;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DEADLINE: Duration = Duration::from_secs(60);

const MANIFESTS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: heliograph}
spec: {controllerName: heliograph.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: heliograph
  listeners: [{name: http, protocol: HTTP, port: 8080}]
";

/// A program that is killed when the test ends before it.
struct Running(Child);

/// What all translators of a test share.
struct Scene {
    directory: TempDir,
    port: u16,
}

struct Translator {
    program: Running,
    log: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("objects")).unwrap();
        fs::write(directory.path().join("objects/all.yaml"), MANIFESTS).unwrap();
        let keys = directory.path().join("keys.yaml");
        fs::write(&keys, &*KeyRing::generate("one").unwrap()).unwrap();
        fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
        let port = Port::reserve().unwrap().number();
        Self { directory, port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The program at the scene's port, as the tests of the store find it.
    fn redis(&self) -> Running {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(program);
        command.args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        let child = command.stdout(Stdio::null()).spawn();
        Running(child.expect("redis-server, or what REDIS_SERVER names"))
    }

    /// The settings that all translators have.
    fn settings(&self) -> [OsString; 6] {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let (keys, objects) = (self.path("keys.yaml"), self.path("objects"));
        [
            "--store".into(),
            url.into(),
            "--store-keys".into(),
            keys.into(),
            "--dir".into(),
            objects.into(),
        ]
    }

    /// A translator whose admin port is its own choice.
    fn translator(&self, name: &str) -> Translator {
        let log = self.path(name);
        let mut command = translator();
        command.args(self.settings()).args(["--admin-address", "127.0.0.1:0"]);
        command.stderr(File::create(&log).unwrap());
        Translator { program: Running(command.spawn().unwrap()), log }
    }

    /// The same store as the translators have.
    fn store(&self) -> RedisStore {
        let name = OsString::from("translator");
        let program = Program::try_parse_from([name].into_iter().chain(self.settings())).unwrap();
        program.store.open(&Registry::new()).unwrap()
    }
}

impl Translator {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// The answer of the admin port, once it serves.
    async fn get(&self, path: &str) -> Option<String> {
        let log = self.log();
        let address = log.split("admin=").nth(1)?.split_whitespace().next()?;
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    async fn says(&self, path: &str, expected: &str) -> bool {
        self.get(path).await.is_some_and(|answer| answer.contains(expected))
    }

    async fn is_ready(&self) {
        until("ready", async || self.says("/readyz", "200 OK").await).await;
    }

    async fn ended(&mut self) -> ExitStatus {
        let mut look = tokio::time::interval(Duration::from_millis(5));
        let ending = async {
            loop {
                look.tick().await;
                if let Some(status) = self.program.0.try_wait().unwrap() {
                    return status;
                }
            }
        };
        tokio::time::timeout(DEADLINE, ending).await.expect("the end in time")
    }

    async fn terminate(mut self) -> ExitStatus {
        let id = self.program.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.ended().await
    }
}

fn translator() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_translator"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.env_remove("HELIO_STORE").env_remove("HELIO_STORE_KEYS").env_remove("HELIO_DIR");
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command
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
async fn it_starts_without_redis_and_is_ready_once_all_is_published() {
    let scene = Scene::new();
    let translator = scene.translator("log");
    let awaits = "not ready, awaiting: translation";
    until("not ready", async || translator.says("/readyz", awaits).await).await;
    until("translated", async || {
        translator.says("/status?format=text", "Gateway default/edge").await
    })
    .await;
    let place = format!("127.0.0.1:{}", scene.port);
    until("a line", async || translator.log().contains(&place)).await;
    assert_eq!(translator.log().matches(&place).count(), 1, "{}", translator.log());

    let server = scene.redis();
    translator.is_ready().await;
    let head = r#""default/edge":{"acknowledged":0"#;
    until("the fleet is told", async || translator.says("/acks", head).await).await;
    assert!(translator.says("/metrics", "heliograph_translator_publishes_total 1").await);

    // What Redis loses is published again.
    drop(server);
    let _server = scene.redis();
    let repaired = "heliograph_translator_repairs_total 1";
    until("repaired", async || translator.says("/metrics", repaired).await).await;
    let again = "heliograph_translator_publishes_total 2";
    until("published again", async || translator.says("/metrics", again).await).await;
    let log = translator.log();
    assert!(log.contains("the store lost 1 fleet; publishing"), "{log}");
    assert!(translator.terminate().await.success(), "{log}");
}

#[tokio::test]
async fn what_a_replica_cannot_load_is_published_again() {
    let scene = Scene::new();
    let _server = scene.redis();
    let translator = scene.translator("log");
    translator.is_ready().await;
    let (store, edge) = (scene.store(), FleetName::new("default", "edge"));
    let head = store.newest(vec![edge.clone()]).await.unwrap()[&edge].head;
    let damaged = BTreeMap::from([(edge, head)]);
    let report = AckReport { replica: "one".to_owned(), damaged, ..AckReport::default() };
    store.send_report(report).await.unwrap();
    let again = "heliograph_translator_publishes_total 2";
    until("published again", async || translator.says("/metrics", again).await).await;
    let log = translator.log();
    assert!(log.contains("found damage in the store: 1 fleet; publishing"), "{log}");
    assert!(translator.terminate().await.success(), "{log}");
}

#[tokio::test]
async fn a_second_translator_ends_the_first_in_one_line() {
    let scene = Scene::new();
    let _server = scene.redis();
    let mut first = scene.translator("first");
    first.is_ready().await;
    let second = scene.translator("second");
    second.is_ready().await;
    assert!(second.says("/metrics", "heliograph_translator_publishes_total 0").await, "unchanged");
    assert_eq!(first.ended().await.code(), Some(1));
    let log = first.log();
    let last = log.lines().last().unwrap();
    assert!(last.starts_with("error: translator: a newer term has begun"), "{log}");
    assert!(last.contains("helio store adopt"), "{log}");
    assert!(second.terminate().await.success());
}

#[test]
fn what_is_wrong_is_one_line() {
    let scene = Scene::new();
    let refused = |dir: &Path, args: &[&str], expected: &str| {
        let Output { status, stderr, .. } =
            translator().arg("--dir").arg(dir).args(args).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(!status.success());
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    };
    let store = ["--store", "redis://127.0.0.1:1"];
    let objects = scene.path("objects");
    refused(&scene.path("nowhere"), &store, "does not exist");
    refused(&objects, &[], "--store");
    refused(&objects, &store, "helio store keys new");
    refused(
        &objects,
        &[&store[..], &["--kubernetes"]].concat(),
        "set only one of --kubernetes and --dir",
    );
    fs::write(objects.join("broken.yaml"), "kind: [").unwrap();
    refused(&objects, &store, "broken.yaml");
}

#[test]
fn where_objects_come_from_has_to_be_said() {
    let refused = |args: &[&str], expected: &str| {
        let store = ["--store", "redis://127.0.0.1:1"];
        let Output { status, stderr, .. } = translator().args(store).args(args).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(!status.success());
        assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{stderr}");
        assert!(stderr.contains(expected), "{expected:?} is not in {stderr}");
    };
    refused(&[], "--kubernetes or --dir");
    refused(&["--kubernetes"], "--kubeconfig");
    refused(&["--kubernetes", "--kubeconfig", "/nowhere"], "/nowhere");
}

#[test]
fn a_kubeconfig_that_is_wrong_is_named_and_nothing_in_it_is_shown() {
    const SECRET: &str = "SuperSecretToken123";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let head = "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n\
                clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n";
    let cases = [
        (
            format!("users:\n- name: u\n  user: {{token: {SECRET}\n"),
            " line 3: it is not valid YAML",
        ),
        (format!("users:\n- name: u\n  user: {{token: [{SECRET}]}}\n"), "expected string"),
        (format!("{head}users: [{{name: u, user: {{tokenFile: {SECRET}}}}}]\n"), "tokenFile"),
        (
            format!(
                "{head}users: [{{name: u, user: {{exec: {{command: /bin/echo, args: [{SECRET}]}}}}}}]\n"
            ),
            "exec plugin",
        ),
    ];
    for (text, expected) in cases {
        fs::write(&file, text).unwrap();
        let mut command = translator();
        command.args(["--store", "redis://127.0.0.1:1", "--kubernetes", "--log-level", "trace"]);
        let output =
            command.arg("--kubeconfig").arg(&file).stdout(Stdio::piped()).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        assert!(!printed.concat().contains(SECRET), "{printed:?}");
        let error = printed[1].lines().last().unwrap();
        let place = file.to_str().unwrap();
        assert!(error.starts_with("error: ") && error.contains(place), "{error}");
        assert!(error.contains(expected), "{expected:?} is not in {error}");
    }
    fs::remove_file(&file).unwrap();
    let missing = translator()
        .args(["--store", "redis://127.0.0.1:1", "--kubernetes", "--kubeconfig"])
        .arg(&file)
        .output()
        .unwrap();
    let stderr = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(stderr.matches("No such file").count(), 1, "{stderr}");
}
