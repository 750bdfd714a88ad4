//! A real kube-apiserver over a real etcd, as `scripts/tools kubernetes` builds them.

use crate::pki::Authority;
use crate::site::until;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rcgen::KeyPair;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) struct Kubernetes {
    pub(crate) authority: Authority,
    port: u16,
    etcd_port: u16,
    folder: TempDir,
    server: Option<Running>,
    _etcd: Running,
}

/// A program that is killed when the test ends before it.
struct Running(Child);

const ADMIN: &str = "admin-of-the-test";

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Kubernetes {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let authority = Authority::new();
        let issued = authority.issue("127.0.0.1");
        fs::write(at("ca.crt"), authority.pem()).unwrap();
        fs::write(at("tls.crt"), &issued.certificate).unwrap();
        fs::write(at("tls.key"), &issued.key).unwrap();
        let accounts = KeyPair::generate().unwrap();
        fs::write(at("accounts.key"), accounts.serialize_pem()).unwrap();
        fs::write(at("accounts.pub"), accounts.public_key_pem()).unwrap();
        fs::write(at("tokens.csv"), format!("{ADMIN},admin,1,system:masters\n")).unwrap();
        let [port, etcd_port, peer_port] = free_ports();
        let etcd = Running(
            program("etcd", &folder)
                .arg(at("etcd"))
                .args([etcd_port.to_string(), peer_port.to_string()])
                .spawn()
                .unwrap(),
        );
        let mut started = Self { authority, port, etcd_port, folder, server: None, _etcd: etcd };
        started.start_server().await;
        started
    }

    /// Starts the API server, again if it was stopped, with what it knew.
    pub(crate) async fn start_server(&mut self) {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.file(name).display());
        let server = program("kube-apiserver", &self.folder)
            .args([
                format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
                format!("--secure-port={}", self.port),
                "--bind-address=127.0.0.1".to_owned(),
                // It must not be loopback, and nobody connects to it.
                "--advertise-address=192.0.2.1".to_owned(),
                "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
                "--authorization-mode=RBAC".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
                file("service-account-key-file", "accounts.pub"),
                file("service-account-signing-key-file", "accounts.key"),
                file("token-auth-file", "tokens.csv"),
                file("tls-cert-file", "tls.crt"),
                file("tls-private-key-file", "tls.key"),
                file("cert-dir", "certs"),
            ])
            .spawn()
            .unwrap();
        self.server = Some(Running(server));
        let ready = async || {
            matches!(self.ask(Method::GET, "/readyz", Value::Null).await, Some((StatusCode::OK, _)))
        };
        until("a Kubernetes API that is ready", ready).await;
    }

    pub(crate) fn stop_server(&mut self) {
        self.server = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes an object, or what its kind makes of it.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        let (status, answer) = self.ask(Method::POST, path, object).await.unwrap();
        assert!(status.is_success(), "{path}: {answer}");
        answer
    }

    pub(crate) async fn delete(&self, path: &str) {
        let (status, answer) = self.ask(Method::DELETE, path, Value::Null).await.unwrap();
        assert!(status.is_success(), "{path}: {answer}");
    }

    pub(crate) async fn create_account(&self, namespace: &str, name: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.create(&path, json!({ "metadata": { "name": name } })).await;
    }

    pub(crate) async fn token(&self, namespace: &str, name: &str, audiences: &[&str]) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({ "spec": { "audiences": audiences, "expirationSeconds": 3600 } });
        let answer = self.create(&path, request).await;
        answer["status"]["token"].as_str().unwrap().to_owned()
    }

    /// `None` if there is no answer.
    async fn ask(&self, method: Method, path: &str, body: Value) -> Option<(StatusCode, Value)> {
        let tcp = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
        let tls = TlsConnector::from(Arc::new(self.authority.client(None)));
        let stream = tls.connect("127.0.0.1".try_into().unwrap(), tcp).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "kubernetes")
            .header("authorization", format!("Bearer {ADMIN}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(if body.is_null() {
                String::new()
            } else {
                body.to_string()
            })))
            .unwrap();
        let (head, body) = sender.send_request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some((head.status, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

/// One of the two programs, whose words are in a file of its name.
fn program(name: &str, folder: &TempDir) -> Command {
    let path = std::env::var("KUBERNETES")
        .expect("KUBERNETES is to name the program whose path `scripts/tools kubernetes` prints");
    let log = File::create(folder.path().join(format!("{name}.log"))).unwrap();
    let mut command = Command::new(path);
    command.arg(name).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command
}

/// Held at the same time, so that they are different.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
