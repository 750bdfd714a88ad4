//! The store in Redis against the naive way, in one run: the whole snapshot as one value, a message, read it whole and
//! decode. Prints a table of ratios for docs/benchmarks.md. Run it with `make bench-store`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../tests/servers/mod.rs"]
mod servers;

use bytes::Bytes;
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use heliograph_store::keys::{KeyFile, KeyRing};
use heliograph_store::redis::link::{Link, RedisArgs, RedisSettings};
use heliograph_store::redis::{RedisOptions, RedisStore};
use heliograph_store::{ClaimedTerm, Notice, PinState, Publication, Reader, Record, Watch, Writer};
use prometheus::Registry;
use prost::Message;
use redis::aio::MultiplexedConnection;
use servers::Server;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

const RESOURCES: usize = 10_000;
const ROUNDS: usize = 100;
const FLEETS: usize = 1_000;
const IDLE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Server::start(&[]).await;
    let scratch = tempfile::tempdir().unwrap();
    let keys = scratch.path().join("keys.yaml");
    std::fs::write(&keys, &*KeyRing::generate("bench").unwrap()).unwrap();

    // `cargo bench … -- cold` measures that alone.
    let only = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    println!("| what | ours | naive | ratio | target |");
    println!("| --- | --- | --- | --- | --- |");
    if wanted("change") {
        one_change(&server, &keys).await;
    }
    if wanted("cold") {
        cold_load(&server, &keys).await;
    }
    if wanted("idle") {
        idle(&server, &keys).await;
    }
    if wanted("unchanged") {
        unchanged(&server, &keys).await;
    }
}

/// One changed resource among many: publish, and apply in a reader that has the snapshot before.
async fn one_change(server: &Server, keys: &Path) {
    let fleet = FleetName::new("bench", "change");
    let mut ours = Ours::new(server, keys, &fleet).await;
    let mut naive = Naive::new(server).await;
    let mut snapshot = resources(&fleet);
    ours.publish_and_apply(&snapshot).await;
    naive.publish_and_apply(&snapshot).await;
    let (mut times, mut naive_times) = (Vec::new(), Vec::new());
    let (mut publishes, mut applies) = (Vec::new(), Vec::new());
    let (mut bytes, mut naive_bytes) = (0, 0);
    for round in 0..ROUNDS {
        let head = Head { sequence: snapshot.head.sequence + 1, ..snapshot.head };
        let changed = resource(ResourceType::Endpoints, round * 37 % (RESOURCES / 2), round + 1);
        snapshot = Arc::new(snapshot.with(head, [Change::Set(ResourceType::Endpoints, changed)]));
        let before = traffic(server).await;
        let (published, applied) = ours.publish_and_apply(&snapshot).await;
        let between = traffic(server).await;
        naive_times.push(naive.publish_and_apply(&snapshot).await);
        let after = traffic(server).await;
        bytes += between - before;
        naive_bytes += after - between;
        publishes.push(published);
        applies.push(applied);
        times.push(published + applied);
    }
    let (time, naive_time) = (median(times), median(naive_times));
    let (bytes, naive_bytes) = (bytes / ROUNDS as u64, naive_bytes / ROUNDS as u64);
    row(
        "bytes to and from Redis for one change in 10,000, written and read once",
        &format!("{:.1} KB", bytes as f64 / 1e3),
        &format!("{:.0} KB", naive_bytes as f64 / 1e3),
        bytes as f64 / naive_bytes as f64,
        "0.02",
    );
    row(
        &format!(
            "time to publish ({}) and to apply ({}) it",
            shown(median(publishes)),
            shown(median(applies))
        ),
        &shown(time),
        &shown(naive_time),
        time.as_secs_f64() / naive_time.as_secs_f64(),
        "0.1",
    );
}

/// A reader that has nothing.
async fn cold_load(server: &Server, keys: &Path) {
    let fleet = FleetName::new("bench", "cold");
    let mut ours = Ours::new(server, keys, &fleet).await;
    let mut naive = Naive::new(server).await;
    let snapshot = resources(&fleet);
    ours.publish_and_apply(&snapshot).await;
    naive.publish_and_apply(&snapshot).await;
    let (mut times, mut naive_times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let record = ours.record.clone().unwrap();
        let started = Instant::now();
        let loaded = ours.store.load(record, None).await.unwrap().snapshot;
        times.push(started.elapsed());
        assert!(loaded.same_content(&snapshot));
        let started = Instant::now();
        let read = naive.read().await;
        naive_times.push(started.elapsed());
        assert!(read.same_content(&snapshot));
    }
    let (time, naive_time) = (median(times), median(naive_times));
    row(
        "cold load of 10,000 resources",
        &shown(time),
        &shown(naive_time),
        time.as_secs_f64() / naive_time.as_secs_f64(),
        "1.5",
    );
}

/// What a distributor asks of Redis while nothing happens to a thousand fleets.
async fn idle(server: &Server, keys: &Path) {
    let store = open(server, keys, "idle");
    let claim = store.claim(None).await.unwrap();
    publish_fleets(&store, &claim).await;
    let mut watch = store.watch();
    while !matches!(watch.next().await, Notice::Synced) {}
    // Once around, so that what belongs to the start is over.
    let _ = tokio::time::timeout(Duration::from_secs(3), watch.next()).await;
    let before = commands(server).await;
    let _ = tokio::time::timeout(IDLE, watch.next()).await;
    // One of them is the question itself.
    let asked = commands(server).await - before - 1;
    let rate = asked as f64 / IDLE.as_secs_f64();
    println!(
        "| Redis commands a second for {FLEETS} idle fleets | {rate:.1} | – | – | at most 2 |"
    );
}

/// A new leader finds what it would publish.
async fn unchanged(server: &Server, keys: &Path) {
    let store = open(server, keys, "unchanged");
    let claim = store.claim(None).await.unwrap();
    let snapshots = publish_fleets(&store, &claim).await;
    let before = (traffic(server).await, commands(server).await);
    let started = Instant::now();
    let claim = store.claim(None).await.unwrap();
    let differ = snapshots
        .iter()
        .filter(|snapshot| claim.records[&snapshot.fleet].roots() != snapshot.roots())
        .count();
    let took = started.elapsed();
    assert_eq!(differ, 0);
    let asked = commands(server).await - before.1 - 2;
    println!(
        "| a new leader over {FLEETS} unchanged fleets: uploads | {differ} ({asked} commands, {}) | – | – | nothing |",
        shown(took)
    );
}

async fn publish_fleets(store: &RedisStore, claim: &ClaimedTerm) -> Vec<Arc<Snapshot>> {
    let mut snapshots = Vec::new();
    for number in 0..FLEETS {
        let fleet = FleetName::new("bench", &format!("fleet-{number}"));
        let head = Head { epoch: claim.term.epoch, fence: claim.term.fence, sequence: 1 };
        let changes = (0..10).map(|index| {
            let kind = ResourceType::Cluster;
            Change::Set(kind, resource(kind, index, number))
        });
        let snapshot = Arc::new(Snapshot::empty(fleet).with(head, changes));
        store.publish(publication(&snapshot, None)).await.unwrap();
        snapshots.push(snapshot);
    }
    snapshots
}

/// A writer and a reader of our store.
struct Ours {
    store: RedisStore,
    watch: Box<dyn Watch>,
    claim: ClaimedTerm,
    published: Option<Arc<Snapshot>>,
    applied: Option<Arc<Snapshot>>,
    record: Option<Arc<Record>>,
}

impl Ours {
    async fn new(server: &Server, keys: &Path, fleet: &FleetName) -> Self {
        let prefix = fleet.as_str().replace('/', ".");
        let (writer, reader) = (open(server, keys, &prefix), open(server, keys, &prefix));
        let claim = writer.claim(None).await.unwrap();
        let mut watch = reader.watch();
        while !matches!(watch.next().await, Notice::Synced) {}
        Self { store: writer, watch, claim, published: None, applied: None, record: None }
    }

    /// How long publishing took, and then applying.
    async fn publish_and_apply(&mut self, snapshot: &Arc<Snapshot>) -> (Duration, Duration) {
        let term = self.claim.term;
        let head = Head { epoch: term.epoch, fence: term.fence, ..snapshot.head };
        let snapshot = Arc::new(snapshot.at(head));
        let started = Instant::now();
        self.store.publish(publication(&snapshot, self.published.take())).await.unwrap();
        let published = started.elapsed();
        let record = loop {
            match self.watch.next().await {
                Notice::Fleet(record) if record.head == head => break record,
                _ => {}
            }
        };
        let loaded = self.store.load(record.clone(), self.applied.take()).await.unwrap();
        let applied = started.elapsed() - published;
        assert!(loaded.snapshot.same_content(&snapshot));
        (self.published, self.applied) = (Some(snapshot), Some(loaded.snapshot));
        self.record = Some(record);
        (published, applied)
    }
}

/// The whole snapshot as one value.
struct Naive {
    connection: MultiplexedConnection,
    bell: redis::aio::PubSub,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Whole {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<One>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct One {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(bytes = "bytes", tag = "3")]
    body: Bytes,
}

impl Naive {
    async fn new(server: &Server) -> Self {
        let client = redis::Client::open(server.url()).unwrap();
        let mut bell = client.get_async_pubsub().await.unwrap();
        bell.subscribe("naive").await.unwrap();
        Self { connection: client.get_multiplexed_async_connection().await.unwrap(), bell }
    }

    async fn publish_and_apply(&mut self, snapshot: &Snapshot) -> Duration {
        use futures::StreamExt;
        let started = Instant::now();
        let resources = ResourceType::ALL.into_iter().enumerate().flat_map(|(number, kind)| {
            snapshot.tree(kind).iter().map(move |resource| One {
                kind: number as u32,
                name: resource.name.to_string(),
                body: resource.body.clone(),
            })
        });
        let whole = Whole { resources: resources.collect() }.encode_to_vec();
        let _: () = redis::pipe()
            .cmd("SET")
            .arg("naive")
            .arg(whole)
            .cmd("PUBLISH")
            .arg("naive")
            .arg("1")
            .query_async(&mut self.connection)
            .await
            .unwrap();
        self.bell.on_message().next().await.unwrap();
        let read = self.read().await;
        let took = started.elapsed();
        assert!(read.same_content(snapshot));
        took
    }

    /// To the same value that our reader gets.
    async fn read(&mut self) -> Snapshot {
        let whole: Bytes =
            redis::cmd("GET").arg("naive").query_async(&mut self.connection).await.unwrap();
        let whole = Whole::decode(whole).unwrap();
        let changes = whole.resources.into_iter().map(|one| {
            let kind = ResourceType::ALL[one.kind as usize];
            Change::Set(kind, Arc::new(Resource::new(one.name, one.body)))
        });
        Snapshot::empty(FleetName::new("bench", "naive")).with(Head::default(), changes)
    }
}

fn open(server: &Server, keys: &Path, prefix: &str) -> RedisStore {
    let args = RedisArgs { store: Some(server.url().parse().unwrap()), ..RedisArgs::default() };
    let options = RedisOptions { prefix: prefix.to_owned(), ..RedisOptions::default() };
    let link = Link::new(RedisSettings::from_args(&args).unwrap());
    RedisStore::new(link, KeyFile::open(keys).unwrap(), options, &Registry::new()).unwrap()
}

fn publication(snapshot: &Arc<Snapshot>, held: Option<Arc<Snapshot>>) -> Publication {
    Publication {
        snapshot: snapshot.clone(),
        expected: held.as_ref().map(|held| held.head),
        held,
        time: SystemTime::now(),
        cause: "benchmark".into(),
        pin: PinState::default(),
    }
}

/// Half clusters, half endpoints, with bodies as long as Envoy's are.
fn resources(fleet: &FleetName) -> Arc<Snapshot> {
    let kinds = [ResourceType::Cluster, ResourceType::Endpoints];
    let changes = kinds.into_iter().flat_map(|kind| {
        (0..RESOURCES / 2).map(move |number| Change::Set(kind, resource(kind, number, 0)))
    });
    let head = Head { epoch: 0, fence: 0, sequence: 1 };
    Arc::new(Snapshot::empty(fleet.clone()).with(head, changes))
}

fn resource(kind: ResourceType, number: usize, content: usize) -> Arc<Resource> {
    let length = if kind == ResourceType::Cluster { 400 } else { 250 };
    let mut random = fastrand::Rng::with_seed((number * 1_000 + content) as u64);
    let body: Vec<u8> = (0..length).map(|_| random.u8(b'a'..=b'z')).collect();
    Arc::new(Resource::new(
        format!("service/namespace-{}/app-{number}:8080", number % 50),
        body.into(),
    ))
}

/// Bytes into and out of Redis.
async fn traffic(server: &Server) -> u64 {
    stat(server, "total_net_input_bytes").await + stat(server, "total_net_output_bytes").await
}

async fn commands(server: &Server) -> u64 {
    stat(server, "total_commands_processed").await
}

async fn stat(server: &Server, field: &str) -> u64 {
    server.field(&["INFO", "stats"], field).await.unwrap().parse().unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn shown(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn row(what: &str, ours: &str, naive: &str, ratio: f64, target: &str) {
    println!("| {what} | {ours} | {naive} | {ratio:.3} | {target} |");
}
