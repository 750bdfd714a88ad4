//! Each driver against the real server, or against the code that reads its output.

// Real Redis servers, as the store's own tests have them.
#[path = "../../../shared/store/tests/servers/mod.rs"]
mod servers;

use self::servers::Server;
use super::*;
use crate::workload::{Reach, Resources, UpdateKind, mark};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use heliograph_gateway::World;
use heliograph_snapshot::{FleetName, ResourceType, Snapshot};
use heliograph_store::keys::KeyRing;
use heliograph_store::redis::StoreArgs;
use heliograph_store::redis::link::RedisArgs;
use heliograph_store::{Notice, Reader};
use heliograph_translator::provider::file::{read_once, refuse_faults};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::net::TcpListener;

fn resources() -> Resources {
    Resources { clusters: 12, listeners: 2, routes: 20, ..Resources::default() }
}

fn update(number: u32, kind: UpdateKind) -> Update {
    Update { number, kind, reach: Reach::EveryFleet }
}

/// Flags as a user gives them.
fn store_args(url: &str, scratch: &TempDir) -> StoreArgs {
    let keys = scratch.path().join("keys.yaml");
    if !keys.exists() {
        std::fs::write(&keys, &*KeyRing::generate("loadtest").unwrap()).unwrap();
    }
    StoreArgs {
        redis: RedisArgs { store: Some(url.parse().unwrap()), ..RedisArgs::default() },
        store_keys: Some(keys),
        store_prefix: "heliograph".to_owned(),
        store_history: 10,
    }
}

/// What a distributor that starts now would serve.
async fn loaded(args: &StoreArgs) -> BTreeMap<FleetName, Arc<Snapshot>> {
    let store = args.open(&prometheus::Registry::new()).unwrap();
    let mut watch = store.watch();
    let mut found = BTreeMap::new();
    while let Notice::Fleet(record) = watch.next().await {
        let loaded = store.load(record, None).await.unwrap();
        found.insert(loaded.snapshot.fleet.clone(), loaded.snapshot);
    }
    found
}

#[tokio::test]
async fn a_store_has_each_snapshot_at_the_head_that_the_workload_says() {
    let server = Server::start(&[]).await;
    let scratch = tempfile::tempdir().unwrap();
    let args = store_args(&server.url(), &scratch);
    let mut first_base = None;
    // The second run finds what the first left, and goes on from there.
    for run in 0..2 {
        let mut workload = Workload::new(&resources(), 3);
        let mut driver = Driver::Store(StoreDriver::open(&args).unwrap());
        assert_eq!(driver.knowledge(), Knowledge::Heads);
        driver.set_up(&mut workload).await.unwrap();
        assert!(first_base < Some(workload.base()), "{run}");
        first_base = Some(workload.base());
        for number in 1..=5 {
            let kind = if number == 4 { UpdateKind::Full } else { UpdateKind::Endpoint };
            driver.change(&mut workload, update(number, kind)).await.unwrap();
        }
        let reach = Reach::OneFleet;
        let one = Update { number: 6, kind: UpdateKind::Route, reach };
        driver.change(&mut workload, one).await.unwrap();
        let loaded = loaded(&args).await;
        assert_eq!(loaded.len(), 3);
        for snapshot in workload.snapshots() {
            let found = &loaded[&snapshot.fleet];
            assert_eq!(found.head, snapshot.head);
            assert!(found.same_content(snapshot));
        }
    }
}

/// A store addresses secrets by a key of its own, so their versions are not those of the workload.
#[tokio::test]
async fn secrets_are_in_the_store_under_its_own_versions() {
    let server = Server::start(&[]).await;
    let scratch = tempfile::tempdir().unwrap();
    let args = store_args(&server.url(), &scratch);
    let with_secrets = Resources { secrets: 3, ..resources() };
    let mut workload = Workload::new(&with_secrets, 1);
    let mut driver = StoreDriver::open(&args).unwrap();
    driver.set_up(&mut workload).await.unwrap();
    driver.change(&mut workload, update(1, UpdateKind::Endpoint)).await.unwrap();
    let (ours, loaded) = (&workload.snapshots()[0], loaded(&args).await);
    let theirs = &loaded[&ours.fleet];
    assert_eq!(theirs.tree(ResourceType::Secret).len(), 3);
    for secret in theirs.tree(ResourceType::Secret).iter() {
        let given = ours.get(ResourceType::Secret, &secret.name).unwrap();
        assert_eq!(given.body, secret.body);
        assert_eq!(driver.version_of_secret(&secret.name, &given.body), secret.version);
    }
    for kind in [ResourceType::Cluster, ResourceType::Endpoints] {
        assert_eq!(ours.tree(kind).address(), theirs.tree(kind).address());
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_told_in_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    let mut args = store_args("redis://127.0.0.1:1", &scratch);
    let mut driver = StoreDriver::open(&args).unwrap();
    let refused = driver.set_up(&mut Workload::new(&resources(), 1)).await.unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("127.0.0.1:1") && !refused.contains('\n'), "{refused}");
    args.store_keys = None;
    let refused = StoreDriver::open(&args).unwrap_err().to_string();
    assert!(refused.contains("helio store keys new"), "{refused}");
}

/// The marks that a translator's resources of a type show, for one fleet.
fn translated(directory: &Path, fleet: &FleetName) -> BTreeMap<ResourceType, Vec<u32>> {
    let read = read_once(&[directory.to_owned()]).unwrap();
    refuse_faults(&read.remarks).unwrap();
    let mut world = World::new();
    read.events.into_iter().for_each(|event| world.apply(event));
    world.settle();
    let problems: Vec<_> = world.problems().map(|problem| format!("{problem:?}")).collect();
    assert_eq!(problems, [""; 0]);
    let mut marks = BTreeMap::<_, Vec<_>>::new();
    for (kind, resource) in world.resources(fleet) {
        marks.entry(kind).or_default().extend(mark(kind, &resource.body));
    }
    marks.values_mut().for_each(|marks| marks.sort_unstable());
    marks
}

#[tokio::test]
async fn a_translator_makes_of_files_what_the_workload_says() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("manifests");
    // The second run finds what the first left, and takes it away.
    for run in 0..2 {
        let mut workload = Workload::new(&resources(), 2);
        let mut driver = Driver::Files(FilesDriver::new(&directory));
        assert_eq!(driver.knowledge(), Knowledge::Nothing);
        driver.set_up(&mut workload).await.unwrap();
        let fleets = workload.fleets().to_vec();
        for fleet in &fleets {
            let marks = translated(&directory, fleet);
            assert_eq!(marks[&ResourceType::Endpoints], [0; 12], "{run}");
            assert_eq!(marks[&ResourceType::Cluster].len(), 12);
            assert_eq!(marks[&ResourceType::Route], [0, 0]);
            assert!(marks.contains_key(&ResourceType::Listener));
        }
        driver.change(&mut workload, update(70_001, UpdateKind::Endpoint)).await.unwrap();
        let reach = Reach::OneFleet;
        let one = Update { number: 70_003, kind: UpdateKind::Route, reach };
        driver.change(&mut workload, one).await.unwrap();
        for (fleet, routes) in fleets.iter().zip([[0, 0], [0, 70_003]]) {
            let marks = translated(&directory, fleet);
            assert_eq!(marks[&ResourceType::Endpoints].last(), Some(&70_001));
            assert_eq!(marks[&ResourceType::Endpoints][10], 0, "one of them");
            assert_eq!(marks[&ResourceType::Route], routes);
        }
    }
}

#[tokio::test]
async fn files_of_others_are_left_alone() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("mine.yaml"), "precious").unwrap();
    let mut driver = FilesDriver::new(scratch.path());
    let refused = driver.set_up(&mut Workload::new(&resources(), 1)).await.unwrap_err();
    assert!(refused.to_string().contains("mine.yaml"), "{refused}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    let mut driver = FilesDriver::new(scratch.path().join("mine.yaml"));
    let refused = driver.set_up(&mut Workload::new(&resources(), 1)).await.unwrap_err();
    assert!(refused.to_string().contains("choose a directory"), "{refused}");
}

#[tokio::test]
async fn what_files_can_not_say_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let mut driver = FilesDriver::new(scratch.path());
    let mut workload = Workload::new(&resources(), 1);
    let full = driver.change(&mut workload, update(1, UpdateKind::Full)).await;
    assert!(matches!(full, Err(DriveError::Unsupported(_))));
    let mut secret = Workload::new(&Resources { secrets: 1, ..resources() }, 1);
    assert!(matches!(driver.set_up(&mut secret).await, Err(DriveError::Unsupported(_))));
}

type Posted = Arc<Mutex<Vec<Bytes>>>;

/// What the peer's control port does, but for the serving.
async fn control_port(posted: &Posted) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let take = |State(posted): State<Posted>, body: Bytes| async move {
        posted.lock().unwrap().push(body);
    };
    let refuse = || async { (StatusCode::CONFLICT, "not\nnow".to_owned()) };
    let router = Router::new()
        .route("/resources", post(take))
        .route("/ready", get(|| async {}))
        .route("/collect", post(refuse))
        .with_state(posted.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

fn messages(mut body: Bytes) -> Vec<DeltaDiscoveryResponse> {
    let mut found = Vec::new();
    while !body.is_empty() {
        found.push(DeltaDiscoveryResponse::decode_length_delimited(&mut body).unwrap());
    }
    found
}

#[tokio::test]
async fn a_peer_is_told_everything_and_then_what_changed() {
    let posted = Posted::default();
    let mut peer = PeerDriver::new(&control_port(&posted).await).unwrap();
    peer.ready().await.unwrap();
    let mut workload = Workload::new(&resources(), 1);
    let mut driver = Driver::Peer(peer);
    driver.set_up(&mut workload).await.unwrap();
    driver.change(&mut workload, update(1, UpdateKind::Endpoint)).await.unwrap();
    driver.change(&mut workload, update(2, UpdateKind::Full)).await.unwrap();
    let told: Vec<_> = posted.lock().unwrap().drain(..).map(messages).collect();
    let lengths: Vec<Vec<_>> = told
        .iter()
        .map(|messages| messages.iter().map(|message| message.resources.len()).collect())
        .collect();
    // At first every type is said, also secrets and extension configurations, of which there are none.
    assert_eq!(lengths, [vec![0, 12, 12, 0, 2, 2], vec![1], vec![12, 12, 2]]);
    let changed = &told[1][0];
    assert_eq!(changed.type_url, ResourceType::Endpoints.type_url());
    let resource = &changed.resources[0];
    let body = &resource.resource.as_ref().unwrap().value;
    assert_eq!(mark(ResourceType::Endpoints, body), Some(1));
    let second = workload.snapshots()[0].get(ResourceType::Endpoints, &resource.name).unwrap();
    assert_ne!(resource.version, second.version.as_str(), "it changed once more since");
}

#[tokio::test]
async fn a_peer_that_cannot_be_used_is_told_in_one_line() {
    let posted = Posted::default();
    let mut peer = PeerDriver::new(&control_port(&posted).await).unwrap();
    let refused = peer.collect().await.unwrap_err().to_string();
    assert_eq!(refused, "the peer refused /collect: 409 not now");
    let two = peer.set_up(&mut Workload::new(&resources(), 2)).await.unwrap_err();
    assert!(two.to_string().contains("one fleet, not 2"));
    let gone = PeerDriver::new("http://127.0.0.1:1").unwrap().ready().await.unwrap_err();
    assert!(gone.to_string().contains("127.0.0.1:1"), "{gone}");
    for address in ["", "localhost", "http://localhost:80/path", "host:port", "https://x:1"] {
        assert!(matches!(PeerDriver::new(address), Err(DriveError::Address(_))), "{address}");
    }
}
