//! Who can write Redis cannot make anybody believe it.

use crate::raw::Raw;
use crate::servers::{Server, until};
use crate::world::{
    Keys, Leader, Program, cluster, damaged, fleet, next_record, pin, release, settings,
    until_synced,
};
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::redis::RedisOptions;
use heliograph_store::{
    AckReport, FeedbackReader, FeedbackSender, History, Inspector, PinOrder, Reader, Retirement,
    StoreError, Watch, Writer,
};
use std::time::SystemTime;

const HEAD: &str = "heliograph:{default/one}:head";
const PINS: &str = "heliograph:{index}:pins";

struct Scene {
    server: Server,
    keys: Keys,
    one: FleetName,
    leader: Leader,
    writer: Program,
    reader: Program,
    watch: Box<dyn Watch>,
    raw: Raw,
}

impl Scene {
    /// A fleet at its second head, another one, and a reader that knows them.
    async fn new() -> Self {
        let (server, keys) = (Server::start(&[]).await, Keys::new());
        let writer = Program::open(&server.url(), &keys);
        let reader = Program::open(&server.url(), &keys);
        let mut leader = writer.lead(1).await;
        let one = fleet("one");
        for body in ["first", "second"] {
            leader.publish(&one, [cluster(body)]).await.unwrap();
        }
        leader.publish(&fleet("two"), [cluster("other")]).await.unwrap();
        let mut watch = reader.store.watch();
        until_synced(&mut *watch).await;
        let raw = Raw::of(&server).await;
        Self { server, keys, one, leader, writer, reader, watch, raw }
    }

    fn refused(&self, reason: &str) -> u64 {
        self.reader.metric(&format!("refused_records_total{{reason=\"{reason}\"}}"))
    }

    /// Puts this where the head is and waits for the reader to refuse it, once for however often it looks.
    async fn forge(&mut self, value: &[u8], reason: &str) {
        let before = self.refused(reason);
        self.raw.set(HEAD, value).await;
        let Self { raw, reader, watch, .. } = &mut *self;
        let name = format!("refused_records_total{{reason=\"{reason}\"}}");
        let is_refused = async || {
            // Each time, as the reader may not listen yet.
            for _ in 0..3 {
                raw.ring("default/one").await;
            }
            reader.metric(&name) > before
        };
        tokio::select! {
            notice = watch.next() => panic!("{notice:?} was told"),
            () = until("it is refused", is_refused) => {}
        }
        assert_eq!(self.refused(reason), before + 1, "counted once");
    }

    /// The leader finds out, publishes over it, and all is well again.
    async fn heal(&mut self) {
        self.leader.repair().await.unwrap();
        let head = self.leader.held[&self.one].head;
        let record = next_record(&mut *self.watch).await;
        assert_eq!((&record.fleet, record.head), (&self.one, head));
        let snapshot = self.reader.store.load(record, None).await.unwrap().snapshot;
        assert!(snapshot.same_content(&self.leader.held[&self.one]));
    }
}

#[tokio::test]
async fn a_forged_head_is_refused_and_written_over() {
    let mut scene = Scene::new().await;
    let value = scene.raw.get(HEAD).await.unwrap();
    let text = |head: Head, value: &[u8]| {
        let end = value.iter().position(|byte| *byte == b'\n').unwrap();
        [head.to_string().as_bytes(), &value[end..]].concat()
    };
    let other = scene.raw.get("heliograph:{default/two}:head").await.unwrap();
    let mut flipped = value.clone();
    *flipped.last_mut().unwrap() ^= 1;
    // A record that somebody made who has another key.
    let stranger = {
        let server = Server::start(&[]).await;
        let program = Program::open(&server.url(), &Keys::new());
        program.lead(5).await.publish(&scene.one, [cluster("evil")]).await.unwrap();
        Raw::of(&server).await.get(HEAD).await.unwrap()
    };
    let ahead = Head { epoch: 9, fence: 9, sequence: 9 };
    let cases: [(&str, &[u8], &str); 7] = [
        ("random bytes", b"random bytes", "undecodable"),
        ("nothing", b"", "undecodable"),
        ("a head without a record", b"0.1.9\n", "undecodable"),
        ("a wrong MAC", &flipped, "forged"),
        ("another fleet's record", &other, "forged"),
        ("the record at another place in the order", &text(ahead, &value), "forged"),
        ("a record under another key", &stranger, "forged"),
    ];
    for (what, forged, reason) in cases {
        scene.forge(forged, reason).await;
        // Who begins now hears nothing of the fleet, and of the other one as always.
        let mut watch = scene.reader.store.watch();
        let found = until_synced(&mut *watch).await;
        assert_eq!(found.keys().collect::<Vec<_>>(), [&fleet("two")], "{what}");
        let seen = scene.writer.store.inspect(vec![scene.one.clone()]).await.unwrap();
        assert!(!seen.heads.contains_key(&scene.one), "{what}");
        scene.heal().await;
    }
}

#[tokio::test]
async fn a_new_leader_writes_over_a_forged_head() {
    let mut scene = Scene::new().await;
    scene.forge(b"0.7.7\nforged", "undecodable").await;
    let program = Program::open(&scene.server.url(), &scene.keys);
    let mut next = program.lead(2).await;
    assert!(!next.expected.contains_key(&scene.one));
    next.publish(&scene.one, [cluster("third")]).await.unwrap();
    assert_eq!(next_record(&mut *scene.watch).await.head, next.head(1));
}

#[tokio::test]
async fn a_replayed_head_is_refused() {
    let mut scene = Scene::new().await;
    let older: Vec<Vec<u8>> =
        scene.raw.ask("LRANGE", ("heliograph:{default/one}:history", -1, -1)).await;
    assert!(older[0].starts_with(b"0.1.1\n"));
    scene.forge(&older[0], "older").await;
    // It is a real one, so the leader sees how far it went back.
    let seen = scene.writer.store.inspect(vec![scene.one.clone()]).await.unwrap();
    assert_eq!(seen.heads[&scene.one], scene.leader.head(1));
    scene.heal().await;
    assert_eq!(scene.leader.held[&scene.one].head, scene.leader.head(3));
}

/// The index is a hint: whatever somebody writes there, readers hear of what is published.
#[tokio::test]
async fn a_forged_index_misleads_nobody_for_long() {
    let mut scene = Scene::new().await;
    let one = scene.one.clone();
    for forged in ["0.0.0", "99.99.99", "nonsense", ""] {
        scene.raw.set_field("heliograph:{index}:heads", b"default/one", forged.as_bytes()).await;
        scene.leader.publish(&one, [cluster(forged)]).await.unwrap();
        assert_eq!(next_record(&mut *scene.watch).await.head, scene.leader.held[&one].head);
        // Between two publications the inspection repairs it.
        scene.raw.set_field("heliograph:{index}:heads", b"default/one", forged.as_bytes()).await;
        scene.leader.repair().await.unwrap();
        let index = scene.raw.hash("heliograph:{index}:heads").await;
        let head = scene.leader.held[&one].head.to_string();
        assert_eq!(index[b"default/one".as_slice()], head.as_bytes());
    }
    scene.raw.delete_field("heliograph:{index}:heads", b"default/one").await;
    scene.leader.repair().await.unwrap();
    assert_eq!(scene.reader.record(&one).await.unwrap().head, scene.leader.held[&one].head);
    assert_eq!(scene.refused("older") + scene.refused("forged") + scene.refused("undecodable"), 0);
}

#[tokio::test]
async fn a_forged_order_is_refused() {
    let mut scene = Scene::new().await;
    let record = scene.writer.store.history(scene.one.clone()).await.unwrap().remove(1);
    let order = pin(1, &record);
    scene.writer.store.order(scene.one.clone(), order.clone()).await.unwrap();
    let value = scene.raw.hash(PINS).await.remove(b"default/one".as_slice()).unwrap();
    let mut flipped = value.clone();
    flipped[10] ^= 1;
    let store = scene.writer.store.clone();
    let ordered = async || store.inspect(vec![scene.one.clone()]).await.unwrap().orders;
    assert_eq!(ordered().await, [(scene.one.clone(), order)].into());
    let mut raw = Raw::of(&scene.server).await;
    let record = scene.raw.get(HEAD).await.unwrap();
    let record = &record[b"0.1.2\n".len()..];
    for (field, forged) in [
        ("default/one", &flipped[..]),
        ("default/one", b"nonsense"),
        // What has a good MAC, and is no order.
        ("default/one", record),
        // A good order, of another fleet.
        ("default/two", &value),
    ] {
        raw.ask::<()>("DEL", PINS).await;
        let before = refused_orders(&scene.writer);
        raw.set_field(PINS, field.as_bytes(), forged).await;
        for _ in 0..2 {
            assert!(ordered().await.is_empty(), "{field}");
        }
        assert_eq!(refused_orders(&scene.writer), before + 1, "counted once");
    }
    scene.leader.clean(&scene.one).await.unwrap();
}

/// Of all reasons.
fn refused_orders(program: &Program) -> u64 {
    let reasons = ["older", "forged", "undecodable"];
    let refused =
        reasons.map(|it| program.metric(&format!("refused_records_total{{reason=\"{it}\"}}")));
    refused.iter().sum()
}

/// The signed head says which order it obeys.
#[tokio::test]
async fn an_order_that_was_followed_by_another_cannot_be_put_back() {
    let mut scene = Scene::new().await;
    let (one, store) = (scene.one.clone(), scene.writer.store.clone());
    let record = store.history(one.clone()).await.unwrap().remove(1);
    store.order(one.clone(), pin(1, &record)).await.unwrap();
    let replayed = scene.raw.hash(PINS).await.remove(b"default/one".as_slice()).unwrap();
    store.order(one.clone(), release(2)).await.unwrap();
    let mut obeying = scene.leader.draft(&one, [cluster("third")]);
    obeying.pin.number = 2;
    store.publish(obeying).await.unwrap();
    let ordered = async || store.inspect(vec![one.clone()]).await.unwrap().orders;
    assert_eq!(ordered().await[&one].number, 2);
    scene.raw.set_field(PINS, b"default/one", &replayed).await;
    for _ in 0..2 {
        assert!(ordered().await.is_empty());
    }
    assert!(store.claim(None).await.unwrap().orders.is_empty());
    assert_eq!(scene.writer.metric("refused_records_total{reason=\"older\"}"), 1);
    // An operator is not kept from giving the next.
    let number = PinOrder::next_number(&store, &store, &one, SystemTime::UNIX_EPOCH).await.unwrap();
    assert_eq!(number, 3);
    store.order(one.clone(), pin(number, &record)).await.unwrap();
    assert_eq!(ordered().await[&one].number, 3);
}

#[tokio::test]
async fn a_forged_report_is_refused() {
    let mut scene = Scene::new().await;
    let report = |replica: &str| AckReport { replica: replica.into(), ..AckReport::default() };
    for replica in ["one", "two"] {
        scene.reader.store.send_report(report(replica)).await.unwrap();
    }
    let key = |replica: &str| format!("heliograph:ack:{{acks}}:{replica}");
    let [first, second] = ["one", "two"].map(key);
    let (one, two) = (scene.raw.get(&first).await.unwrap(), scene.raw.get(&second).await.unwrap());
    let store = scene.writer.store.clone();
    assert_eq!(store.read_reports().await.unwrap().len(), 2);
    let mut flipped = one.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let record = scene.raw.get(HEAD).await.unwrap();
    for forged in [&flipped[..], b"nonsense", &record[b"0.1.2\n".len()..], &two] {
        scene.raw.set(&first, &one).await;
        assert_eq!(store.read_reports().await.unwrap().len(), 2);
        let before = refused_orders(&scene.writer);
        scene.raw.set(&first, forged).await;
        for _ in 0..2 {
            assert_eq!(store.read_reports().await, Ok(vec![report("two")]));
        }
        assert_eq!(refused_orders(&scene.writer), before + 1, "counted once");
    }
}

/// A translator that has never heard of the order may publish the next one.
#[tokio::test]
async fn a_fleet_that_comes_back_is_told_whatever_was_ordered_for_the_one_before() {
    let mut scene = Scene::new().await;
    let (one, store) = (scene.one.clone(), scene.writer.store.clone());
    let mut held = scene.leader.draft(&one, [cluster("held")]);
    held.pin.number = 7;
    let head = held.snapshot.head;
    store.publish(held).await.unwrap();
    assert_eq!(next_record(&mut *scene.watch).await.pin.number, 7);
    let tombstone = Head { sequence: head.sequence + 1, ..head };
    let retirement = Retirement {
        fleet: one.clone(),
        tombstone,
        expected: Some(head),
        time: SystemTime::UNIX_EPOCH,
        cause: "test".into(),
        order: 7,
    };
    store.retire(retirement).await.unwrap();
    assert!(!next_record(&mut *scene.watch).await.is_live());
    scene.leader.expected.insert(one.clone(), tombstone);
    let mut next = scene.leader.draft(&one, [cluster("next")]);
    let head = Head { sequence: tombstone.sequence + 1, ..tombstone };
    next.snapshot = std::sync::Arc::new(next.snapshot.at(head));
    (next.expected, next.held) = (Some(tombstone), None);
    store.publish(next).await.unwrap();
    let record = next_record(&mut *scene.watch).await;
    assert_eq!((record.head, record.pin.number, record.is_live()), (head, 0, true));
}

/// Two installations with one key ring, as blue and green may be, do not take each other's heads, orders and reports.
#[tokio::test]
async fn what_is_signed_for_one_installation_is_refused_by_another() {
    let mut scene = Scene::new().await;
    let (one, url) = (scene.one.clone(), scene.server.url());
    let options = RedisOptions { prefix: "green".to_owned(), ..RedisOptions::default() };
    let green = Program::open_with(settings(&url), &scene.keys, options);
    let mut leader = green.lead(1).await;
    leader.publish(&one, [cluster("green")]).await.unwrap();
    let record = scene.writer.store.history(one.clone()).await.unwrap().remove(1);
    scene.writer.store.order(one.clone(), pin(1, &record)).await.unwrap();
    let report = AckReport { replica: "replica".into(), ..AckReport::default() };
    scene.reader.store.send_report(report.clone()).await.unwrap();
    green.store.send_report(report).await.unwrap();

    let head = scene.raw.get(HEAD).await.unwrap();
    scene.raw.set("green:{default/one}:head", &head).await;
    let order = scene.raw.hash(PINS).await.remove(b"default/one".as_slice()).unwrap();
    scene.raw.set_field("green:{index}:pins", b"default/one", &order).await;
    let report = scene.raw.get("heliograph:ack:{acks}:replica").await.unwrap();
    scene.raw.set("green:ack:{acks}:replica", &report).await;

    let inspection = green.store.inspect(vec![one.clone()]).await.unwrap();
    assert!(inspection.heads.is_empty() && inspection.orders.is_empty(), "{inspection:?}");
    assert_eq!(green.store.read_reports().await, Ok(vec![]));
    assert_eq!(green.metric("refused_records_total{reason=\"forged\"}"), 3);
}

/// Foreign keys beside ours have no effect, whatever they are.
#[tokio::test]
async fn bytes_that_are_no_text_are_left_alone() {
    let mut scene = Scene::new().await;
    let one = scene.one.clone();
    let junk = b"\xff\xfe";
    for hash in ["heliograph:{index}:heads", PINS] {
        scene.raw.set_field(hash, junk, junk).await;
    }
    scene.raw.set_field("heliograph:{index}:heads", b"default/one", junk).await;
    scene.raw.ask::<()>("ZADD", ("heliograph:ack:{acks}", 1, junk)).await;
    let report = AckReport { replica: "replica".into(), ..AckReport::default() };
    scene.reader.store.send_report(report.clone()).await.unwrap();
    assert_eq!(scene.writer.store.read_reports().await, Ok(vec![report]));
    scene.leader.repair().await.unwrap();
    assert_eq!(scene.reader.record(&one).await.unwrap().head, scene.leader.head(2));

    scene.raw.set(HEAD, junk).await;
    let draft = scene.leader.draft(&one, [cluster("third")]);
    let conflict = scene.writer.store.publish(draft).await;
    assert!(matches!(conflict, Err(StoreError::Conflict { .. })), "{conflict:?}");
    scene.raw.set("heliograph:{index}:term", junk).await;
    let refused = scene.writer.store.term().await.unwrap_err();
    assert!(refused.to_string().contains("delete the key"), "{refused}");
}

/// A history of which nothing can be read is not an empty one.
#[tokio::test]
async fn with_another_key_ring_the_history_is_not_empty_but_unreadable() {
    let scene = Scene::new().await;
    let stranger = Program::open(&scene.server.url(), &Keys::new());
    let reason = damaged(stranger.store.history(scene.one.clone()).await);
    assert!(reason.contains("different key rings"), "{reason}");
    assert_eq!(stranger.store.history(fleet("other")).await, Ok(vec![]));
}

/// A replica that is away for a moment stays on the list.
#[tokio::test]
async fn only_replicas_that_are_long_gone_are_forgotten() {
    let mut scene = Scene::new().await;
    let report = AckReport { replica: "here".into(), ..AckReport::default() };
    scene.reader.store.send_report(report).await.unwrap();
    scene.raw.ask::<()>("DEL", "heliograph:ack:{acks}:here").await;
    scene.raw.ask::<()>("ZADD", ("heliograph:ack:{acks}", 1, "gone")).await;
    assert_eq!(scene.writer.store.read_reports().await, Ok(vec![]));
    let listed: Vec<String> = scene.raw.ask("ZRANGE", ("heliograph:ack:{acks}", 0, -1)).await;
    assert_eq!(listed, ["here"]);
}
