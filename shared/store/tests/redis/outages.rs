//! Redis away, emptied, or gone back in time: readers keep what they have, and the leader repairs the store.

use crate::raw::Raw;
use crate::servers::{Cluster, Proxy, Sentinels, Server, until};
use crate::world::{
    Keys, Leader, Program, cluster, fleet, next_record, next_update, unavailable, until_at,
    until_synced,
};
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{History, Inspector, Reader, Subscription, Update, Writer};
use heliograph_testing::Stopwatch;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

const CLOCK: &str = "heliograph:{index}:clock";
/// A poll comes every second or two; the rest is for a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A leader that has published two heads, and a reader that knows them.
async fn scene(url: &str, keys: &Keys, one: &FleetName) -> (Leader, Program, Subscription) {
    let (writer, reader) = (Program::open(url, keys), Program::open(url, keys));
    let mut leader = writer.lead(1).await;
    leader.publish(one, [cluster("first")]).await.unwrap();
    let mut subscription = reader.subscribe();
    until_at(&mut subscription, leader.head(1)).await;
    assert!(matches!(next_update(&mut subscription).await, Update::Synced));
    leader.publish(one, [cluster("second")]).await.unwrap();
    until_at(&mut subscription, leader.head(2)).await;
    (leader, reader, subscription)
}

/// As a leader does it that looks every few seconds, until it could look.
async fn repair(leader: &mut Leader, one: &FleetName, sequence: u64) {
    let leader = Mutex::new(leader);
    until("the leader has repaired it", async || {
        let mut leader = leader.lock().await;
        let _ = leader.repair().await;
        leader.held[one].head.sequence >= sequence
    })
    .await;
}

/// The next that the reader hears is this head, whatever happened before.
async fn expect(subscription: &mut Subscription, leader: &Leader, one: &FleetName, head: Head) {
    match next_update(subscription).await {
        Update::Published(snapshot, _) => {
            assert_eq!(snapshot.head, head);
            assert!(snapshot.same_content(&leader.held[one]));
        }
        other => panic!("{head} was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_redis_that_was_emptied() {
    let (mut server, keys, one) = (Server::start(&[]).await, Keys::new(), fleet("one"));
    let (mut leader, reader, mut subscription) = scene(&server.url(), &keys, &one).await;
    server.query::<()>(&["FLUSHALL"]).await.unwrap();
    let seen = leader.store.inspect(vec![one.clone()]).await.unwrap();
    assert!(seen.heads.is_empty());
    repair(&mut leader, &one, 3).await;
    expect(&mut subscription, &leader, &one, leader.head(3)).await;
    // A stale writer is not let in because the store forgot.
    assert!(reader.store.claim(Some(0)).await.is_err());

    server.restart().await;
    repair(&mut leader, &one, 4).await;
    expect(&mut subscription, &leader, &one, leader.head(4)).await;
    assert_eq!(reader.read(&one).await.unwrap().head, leader.head(4));
}

/// The leader is gone when Redis is emptied, and the next one's election is as new as Redis.
#[tokio::test]
async fn a_redis_that_was_emptied_between_two_leaders() {
    let (server, keys, one) = (Server::start(&[]).await, Keys::new(), fleet("one"));
    let (leader, reader, mut subscription) = scene(&server.url(), &keys, &one).await;
    server.query::<()>(&["FLUSHALL"]).await.unwrap();
    let mut next = Program::open(&server.url(), &keys).lead(leader.term.fence).await;
    next.publish(&one, [cluster("lower")]).await.unwrap();
    let older = "refused_records_total{reason=\"older\"}";
    tokio::select! {
        update = next_update(&mut subscription) => panic!("{update:?}"),
        () = until("it is refused", async || reader.metric(older) == 1) => {}
    }
    let mut later = Program::open(&server.url(), &keys).lead(leader.term.fence + 1).await;
    later.publish(&one, [cluster("higher")]).await.unwrap();
    until_at(&mut subscription, later.head(2)).await;
}

#[tokio::test]
async fn a_sentinel_failover_that_lost_the_last_write() {
    let (mut sentinels, keys, one) = (Sentinels::start().await, Keys::new(), fleet("one"));
    let (mut leader, _reader, mut subscription) = scene(&sentinels.url(), &keys, &one).await;
    let master = sentinels.master().await.port();
    sentinels.part().await;
    leader.publish(&one, [cluster("lost")]).await.unwrap();
    expect(&mut subscription, &leader, &one, leader.head(3)).await;

    sentinels.kill_master_and_fail_over_to_parted().await;
    assert_ne!(sentinels.master().await.port(), master);
    until("the loss is seen", async || {
        let seen = leader.store.inspect(vec![one.clone()]).await;
        seen.is_ok_and(|seen| seen.heads[&one] == leader.head(2))
    })
    .await;
    repair(&mut leader, &one, 4).await;
    expect(&mut subscription, &leader, &one, leader.head(4)).await;
}

#[tokio::test]
async fn a_cluster_failover_that_lost_the_last_write() {
    let (mut cluster_of, keys, one) = (Cluster::start().await, Keys::new(), fleet("one"));
    let (mut leader, reader, mut subscription) = scene(&cluster_of.url(), &keys, &one).await;
    let key = "heliograph:{default/one}:head";
    let master = cluster_of.master_of(key).await.port();
    let index = cluster_of.nodes.iter().position(|node| node.port() == master).unwrap();
    let replica = (index + 3) % 6;
    replicated(&cluster_of.nodes[index], 1).await;
    cluster_of.nodes[replica].pause();
    cluster_of.nodes[index].query::<()>(&["CLIENT", "KILL", "TYPE", "replica"]).await.unwrap();
    leader.publish(&one, [cluster("lost")]).await.unwrap();
    expect(&mut subscription, &leader, &one, leader.head(3)).await;

    cluster_of.nodes[index].stop();
    cluster_of.nodes[replica].resume();
    until("the loss is seen", async || {
        let seen = leader.store.inspect(vec![one.clone()]).await;
        seen.is_ok_and(|seen| seen.heads.get(&one) == Some(&leader.head(2)))
    })
    .await;
    repair(&mut leader, &one, 4).await;
    expect(&mut subscription, &leader, &one, leader.head(4)).await;

    // And one that loses nothing, of the shard with the index.
    let index = "heliograph:{index}:term";
    cluster_of.kill_master_of(index).await;
    let draft = leader.draft(&one, [cluster("after")]);
    leader.insist(draft).await;
    expect(&mut subscription, &leader, &one, leader.head(5)).await;

    // The index alone is lost: the next inspection makes it anew.
    let lost = ["heads", "clock", "term"].map(|name| format!("heliograph:{{index}}:{name}"));
    let [heads, clock, term] = &lost;
    let words = ["DEL", heads, clock, term];
    assert_eq!(cluster_of.master_of(index).await.query::<usize>(&words).await, Ok(3));
    assert!(reader.record(&one).await.is_none());
    leader.repair().await.unwrap();
    assert_eq!(reader.record(&one).await.unwrap().head, leader.head(5));
    assert!(reader.store.claim(Some(0)).await.is_err(), "the term is known again");
}

/// All replicas have all.
async fn replicated(master: &Server, replicas: usize) {
    let count = replicas.to_string();
    until("all is replicated", async || {
        master.query::<usize>(&["WAIT", &count, "100"]).await.is_ok_and(|done| done >= replicas)
    })
    .await;
}

#[tokio::test]
async fn changes_are_seen_without_a_doorbell() {
    let server = Server::start(&["user deaf on >secret ~* resetchannels +@all"]).await;
    let (keys, one) = (Keys::new(), fleet("one"));
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let url = format!("redis://deaf:secret@127.0.0.1:{}", server.port());
    let mut watch = Program::open(&url, &keys).store.watch();
    until_synced(&mut *watch).await;
    for sequence in 1..=3 {
        leader.publish(&one, [cluster(&sequence.to_string())]).await.unwrap();
        let published = Stopwatch::start();
        assert_eq!(next_record(&mut *watch).await.head, leader.head(sequence));
        assert!(published.elapsed() < SOON);
    }
    let (_, listeners): (String, u64) =
        server.query(&["PUBSUB", "NUMSUB", "heliograph:{index}:bell"]).await.unwrap();
    assert_eq!(listeners, 0, "nobody could hear");
}

#[tokio::test]
async fn changes_are_seen_while_subscriptions_break() {
    let (server, keys, one) = (Server::start(&[]).await, Keys::new(), fleet("one"));
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let mut watch = Program::open(&server.url(), &keys).store.watch();
    until_synced(&mut *watch).await;
    for sequence in 1..=5 {
        server.query::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
        leader.publish(&one, [cluster(&sequence.to_string())]).await.unwrap();
        let published = Stopwatch::start();
        assert_eq!(next_record(&mut *watch).await.head, leader.head(sequence));
        assert!(published.elapsed() < SOON);
    }
}

#[tokio::test]
async fn an_idle_reader_catches_up_after_an_outage() {
    let (mut server, keys, one) = (Server::start(&[]).await, Keys::new(), fleet("one"));
    let (mut leader, reader, mut subscription) = scene(&server.url(), &keys, &one).await;
    server.stop();
    let (updates, mut received) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        loop {
            updates.send(subscription.next().await).unwrap();
        }
    });
    // Longer than it takes until it tries seldom.
    until("the outage is long", async || reader.metric("staleness_seconds") >= 5).await;
    assert!(received.try_recv().is_err(), "nothing was heard meanwhile");
    server.restart().await;
    repair(&mut leader, &one, 3).await;
    let published = Stopwatch::start();
    let update =
        tokio::time::timeout(crate::world::TEST_TIMEOUT, received.recv()).await.unwrap().unwrap();
    assert!(matches!(update, Update::Published(snapshot, _) if snapshot.head == leader.head(3)));
    assert!(published.elapsed() < SOON);
    reading.abort();
}

/// The reader's network drops everything without a word, while the leader goes on.
#[tokio::test]
async fn a_reader_that_was_cut_off_catches_up() {
    let (server, keys, one) = (Server::start(&[]).await, Keys::new(), fleet("one"));
    let proxy = Proxy::start(server.port()).await;
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let mut watch = Program::open(&proxy.url(), &keys).store.watch();
    until_synced(&mut *watch).await;
    for (sequence, silent) in [(1, true), (2, false)] {
        if silent {
            proxy.stall()
        } else {
            proxy.cut()
        }
        leader.publish(&one, [cluster(&sequence.to_string())]).await.unwrap();
        proxy.repair();
        assert_eq!(next_record(&mut *watch).await.head, leader.head(sequence));
    }
}

/// Of what the leader could not say while it was cut off, each is said once when it can.
#[tokio::test]
async fn a_leader_that_was_cut_off_publishes_once() {
    let (server, keys, one) = (Server::start(&[]).await, Keys::new(), fleet("one"));
    let proxy = Proxy::start(server.port()).await;
    let mut leader = Program::open(&proxy.url(), &keys).lead(1).await;
    let mut watch = Program::open(&server.url(), &keys).store.watch();
    until_synced(&mut *watch).await;
    proxy.cut();
    let draft = leader.draft(&one, [cluster("first")]);
    for _ in 0..3 {
        unavailable(leader.store.publish(draft.clone()).await);
    }
    proxy.repair();
    leader.insist(draft).await;
    assert_eq!(next_record(&mut *watch).await.head, leader.head(1));
    assert_eq!(leader.store.history(one).await.unwrap().len(), 1);
}

/// What is on the clock stands for all that was told before, so it must never be there again.
#[tokio::test]
async fn a_late_announcement_does_not_set_the_clock_back() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let (mut leader, mut raw) =
        (Program::open(&server.url(), &keys).lead(1).await, Raw::of(&server).await);
    let (one, two) = (fleet("one"), fleet("two"));
    let mut shown = BTreeSet::new();
    leader.publish(&one, [cluster("first")]).await.unwrap();
    assert!(shown.insert(raw.get(CLOCK).await.unwrap()));
    raw.delete_field("heliograph:{index}:heads", one.as_str().as_bytes()).await;
    leader.publish(&two, [cluster("first")]).await.unwrap();
    assert!(shown.insert(raw.get(CLOCK).await.unwrap()));
    leader.store.inspect(vec![one.clone()]).await.unwrap();
    assert!(shown.insert(raw.get(CLOCK).await.unwrap()), "the first was announced again");
    leader.store.inspect(vec![one]).await.unwrap();
    assert!(!shown.insert(raw.get(CLOCK).await.unwrap()), "nothing was announced");
}

/// Only how soon readers know depends on the bell.
#[tokio::test]
async fn a_leader_that_may_not_ring_the_bell_publishes_all_the_same() {
    let server = Server::start(&["user mute on >secret ~* resetchannels +@all"]).await;
    let (keys, one) = (Keys::new(), fleet("one"));
    let url = format!("redis://mute:secret@127.0.0.1:{}", server.port());
    let mut leader = Program::open(&url, &keys).lead(1).await;
    let mut watch = Program::open(&server.url(), &keys).store.watch();
    until_synced(&mut *watch).await;
    for sequence in 1..=2 {
        leader.publish(&one, [cluster(&sequence.to_string())]).await.unwrap();
        assert_eq!(next_record(&mut *watch).await.head, leader.head(sequence));
    }
    assert_eq!(leader.store.history(one).await.unwrap().len(), 2);
}

/// Whether a write was done is not known, because a script may be refused something half-way.
#[tokio::test]
async fn what_a_user_may_not_do_is_asked_for_again() {
    let server = Server::start(&["user half on >secret ~* &* +@all -lpush"]).await;
    let (keys, one) = (Keys::new(), fleet("one"));
    let url = format!("redis://half:secret@127.0.0.1:{}", server.port());
    let mut leader = Program::open(&url, &keys).lead(1).await;
    let draft = leader.draft(&one, [cluster("first")]);
    let line = unavailable(leader.store.publish(draft.clone()).await);
    assert!(line.contains("grant it to the user with ACL SETUSER"), "{line}");
    server.query::<()>(&["ACL", "SETUSER", "half", "+lpush"]).await.unwrap();
    leader.insist(draft).await;
}
