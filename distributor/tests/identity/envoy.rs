//! A real Envoy that shows a certificate, and follows its files as they are mounted; or that bears a token.

use crate::pki::{CertificateAuthority, Issued, Signer};
use crate::site::*;
use heliograph_client::Protocol;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

struct Envoy {
    child: Child,
    folder: TempDir,
}

/// Certificate, key and authorities, mounted as Kubernetes does.
struct Mount {
    folder: PathBuf,
    version: u32,
}

#[tokio::test]
async fn an_envoy_is_known_by_its_certificate_and_all_certificates_are_rotated_under_way() {
    let site = Site::start().await;
    let next = CertificateAuthority::new();
    let both = format!("{}{}", site.ca.pem(), next.pem());
    let folder = tempfile::tempdir().unwrap();
    let mut mount = Mount::new(&folder, &site.ca.issue(ENVOY), &both);
    let envoy = Envoy::start(folder, &site.address, "edge/gateway");
    until("it has its cluster", async || envoy.get("/clusters").await.contains("backend::")).await;
    assert!(envoy.is_connected().await);

    // The Envoy's files first, then the server's: then no CA trusts the earlier certificates.
    mount.swap(&next.issue(ENVOY), &next.pem());
    site.place(&next.issue("127.0.0.1"));
    site.write("ca.pem", &next.pem());
    let refused = r#"heliograph_distributor_refused_calls_total{reason="certificate"}"#;
    until("the first certificate is refused", async || site.metric(refused) > 0).await;
    let streams = r#"heliograph_distributor_streams{protocol="delta"}"#;
    let back = async || envoy.is_connected().await && site.metric(streams) == 1;
    until("it comes back with the second", back).await;
    assert!(envoy.get("/clusters").await.contains("backend::"), "it went on meanwhile");
    let of_before = site.ca.issue(ENVOY);
    let client = site.client(next.client(Some(&of_before)), None, Protocol::Delta, "edge/gateway");
    assert_eq!(end(&client).await.0, Code::Unavailable, "the first authority counts no more");
}

#[tokio::test]
async fn an_envoy_that_names_another_fleet_gets_nothing() {
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    Mount::new(&folder, &site.ca.issue(ENVOY), &site.ca.pem());
    let envoy = Envoy::start(folder, &site.address, "default/gateway");
    let denied = r#"heliograph_distributor_refused_calls_total{reason="not-allowed"}"#;
    until("it is denied, and tries again", async || site.metric(denied) > 1).await;
    assert!(!envoy.get("/clusters").await.contains("backend::"));
}

#[tokio::test]
async fn an_envoy_is_known_by_its_token_for_as_long_as_its_issuer_is() {
    let site = Site::start().await;
    let folder = || {
        let folder = tempfile::tempdir().unwrap();
        Mount::new(&folder, &site.ca.issue(ENVOY), &site.ca.pem());
        folder
    };
    let token = |signer: &Signer| signer.token(ENVOY, 3600, &json!({}));
    let known = token(&site.signer);
    let envoy = Envoy::bearing(folder(), &site.address, "edge/gateway", &known);
    until("it has its cluster", async || envoy.get("/clusters").await.contains("backend::")).await;
    assert!(envoy.is_connected().await);

    let next = Signer::new("two");
    let forged = Envoy::bearing(folder(), &site.address, "edge/gateway", &token(&next));
    let refused = r#"heliograph_distributor_refused_calls_total{reason="token"}"#;
    until("it is refused, and tries again", async || site.metric(refused) > 1).await;
    assert!(!forged.get("/clusters").await.contains("backend::"));

    // With the keys of another issuer it is the other way round.
    site.write("jwks.json", &Signer::jwks(&[&next]));
    let clusters = async || forged.get("/clusters").await.contains("backend::");
    until("the other has its cluster", clusters).await;
    until("the first is gone", async || !envoy.is_connected().await).await;
    assert!(envoy.get("/clusters").await.contains("backend::"), "it keeps what it has");
}

impl Envoy {
    fn start(folder: TempDir, xds: &str, fleet: &str) -> Self {
        let bootstrap = bootstrap(folder.path(), xds, fleet);
        Self::run(folder, &bootstrap)
    }

    /// One that shows no certificate.
    fn bearing(folder: TempDir, xds: &str, fleet: &str, token: &str) -> Self {
        let mut bootstrap = bootstrap(folder.path(), xds, fleet);
        let service = &mut bootstrap["dynamic_resources"]["ads_config"]["grpc_services"][0];
        service["initial_metadata"] =
            json!([{ "key": "authorization", "value": format!("Bearer {token}") }]);
        let socket = &mut bootstrap["static_resources"]["clusters"][0]["transport_socket"];
        let tls = socket["typed_config"]["common_tls_context"].as_object_mut().unwrap();
        tls.remove("tls_certificate_sds_secret_configs").unwrap();
        Self::run(folder, &bootstrap)
    }

    fn run(folder: TempDir, bootstrap: &Value) -> Self {
        let at = |name: &str| folder.path().join(name);
        let secrets = [
            (
                "certificate",
                "tls_certificate",
                json!({
                    "certificate_chain": { "filename": at("tls.crt") },
                    "private_key": { "filename": at("tls.key") },
                    "watched_directory": { "path": folder.path() },
                }),
            ),
            (
                "authorities",
                "validation_context",
                json!({
                    "trusted_ca": { "filename": at("ca.crt") },
                    "watched_directory": { "path": folder.path() },
                }),
            ),
        ];
        for (name, kind, content) in secrets {
            let secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
            let resource = json!({ "@type": secret, "name": name, kind: content });
            let document = json!({ "resources": [resource] });
            fs::write(at(&format!("{name}.json")), document.to_string()).unwrap();
        }
        fs::write(at("envoy.json"), bootstrap.to_string()).unwrap();
        let program = std::env::var("ENVOY").unwrap_or_else(|_| "envoy".to_owned());
        let child = Command::new(program)
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"])
            .arg("--config-path")
            .arg(at("envoy.json"))
            .arg("--admin-address-path")
            .arg(at("admin"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(at("log")).unwrap())
            .spawn()
            .expect("envoy, or what ENVOY names");
        Self { child, folder }
    }

    async fn is_connected(&self) -> bool {
        self.get("/stats?filter=connected_state").await.contains("connected_state: 1")
    }

    /// A page of its admin port, empty before there is one.
    async fn get(&self, path: &str) -> String {
        let page = async {
            let address = fs::read_to_string(self.folder.path().join("admin")).ok()?;
            let mut stream = TcpStream::connect(address.trim()).await.ok()?;
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            Some(answer)
        };
        page.await.unwrap_or_default()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // What it said is what a failing test is about.
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            println!("{log}");
        }
    }
}

impl Mount {
    fn new(folder: &TempDir, issued: &Issued, authorities: &str) -> Self {
        let mut mount = Self { folder: folder.path().to_owned(), version: 0 };
        mount.swap(issued, authorities);
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(Path::new("..data").join(name), mount.folder.join(name)).unwrap();
        }
        mount
    }

    /// All files at once, by one link.
    fn swap(&mut self, issued: &Issued, authorities: &str) {
        self.version += 1;
        let name = format!("..{}", self.version);
        let version = self.folder.join(&name);
        fs::create_dir(&version).unwrap();
        fs::write(version.join("tls.crt"), &issued.certificate).unwrap();
        fs::write(version.join("tls.key"), &issued.key).unwrap();
        fs::write(version.join("ca.crt"), authorities).unwrap();
        symlink(&name, self.folder.join("..new")).unwrap();
        fs::rename(self.folder.join("..new"), self.folder.join("..data")).unwrap();
    }
}

fn bootstrap(folder: &Path, xds: &str, fleet: &str) -> Value {
    let (host, port) = xds.split_once(':').unwrap();
    let from_file = |name: &str| {
        let path = folder.join(format!("{name}.json"));
        json!({ "name": name, "sds_config": {
            "resource_api_version": "V3", "path_config_source": { "path": path },
        } })
    };
    let tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({
        "node": { "id": "envoy", "cluster": fleet },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC", "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
            },
            "cds_config": { "ads": {}, "resource_api_version": "V3" },
            "lds_config": { "ads": {}, "resource_api_version": "V3" },
        },
        "static_resources": { "clusters": [{
            "name": "xds", "type": "STATIC", "connect_timeout": "5s",
            "typed_extension_protocol_options": { http: {
                "@type": format!("type.googleapis.com/{http}"),
                "explicit_http_config": { "http2_protocol_options": {} },
            } },
            "load_assignment": { "cluster_name": "xds", "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": { "socket_address": {
                    "address": host, "port_value": port.parse::<u16>().unwrap(),
                } } },
            }] }] },
            "transport_socket": { "name": "tls", "typed_config": {
                "@type": tls,
                "common_tls_context": {
                    "tls_certificate_sds_secret_configs": [from_file("certificate")],
                    "validation_context_sds_secret_config": from_file("authorities"),
                },
            } },
        }] },
    })
}
