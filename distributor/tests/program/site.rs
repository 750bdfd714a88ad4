//! A distributor with a fleet, and a proxy of it that behaves.

use crate::pki::{CertificateAuthority, Issued};
use crate::running::*;
use heliograph_client::{Client, Options, Protocol, Received, Server, State};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::keys::KeyFile;
use heliograph_store::redis::link::Link;
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_store::{PinState, Publication, Writer};
use heliograph_testing::Port;
use prometheus::Registry;
use rustls::ClientConfig;
use std::fs;
use std::sync::Arc;
use std::time::SystemTime;
use tempfile::TempDir;

pub(crate) const FLEET: &str = "default/gateway";

pub(crate) struct Site {
    pub(crate) distributor: Distributor,
    /// `http://127.0.0.1:PORT`.
    pub(crate) server: String,
    /// It was there before whatever comes.
    client: Client,
    store: RedisStore,
    newest: Arc<Snapshot>,
    port: u16,
    redis: Option<Running>,
}

/// Who signs for the server and for the proxy that behaves, with files for the former.
pub(crate) struct Certificates {
    ca: CertificateAuthority,
    proxy: Issued,
    files: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let (ca, files) = (CertificateAuthority::new(), tempfile::tempdir().unwrap());
        let server = ca.issue("127.0.0.1");
        let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
        write("cert.pem", &server.certificate);
        write("key.pem", &server.key);
        write("ca.pem", &ca.pem());
        let proxy = ca.issue("spiffe://example.org/ns/default/sa/envoy");
        Self { ca, proxy, files }
    }

    /// A client that shows no certificate.
    pub(crate) fn client(&self) -> ClientConfig {
        self.ca.client(None)
    }

    /// A file beside those of the server.
    pub(crate) fn path(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    fn flags(&self) -> [String; 6] {
        let at = |name: &str| self.path(name);
        ["--xds-cert", "cert.pem", "--xds-key", "key.pem", "--xds-client-ca", "ca.pem"]
            .map(|word| if word.ends_with(".pem") { at(word) } else { word.to_owned() })
    }
}

impl Site {
    pub(crate) async fn start(flags: &[&str], certificates: Option<&Certificates>) -> Self {
        let port = Port::reserve().unwrap().number();
        let redis = redis(port);
        let tls = certificates.map(Certificates::flags).into_iter().flatten().collect::<Vec<_>>();
        let all: Vec<&str> = flags.iter().copied().chain(tls.iter().map(String::as_str)).collect();
        let distributor = Distributor::start(port, &all);
        until("ready", async || distributor.responds_with("/readyz", "200 OK").await).await;
        let link = Link::new(format!("redis://127.0.0.1:{port}").parse().unwrap());
        let keys = KeyFile::open(distributor.keys.clone()).unwrap();
        let store = RedisStore::new(link, keys, RedisOptions::default(), &Registry::new()).unwrap();
        until("a claim", async || store.claim(None).await.is_ok()).await;
        let term = store.claim(None).await.unwrap().term;
        let head = Head { epoch: term.epoch, fence: term.fence, sequence: 0 };
        let newest = Arc::new(Snapshot::empty(fleet()).with(head, []));
        let address = distributor.address("xds=").unwrap();
        let server = format!("http://{address}");
        let options = Options::new(server.clone(), Protocol::Delta, FLEET);
        let client = match certificates {
            None => Client::connect(options).unwrap(),
            Some(Certificates { ca, proxy, .. }) => {
                let (address, tls) = (format!("https://{address}"), ca.client(Some(proxy)));
                Client::connect_to(Server::new(&address, Some(tls), None).unwrap(), options)
            }
        };
        let redis = Some(redis);
        let mut site = Self { distributor, server, client, store, newest, port, redis };
        site.goes_on().await;
        site
    }

    /// Redis is gone, with all that it had.
    pub(crate) fn lose_redis(&mut self) {
        self.redis = None;
    }

    /// There is one again, and the translator has published what it did before.
    pub(crate) async fn refill_redis(&mut self) {
        self.redis = Some(redis(self.port));
        let claimed = async || self.store.claim(Some(self.newest.head.fence)).await.is_ok();
        until("a claim", claimed).await;
        let publication = Publication {
            snapshot: self.newest.clone(),
            expected: None,
            held: None,
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        };
        self.store.publish(publication).await.unwrap();
    }

    /// Another distributor at the same Redis, in the place of the one there is.
    pub(crate) fn replace_distributor(&mut self, flags: &[&str]) {
        self.replace_distributor_after("", flags);
    }

    /// `before` is what a shell does first.
    pub(crate) fn replace_distributor_after(&mut self, before: &str, flags: &[&str]) {
        let keys = fs::read_to_string(&self.distributor.keys).unwrap();
        self.distributor = Distributor::start_with_keys(before, &keys, self.port, flags);
    }

    /// A proxy that has just started.
    pub(crate) fn new_proxy(&self) -> Client {
        let server = format!("http://{}", self.distributor.address("xds=").unwrap());
        Client::connect(Options::new(server, Protocol::Delta, FLEET)).unwrap()
    }

    /// The cluster of the newest change.
    pub(crate) fn newest_cluster(&self) -> String {
        format!("cluster-{}", self.newest.head.sequence)
    }

    /// The proxy that was there before goes to where the distributor is now.
    pub(crate) fn move_proxy(&mut self) {
        let server = format!("http://{}", self.distributor.address("xds=").unwrap());
        self.client.move_to(server).unwrap();
    }

    /// The proxy that was there before has the newest and was sent nothing else. That there is no listener may be the answer to
    /// its question for all of them, once the store has confirmed the fleet.
    pub(crate) fn was_told_nothing(&self) {
        let state = self.client.state();
        let is_empty = |it: &Received| it.names.is_empty() && it.removed.is_empty();
        let was_sent_nothing = state.received.iter().all(is_empty);
        assert!(was_sent_nothing && state.ended.is_none(), "{:?}", state.received);
        assert!(state.body(ResourceType::Cluster, &self.newest_cluster()).is_some());
    }

    /// The proxy that behaves hears of a change in time.
    pub(crate) async fn goes_on(&mut self) {
        let name = format!("cluster-{}", self.newest.head.sequence + 1);
        self.changes_to(vec![name], "").await;
    }

    /// The same for a fleet with these clusters, which have this text in them.
    pub(crate) async fn changes_to(&mut self, names: Vec<String>, text: &str) {
        let before = self.newest.head;
        let head = Head { sequence: before.sequence + 1, ..before };
        let change = |name: &String| {
            let alt_stat_name = text.to_owned();
            let cluster = Cluster { name: name.clone(), alt_stat_name, ..Default::default() };
            let resource = Resource::new(name.as_str(), cluster.encode_to_vec().into());
            Change::Set(ResourceType::Cluster, Arc::new(resource))
        };
        let changes: Vec<_> = names.iter().map(change).collect();
        let held = std::mem::replace(
            &mut self.newest,
            Arc::new(Snapshot::empty(fleet()).with(head, changes)),
        );
        let publication = Publication {
            snapshot: self.newest.clone(),
            expected: (before.sequence > 0).then_some(before),
            held: (before.sequence > 0).then_some(held),
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        };
        self.store.publish(publication).await.unwrap();
        let there = |state: &State| {
            names.iter().all(|name| state.body(ResourceType::Cluster, name).is_some())
        };
        self.client.until("the next clusters", DEADLINE, there).await.unwrap();
        assert_eq!(self.client.state().ended, None);
    }
}

fn fleet() -> FleetName {
    FLEET.parse().unwrap()
}
