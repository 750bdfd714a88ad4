//! What nothing leads to goes, and nothing else does.

use crate::raw::Raw;
use crate::servers::Server;
use crate::shared;
use crate::world::{
    Keys, Leader, Program, addresses, cluster, damaged, endpoints, fleet, pin, release, secret,
    set, settings,
};
use heliograph_snapshot::{Change, FleetName, ResourceType};
use heliograph_store::redis::{RedisOptions, RedisStore, RetentionLimits};
use heliograph_store::{History, Inspector, PinState, Reader, Record, State, StoreError, Writer};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

#[derive(Clone, Debug)]
enum Step {
    /// One of a few contents, so that earlier ones come back.
    Publish(u8),
    PublishEndpoints(u8),
    /// A content is uploaded, and the writer crashes before the commit.
    CrashAfterUpload(u8),
    /// Another writer begins, who remembers nothing.
    NewLeader,
    Clean,
    Pin(usize),
    Release,
    /// A reader receives the newest record, and goes on later.
    Receive,
    /// It goes on.
    Load,
}

const HISTORY: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4u8).prop_map(Step::Publish),
        3 => (0..4u8).prop_map(Step::PublishEndpoints),
        2 => (0..8u8).prop_map(Step::CrashAfterUpload),
        1 => Just(Step::NewLeader),
        6 => Just(Step::Clean),
        2 => any::<usize>().prop_map(Step::Pin),
        1 => Just(Step::Release),
        2 => Just(Step::Receive),
        2 => Just(Step::Load),
    ];
    prop::collection::vec(step, 1..60)
}

/// Forty clusters, so that there are branches, of which some are the same in every content; and a secret.
fn content(store: &RedisStore, number: u8) -> Vec<Change> {
    let mut changes: Vec<_> = (0..40)
        .map(|name| {
            let body = if name % 5 == 0 { number } else { 0 };
            set(ResourceType::Cluster, &format!("cluster-{name}"), format!("{name} {body}"))
        })
        .collect();
    changes.push(secret(store, "secret", format!("secret {}", number % 2).as_bytes()));
    changes
}

struct Walk {
    keys: Keys,
    options: RedisOptions,
    leader: Leader,
    raw: Raw,
    one: FleetName,
    /// What the slow reader received.
    received: Option<Arc<Record>>,
}

impl Walk {
    /// `retention` is how many bytes the history may take, and the garbage.
    async fn new(retention: u64) -> Self {
        let keys = Keys::new();
        let prefix = shared::fresh_prefix();
        let retention =
            RetentionLimits { least: retention, most: retention, grace: Duration::ZERO };
        let options = RedisOptions { prefix, history: HISTORY, grace: Duration::ZERO, retention };
        let program = Program::open_with(settings(shared::server()), &keys, options.clone());
        let mut leader = program.lead(1).await;
        let one = fleet("one");
        leader.publish(&one, content(&leader.store, 0)).await.unwrap();
        let raw = Raw::at(shared::server()).await;
        Self { keys, options, leader, raw, one, received: None }
    }

    async fn carry_out(&mut self, step: Step) {
        let one = self.one.clone();
        match step {
            Step::Publish(number) => {
                self.leader.publish(&one, content(&self.leader.store, number)).await.unwrap();
            }
            Step::PublishEndpoints(number) => {
                self.leader.publish(&one, [endpoints(&number.to_string())]).await.unwrap();
            }
            Step::CrashAfterUpload(number) => self.crash(number).await,
            Step::NewLeader => self.change_leader().await,
            Step::Clean => {
                self.leader.clean(&one).await.unwrap();
                self.assert_all_loads().await;
            }
            Step::Pin(step) => self.pin(step).await,
            Step::Release => {
                let number = self.next_order().await;
                self.leader.store.order(one, release(number)).await.unwrap();
            }
            Step::Receive => self.received = Some(self.newest()),
            Step::Load => self.load_received().await,
        }
    }

    /// The commit is refused, because it expects another head.
    async fn crash(&mut self, number: u8) {
        let mut draft = self.leader.draft(&self.one, content(&self.leader.store, number));
        draft.expected = Some(self.leader.head(1 << 40));
        let refused = self.leader.store.publish(draft).await;
        assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    }

    async fn change_leader(&mut self) {
        let program =
            Program::open_with(settings(shared::server()), &self.keys, self.options.clone());
        let next = self.leader.term.fence + 1;
        let claim = program.store.claim(Some(next)).await.unwrap();
        let record = claim.records[&self.one].clone();
        let found = program.store.load(record, None).await.unwrap().snapshot;
        self.leader = Leader::of(&program.store, claim);
        self.leader.held.insert(self.one.clone(), found);
    }

    async fn pin(&mut self, step: usize) {
        let history = self.leader.store.history(self.one.clone()).await.unwrap();
        let record = history[step % history.len()].clone();
        let number = self.next_order().await;
        self.leader.store.order(self.one.clone(), pin(number, &record)).await.unwrap();
    }

    async fn next_order(&self) -> u64 {
        let inspection = self.leader.store.inspect(vec![self.one.clone()]).await.unwrap();
        inspection.orders.get(&self.one).map_or(1, |order| order.number + 1)
    }

    fn newest(&self) -> Arc<Record> {
        let held = &self.leader.held[&self.one];
        Arc::new(Record {
            fleet: held.fleet.clone(),
            head: held.head,
            state: State::Live(held.roots()),
            time: SystemTime::UNIX_EPOCH,
            cause: "newest".into(),
            pin: PinState::default(),
            bytes: 0,
            partly_sealed: std::collections::BTreeSet::new(),
            has_unknown_types: false,
        })
    }

    /// It loads what it received, or gets an error that this is no more; then the newest is there for it.
    async fn load_received(&mut self) {
        let Some(record) = self.received.take() else { return };
        match self.leader.store.load(record.clone(), None).await {
            Ok(loaded) => assert_eq!(loaded.snapshot.roots(), record.roots()),
            Err(StoreError::Damaged { .. }) => {
                assert_ne!(
                    record.head, self.leader.held[&self.one].head,
                    "the newest is always there"
                );
            }
            Err(other) => panic!("{other}"),
        }
        let newest = self.newest();
        let loaded = self.leader.store.load(newest.clone(), None).await.unwrap();
        assert_eq!(loaded.snapshot.roots(), newest.roots());
    }

    /// Everything that can be gone to. Returns all that it takes.
    async fn assert_all_loads(&mut self) -> BTreeSet<[u8; 32]> {
        let store = &self.leader.store;
        let mut records = store.history(self.one.clone()).await.unwrap();
        assert!(!records.is_empty() && records.len() <= HISTORY);
        let orders = store.inspect(vec![self.one.clone()]).await.unwrap().orders;
        records.extend(orders.get(&self.one).and_then(|order| order.at.clone()));
        records.push(self.newest());
        let mut needed = BTreeSet::new();
        for record in records {
            let loaded = store.load(record.clone(), None).await.unwrap();
            assert_eq!(loaded.snapshot.roots(), record.roots());
            assert!(loaded.unopened.is_empty());
            needed.extend(addresses(&loaded.snapshot));
        }
        needed
    }

    /// After two sweeps nothing else is there.
    async fn arrive(&mut self) {
        self.leader.publish(&self.one, [endpoints("last")]).await.unwrap();
        for _ in 0..2 {
            self.leader.clean(&self.one).await.unwrap();
        }
        let needed = self.assert_all_loads().await;
        let key = format!("{}:{{{}}}:objects", self.options.prefix, self.one);
        assert_eq!(self.raw.addresses(&key).await, needed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_time: 60_000, ..ProptestConfig::default() })]
    #[test]
    fn all_that_can_be_gone_to_stays_and_nothing_else_does(steps in steps(), retention in prop_oneof![Just(0), Just(2_000), Just(1 << 20)]) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut walk = Walk::new(retention).await;
            for step in steps {
                walk.carry_out(step).await;
            }
            walk.arrive().await;
        });
    }
}

const OBJECTS: &str = "heliograph:{default/one}:objects";

/// Between the two sweeps that it takes, a reader has time to finish.
#[tokio::test]
async fn what_nothing_leads_to_stays_for_the_grace() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let options = RedisOptions { history: 1, ..RedisOptions::default() };
    let grace = options.grace;
    let program = Program::open_with(settings(&server.url()), &keys, options);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    leader.publish(&one, [cluster("first")]).await.unwrap();
    let reader = program.record(&one).await.unwrap();
    leader.publish(&one, [cluster("second")]).await.unwrap();
    let later = async |time| {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    };

    assert_eq!(leader.clean(&one).await, Ok(0), "found");
    assert_eq!(leader.clean(&one).await, Ok(0), "and kept");
    later(grace / 2).await;
    assert_eq!(leader.clean(&one).await, Ok(0));
    program.store.load(reader.clone(), None).await.unwrap();
    later(grace).await;
    assert_eq!(leader.clean(&one).await, Ok(1), "a leaf, with its body");
    damaged(program.store.load(reader, None).await);
    program.read(&one).await.unwrap();
    assert_eq!(program.metric("deleted_objects_total"), 1);

    // Nothing is written, so nothing is looked for.
    let mut raw = Raw::of(&server).await;
    raw.set_field(OBJECTS, &[7; 32], b"somebody else's").await;
    later(grace * 20).await;
    assert_eq!(leader.clean(&one).await, Ok(0));
    later(grace * 20).await;
    assert_eq!(leader.clean(&one).await, Ok(0));
    // With a change it is, but for a few changes not each time.
    leader.publish(&one, [endpoints("third")]).await.unwrap();
    assert_eq!(leader.clean(&one).await, Ok(0), "found");
    later(grace).await;
    assert_eq!(leader.clean(&one).await, Ok(1));
    raw.set_field(OBJECTS, &[8; 32], b"somebody else's").await;
    leader.publish(&one, [endpoints("third")]).await.unwrap();
    for _ in 0..3 {
        later(grace).await;
        assert_eq!(leader.clean(&one).await, Ok(0), "not worth it yet");
    }
    leader.publish(&one, [endpoints("fourth")]).await.unwrap();
    later(grace * 10).await;
    assert_eq!(leader.clean(&one).await, Ok(0), "found");
    later(grace).await;
    assert_eq!(leader.clean(&one).await, Ok(2), "and the endpoints that were");
}

/// Whoever wrote it knows what it leads to. This program does not.
#[tokio::test]
async fn nothing_is_deleted_beside_what_a_newer_program_wrote() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    leader.publish(&one, [cluster("first")]).await.unwrap();
    let mut raw = Raw::of(&server).await;
    raw.set_field(OBJECTS, &[7; 32], b"of the newer one").await;
    // Format 3, whatever it means.
    let step = b"0.1.0\nHG\x03\x01 and a MAC somewhere below, of thirty-two bytes";
    raw.ask::<()>("RPUSH", ("heliograph:{default/one}:history", &step[..])).await;
    for _ in 0..3 {
        assert_eq!(leader.clean(&one).await, Ok(0));
    }
    assert!(raw.addresses(OBJECTS).await.contains(&[7; 32]));
    raw.ask::<()>("RPOP", "heliograph:{default/one}:history").await;
    for _ in 0..2 {
        leader.clean(&one).await.unwrap();
    }
    assert!(!raw.addresses(OBJECTS).await.contains(&[7; 32]));
}

/// What comes back and goes again has readers of that time, too.
#[tokio::test]
async fn what_was_written_again_stays_for_the_grace_again() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let options = RedisOptions { history: 1, grace: Duration::ZERO, ..RedisOptions::default() };
    let program = Program::open_with(settings(&server.url()), &keys, options);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    leader.publish(&one, [cluster("first")]).await.unwrap();
    leader.publish(&one, [cluster("second")]).await.unwrap();
    assert_eq!(leader.clean(&one).await, Ok(0), "the first is found");
    leader.publish(&one, [cluster("first")]).await.unwrap();
    let reader = program.record(&one).await.unwrap();
    leader.publish(&one, [cluster("second")]).await.unwrap();
    assert_eq!(leader.clean(&one).await, Ok(0), "and found anew");
    program.store.load(reader, None).await.unwrap();
    assert_eq!(leader.clean(&one).await, Ok(1));
}

/// An address means the same forever, so what is at it is looked at once.
#[tokio::test]
async fn the_parts_of_the_history_are_read_once() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    for number in 0..4 {
        leader.publish(&one, content(&leader.store, number)).await.unwrap();
    }
    leader.clean(&one).await.unwrap();
    let read = || program.metric("objects_total{direction=\"read\"}");
    let first = read();
    assert!(first > 4, "{first}");
    for number in 0..2 {
        leader.publish(&one, [endpoints(&number.to_string())]).await.unwrap();
        leader.store.clean(leader.held[&one].clone()).await.unwrap();
        assert_eq!(read(), first);
    }
}

/// A fleet whose first publication failed is unknown, so the objects that its writer left expire.
#[tokio::test]
async fn what_a_first_publication_left_behind_expires() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let one = fleet("one");
    let draft = leader.draft(&one, content(&leader.store, 0));
    let mut raw = Raw::of(&server).await;
    raw.ask::<()>("SET", ("heliograph:{index}:term", "0.2")).await;
    assert!(matches!(leader.send(draft.clone()).await, Err(StoreError::Fenced { .. })));
    assert!(!raw.addresses(OBJECTS).await.is_empty());
    let stays: i64 = raw.ask("TTL", OBJECTS).await;
    assert!((1..=3600).contains(&stays), "{stays}");

    raw.ask::<()>("DEL", "heliograph:{index}:term").await;
    leader.send(draft.clone()).await.unwrap();
    assert_eq!(raw.ask::<i64>("TTL", OBJECTS).await, -1, "it stays");
    leader.send(draft).await.unwrap();
    assert_eq!(raw.ask::<i64>("TTL", OBJECTS).await, -1, "also if the same is asked for again");
}
