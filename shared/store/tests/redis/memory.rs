//! A Redis with little memory, and a fleet that writes much.

use crate::raw::Raw;
use crate::servers::{Server, until};
use crate::world::{Keys, Leader, Program, TEST_TIMEOUT, cluster, endpoints, fleet, set, settings};
use heliograph_snapshot::{Change, FleetName, Head, ResourceType};
use heliograph_store::redis::{RedisOptions, RetentionLimits};
use heliograph_store::{History, Reader, StoreError, Update, Writer};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{interval, timeout};

const MIB: usize = 1 << 20;

/// A table whose content is another each time, and cannot be compressed.
fn table(bytes: usize) -> Change {
    let mut body = vec![0; bytes];
    fastrand::Rng::new().fill(&mut body);
    set(ResourceType::Route, "table", body)
}

async fn small_server() -> Server {
    Server::start(&["maxmemory 64mb", "maxmemory-policy noeviction"]).await
}

async fn used(server: &Server) -> usize {
    server.field(&["INFO", "memory"], "used_memory").await.unwrap().parse().unwrap()
}

/// Samples the memory of a server until `is_over`. Returns the most that it used.
async fn peak(server: &Server, is_over: &AtomicBool) -> usize {
    let (mut most, mut often) = (0, interval(Duration::from_millis(10)));
    while !is_over.load(Ordering::Relaxed) {
        often.tick().await;
        most = most.max(used(server).await);
    }
    most
}

/// Publishes small changes until `is_over`, and returns how long they failed at most, one after the other.
async fn change_on(
    mut leader: Leader,
    fleet: &FleetName,
    is_over: &AtomicBool,
) -> (Leader, Duration) {
    let (mut worst, mut failing): (_, Option<Instant>) = (Duration::ZERO, None);
    let (mut number, mut often) = (0, interval(Duration::from_millis(20)));
    while !is_over.load(Ordering::Relaxed) {
        often.tick().await;
        number += 1;
        match leader.publish(fleet, [endpoints(&number.to_string())]).await {
            Ok(_) => failing = None,
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                worst = worst.max(failing.get_or_insert_with(Instant::now).elapsed());
            }
        }
    }
    (leader, worst)
}

/// Publishes sixty large tables, and gives up after a few that were refused. Returns how many of both there were.
async fn edit_on(
    mut leader: Leader,
    [large, medium]: [&FleetName; 2],
    is_over: &AtomicBool,
) -> (Leader, usize, usize) {
    let (mut published, mut refused) = (0, 0);
    while published < 60 && refused <= 3 {
        let outcome = leader.publish(large, [table(4 * MIB)]).await;
        published += usize::from(outcome.is_ok());
        refused += usize::from(outcome.is_err());
        leader.clean(large).await.unwrap();
        let _ = leader.publish(medium, [table(MIB / 8)]).await;
    }
    if refused > 0 {
        // Where large ones are refused, smaller ones fill what is left, and the others have time to fail.
        for halved in 0..14 {
            while leader.publish(medium, [table(MIB >> halved)]).await.is_ok() {}
        }
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            let _ = leader.publish(medium, [table(MIB >> 10)]).await;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    (leader, published, refused)
}

/// Reads all fleets until they are at `heads`, once these are known. Returns how many snapshots it read.
async fn read_on(program: &Program, heads: &Mutex<Option<BTreeMap<FleetName, Head>>>) -> usize {
    let mut subscription = program.subscribe();
    let (mut seen, mut count) = (BTreeMap::new(), 0);
    while heads.lock().unwrap().as_ref() != Some(&seen) {
        let next = timeout(Duration::from_millis(100), subscription.next()).await;
        if let Ok(Update::Published(snapshot, _)) = next {
            seen.insert(snapshot.fleet.clone(), snapshot.head);
            count += 1;
        }
    }
    count
}

/// One tenant changes a large table as fast as it can. Redis stays below its limit, and other fleets are published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_writes_much_does_not_fill_redis() {
    let (server, keys) = (small_server().await, Keys::new());
    // The least grace is what the fleet that writes much waits for.
    let retention =
        RetentionLimits { grace: Duration::from_millis(200), ..RetentionLimits::default() };
    let options = RedisOptions { retention, ..RedisOptions::default() };
    let program = Program::open_with(settings(&server.url()), &keys, options);
    let reader = Program::open(&server.url(), &keys);
    let claim = program.store.claim(Some(1)).await.unwrap();
    let (large, medium, small) = (fleet("large"), fleet("medium"), fleet("small"));
    let leader = Leader::of(&program.store, claim.clone());
    let other = Leader::of(&program.store, claim);
    let (is_over, heads) = (AtomicBool::new(false), Mutex::default());
    let started = Instant::now();
    let writers = async {
        let edits = edit_on(leader, [&large, &medium], &is_over);
        let ((leader, published, refused), (other, failing), most) =
            tokio::join!(edits, change_on(other, &small, &is_over), peak(&server, &is_over));
        let mut at = leader.expected;
        at.extend(other.expected);
        *heads.lock().unwrap() = Some(at);
        let story = format!(
            "{published} tables in {:?}, {refused} refused, other fleets failed for {failing:?}, {} MiB",
            started.elapsed(),
            most / MIB
        );
        (published, refused, failing, most, story)
    };
    let read = timeout(TEST_TIMEOUT, read_on(&reader, &heads));
    let ((published, refused, failing, most, story), read) = tokio::join!(writers, read);
    eprintln!("{story}, {read:?} snapshots read");
    assert!(read.is_ok(), "the reader is behind: {story}");
    assert!(published == 60 && refused == 0, "{story}");
    assert!(failing < Duration::from_secs(1), "{story}");
    assert!(most < 64 * MIB, "{story}");
}

/// A fleet that finds Redis full deletes its own garbage at once, and so does any other that is cleaned then.
#[tokio::test]
async fn a_redis_that_is_full_is_swept_at_once() {
    let (server, keys) = (small_server().await, Keys::new());
    // No bounds: what is left is the grace.
    let retention =
        RetentionLimits { least: 1 << 40, most: 1 << 40, grace: Duration::from_secs(60) };
    let options = RedisOptions { history: 1, retention, ..RedisOptions::default() };
    let program = Program::open_with(settings(&server.url()), &keys, options);
    let mut leader = program.lead(1).await;
    let (one, other) = (fleet("one"), fleet("other"));
    leader.publish(&other, [cluster("first")]).await.unwrap();
    leader.clean(&other).await.unwrap();
    for _ in 0..40 {
        leader.publish(&one, [table(4 * MIB)]).await.unwrap();
    }
    let refusals = "operations_total{operation=\"upload\",outcome=\"out_of_memory\"}";
    assert!(program.metric(refusals) >= 1);

    // Another fleet finds it full, and has no garbage of its own.
    while used(&server).await < 50 * MIB {
        leader.publish(&one, [table(4 * MIB)]).await.unwrap();
    }
    let limit = (used(&server).await - MIB).to_string();
    server.configure("maxmemory", &limit).await;
    let full = leader.publish(&other, [cluster("second")]).await;
    assert!(matches!(full, Err(StoreError::Full(_))), "{full:?}");
    assert!(leader.clean(&one).await.unwrap() > 0);
    leader.publish(&other, [cluster("second")]).await.unwrap();
    // With nothing written since, nothing is swept again.
    assert_eq!(leader.clean(&one).await, Ok(0));
    for fleet in [&one, &other] {
        assert!(program.read(fleet).await.unwrap().same_content(&leader.held[fleet]));
    }
}

/// The history has as many steps as its bytes allow, and two however large they are.
#[tokio::test]
async fn a_history_is_bounded_by_bytes() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let retention =
        RetentionLimits { least: MIB as u64, most: 2 * MIB as u64, grace: Duration::ZERO };
    let options = RedisOptions { grace: Duration::ZERO, retention, ..RedisOptions::default() };
    let program = Program::open_with(settings(&server.url()), &keys, options.clone());
    let mut leader = program.lead(1).await;
    let mut raw = Raw::of(&server).await;
    let objects = "heliograph:{default/one}:objects";
    let one = fleet("one");
    for (bytes, steps) in [(MIB / 8, 8), (MIB / 2, 3), (4 * MIB, 2)] {
        for _ in 0..12 {
            leader.publish(&one, [table(bytes)]).await.unwrap();
        }
        leader.clean(&one).await.unwrap();
        let history = program.store.history(one.clone()).await.unwrap();
        assert_eq!(history.len(), steps, "of {bytes} bytes");
        for record in history {
            program.store.load(record, None).await.unwrap();
        }
        leader.clean(&one).await.unwrap();
        // A leaf and a body for each step.
        assert_eq!(raw.addresses(objects).await.len(), 2 * steps);
    }
    // Another leader asks Redis how large they are.
    let small = RetentionLimits { least: 0, most: 0, ..options.retention };
    let next = Program::open_with(
        settings(&server.url()),
        &keys,
        RedisOptions { retention: small, ..options },
    );
    let mut second = next.lead(2).await;
    second.held = leader.held.clone();
    for number in 0..3 {
        second.publish(&one, [cluster(&number.to_string())]).await.unwrap();
    }
    second.clean(&one).await.unwrap();
    assert_eq!(next.store.history(one).await.unwrap().len(), 2);
}

/// What is too young to be deleted is not, however much it is: the next large publication waits, and a small one does not.
#[tokio::test]
async fn a_publication_waits_where_there_is_too_much_young_garbage() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let grace = Duration::from_secs(2);
    let retention = RetentionLimits { least: MIB as u64, most: MIB as u64, grace };
    let options = RedisOptions { history: 1, retention, ..RedisOptions::default() };
    let program = Program::open_with(settings(&server.url()), &keys, options);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    // With its leaf it is as much as the garbage may be.
    let table = || table(MIB - 4096);
    leader.publish(&one, [table()]).await.unwrap();
    let reader = program.record(&one).await.unwrap();
    let started = Instant::now();
    for _ in 0..2 {
        leader.publish(&one, [table()]).await.unwrap();
    }
    leader.publish(&one, [endpoints("first")]).await.unwrap();
    assert!(started.elapsed() < grace, "{:?}", started.elapsed());
    program.store.load(reader.clone(), None).await.unwrap();
    leader.publish(&one, [table()]).await.unwrap();
    assert!(started.elapsed() >= grace, "{:?}", started.elapsed());
    until("the first is gone", async || {
        leader.clean(&one).await.unwrap();
        program.store.load(reader.clone(), None).await.is_err()
    })
    .await;
    assert!(program.read(&one).await.unwrap().same_content(&leader.held[&one]));
}
