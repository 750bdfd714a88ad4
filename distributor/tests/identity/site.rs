//! A running distributor that asks who its clients are, and the files that it follows.

use crate::pki::{CertificateAuthority, ISSUER, Issued, Signer};
use heliograph_client::{Client, Options, Protocol, Server, State};
use heliograph_distributor::{DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_shared::admin::{self, Pages, Readiness};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::{DistributorStore, Embedded, PinState, Publication, Writer};
use prometheus::{Registry, TextEncoder};
use rustls::ClientConfig;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic::Code;

/// Long enough for a busy machine; nothing waits for it but a failing test.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const BOTH: [Protocol; 2] = [Protocol::Delta, Protocol::StateOfTheWorld];
pub(crate) const ENVOY: &str = "spiffe://example.org/ns/edge/sa/envoy";

pub(crate) struct Site {
    /// `127.0.0.1:PORT`.
    pub(crate) address: String,
    /// Of the server and of clients.
    pub(crate) ca: CertificateAuthority,
    pub(crate) signer: Signer,
    /// The admin port.
    admin: SocketAddr,
    files: TempDir,
    registry: Registry,
    pub(crate) store: Arc<Embedded>,
    _stop: tokio_util::sync::DropGuard,
}

impl Site {
    /// With certificates and tokens, and two fleets: edge/gateway and default/gateway.
    pub(crate) async fn start() -> Self {
        Self::with(|args| args).await
    }

    /// The same with other flags; files are in the folder of the certificate.
    pub(crate) async fn with(change: impl FnOnce(SecurityArgs) -> SecurityArgs) -> Self {
        Self::under(LoadArgs::default(), change).await
    }

    /// The same with other bounds.
    pub(crate) async fn under(
        load: LoadArgs,
        change: impl FnOnce(SecurityArgs) -> SecurityArgs,
    ) -> Self {
        let (ca, signer) = (CertificateAuthority::new(), Signer::new("one"));
        let files = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(files.path().join(name));
        let args = change(SecurityArgs {
            xds_cert: at("cert.pem"),
            xds_key: at("key.pem"),
            xds_client_ca: at("ca.pem"),
            xds_jwks: at("jwks.json"),
            xds_token_issuer: Some(ISSUER.to_owned()),
            xds_token_audience: None,
            xds_access: None,
            xds_recheck_seconds: Some(1),
            ..SecurityArgs::default()
        });
        place(files.path(), &ca.issue("127.0.0.1"));
        fs::write(files.path().join("ca.pem"), ca.pem()).unwrap();
        fs::write(files.path().join("jwks.json"), Signer::jwks(&[&signer])).unwrap();
        if let Some(rules) = &args.xds_access
            && !rules.exists()
        {
            fs::write(rules, "rules: []").unwrap();
        }
        let (registry, readiness) = (Registry::new(), Readiness::new());
        let distributor = DistributorArgs {
            xds_address: "127.0.0.1:0".parse().unwrap(),
            insecure_plaintext: false,
            replica: Some("replica-7".to_owned()),
            load,
        };
        let store = Arc::new(Embedded::new());
        publish(&store).await;
        let bound = heliograph_distributor::build(
            &distributor,
            &args,
            DistributorStore::new(store.clone()),
            &registry,
            &readiness,
        )
        .await
        .unwrap();
        let (address, stop) = (bound.address().to_string(), CancellationToken::new());
        let port = admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let admin = port.address();
        let pages = bound.add_pages(Pages::new(registry.clone(), readiness.clone()));
        tokio::spawn(port.serve(pages, stop.clone().cancelled_owned()));
        tokio::spawn(bound.run(stop.clone()));
        tokio::time::timeout(DEADLINE, readiness.ready()).await.unwrap();
        let _stop = stop.drop_guard();
        Self { address, ca, signer, admin, files, registry, store, _stop }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// Gives the server another certificate.
    pub(crate) fn place(&self, issued: &Issued) {
        place(self.files.path(), issued);
    }

    /// A client that shows a certificate and names a fleet.
    pub(crate) fn shows(&self, issued: &Issued, protocol: Protocol, fleet: &str) -> Client {
        self.client(self.ca.client(Some(issued)), None, protocol, fleet)
    }

    /// A client that bears a token and names a fleet.
    pub(crate) fn bears(&self, token: &str, protocol: Protocol, fleet: &str) -> Client {
        self.client(self.ca.client(None), Some(token), protocol, fleet)
    }

    pub(crate) fn client(
        &self,
        tls: ClientConfig,
        token: Option<&str>,
        protocol: Protocol,
        fleet: &str,
    ) -> Client {
        let address = format!("https://{}", self.address);
        let server = Server::new(&address, Some(tls), token).unwrap();
        Client::connect_to(server, Options::new(address, protocol, fleet))
    }

    /// A page of the admin port.
    pub(crate) async fn page(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    pub(crate) fn metric(&self, line: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let found = text.lines().find_map(|metric| metric.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or_default()
    }
}

/// Waits until the client has what its fleet has.
pub(crate) async fn serves(client: &Client) {
    let has = |state: &State| state.body(ResourceType::Cluster, "backend").is_some();
    client.until("cluster", DEADLINE, has).await.unwrap();
    assert_eq!(client.state().ended, None);
}

/// How the client's stream ended.
pub(crate) async fn end(client: &Client) -> (Code, String) {
    let state = client.until("end", DEADLINE, |state| state.ended.is_some()).await.unwrap();
    state.ended.unwrap()
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let mut ticker = tokio::time::interval(Duration::from_millis(20));
    let looking = async {
        while !condition().await {
            ticker.tick().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, looking).await.is_ok(), "not in time: {what}");
}

fn place(folder: &Path, issued: &Issued) {
    fs::write(folder.join("cert.pem"), &issued.certificate).unwrap();
    fs::write(folder.join("key.pem"), &issued.key).unwrap();
}

async fn publish(store: &Embedded) {
    let fence = store.claim(None).await.unwrap().term.fence;
    for namespace in ["edge", "default"] {
        let cluster = Cluster { name: "backend".to_owned(), ..Default::default() };
        let resource = Resource::new("backend", cluster.encode_to_vec().into());
        let head = Head { epoch: 0, fence, sequence: 1 };
        let changes = [Change::Set(ResourceType::Cluster, Arc::new(resource))];
        let fleet = FleetName::new(namespace, "gateway");
        let publication = Publication {
            snapshot: Arc::new(Snapshot::empty(fleet).with(head, changes)),
            expected: None,
            held: None,
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        };
        store.publish(publication).await.unwrap();
    }
}
