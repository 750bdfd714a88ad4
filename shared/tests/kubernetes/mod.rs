//! A real kube-apiserver over a real etcd, with Gateway API's CRDs where a test asks for them. All on loopback, with its
//! files in a temporary directory, and gone when the test is.
//!
//! The programs are `etcd` and `kube-apiserver` in `KUBEBUILDER_ASSETS`; without it, the one that `KUBERNETES` names. The
//! CRDs are the manifests in `GATEWAY_API_CRDS`. `scripts/tools` prints what to set the last two to.

// Each program of tests uses a part of this.
#![allow(dead_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../store/tests/servers/lifeline.rs"]
mod lifeline;
mod requests;
mod running;

use heliograph_testing::Port;
use http::{Method, StatusCode};
use rcgen::{CertifiedKey, KeyPair};
use requests::Requests;
pub(crate) use running::Running;
use running::program;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Mutex;

pub(crate) struct Kubernetes {
    port: u16,
    etcd_port: u16,
    folder: TempDir,
    requests: Requests,
    server: Option<Running>,
    _etcd: Running,
}

/// Who may do everything.
pub(crate) const ADMIN_TOKEN: &str = "admin-of-the-test";

/// For what takes moments; a busy machine gets time.
const DEADLINE: Duration = Duration::from_secs(90);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Waits for what another process does.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(20));
    let looking = async {
        while !condition().await {
            look.tick().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, looking).await.is_ok(), "not in time: {what}");
}

impl Kubernetes {
    /// With nothing in it but what Kubernetes itself makes.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        // It signed itself, so it is its own authority.
        fs::write(at("ca.crt"), cert.pem()).unwrap();
        fs::write(at("tls.crt"), cert.pem()).unwrap();
        fs::write(at("tls.key"), signing_key.serialize_pem()).unwrap();
        write_account_key(folder.path());
        fs::write(at("tokens.csv"), format!("{ADMIN_TOKEN},admin,1,system:masters\n")).unwrap();
        let [port, etcd_port, peer_port] = [(); 3].map(|()| Port::reserve().unwrap().number());
        let etcd = Running::start(running::etcd(folder.path(), etcd_port, peer_port));
        let requests = Requests::new(port, cert.der().clone(), ADMIN_TOKEN);
        let mut started = Self { port, etcd_port, folder, requests, server: None, _etcd: etcd };
        started.start_server().await;
        started.write_kubeconfig("kubeconfig", ADMIN_TOKEN);
        started
    }

    /// One with CRDs that tests of a program share, each in namespaces of its own, as long as one of them has it.
    pub(crate) async fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Kubernetes>> = Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Self::start().await;
        started.install_crds().await;
        let started = Arc::new(started);
        *shared = Arc::downgrade(&started);
        started
    }

    /// Starts the API server, again if it was stopped, with what it knew.
    pub(crate) async fn start_server(&mut self) {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.file(name).display());
        let mut command = program("kube-apiserver", self.folder.path());
        command.args([
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            // It must not be loopback, and no client connects to it.
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
        ]);
        self.server = Some(Running::start(command));
        let ready = async || {
            let answer = self.requests.send(Method::GET, "/readyz", None).await;
            matches!(answer, Some((StatusCode::OK, _)))
        };
        until("a Kubernetes API that is ready", ready).await;
    }

    /// Has tokens of ServiceAccounts signed with another key once the API server starts again. Those from before are worth nothing.
    pub(crate) fn replace_account_key(&self) {
        write_account_key(self.folder.path());
    }

    pub(crate) fn stop_server(&mut self) {
        self.server = None;
    }

    /// Installs every CRD of Gateway API, and waits until each is served.
    pub(crate) async fn install_crds(&self) {
        for (name, manifest) in gateway_api_crds() {
            self.install_crd(&name, &manifest).await;
        }
    }

    /// Installs a CRD and waits until it is served.
    pub(crate) async fn install_crd(&self, name: &str, manifest: &str) {
        let path = format!("{CRDS}/{name}");
        self.apply(&path, manifest).await;
        let established = async || {
            let conditions = self.get(&path).await["status"]["conditions"].clone();
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|found| found["type"] == "Established" && found["status"] == "True")
        };
        until(&format!("{name} that is established"), established).await;
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// For programs that find the API by such a file. `kubeconfig` is the administrator's.
    pub(crate) fn write_kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": {
                "server": self.url(), "certificate-authority": self.file("ca.crt"),
            } }],
            "users": [{ "name": "test", "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        });
        fs::write(self.file(name), config.to_string()).unwrap();
        self.file(name)
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, None).await
    }

    pub(crate) async fn has(&self, path: &str) -> bool {
        let answer = self.requests.send(Method::GET, path, None).await;
        answer.is_some_and(|(status, _)| status.is_success())
    }

    /// Makes an object, or what its kind makes of it.
    pub(crate) async fn create(&self, path: &str, object: Value) -> Value {
        self.ask(Method::POST, path, Some(("application/json", object.to_string()))).await
    }

    /// Makes an object, or what is there like it, by server-side apply. It may be YAML.
    pub(crate) async fn apply(&self, path: &str, object: impl ToString) -> Value {
        let path = format!("{path}?fieldManager=test&force=true");
        self.ask(Method::PATCH, &path, Some(("application/apply-patch+yaml", object.to_string())))
            .await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, path: &str, change: Value) -> Value {
        let change = Some(("application/merge-patch+json", change.to_string()));
        self.ask(Method::PATCH, path, change).await
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, None).await;
    }

    /// Makes a namespace that no other test has, and returns its name.
    pub(crate) async fn create_namespace(&self, name: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.create("/api/v1/namespaces", json!({ "metadata": { "name": name } })).await;
        name
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

    /// How many requests for objects of this kind the API server has answered, as it counts them itself.
    pub(crate) async fn answered(&self, resource: &str) -> u64 {
        let (_, text) = self.requests.send_for_bytes(Method::GET, "/metrics", None).await.unwrap();
        let (text, wanted) = (String::from_utf8_lossy(&text), format!("resource=\"{resource}\""));
        let counts = text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{") && line.contains(&wanted));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    async fn ask(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Value {
        let sent = format!("{method} {path}");
        let (status, answer) = self.requests.send(method, path, body).await.expect(&sent);
        assert!(status.is_success(), "{sent}: {answer}");
        answer
    }
}

fn write_account_key(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("accounts.key"), key.serialize_pem()).unwrap();
    fs::write(folder.join("accounts.pub"), key.public_key_pem()).unwrap();
}

/// Their names and manifests.
pub(crate) fn gateway_api_crds() -> Vec<(String, String)> {
    let folder = std::env::var("GATEWAY_API_CRDS")
        .expect("GATEWAY_API_CRDS is to name the folder whose path `scripts/tools crds` prints");
    let mut crds = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let file = entry.file_name().into_string().unwrap();
        // `gateway.networking.k8s.io_httproutes.yaml`
        let (group, plural) = file.trim_end_matches(".yaml").split_once('_').unwrap();
        crds.push((format!("{plural}.{group}"), fs::read_to_string(entry.path()).unwrap()));
    }
    crds.sort();
    crds
}
