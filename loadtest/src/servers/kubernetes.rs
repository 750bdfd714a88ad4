use super::{Program, Programs, ServersError, Start, reserve_port};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A Kubernetes API with nothing in it but Gateway API's kinds: etcd and kube-apiserver, and no controller.
pub(crate) struct Kubernetes {
    client: Client,
    kubeconfig: PathBuf,
    _server: Program,
    _etcd: Program,
    /// Last, so that it goes after those who use it.
    _folder: TempDir,
}

/// The user that may do everything.
const ADMIN: &str = "loadtest";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// A server answers many at once faster than one after the other.
const AT_ONCE: usize = 16;
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

impl Kubernetes {
    pub(crate) async fn start(
        programs: &Programs,
        cpu: Option<usize>,
    ) -> Result<Self, ServersError> {
        let crds = gateway_api_crds()?;
        let failed = |cause| ServersError::Prepare { path: std::env::temp_dir(), cause };
        let folder = tempfile::Builder::new().prefix("loadtest-").tempdir().map_err(failed)?;
        write_files(folder.path())?;
        let (etcd_port, peer_port) = (reserve_port("etcd")?, reserve_port("etcd")?);
        let port = reserve_port("kube-apiserver")?;
        let mut etcd = start_etcd(programs, folder.path(), etcd_port, peer_port, cpu)?;
        etcd.is("it listens", async || listens(etcd_port).await).await?;
        let mut server = start_server(programs, folder.path(), port, etcd_port, cpu)?;
        let kubeconfig = folder.path().join("kubeconfig");
        write(&kubeconfig, &kubeconfig_of(port, &folder.path().join("tls.crt")).to_string())?;
        let client = connect(&kubeconfig).await?;
        let ready = async || text(&client, "/readyz").await.is_ok();
        server.is("it is ready", ready).await?;
        let started = Self { client, kubeconfig, _server: server, _etcd: etcd, _folder: folder };
        started.install_crds(&crds).await?;
        Ok(started)
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Installs the CRDs of a folder, each in a file `GROUP_PLURAL.yaml`, and waits until they are served.
    pub(crate) async fn install_crds(&self, folder: &Path) -> Result<(), ServersError> {
        let failed = |cause| ServersError::Prepare { path: folder.to_owned(), cause };
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            let Some((group, plural)) = name.split_once('_') else { continue };
            let manifest = std::fs::read_to_string(&path).map_err(failed)?;
            let at = format!("{CRDS}/{plural}.{group}");
            let apply = format!("{at}?fieldManager=loadtest");
            self.send(Method::PATCH, &apply, "application/apply-patch+yaml", manifest).await?;
            let established = async {
                while !is_established(&self.get(&at).await?) {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Ok::<_, ServersError>(())
            };
            match tokio::time::timeout(ESTABLISHED_WITHIN, established).await {
                Ok(done) => done?,
                Err(_) => return Err(ServersError::Api(format!("{at} is not served in time"))),
            }
        }
        Ok(())
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, ServersError> {
        self.send(Method::GET, path, "application/json", String::new()).await
    }

    /// A page that is not JSON.
    pub(crate) async fn text(&self, path: &str) -> Result<String, ServersError> {
        text(&self.client, path).await
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value, ServersError> {
        self.send(Method::POST, path, "application/json", object.to_string()).await
    }

    pub(crate) async fn create_all(
        &self,
        objects: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<(), ServersError> {
        let create = |(path, object): (String, Value)| async move {
            self.create(&path, &object).await.map(drop)
        };
        stream::iter(objects).map(create).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, path: &str, change: &Value) -> Result<Value, ServersError> {
        self.send(Method::PATCH, path, "application/merge-patch+json", change.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), ServersError> {
        self.send(Method::DELETE, path, "application/json", String::new()).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: String,
    ) -> Result<Value, ServersError> {
        let failed = |why: String| ServersError::Api(format!("{method} {path}: {why}"));
        let request = Request::builder().method(&method).uri(path).header("content-type", media);
        let request = request.body(body.into_bytes()).map_err(|error| failed(error.to_string()))?;
        self.client.request(request).await.map_err(|error| failed(error.to_string()))
    }
}

async fn connect(kubeconfig: &Path) -> Result<Client, ServersError> {
    let failed = |error: String| ServersError::Api(error);
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(error.to_string()))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let config = config.map_err(|error| failed(error.to_string()))?;
    Client::try_from(config).map_err(|error| failed(error.to_string()))
}

async fn text(client: &Client, path: &str) -> Result<String, ServersError> {
    let failed = |why: String| ServersError::Api(format!("GET {path}: {why}"));
    let request = Request::get(path).body(Vec::new()).map_err(|error| failed(error.to_string()))?;
    client.request_text(request).await.map_err(|error| failed(error.to_string()))
}

fn gateway_api_crds() -> Result<PathBuf, ServersError> {
    let (name, variable) = ("folder with the CRDs of Gateway API".to_owned(), "GATEWAY_API_CRDS");
    let advice = "`scripts/tools crds` downloads it and prints where it is";
    let said = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_dir());
    said.ok_or(ServersError::Missing { name, variable, advice })
}

fn is_established(crd: &Value) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
}

fn write_files(folder: &Path) -> Result<(), ServersError> {
    let failed = |error: rcgen::Error| ServersError::Certificates(error.to_string());
    // It signs itself, so it is its own authority.
    let CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()]).map_err(failed)?;
    let accounts = KeyPair::generate().map_err(failed)?;
    for (name, content) in [
        ("tls.crt", cert.pem()),
        ("tls.key", signing_key.serialize_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("tokens.csv", format!("{ADMIN},admin,1,system:masters\n")),
    ] {
        write(&folder.join(name), &content)?;
    }
    Ok(())
}

fn write(path: &Path, content: &str) -> Result<(), ServersError> {
    let failed = |cause| ServersError::Prepare { path: path.to_owned(), cause };
    std::fs::write(path, content).map_err(failed)
}

fn kubeconfig_of(port: u16, authority: &Path) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "loadtest",
        "clusters": [{ "name": "loadtest", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority": authority,
        } }],
        "users": [{ "name": "loadtest", "user": { "token": ADMIN } }],
        "contexts": [{ "name": "loadtest", "context": { "cluster": "loadtest", "user": "loadtest" } }],
    })
}

/// One of the two programs: in `KUBEBUILDER_ASSETS`, as tests of other projects have them, or in the one of `KUBERNETES`.
fn find(
    programs: &Programs,
    name: &'static str,
) -> Result<(PathBuf, Option<&'static str>), ServersError> {
    if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty())
    {
        return Ok((Path::new(&folder).join(name), None));
    }
    let advice = "`scripts/tools kubernetes` builds it and prints where it is";
    Ok((programs.find("kubernetes", "KUBERNETES", advice)?, Some(name)))
}

fn start_etcd(
    programs: &Programs,
    folder: &Path,
    port: u16,
    peer_port: u16,
    cpu: Option<usize>,
) -> Result<Program, ServersError> {
    let (path, first) = find(programs, "etcd")?;
    let data = folder.join("etcd").display().to_string();
    let arguments = match first {
        Some(first) => vec![first.to_owned(), data, port.to_string(), peer_port.to_string()],
        None => {
            let [clients, peers] = [port, peer_port].map(|port| format!("http://127.0.0.1:{port}"));
            vec![
                format!("--data-dir={data}"),
                "--unsafe-no-fsync".to_owned(),
                format!("--listen-client-urls={clients}"),
                format!("--advertise-client-urls={clients}"),
                format!("--listen-peer-urls={peers}"),
                format!("--initial-advertise-peer-urls={peers}"),
                format!("--initial-cluster=default={peers}"),
            ]
        }
    };
    let arguments = arguments.iter().map(OsStr::new).collect();
    Program::start(programs, Start { name: "etcd", program: &path, arguments, cpu })
}

fn start_server(
    programs: &Programs,
    folder: &Path,
    port: u16,
    etcd_port: u16,
    cpu: Option<usize>,
) -> Result<Program, ServersError> {
    let (path, first) = find(programs, "kube-apiserver")?;
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let flags = [
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
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
    ];
    let arguments = first.into_iter().chain(flags.iter().map(String::as_str));
    let arguments = arguments.map(OsStr::new).collect();
    Program::start(programs, Start { name: "kube-apiserver", program: &path, arguments, cpu })
}

async fn listens(port: u16) -> bool {
    tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok()
}
