//! Who may write: fences of any size, epochs, tombstones.

use crate::raw::Raw;
use crate::servers::Server;
use crate::shared;
use crate::world::{Keys, Leader, Program, cluster, fleet, next_record, settings, until_synced};
use heliograph_store::redis::RedisOptions;
use heliograph_store::{History, Reader, StoreError, Term, Writer};
use std::time::{Duration, SystemTime};

const TERM: &str = "heliograph:{index}:term";

/// Redis' scripts have doubles for numbers, to which these are the same.
#[tokio::test]
async fn fences_that_a_double_cannot_tell_apart_are_told_apart() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let one = fleet("one");
    for lower in [1 << 53, 1 << 100, u128::MAX - 1] {
        let mut older = program.lead(lower).await;
        older.publish(&one, [cluster(&lower.to_string())]).await.unwrap();
        let mut newer = program.lead(lower + 1).await;
        let refused = older.publish(&one, [cluster("late")]).await;
        assert_eq!(refused, Err(StoreError::Fenced { ours: older.term, theirs: newer.term }));
        assert!(program.store.claim(Some(lower)).await.is_err());
        newer.publish(&one, [cluster("again")]).await.unwrap();
        assert_eq!(program.record(&one).await.unwrap().head, newer.held[&one].head);
    }
    assert_eq!(program.metric("refused_writes_total{reason=\"fenced\"}"), 6);

    // There is no fence above, but there is a later epoch.
    let refused = program.store.claim(None).await.unwrap_err();
    assert!(refused.to_string().contains("helio store adopt"), "{refused}");
    let term = program.store.term().await.unwrap();
    assert_eq!(term.fence, u128::MAX);
    program.store.adopt(term).await.unwrap();
    program.store.claim(None).await.unwrap();
}

#[tokio::test]
async fn a_claim_without_an_election_counts_on() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let milliseconds =
        |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let first = program.store.claim(None).await.unwrap().term.fence;
    assert!(
        first <= milliseconds(SystemTime::now())
            && first > milliseconds(SystemTime::now()) - 60_000
    );
    for (stored, following) in [
        (99_999_999_999_999_999_999, 100_000_000_000_000_000_000),
        (
            340_282_366_920_938_463_463_374_607_431_768_211_449,
            340_282_366_920_938_463_463_374_607_431_768_211_450,
        ),
    ] {
        program.store.claim(Some(stored)).await.unwrap();
        assert_eq!(program.store.claim(None).await.unwrap().term.fence, following);
    }
}

#[tokio::test]
async fn heads_are_ordered_by_number() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(9).await;
    let one = fleet("one");
    let mut watch = program.store.watch();
    until_synced(&mut *watch).await;
    for sequence in [9, 10, 99, 100, (1 << 53), (1 << 53) + 1, u64::MAX] {
        let mut draft = leader.draft(&one, [cluster(&sequence.to_string())]);
        draft.snapshot = draft.snapshot.at(leader.head(sequence)).into();
        leader.send(draft.clone()).await.unwrap();
        assert_eq!(next_record(&mut *watch).await.head.sequence, sequence);
        draft.expected = Some(leader.head(sequence));
        draft.snapshot = draft.snapshot.at(leader.head(sequence - 1)).into();
        assert!(matches!(program.store.publish(draft).await, Err(StoreError::NotNewer { .. })));
    }
}

#[tokio::test]
async fn a_term_that_is_none_is_said_to_be_so() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut raw = Raw::of(&server).await;
    raw.set(TERM, b"nonsense").await;
    let refused = program.store.term().await.unwrap_err();
    assert!(refused.to_string().contains("delete the key that ends in {index}:term"), "{refused}");
    // A claim makes it good.
    program.lead(1).await;
    assert_eq!(raw.get(TERM).await.unwrap(), b"0.1");
}

#[tokio::test]
async fn an_adopted_store_goes_on_with_low_fences() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    adopt(&Program::open(&server.url(), &keys)).await;
}

#[tokio::test]
async fn an_adopted_cluster_goes_on_with_low_fences() {
    let options = RedisOptions { prefix: shared::fresh_prefix(), ..RedisOptions::default() };
    adopt(&Program::open_with(settings(shared::cluster()), &Keys::new(), options)).await;
}

async fn adopt(program: &Program) {
    let fleets = ["one", "two", "three"].map(fleet);
    let mut older = program.lead(1 << 60).await;
    for fleet in &fleets {
        older.publish(fleet, [cluster("before")]).await.unwrap();
    }
    let mut watch = program.store.watch();
    assert_eq!(until_synced(&mut *watch).await.len(), 3);

    // As after the restore of an older etcd.
    let refused = program.store.claim(Some(7)).await.unwrap_err();
    assert!(refused.to_string().contains("`helio store adopt`"), "{refused}");

    let seen = program.store.term().await.unwrap();
    let adopted = program.store.adopt(seen).await.unwrap();
    assert!(adopted.epoch > seen.epoch, "{adopted}");
    for fleet in &fleets {
        let refused = older.publish(fleet, [cluster("late")]).await.unwrap_err();
        assert_eq!(refused, StoreError::Fenced { ours: older.term, theirs: adopted });
        assert!(refused.to_string().contains("`helio store adopt`"), "{refused}");
    }
    assert!(older.publish(&fleet("new"), [cluster("late")]).await.is_err());

    let mut newer = program.lead(7).await;
    assert_eq!(newer.term, Term { epoch: adopted.epoch, fence: 7 });
    for fleet in &fleets {
        newer.publish(fleet, [cluster("after")]).await.unwrap();
        let record = next_record(&mut *watch).await;
        assert_eq!((&record.fleet, record.head), (fleet, newer.held[fleet].head));
    }
    assert!(program.store.adopt(seen).await.is_err(), "another term has begun");
}

/// A name that is not used for long leaves nothing behind, so that fleets that come and go do not fill the store.
#[tokio::test]
async fn old_tombstones_are_dropped_by_the_next_leader() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let (old, young) = (fleet("old"), fleet("young"));
    let mut leader = program.lead(1).await;
    let week = Duration::from_secs(7 * 24 * 3600);
    for (fleet, age) in [(&old, week + week), (&young, week / 2)] {
        leader.publish(fleet, [cluster("once")]).await.unwrap();
        leader.retire(fleet, SystemTime::now() - age).await.unwrap();
    }
    // Not the term's own: it may ask again.
    assert_eq!(program.store.claim(Some(1)).await.unwrap().records.len(), 2);
    let mut next = program.lead(2).await;
    assert_eq!(next.expected.keys().collect::<Vec<_>>(), [&young]);
    let mut raw = Raw::of(&server).await;
    let names: Vec<String> = raw.ask("KEYS", "*old*").await;
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(raw.hash("heliograph:{index}:heads").await.len(), 1);

    next.publish(&old, [cluster("again")]).await.unwrap();
    let mut late = Leader::of(&leader.store, program.store.claim(Some(2)).await.unwrap());
    assert_eq!(late.expected[&old], next.held[&old].head);
    late.publish(&young, [cluster("again")]).await.unwrap();
}

/// The epoch is forgotten with all else, and the leader's heads go on above the term that it began again.
#[tokio::test]
async fn a_leader_of_a_later_epoch_cleans_what_it_published_after_redis_was_emptied() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let one = fleet("one");
    program.store.adopt(Term::default()).await.unwrap();
    let mut leader = program.lead(7).await;
    assert!(leader.term.epoch > 0);
    leader.publish(&one, [cluster("first")]).await.unwrap();
    server.query::<()>(&["FLUSHALL"]).await.unwrap();
    assert_eq!(program.store.claim(Some(7)).await.unwrap().term, Term { epoch: 0, fence: 7 });
    leader.expected.clear();
    leader.publish(&one, [cluster("second")]).await.unwrap();
    let mut crashed = leader.draft(&one, [cluster("crashed")]);
    crashed.expected = Some(leader.head(99));
    program.store.publish(crashed).await.unwrap_err();
    assert_eq!(leader.clean(&one).await, Ok(0), "found");
    assert_eq!(leader.clean(&one).await, Ok(1));
}
