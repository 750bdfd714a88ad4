//! More fleets than fit into memory, over a real Redis.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod redis;

use futures::{StreamExt, stream};
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_distributor::{Acks, AcksSummary, DistributorArgs, LoadArgs, SecurityArgs};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::cluster::v3::Cluster;
use heliograph_envoy::envoy::config::listener::v3::Listener;
use heliograph_envoy::google::protobuf::UInt32Value;
use heliograph_shared::admin::Readiness;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::redis::RedisStore;
use heliograph_store::{DistributorStore, PinState, Publication, Term, Writer as _};
use heliograph_testing::Stopwatch;
use prometheus::{Registry, TextEncoder};
use redis::Redis;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_secs(1);
const BOTH: [Protocol; 2] = [Protocol::Delta, Protocol::StateOfTheWorld];

/// Writes to the store as a translator does.
struct Writer {
    store: Arc<RedisStore>,
    term: Term,
}

struct Replica {
    server: String,
    acks: Acks,
    registry: Registry,
    readiness: Readiness,
    task: JoinHandle<()>,
}

impl Redis {
    async fn writer(&self) -> Writer {
        let store = self.store(&Registry::new());
        until("a Redis", async || store.claim(None).await.is_ok()).await;
        let term = store.claim(None).await.unwrap().term;
        Writer { store, term }
    }

    /// A replica that keeps so many bytes without use, and those that are more for so long.
    async fn replica(&self, fleet_memory: u64, fleet_idle: Duration) -> Replica {
        let (registry, readiness) = (Registry::new(), Readiness::new());
        let args = DistributorArgs {
            xds_address: "127.0.0.1:0".parse().unwrap(),
            insecure_plaintext: false,
            replica: Some("replica".to_owned()),
            load: LoadArgs { fleet_memory, fleet_idle, ..LoadArgs::default() },
        };
        let store = DistributorStore::new(self.store(&registry));
        let security = SecurityArgs::default();
        let bound = heliograph_distributor::build(&args, &security, store, &registry, &readiness);
        let bound = bound.await.unwrap();
        let (server, acks) = (format!("http://{}", bound.address()), bound.acks());
        let task = tokio::spawn(async move { bound.run(CancellationToken::new()).await.unwrap() });
        tokio::time::timeout(DEADLINE, readiness.ready()).await.unwrap();
        Replica { server, acks, registry, readiness, task }
    }
}

impl Writer {
    fn snapshot(&self, fleet: &FleetName, sequence: u64) -> Arc<Snapshot> {
        let head = Head { epoch: self.term.epoch, fence: self.term.fence, sequence };
        // As many bytes at each sequence of a test.
        let revision = Some(UInt32Value { value: 1000 + u32::try_from(sequence).unwrap() });
        let cluster = Cluster {
            name: "blue".into(),
            per_connection_buffer_limit_bytes: revision,
            ..Default::default()
        };
        let listener = Listener { name: "http".into(), ..Default::default() };
        let changes = [
            (ResourceType::Cluster, Resource::new("blue", cluster.encode_to_vec().into())),
            (ResourceType::Listener, Resource::new("http", listener.encode_to_vec().into())),
        ];
        let changes = changes.map(|(kind, resource)| Change::Set(kind, Arc::new(resource)));
        Arc::new(Snapshot::empty(fleet.clone()).with(head, changes))
    }

    async fn publish(&self, fleet: &FleetName, sequence: u64) -> Head {
        let snapshot = self.snapshot(fleet, sequence);
        let before = (sequence > 1).then(|| self.snapshot(fleet, sequence - 1));
        let publication = Publication {
            expected: before.as_ref().map(|before| before.head),
            held: before,
            snapshot: snapshot.clone(),
            time: SystemTime::now(),
            cause: "a test".into(),
            pin: PinState::default(),
        };
        self.store.publish(publication).await.unwrap();
        snapshot.head
    }

    async fn publish_all(&self, fleets: &[FleetName], sequence: u64) {
        let publications = fleets.iter().map(|fleet| self.publish(fleet, sequence));
        let publications: Vec<_> = publications.collect();
        stream::iter(publications).buffer_unordered(16).collect::<Vec<_>>().await;
    }
}

impl Replica {
    fn metric(&self, line: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let found = text.lines().find_map(|metric| metric.strip_prefix(line)?.trim().parse().ok());
        found.unwrap_or_default()
    }

    fn fleets(&self, state: &str) -> u64 {
        self.metric(&format!("heliograph_distributor_fleets{{state=\"{state}\"}}"))
    }

    fn loads(&self, occasion: &str) -> u64 {
        let name = "heliograph_distributor_fleet_loads_total";
        self.metric(&format!("{name}{{occasion=\"{occasion}\"}}"))
    }

    fn drops(&self) -> u64 {
        self.metric("heliograph_distributor_fleet_drops_total")
    }

    /// What was read from Redis beyond records.
    fn objects_read(&self) -> u64 {
        self.metric("heliograph_store_objects_total{direction=\"read\"}")
    }

    fn summary(&self, fleet: &FleetName) -> AcksSummary {
        self.acks.of(fleet).unwrap()
    }

    fn in_memory(&self, fleet: &FleetName) -> bool {
        self.summary(fleet).loaded
    }

    fn client(&self, fleet: &FleetName, protocol: Protocol) -> Client {
        Client::connect(Options::new(self.server.clone(), protocol, fleet.as_str())).unwrap()
    }

    /// A client that has its configuration.
    async fn served(&self, fleet: &FleetName, protocol: Protocol) -> Client {
        let client = self.client(fleet, protocol);
        let state = client.until("configuration", DEADLINE, State::is_warm).await.unwrap();
        assert_eq!(state.names(ResourceType::Cluster), ["blue"]);
        client
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn fleet(number: usize) -> FleetName {
    FleetName::new("default", &format!("gateway-{number:04}"))
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_fleets_and_memory_for_a_hundred() {
    let redis = Redis::start();
    let writer = redis.writer().await;
    let fleets: Vec<_> = (0..1000).map(fleet).collect();
    writer.publish_all(&fleets, 1).await;
    let bytes = writer.snapshot(&fleets[0], 1).bytes() as u64;

    // Ready means that there is as much as fits, and that the rest is known.
    let replica = redis.replica(100 * bytes, MOMENT).await;
    let in_memory = |fleet: &&FleetName| replica.in_memory(fleet);
    let (ahead, others): (Vec<_>, Vec<_>) = fleets.iter().partition(in_memory);
    assert_eq!((ahead.len(), others.len()), (100, 900));
    assert_eq!((replica.loads("ahead"), replica.loads("asked")), (100, 0));
    let counts = || (replica.fleets("known"), replica.fleets("loaded"));
    until("counts", async || counts() == (1000, 100)).await;
    let used = || replica.metric("heliograph_distributor_fleet_bytes");
    until("bytes", async || used() == 100 * bytes).await;

    // Changes of the others are heard of, and cost no load.
    let read = replica.objects_read();
    let changed: Vec<_> = others[100..400].iter().map(|fleet| (**fleet).clone()).collect();
    for sequence in 2..=3 {
        writer.publish_all(&changed, sequence).await;
    }
    let newest = |fleet: &FleetName| Some(writer.snapshot(fleet, 3).head);
    let all_heard = || changed.iter().all(|fleet| replica.summary(fleet).head == newest(fleet));
    until("changes heard of", async || all_heard()).await;
    assert_eq!(replica.objects_read(), read, "something was loaded");
    assert_eq!((replica.loads("ahead"), replica.loads("asked")), (100, 0));

    // Their clients are served, and a fleet is loaded once for all of its clients.
    let used: Vec<_> = others[90..110].to_vec();
    let asking = used.iter().flat_map(|fleet| [*fleet; 4]).zip(BOTH.into_iter().cycle());
    let asking = stream::iter(asking.collect::<Vec<_>>());
    let clients = asking.map(|(fleet, protocol)| replica.served(fleet, protocol));
    let clients: Vec<_> = clients.buffer_unordered(80).collect().await;
    assert_eq!(replica.loads("asked"), 20);
    for fleet in &used[10..] {
        assert_eq!(replica.summary(fleet).head, newest(fleet), "at the head that was heard of");
    }

    // Only unused fleets are dropped, and no more than necessary.
    until("drops", async || replica.drops() == 20 && replica.fleets("loaded") == 100).await;
    assert!(used.iter().all(|fleet| replica.in_memory(fleet)), "one in use was dropped");
    assert_eq!(ahead.iter().filter(|fleet| replica.in_memory(fleet)).count(), 80);
    drop(clients);
    let idle = || used.iter().all(|fleet| replica.summary(fleet).connected == 0);
    until("no clients", async || idle()).await;

    // What was dropped changes, and comes back newer than it went.
    let dropped: Vec<_> = ahead.iter().filter(|fleet| !replica.in_memory(fleet)).collect();
    let (back, before) = (*dropped[0], replica.summary(dropped[0]).head.unwrap());
    let newer = writer.publish(back, 2).await;
    assert!(before < newer);
    until("its newer head", async || replica.summary(back).head == Some(newer)).await;
    let client = replica.served(back, Protocol::Delta).await;
    let summary = replica.summary(back);
    assert_eq!((summary.loaded, summary.head, summary.connected), (true, Some(newer), 1));
    assert_eq!(replica.loads("ahead"), 100, "nothing was loaded ahead again");
    until("one more goes", async || replica.drops() == 21).await;
    assert!(replica.in_memory(back));
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_what_is_in_memory_is_served_and_the_rest_refused() {
    let mut redis = Redis::start();
    let writer = redis.writer().await;
    let fleets = [fleet(0), fleet(1)];
    writer.publish_all(&fleets, 1).await;
    let bytes = writer.snapshot(&fleets[0], 1).bytes() as u64;
    // Whoever asks for the other takes its room, and without Redis what is dropped does not come back.
    let replica = redis.replica(bytes, Duration::from_secs(600)).await;
    let (there, absent) = match replica.in_memory(&fleets[0]) {
        true => (&fleets[0], &fleets[1]),
        false => (&fleets[1], &fleets[0]),
    };
    assert!(replica.in_memory(there) && !replica.in_memory(absent));

    redis.kill();
    for protocol in BOTH {
        let begun = Stopwatch::start();
        let client = replica.client(absent, protocol);
        let ended = |state: &State| state.ended.is_some();
        let state = client.until("an end", DEADLINE, ended).await.unwrap();
        let (code, message) = state.ended.clone().unwrap();
        assert_eq!(code, tonic::Code::Unavailable, "{message}");
        let expected = format!("{absent} in memory, and the store does not answer: connect again");
        assert!(message.contains(&expected), "{message}");
        assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
        replica.served(there, protocol).await;
    }
    assert_eq!(replica.metric("heliograph_distributor_unserved_streams_total"), 2);
    assert!(replica.readiness.is_ready(), "what it has it can serve");

    // It is back, empty, and the translator publishes again what was lost.
    redis.start_again();
    let writer = redis.writer().await;
    writer.publish_all(&fleets, 1).await;
    let head = Some(writer.snapshot(absent, 1).head);
    until("the fleet is loaded", async || {
        let summary = replica.summary(absent);
        summary.loaded && summary.head == head
    })
    .await;
    for protocol in BOTH {
        replica.served(absent, protocol).await;
    }
}

/// Whoever is first in asking for a fleet may be there before the fleet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_fleet_that_is_not_published_is_served_though_it_does_not_fit() {
    let redis = Redis::start();
    let writer = redis.writer().await;
    let replica = redis.replica(1, MOMENT).await;
    let client = replica.client(&fleet(0), Protocol::Delta);
    until("a stream", async || {
        replica.metric("heliograph_distributor_streams{protocol=\"delta\"}") == 1
    })
    .await;
    writer.publish(&fleet(0), 1).await;
    client.until("configuration", DEADLINE, State::is_warm).await.unwrap();
    writer.publish(&fleet(1), 1).await;
    until("the other is known", async || replica.acks.of(&fleet(1)).is_some()).await;
    assert_eq!((replica.loads("ahead"), replica.loads("asked")), (0, 1));
    assert!(!replica.in_memory(&fleet(1)));
}
