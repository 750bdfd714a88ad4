//! Objects that are damaged or missing: no reader gets half a snapshot.

use crate::raw::Raw;
use crate::servers::Server;
use crate::world::{
    Keys, Leader, Program, addresses, cluster, damaged, endpoints, fleet, next_update, secret, set,
    until_at,
};
use heliograph_snapshot::{Change, ResourceType};
use heliograph_store::{Reader, Update};

const OBJECTS: &str = "heliograph:{default/one}:objects";

/// Enough for branches, leaves and bodies of two types, and a secret.
fn content(leader: &Leader) -> Vec<Change> {
    let mut changes: Vec<_> = (0..100)
        .map(|number| {
            set(ResourceType::Cluster, &format!("cluster-{number}"), format!("body {number}"))
        })
        .collect();
    changes.push(endpoints("first"));
    changes.push(secret(&leader.store, "secret", b"the private key"));
    changes
}

#[tokio::test]
async fn what_is_damaged_is_refused_whole() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    leader.publish(&one, content(&leader)).await.unwrap();
    let record = program.record(&one).await.unwrap();
    let whole = program.store.load(record.clone(), None).await.unwrap().snapshot;
    let mut raw = Raw::of(&server).await;
    let objects = raw.hash(OBJECTS).await;
    assert_eq!(objects.len(), addresses(&whole).len());

    let mut count = 0;
    let mut others = objects.values().cycle().skip(1);
    for (address, value) in &objects {
        let mut flipped = value.clone();
        *flipped.last_mut().unwrap() ^= 1;
        let another = others.next().unwrap();
        for bad in [&flipped[..], &value[..value.len() - 1], &value[..3], b"", another] {
            raw.set_field(OBJECTS, address, bad).await;
            damaged(program.store.load(record.clone(), None).await);
            count += 1;
        }
        raw.delete_field(OBJECTS, address).await;
        let reason = damaged(program.store.load(record.clone(), None).await);
        assert!(reason.contains("missing"), "{reason}");
        count += 1;
        // Who has it already does not ask for it.
        program.store.load(record.clone(), Some(whole.clone())).await.unwrap();
        raw.set_field(OBJECTS, address, value).await;
    }
    assert_eq!(program.metric("damaged_objects_total"), count);
    let again = program.store.load(record, None).await.unwrap().snapshot;
    assert!(again.same_content(&whole));
}

#[tokio::test]
async fn a_reader_keeps_what_it_has_until_a_newer_snapshot_mends_it() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    let (one, two) = (fleet("one"), fleet("two"));
    leader.publish(&one, content(&leader)).await.unwrap();
    let mut subscription = program.subscribe();
    until_at(&mut subscription, leader.head(1)).await;
    assert!(matches!(next_update(&mut subscription).await, Update::Synced));

    // All that the next snapshot shares with this one is lost, without the translator's knowledge.
    let before = addresses(&leader.held[&one]);
    leader.publish(&one, [cluster("second")]).await.unwrap();
    let mut raw = Raw::of(&server).await;
    for address in raw.addresses(OBJECTS).await {
        if !before.contains(&address) {
            raw.delete_field(OBJECTS, &address).await;
        }
    }
    // Other fleets go on meanwhile.
    leader.publish(&two, [cluster("first")]).await.unwrap();
    while subscription.damaged() == 0 {
        match next_update(&mut subscription).await {
            Update::Published(snapshot, _) => assert_eq!(snapshot.fleet, two),
            other => panic!("{other:?}"),
        }
        leader.publish(&two, [cluster(&leader.head(0).to_string())]).await.unwrap();
    }

    leader.held.remove(&one);
    let repaired = leader.publish(&one, content(&leader)).await.unwrap();
    assert_eq!(repaired.objects, addresses(&leader.held[&one]).len(), "all of it is written again");
    loop {
        let Update::Published(snapshot, _) = next_update(&mut subscription).await else { panic!() };
        if snapshot.fleet == one {
            assert_eq!(snapshot.head, leader.head(3));
            assert!(snapshot.same_content(&leader.held[&one]));
            break;
        }
    }
    assert_eq!(subscription.damaged(), 0);
}

#[tokio::test]
async fn what_no_reader_takes_is_not_written() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    let largest = (64 << 20) - 4;
    leader.publish(&one, [set(ResourceType::Route, "large", vec![b'x'; largest])]).await.unwrap();
    let larger = set(ResourceType::Route, "larger", vec![b'x'; largest + 1]);
    let refused = leader.publish(&one, [larger]).await.unwrap_err();
    assert!(refused.to_string().contains("the route larger is larger than"), "{refused}");
    assert!(program.read(&one).await.unwrap().same_content(&leader.held[&one]));
}

/// The leader believes that it is there, so no later publication writes it.
#[tokio::test]
async fn what_redis_lost_of_the_newest_is_written_again() {
    let (server, keys) = (Server::start(&[]).await, Keys::new());
    let program = Program::open(&server.url(), &keys);
    let mut leader = program.lead(1).await;
    let one = fleet("one");
    let large = set(ResourceType::Route, "large", vec![b'x'; 1_000]);
    leader.publish(&one, content(&leader).into_iter().chain([large])).await.unwrap();
    let mut raw = Raw::of(&server).await;
    let stored = raw.addresses(OBJECTS).await;
    for address in stored.iter().step_by(2) {
        raw.delete_field(OBJECTS, address).await;
    }
    damaged(program.read(&one).await);
    leader.clean(&one).await.unwrap();
    assert_eq!(raw.addresses(OBJECTS).await, stored);
    assert!(program.read(&one).await.unwrap().same_content(&leader.held[&one]));
}
