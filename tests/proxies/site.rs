//! A fleet, the distributor that serves it, and what an Envoy of it is given.

use crate::kubernetes::until;
use axum::Router;
use heliograph_distributor::{DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_gateway::infra::{
    DEFAULT_IMAGE, Part, ProxyIdentity, ProxySettings, Rendered, RunAs, render,
};
use heliograph_gateway::objects::{Document, parse};
use heliograph_gateway::{Event, World};
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{Change, FleetName, Head, Snapshot};
use heliograph_store::{DistributorStore, Embedded, PinState, Publication, Writer};
use heliograph_testing::Port;
use prometheus::{Registry, TextEncoder};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const FLEET: &str = "shop/web";

pub(crate) struct Site {
    /// `127.0.0.1:PORT` of the distributor.
    pub(crate) xds: String,
    /// The port of the Gateway.
    pub(crate) gateway: u16,
    world: World,
    authority: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
    registry: Registry,
    _stop: DropGuard,
}

/// A file that is replaced as a kubelet does it.
pub(crate) struct Mount {
    folder: PathBuf,
    version: u32,
}

impl Site {
    /// `security` is what the distributor asks for besides its own certificate.
    pub(crate) async fn start(security: impl FnOnce(&Path) -> SecurityArgs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.path().join("ca.crt"), authority.pem()).unwrap();
        issue(folder.path(), &authority, "127.0.0.1", "distributor");
        let gateway = Port::reserve().unwrap().number();
        let world = world(gateway, backend().await);
        let store = Arc::new(Embedded::new());
        publish(&store, &world).await;
        let at = |name: &str| Some(folder.path().join(name));
        let security = SecurityArgs {
            xds_cert: at("distributor.crt"),
            xds_key: at("distributor.key"),
            ..security(folder.path())
        };
        let args = DistributorArgs {
            xds_address: "127.0.0.1:0".parse().unwrap(),
            insecure_plaintext: false,
            replica: None,
            load: LoadArgs::default(),
        };
        let (registry, readiness) = (Registry::new(), Readiness::new());
        let distributor = heliograph_distributor::build(
            &args,
            &security,
            DistributorStore::new(store),
            &registry,
            &readiness,
        )
        .await
        .unwrap();
        let (xds, stop) = (distributor.address().to_string(), CancellationToken::new());
        tokio::spawn(distributor.run(stop.clone()));
        readiness.ready().await;
        let stop = stop.drop_guard();
        Self { xds, gateway, world, authority, folder, registry, _stop: stop }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a certificate and its key.
    pub(crate) fn issue(&self, subject: &str, name: &str) {
        issue(self.folder.path(), &self.authority, subject, name);
    }

    /// Mounts a file of this name in a folder of this name.
    pub(crate) fn mount(&self, name: &str, content: &str) -> Mount {
        let folder = self.file(name);
        fs::create_dir(&folder).unwrap();
        let mut mount = Mount { folder, version: 0 };
        mount.swap(content);
        symlink("..data/token", mount.folder.join("token")).unwrap();
        mount
    }

    /// What the Gateway's pods are given: their files, in a folder, and what their container is started with.
    pub(crate) fn unpack(&self) -> (PathBuf, Vec<String>) {
        let folder = self.file("config");
        fs::create_dir(&folder).unwrap();
        let config = self.rendered(Part::ConfigMap);
        for (name, content) in config["data"].as_object().unwrap() {
            fs::write(folder.join(name), self.localised(content.as_str().unwrap())).unwrap();
        }
        let args = self.container()["args"].as_array().unwrap().clone();
        let args = args.iter().map(|arg| {
            let arg = self.localised(arg.as_str().unwrap());
            arg.replace("$(POD_NAME)", "pod-1")
                .replace("$(POD_NAMESPACE)", NAMESPACE)
                .replace("$(ZONE)", "")
        });
        (folder, args.collect())
    }

    pub(crate) fn pre_stop(&self) -> Vec<String> {
        let container = self.container();
        let command = container.pointer("/lifecycle/preStop/exec/command").unwrap();
        serde_json::from_value(command.clone()).unwrap()
    }

    /// Who answers a request through the Gateway.
    pub(crate) async fn ask(&self) -> String {
        let answers = async || get(self.gateway, "/").await.starts_with("HTTP/1.1 200");
        until("the Gateway answers", answers).await;
        let answer = get(self.gateway, "/").await;
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0, |value| value.trim().parse().unwrap())
    }

    fn container(&self) -> Value {
        let deployment = self.rendered(Part::Deployment);
        deployment.pointer("/spec/template/spec/containers/0").unwrap().clone()
    }

    fn rendered(&self, part: Part) -> Value {
        let settings = ProxySettings {
            image: DEFAULT_IMAGE.to_owned(),
            host: "127.0.0.1".to_owned(),
            port: self.xds.rsplit_once(':').unwrap().1.parse().unwrap(),
            ca_bundle: Some(self.authority.pem()),
            ca_file: None,
            identity: ProxyIdentity::Token { audience: "heliograph".to_owned() },
            user: RunAs::default(),
            group: RunAs::default(),
        };
        let infra = self.world.infra().next().unwrap();
        let all = render(infra, &settings).unwrap().unwrap();
        let found = all.into_iter().find(|rendered: &Rendered| rendered.part == part);
        found.unwrap().object
    }

    /// With the folders of a container on this machine.
    fn localised(&self, text: &str) -> String {
        let at = |name: &str| self.file(name).to_str().unwrap().to_owned();
        text.replace("/etc/heliograph", &at("config"))
            .replace("/var/run/heliograph/token", &at("token"))
    }
}

impl Mount {
    pub(crate) fn swap(&mut self, content: &str) {
        self.version += 1;
        let name = format!("..{}", self.version);
        fs::create_dir(self.folder.join(&name)).unwrap();
        fs::write(self.folder.join(&name).join("token"), content).unwrap();
        symlink(&name, self.folder.join("..new")).unwrap();
        fs::rename(self.folder.join("..new"), self.folder.join("..data")).unwrap();
    }
}

/// The whole answer, empty if there is none.
pub(crate) async fn get(port: u16, path: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    };
    exchange.await.unwrap_or_default()
}

async fn backend() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = async || "backend";
    tokio::spawn(axum::serve(listener, Router::new().fallback(answer)).into_future());
    port
}

fn issue(folder: &Path, authority: &CertifiedIssuer<'static, KeyPair>, subject: &str, name: &str) {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![match subject.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::URI(subject.try_into().unwrap()),
    }];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, authority).unwrap().pem();
    fs::write(folder.join(format!("{name}.crt")), certificate).unwrap();
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}

fn world(gateway: u16, backend: u16) -> World {
    let manifests = format!(
        "
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {{name: heliograph}}
spec: {{controllerName: heliograph.dev/gateway-controller}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: web, namespace: {NAMESPACE}, uid: 5f0c6a53-0000-4000-8000-000000000001}}
spec:
  gatewayClassName: heliograph
  listeners:
  - {{name: http, protocol: HTTP, port: {gateway}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web, namespace: {NAMESPACE}}}
spec:
  parentRefs: [{{name: web}}]
  rules: [{{backendRefs: [{{name: web, port: 80}}]}}]
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: {NAMESPACE}}}
spec: {{ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: web-1, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: web}}}}
addressType: IPv4
ports: [{{name: http, port: {backend}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"
    );
    let mut world = World::new();
    for document in parse(&manifests) {
        match document {
            Document::Object(object) => world.apply(Event::Applied(object)),
            other => panic!("{other:?}"),
        }
    }
    world.settle();
    world
}

async fn publish(store: &Embedded, world: &World) {
    let fleet: FleetName = FLEET.parse().unwrap();
    let changes = world.resources(&fleet);
    let changes = changes.map(|(kind, resource)| Change::Set(kind, Arc::clone(resource)));
    let fence = store.claim(None).await.unwrap().term.fence;
    let head = Head { epoch: 0, fence, sequence: 1 };
    let publication = Publication {
        snapshot: Arc::new(Snapshot::empty(fleet.clone()).with(head, changes)),
        expected: None,
        held: None,
        time: SystemTime::now(),
        cause: "a test".into(),
        pin: PinState::default(),
    };
    store.publish(publication).await.unwrap();
}
