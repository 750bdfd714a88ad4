//! Several distributors over one Redis.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "the tests of fleets use the rest")]
mod redis;

use heliograph_client::{Client, Options, Protocol, State};
use heliograph_distributor::{Acks, DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::listener::v3::Listener;
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::{DistributorStore, PinState, Publication, Writer};
use prometheus::{Registry, TextEncoder};
use redis::Redis;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 80;

struct Replica {
    server: String,
    acks: Acks,
    registry: Registry,
    task: JoinHandle<()>,
}

impl Redis {
    /// Publishes the fleet, as soon as there is a Redis.
    async fn publish(&self) {
        let store = self.store(&Registry::new());
        until("a Redis", async || store.claim(None).await.is_ok()).await;
        let term = store.claim(None).await.unwrap().term;
        let head = Head { epoch: term.epoch, fence: term.fence, sequence: 1 };
        let cluster = Cluster { name: "blue".into(), ..Default::default() };
        let listener = Listener { name: "http".into(), ..Default::default() };
        let changes = [
            (ResourceType::Cluster, Resource::new("blue", cluster.encode_to_vec().into())),
            (ResourceType::Listener, Resource::new("http", listener.encode_to_vec().into())),
        ];
        let changes = changes.map(|(kind, resource)| Change::Set(kind, Arc::new(resource)));
        let publication = Publication {
            snapshot: Arc::new(Snapshot::empty(fleet()).with(head, changes)),
            expected: None,
            held: None,
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        };
        store.publish(publication).await.unwrap();
    }

    async fn replica(&self, name: &str) -> Replica {
        let (registry, readiness) = (Registry::new(), Readiness::new());
        let args = DistributorArgs {
            xds_address: "127.0.0.1:0".parse().unwrap(),
            insecure_plaintext: false,
            replica: Some(name.to_owned()),
            load: LoadArgs::default(),
        };
        let store = self.store(&registry);
        let bound = heliograph_distributor::build(
            &args,
            &SecurityArgs::default(),
            DistributorStore::new(store),
            &registry,
            &readiness,
        )
        .await
        .unwrap();
        let (server, acks) = (format!("http://{}", bound.address()), bound.acks());
        let task = tokio::spawn(async move { bound.run(CancellationToken::new()).await.unwrap() });
        tokio::time::timeout(DEADLINE, readiness.ready()).await.unwrap();
        Replica { server, acks, registry, task }
    }
}

impl Replica {
    fn streams(&self) -> usize {
        self.acks.of(&fleet()).map_or(0, |summary| summary.connected)
    }

    /// How many connections it ended to rebalance.
    fn shed(&self) -> usize {
        let line = "heliograph_distributor_ended_connections_total{reason=\"excess\"}";
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let found = text.lines().find_map(|metric| metric.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or(0)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn fleet() -> FleetName {
    FleetName::new("default", "gateway")
}

async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    let mut ticker = tokio::time::interval(Duration::from_millis(20));
    let looking = async {
        while !condition().await {
            ticker.tick().await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, looking).await.is_ok(), "not in time: {what}");
}

/// A proxy that connects again when it is sent away, to the newest server, and has its configuration all the while. It
/// leaves when there are no servers.
async fn proxy(number: usize, mut servers: watch::Receiver<Vec<String>>) {
    let first = servers.borrow()[0].clone();
    let protocol = [Protocol::Delta, Protocol::StateOfTheWorld][number % 2];
    let mut options = Options::new(first, protocol, fleet().as_str());
    options.node_id = format!("proxy-{number}");
    let mut client = Client::connect(options.clone()).unwrap();
    let mut expected =
        client.until("warm client", DEADLINE, State::is_warm).await.unwrap().received.len();
    loop {
        let ended = |state: &State| state.ended.is_some();
        let state = tokio::select! {
            state = client.until("end", 2 * DEADLINE, ended) => state.unwrap(),
            _ = servers.wait_for(Vec::is_empty) => {
                assert_eq!(client.state().received.len(), expected, "it holds all that there is");
                return;
            }
        };
        let (code, message) = state.ended.clone().unwrap();
        assert_eq!(code, tonic::Code::Unavailable, "{message}");
        assert!(message.contains("--rebalance-rate"), "{message}");
        let held = (state.names(ResourceType::Cluster), state.names(ResourceType::Listener));
        assert_eq!(held, (vec!["blue"], vec!["http"]), "it lost its configuration");
        // A Service chooses by chance; so that the test can count, this is the newest.
        let Some(server) = servers.borrow().last().cloned() else { return };
        client.move_to(server).unwrap();
        let back = |state: &State| state.ended.is_none();
        client.until("new stream", DEADLINE, back).await.unwrap();
        expected = 0;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_replica_gets_its_share_and_nobody_loses_anything() {
    let redis = Redis::start();
    redis.publish().await;
    let first = redis.replica("first").await;
    let (sender, servers) = watch::channel(vec![first.server.clone()]);
    let proxies: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(proxy(number, servers.clone()))).collect();
    until("all at the first", async || first.streams() == CLIENTS).await;

    let second = redis.replica("second").await;
    sender.send_replace(vec![first.server.clone(), second.server.clone()]);
    // The mean is 40, and ten more are not worth a reconnect.
    let even = || (30..=50).contains(&first.streams()) && (30..=50).contains(&second.streams());
    until("even counts", async || even() && first.streams() + second.streams() == CLIENTS).await;
    // What one replica hears of another is seconds old, so there may be a few too many.
    assert!((30..=50).contains(&first.shed()), "{} were let go", first.shed());
    sender.send_replace(Vec::new());
    for proxy in proxies {
        proxy.await.unwrap();
    }
}
