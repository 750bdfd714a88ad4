//! What a change costs, and what no change costs.

use crate::raw::Raw;
use crate::servers::{Server, until};
use crate::world::{Keys, Program, cluster, fleet, set, until_synced};
use heliograph_snapshot::ResourceType;
use heliograph_store::Reader;
use std::sync::Arc;
use std::time::Instant;

#[tokio::test]
async fn one_change_among_ten_thousand_costs_a_few_kilobytes() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let (writer, reader) =
        (Program::open(&server.url(), &keys), Program::open(&server.url(), &keys));
    let mut leader = writer.lead(1).await;
    let one = fleet("one");
    let body = |number: usize, revision: usize| format!("{number} {revision} {}", "x".repeat(300));
    let resource = |number: usize, revision| {
        set(
            ResourceType::Cluster,
            &format!("default/backend-{number}/port-8080"),
            body(number, revision),
        )
    };
    let all = leader.publish(&one, (0..10_000).map(|number| resource(number, 0))).await.unwrap();
    assert!(all.bytes > 3_000_000, "{all:?}");
    let known = reader.read(&one).await.unwrap();
    assert_eq!(known.tree(ResourceType::Cluster).len(), 10_000);

    let changed = leader.publish(&one, [resource(77, 1)]).await.unwrap();
    assert!(changed.objects <= 8 && changed.bytes < 16 << 10, "{changed:?}");

    let (objects, bytes) = read_so_far(&reader);
    let record = reader.record(&one).await.unwrap();
    let loaded = reader.store.load(record, Some(known)).await.unwrap();
    assert!(loaded.snapshot.same_content(&leader.held[&one]));
    let (objects, bytes) = (read_so_far(&reader).0 - objects, read_so_far(&reader).1 - bytes);
    assert!((1..=8).contains(&objects) && bytes < 16 << 10, "{objects} objects, {bytes} bytes");

    let unchanged = leader.publish(&one, []).await.unwrap();
    assert_eq!((unchanged.objects, unchanged.bytes), (0, 0));
}

fn read_so_far(program: &Program) -> (u64, u64) {
    let objects = program.metric("objects_total{direction=\"read\"}");
    (objects, program.metric("bytes_total{direction=\"read\"}"))
}

#[tokio::test]
async fn a_thousand_idle_fleets_cost_two_commands_a_second() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    for number in 0..1_000 {
        leader.publish(&fleet(&number.to_string()), [cluster("same")]).await.unwrap();
    }
    let mut watch = Program::open(&server.url(), &keys).store.watch();
    assert_eq!(until_synced(&mut *watch).await.len(), 1_000);
    // The first comparison after it has begun to listen is one more.
    let listening = async || {
        let told = server.query::<(String, u64)>(&["PUBSUB", "NUMSUB", "heliograph:{index}:bell"]);
        told.await.unwrap().1 == 1
    };
    until("the watch listens", listening).await;

    let watching = tokio::spawn(async move { watch.next().await });
    let raw = Arc::new(tokio::sync::Mutex::new(Raw::of(&server).await));
    let polls = async |count: u64| {
        let before = calls(&mut *raw.lock().await, "get").await;
        until("the watch compares", async || {
            calls(&mut *raw.lock().await, "get").await >= before + count
        })
        .await;
    };
    polls(2).await;
    raw.lock().await.ask::<()>("CONFIG", "RESETSTAT").await;
    let started = Instant::now();
    polls(4).await;
    let elapsed = started.elapsed();
    let commands = commands(&mut *raw.lock().await).await;
    let ours = ["info", "config|resetstat"];
    let total: u64 =
        commands.iter().filter(|(name, _)| !ours.contains(&&**name)).map(|(_, calls)| calls).sum();
    assert!(total as f64 <= 2.0 * elapsed.as_secs_f64(), "{commands:?} in {elapsed:?}");
    assert!(!watching.is_finished(), "nothing changed");
    watching.abort();
}

async fn calls(raw: &mut Raw, command: &str) -> u64 {
    let commands = commands(raw).await;
    commands.into_iter().find_map(|(name, calls)| (name == command).then_some(calls)).unwrap_or(0)
}

/// How often each command was called.
async fn commands(raw: &mut Raw) -> Vec<(String, u64)> {
    let text: String = raw.ask("INFO", "commandstats").await;
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
