//! A running helio, clients, backends and manifests.

use axum::Router;
use axum::http::HeaderMap;
use bytes::Bytes;
use heliograph_testing::{Port, program};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// For what takes moments; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running `helio standalone`, with a directory of its own.
pub(crate) struct Helio {
    child: Child,
    /// The port of its admin address.
    pub(crate) admin: u16,
    scratch: TempDir,
}

impl Helio {
    /// With Envoys. `prepare` fills the directory.
    pub(crate) fn start(prepare: impl FnOnce(&Path)) -> Self {
        Self::start_with("", &["--envoy"], prepare)
    }

    pub(crate) fn without_envoys(prepare: impl FnOnce(&Path)) -> Self {
        Self::start_with("", &[], prepare)
    }

    /// `before` is what a shell does first.
    pub(crate) fn start_with(before: &str, args: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        for directory in ["manifests", "tmp"] {
            fs::create_dir(scratch.path().join(directory)).unwrap();
        }
        prepare(&scratch.path().join("manifests"));
        let admin = Port::reserve().unwrap().number();
        let log = fs::File::create(scratch.path().join("log")).unwrap();
        let child = Command::new("sh")
            .args(["-c", &format!("{before} exec \"$0\" \"$@\"")])
            .arg(program("helio"))
            .arg("standalone")
            .args(args)
            .args(["--xds-address", "127.0.0.1:0", "--dir"])
            .arg(scratch.path().join("manifests"))
            .args(["--admin-address", &format!("127.0.0.1:{admin}")])
            .env("ENVOY", envoy())
            .env("TMPDIR", scratch.path().join("tmp"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, admin, scratch }
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.scratch.path().join("manifests")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.path().join("log")).unwrap()
    }

    pub(crate) async fn until_logged(&self, text: &str) {
        until(text, || async { self.log().contains(text) }).await.unwrap();
    }

    /// Whether a set of signals, such as `SigCgt`, has the one of this number.
    pub(crate) fn has_signal(&self, set: &str, signal: u32) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:"))).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (signal - 1)) != 0
    }

    /// What is in the place of its temporary files.
    pub(crate) fn temporary_files(&self) -> Vec<String> {
        let files = fs::read_dir(self.scratch.path().join("tmp")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The admin port of the Envoy that serves a fleet, which must be ready.
    pub(crate) fn envoy_admin(&self, fleet: &str) -> u16 {
        let run = self.temporary_files().remove(0);
        let directory = self.scratch.path().join("tmp").join(run).join(fleet.replace('/', "_"));
        let address = fs::read_to_string(directory.join("admin")).unwrap();
        address.trim().rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(crate) async fn until_ready(&mut self) {
        let settled = until("helio is ready", || async {
            let ready = get(self.admin, "/readyz").await;
            ready.is_ok_and(|(status, _)| status == StatusCode::OK) || !is_alive(self.child.id())
        });
        settled.await.unwrap();
        assert!(is_alive(self.child.id()), "helio has ended");
    }

    /// The processes that it started and that live.
    pub(crate) fn children(&self) -> Vec<u32> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            (state(id)? == (self.child.id(), true)).then_some(id)
        });
        processes.collect()
    }

    pub(crate) fn signal(&self, signal: &str) {
        send(signal, self.child.id());
    }

    /// Sends a signal and waits for the end.
    pub(crate) async fn end(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.ended().await
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < DEADLINE, "helio does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Helio {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}", self.log());
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// Asks one request after the other, on one connection as long as the server keeps it.
pub(crate) struct Client {
    port: u16,
    connection: Option<http1::SendRequest<Empty<Bytes>>>,
}

impl HttpResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl HttpRequest<'_> {
    /// Asks on a connection of its own.
    pub(crate) async fn ask(&self, port: u16) -> Result<HttpResponse, String> {
        Client::new(port).ask(self).await
    }
}

impl Client {
    pub(crate) fn new(port: u16) -> Self {
        Self { port, connection: None }
    }

    pub(crate) async fn ask(&mut self, asked: &HttpRequest<'_>) -> Result<HttpResponse, String> {
        match tokio::time::timeout(DEADLINE, self.exchange(asked)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn exchange(
        &mut self,
        asked: &HttpRequest<'_>,
    ) -> Result<HttpResponse, Box<dyn std::error::Error + Send + Sync>> {
        let usable = match self.connection.as_mut() {
            Some(connection) => connection.ready().await.is_ok(),
            None => false,
        };
        if !usable {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(driver);
            self.connection = Some(connection);
        }
        let mut request =
            Request::builder().method(asked.method).uri(asked.path).header("host", asked.host);
        for (name, value) in asked.headers {
            request = request.header(*name, *value);
        }
        let connection = self.connection.as_mut().unwrap();
        let response = connection.send_request(request.body(Empty::new())?).await?;
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let body = response.into_body().collect().await?.to_bytes();
        Ok(HttpResponse { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

pub(crate) async fn get(port: u16, path: &str) -> Result<(StatusCode, String), String> {
    let request = HttpRequest { method: "GET", host: "localhost", path, headers: &[] };
    let answer = request.ask(port).await?;
    Ok((StatusCode::from_u16(answer.status).unwrap(), answer.body))
}

/// Answers every request with its name, the host, the path and the headers that begin with `x-`, but for those that
/// every Envoy adds. Returns its port.
pub(crate) async fn backend(name: &'static str) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = async move |request: axum::extract::Request| {
        let host = request.headers()["host"].to_str().unwrap();
        let path = request.uri().path_and_query().unwrap();
        format!("{name} {host} {path}{}", shown_headers(request.headers()))
    };
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    port
}

/// ` x-one=1 x-two=2,3`, in order of their names.
fn shown_headers(headers: &HeaderMap) -> String {
    let mut shown: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in headers {
        let name = name.as_str();
        let added = ["x-envoy-", "x-forwarded-", "x-request-id"];
        if name.starts_with("x-") && !added.iter().any(|prefix| name.starts_with(prefix)) {
            shown.entry(name).or_default().push(value.to_str().unwrap());
        }
    }
    shown.into_iter().map(|(name, values)| format!(" {name}={}", values.join(","))).collect()
}

/// Fails when the condition does not hold in time.
pub(crate) async fn until<F: Future<Output = bool>>(
    what: &str,
    condition: impl Fn() -> F,
) -> Result<(), String> {
    let started = Instant::now();
    while !condition().await {
        if started.elapsed() > DEADLINE {
            return Err(format!("not in time: {what}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

pub(crate) fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}

/// A new file over the old one, as a careful editor does; [`write()`] is a careless one.
pub(crate) fn replace(directory: &Path, name: &str, text: &str) {
    let new = directory.join(format!(".{name}.new"));
    fs::write(&new, text).unwrap();
    fs::rename(new, directory.join(name)).unwrap();
}

/// A Gateway with one HTTP listener, and its class. Lines with more listeners may follow.
pub(crate) fn gateway(name: &str, port: u16) -> String {
    gateway_with(name, &format!("listeners:\n  - {{name: http, protocol: HTTP, port: {port}}}"))
}

/// A Gateway with this in its spec, and its class.
pub(crate) fn gateway_with(name: &str, spec: &str) -> String {
    format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: {name}}}
spec: {{controllerName: heliograph.dev/gateway-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}}}
spec:
  gatewayClassName: {name}
  {spec}
"
    )
}

/// A Service whose one endpoint is on this machine.
pub(crate) fn service(name: &str, port: u16) -> String {
    format!(
        "
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: http, port: {port}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"
    )
}

/// Rules of a path prefix and a backend.
pub(crate) fn route(rules: &[(&str, &str)]) -> String {
    let mut text = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: web}]
  rules:
"
    .to_owned();
    for (path, backend) in rules {
        text += &format!(
            "
  - matches: [{{path: {{type: PathPrefix, value: {path}}}}}]
    backendRefs: [{{name: {backend}, port: 80}}]
"
        );
    }
    text
}

pub(crate) fn send(signal: &str, process: u32) {
    let command = format!("kill -{signal} {process}");
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
}

pub(crate) fn is_alive(process: u32) -> bool {
    state(process).is_some_and(|(_, alive)| alive)
}

/// The parent of a process, and whether it lives: one that has ended may still be in the list.
fn state(process: u32) -> Option<(u32, bool)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in brackets may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    Some((fields.next()?.parse().ok()?, state != "Z" && state != "X"))
}

/// The Envoy that the project's script finds or installs, unless one is given.
pub(crate) fn envoy() -> PathBuf {
    if let Some(envoy) = std::env::var_os("ENVOY") {
        return envoy.into();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/tools");
    let output = Command::new(script).arg("envoy").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "there is no Envoy to test with: {error}");
    String::from_utf8(output.stdout).unwrap().trim().into()
}
