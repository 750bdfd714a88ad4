//! Two writers, paused writers, lost replies.

use crate::raw::Raw;
use crate::servers::{Proxy, Server, until};
use crate::world::{
    Keys, Program, addresses, cluster, endpoints, fleet, next_record, unavailable, until_synced,
};
use heliograph_snapshot::ResourceType;
use heliograph_store::{History, Reader, StoreError, Writer};

const HEAD: &str = "heliograph:{default/one}:head";
const HISTORY: &str = "heliograph:{default/one}:history";
const OBJECTS: &str = "heliograph:{default/one}:objects";

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_done_once() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let proxy = Proxy::start(server.port()).await;
    let program = Program::open(&proxy.url(), &keys);
    let mut watch = Program::open(&server.url(), &keys).store.watch();
    until_synced(&mut *watch).await;
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    leader.publish(&one, [cluster("first")]).await.unwrap();
    assert_eq!(next_record(&mut *watch).await.head, leader.head(1));

    let draft = leader.draft(&one, [cluster("second")]);
    // Only the commit carries the cause.
    proxy.lose_reply_to(b"change 2");
    unavailable(program.store.publish(draft.clone()).await);
    proxy.until_lost(1).await;
    let mut raw = Raw::of(&server).await;
    let committed = raw.get(HEAD).await.unwrap();
    assert!(committed.starts_with(b"0.1.2\n"), "the commit was done");

    leader.insist(draft).await;
    assert_eq!(raw.get(HEAD).await.unwrap(), committed);
    assert_eq!(raw.ask::<usize>("LLEN", HISTORY).await, 2);
    assert_eq!(next_record(&mut *watch).await.head, leader.head(2));
    leader.publish(&one, [cluster("third")]).await.unwrap();
    assert_eq!(next_record(&mut *watch).await.head, leader.head(3));
}

/// As one that is stopped after its upload, and goes on when another has begun.
#[tokio::test]
async fn a_writer_that_slept_between_upload_and_commit_changes_nothing() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let proxy = Proxy::start(server.port()).await;
    let (sleeper, other) =
        (Program::open(&proxy.url(), &keys), Program::open(&server.url(), &keys));
    let one = fleet("one");
    let mut older = sleeper.lead(1).await;
    older.publish(&one, [cluster("first"), endpoints("first")]).await.unwrap();

    // The reply to the upload is lost, and so the commit is not sent before the writer asks again.
    let draft = older.draft(&one, [cluster("late")]);
    let orphan = draft.snapshot.tree(ResourceType::Cluster).address().unwrap().0;
    proxy.lose_reply_to(&orphan);
    unavailable(sleeper.store.publish(draft.clone()).await);
    proxy.until_lost(1).await;
    let mut raw = Raw::of(&server).await;
    assert!(raw.addresses(OBJECTS).await.contains(&orphan), "the upload was done");

    let mut newer = other.lead(2).await;
    let head = raw.get(HEAD).await;
    let send = async || sleeper.store.publish(draft.clone()).await;
    until("Redis is back", async || !matches!(send().await, Err(StoreError::Unavailable(_)))).await;
    let fenced = StoreError::Fenced { ours: older.term, theirs: newer.term };
    assert_eq!(send().await, Err(fenced));
    assert_eq!(raw.get(HEAD).await, head);
    assert_eq!(sleeper.metric("refused_writes_total{reason=\"fenced\"}"), 2);

    // What it left behind goes, and what is needed stays.
    let record = other.record(&one).await.unwrap();
    let found = other.store.load(record, None).await.unwrap().snapshot;
    newer.held.insert(one.clone(), found);
    newer.publish(&one, [cluster("second")]).await.unwrap();
    newer.clean(&one).await.unwrap();
    assert!(newer.clean(&one).await.unwrap() > 0);
    let history = other.store.history(one.clone()).await.unwrap();
    let mut needed = addresses(&newer.held[&one]);
    for record in history {
        needed.extend(addresses(&other.store.load(record, None).await.unwrap().snapshot));
    }
    assert_eq!(raw.addresses(OBJECTS).await, needed);
    // Nor does it delete anything, once the head is another.
    assert_eq!(older.clean(&one).await, Ok(0));
    assert_eq!(raw.addresses(OBJECTS).await, needed);
}

/// What the newer one uploads is nothing that the older one knows of, and would be garbage to it.
#[tokio::test]
async fn a_writer_whose_term_is_over_deletes_nothing() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let one = fleet("one");
    let mut older = program.lead(1).await;
    older.publish(&one, [cluster("first")]).await.unwrap();
    let mut raw = Raw::of(&server).await;
    raw.set_field(OBJECTS, &[7; 32], b"uploaded").await;
    assert_eq!(older.clean(&one).await, Ok(0), "found");
    let newer = Program::open(&server.url(), &keys).lead(2).await;
    let fenced = StoreError::Fenced { ours: older.term, theirs: newer.term };
    assert_eq!(older.clean(&one).await, Err(fenced));
    assert!(raw.addresses(OBJECTS).await.contains(&[7; 32]));
}

#[tokio::test]
async fn of_many_writers_at_once_one_wins() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let one = fleet("one");
    let first = Program::open(&server.url(), &keys);
    first.lead(1).await.publish(&one, [cluster("first")]).await.unwrap();
    // All of one term, as two who believe that the same lease is theirs.
    let mut writers = Vec::new();
    for _ in 0..8 {
        writers.push(Program::open(&server.url(), &keys).lead(1).await);
    }
    let writes = writers.iter_mut().enumerate().map(|(number, writer)| {
        let one = one.clone();
        async move { writer.publish(&one, [cluster(&number.to_string())]).await }
    });
    let outcomes = futures::future::join_all(writes).await;
    let won: Vec<_> = (0..8).filter(|number| outcomes[*number].is_ok()).collect();
    let [winner] = won[..] else { panic!("{outcomes:?}") };
    for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
        assert!(matches!(outcome, Err(StoreError::Conflict { .. })), "{outcome:?}");
    }
    let snapshot = first.read(&one).await.unwrap();
    assert!(snapshot.same_content(&writers[winner].held[&one]));
}
