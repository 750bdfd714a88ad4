use crate::Store;
use crate::follower::Follower;
use crate::writer::{Kind, Write, Writer, fleet};
use bytes::Bytes;
use heliograph_snapshot::{Change, FleetName, Internal, Resource, ResourceType, Section};
use heliograph_store::{Notice, Record, Update, Watch};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn a_subscriber_hears_what_is_published(store: Arc<dyn Store>) {
    let mut follower = Follower::synced(&store).await;
    let mut writer = Writer::claim(&store).await;
    let head = writer.publish(&fleet("one")).await.unwrap();
    follower.expect_published(&fleet("one"), head).await;
}

pub(crate) async fn updates_of_a_fleet_come_in_order(store: Arc<dyn Store>) {
    let mut follower = Follower::synced(&store).await;
    let mut writer = Writer::claim(&store).await;
    for _ in 0..10 {
        let head = writer.publish(&fleet("one")).await.unwrap();
        follower.expect_published(&fleet("one"), head).await;
        let head = writer.publish_endpoints(&fleet("one")).await.unwrap();
        follower.expect_published(&fleet("one"), head).await;
    }
}

pub(crate) async fn a_late_subscriber_gets_everything_and_then_synced(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    for name in ["one", "two", "three", "one"] {
        writer.publish(&fleet(name)).await.unwrap();
    }
    let mut follower = Follower::synced(&store).await;
    assert_eq!(follower.live, writer.live());
    assert_eq!(follower.received, 4, "each fleet once, then synced");
    let head = writer.publish(&fleet("two")).await.unwrap();
    follower.expect_published(&fleet("two"), head).await;
}

pub(crate) async fn an_empty_store_is_synced_at_once(store: Arc<dyn Store>) {
    let update = Follower::new(&store).next().await;
    assert!(matches!(update, Update::Synced), "{update:?}");
}

pub(crate) async fn a_slow_reader_gets_the_newest(store: Arc<dyn Store>) {
    let mut slow = Follower::synced(&store).await;
    let mut writer = Writer::claim(&store).await;
    for _ in 0..100 {
        writer.publish(&fleet("one")).await.unwrap();
        writer.publish(&fleet("two")).await.unwrap();
    }
    slow.until(&writer.live()).await;
    assert!(slow.received < 20, "{} updates of two fleets", slow.received);
    // Nothing is left of the others: the next update is of the next change.
    let head = writer.publish(&fleet("three")).await.unwrap();
    slow.expect_published(&fleet("three"), head).await;
}

pub(crate) async fn a_reader_that_gives_up_waiting_misses_nothing(store: Arc<dyn Store>) {
    let mut follower = Follower::synced(&store).await;
    let mut writer = Writer::claim(&store).await;
    for _ in 0..10 {
        let waiting = follower.subscription.next();
        let waited = tokio::time::timeout(Duration::ZERO, waiting).await;
        assert!(waited.is_err(), "an update of nothing: {waited:?}");
        let head = writer.publish(&fleet("one")).await.unwrap();
        follower.expect_published(&fleet("one"), head).await;
    }
}

pub(crate) async fn a_fleet_that_never_rests_does_not_starve_the_others(store: Arc<dyn Store>) {
    let mut follower = Follower::new(&store);
    let mut writer = Writer::claim(&store).await;
    let fleets: Vec<_> = (0..5).map(|number| fleet(&format!("fleet-{number}"))).collect();
    let mut received = BTreeSet::new();
    // Between two reads every fleet changes, always in the same order.
    for _ in 0..3 * fleets.len() {
        for fleet in &fleets {
            writer.publish(fleet).await.unwrap();
        }
        if let Update::Published(snapshot, _) = follower.next().await {
            received.insert(snapshot.fleet.clone());
        }
    }
    assert_eq!(received.len(), fleets.len(), "only {received:?} were heard of");
}

pub(crate) async fn readers_keep_up_with_a_writer_that_never_rests(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let early = (0..2).map(|_| Follower::new(&store)).collect::<Vec<_>>();
    let writing = tokio::spawn(async move {
        for round in 0..200 {
            // What is not kept in the history may be gone when a reader comes to load it.
            let fleet = fleet(if round % 3 == 0 { "one" } else { "two" });
            writer.publish_endpoints(&fleet).await.unwrap();
            if round % 10 == 0 {
                writer.publish(&fleet).await.unwrap();
            }
            if round % 50 == 0 {
                writer.retire(&fleet).await.unwrap();
            }
        }
        writer.publish(&fleet("one")).await.unwrap();
        writer.publish(&fleet("the-last")).await.unwrap();
        writer.live()
    });
    let reading = early.into_iter().map(|mut follower| {
        tokio::spawn(async move {
            while !follower.live.contains_key(&fleet("the-last")) {
                follower.next().await;
            }
            follower
        })
    });
    let reading: Vec<_> = reading.collect();
    let live = writing.await.unwrap();
    for follower in reading {
        let mut follower = follower.await.unwrap();
        follower.until(&live).await;
        assert_eq!(follower.subscription.damaged(), 0);
    }
}

pub(crate) async fn a_retired_fleet_is_taken_away_and_may_come_back(store: Arc<dyn Store>) {
    let mut follower = Follower::synced(&store).await;
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    for _ in 0..3 {
        let head = writer.publish(&one).await.unwrap();
        follower.expect_published(&one, head).await;
        let tombstone = writer.retire(&one).await.unwrap();
        follower.expect_retired(&one, tombstone).await;
    }
}

pub(crate) async fn a_late_subscriber_does_not_hear_of_the_retired(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    writer.publish(&fleet("gone")).await.unwrap();
    writer.retire(&fleet("gone")).await.unwrap();
    let mut late = Follower::synced(&store).await;
    assert_eq!(late.received, 1, "synced and nothing else");
    let head = writer.publish(&fleet("one")).await.unwrap();
    late.expect_published(&fleet("one"), head).await;
}

pub(crate) async fn many_fleets_reach_many_subscribers(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let fleets: Vec<_> = (0..1_000).map(|number| fleet(&format!("fleet-{number}"))).collect();
    let mut followers: Vec<_> = (0..5).map(|_| Follower::new(&store)).collect();
    for fleet in &fleets {
        writer.publish(fleet).await.unwrap();
    }
    followers.push(Follower::synced(&store).await);
    assert_eq!(followers[5].live, writer.live());
    for follower in &mut followers {
        follower.until(&writer.live()).await;
    }
    let head = writer.publish(&fleets[500]).await.unwrap();
    for follower in &mut followers {
        while !follower.synced {
            follower.next().await;
        }
        follower.until(&writer.live()).await;
        assert_eq!(follower.live[&fleets[500]], head);
    }
}

pub(crate) async fn a_watch_tells_the_records(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let mut watch = store.watch();
    assert!(next_record(&mut *watch).await.is_none(), "there is no fleet yet");
    for kind in [Kind::Everything, Kind::Endpoints, Kind::Retirement, Kind::Everything] {
        let mut write = writer.draft(&one, 1, kind);
        if let Write::Publish(publication) = &mut write {
            publication.pin.number = 1;
        }
        writer.write(write.clone()).await.unwrap();
        let record = next_record(&mut *watch).await;
        assert_eq!(record.as_deref(), Some(&write.record()));
    }
}

pub(crate) async fn a_watch_tells_each_record_once(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let fleets = ["one", "two", "three"].map(fleet);
    for fleet in &fleets {
        writer.publish(fleet).await.unwrap();
    }
    let mut watch = store.watch();
    // One that waits for its turn changes again, and another comes and goes.
    writer.publish(&fleets[1]).await.unwrap();
    writer.publish(&fleet("short-lived")).await.unwrap();
    writer.retire(&fleet("short-lived")).await.unwrap();
    let mut told = BTreeSet::new();
    for expected in [fleets.to_vec(), vec![fleet("last")]] {
        writer.publish(&fleet("last")).await.unwrap();
        let is_told = |told: &BTreeSet<_>, fleet: &FleetName| {
            told.contains(&(fleet.clone(), writer.believed[fleet]))
        };
        while !expected.iter().all(|fleet| is_told(&told, fleet)) {
            let Some(record) = next_record(&mut *watch).await else { continue };
            let was_live = told.iter().any(|(fleet, _)| *fleet == record.fleet);
            assert!(record.is_live() || was_live, "the end of {} and no more", record.fleet);
            assert!(told.insert((record.fleet.clone(), record.head)), "{record:?} came twice");
        }
    }
}

pub(crate) async fn what_did_not_change_is_not_loaded_again(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let mut write = writer.draft(&one, 1, Kind::Everything);
    if let Write::Publish(publication) = &mut write {
        let more = (0..200).map(|number| {
            let name = format!("cluster-{number}");
            let body = Bytes::from(name.clone());
            Change::Set(ResourceType::Cluster, Arc::new(Resource::new(name, body)))
        });
        let snapshot = publication.snapshot.with(publication.snapshot.head, more);
        publication.snapshot = Arc::new(snapshot);
    }
    let record = Arc::new(write.record());
    writer.write(write).await.unwrap();
    let known = store.load(record, None).await.unwrap().snapshot;
    let write = writer.draft(&one, 1, Kind::Everything);
    let record = Arc::new(write.record());
    writer.write(write).await.unwrap();
    let loaded = store.load(record.clone(), Some(known.clone())).await.unwrap();
    assert!(loaded.unopened.is_empty());
    let snapshot = loaded.snapshot;
    assert_eq!((snapshot.head, snapshot.roots()), (record.head, record.roots()));
    assert_eq!(snapshot.tree(ResourceType::Cluster).len(), 201);
    for resource in snapshot.tree(ResourceType::Cluster).iter() {
        let before = known.get(ResourceType::Cluster, &resource.name).unwrap();
        assert_eq!(Arc::ptr_eq(before, resource), &*resource.name != "cluster", "{resource:?}");
    }
}

/// The rules of views and the directory; a change of the directory alone is no step of the history.
pub(crate) async fn what_is_not_served_is_kept_with_the_rest(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let mut known = None;
    for (round, kind) in [Kind::Everything, Kind::Endpoints].into_iter().enumerate() {
        let mut write = writer.draft(&one, 1, kind);
        let body = |part: Internal| {
            Bytes::from(match part {
                Internal::Rules => vec![1; 600],
                Internal::Directory => vec![2; 600 + round],
                Internal::Quarantine => vec![3; 600],
            })
        };
        if let Write::Publish(publication) = &mut write {
            let parts = Internal::ALL
                .map(|part| Change::SetInternal(part, Arc::new(Resource::new("name", body(part)))));
            let snapshot = publication.snapshot.with(publication.snapshot.head, parts);
            publication.snapshot = Arc::new(snapshot);
        }
        let record = Arc::new(write.record());
        writer.write(write).await.unwrap();
        for known in [None, known.clone()] {
            let snapshot = store.load(record.clone(), known).await.unwrap().snapshot;
            assert_eq!(snapshot.roots(), record.roots());
            for part in Internal::ALL {
                assert_eq!(snapshot.internal(part).get("name").unwrap().body, body(part));
            }
        }
        known = Some(store.load(record, None).await.unwrap().snapshot);
    }
    assert_eq!(store.history(one).await.unwrap().len(), 1);
}

/// Of each section one resource that is kept in its leaf, one that is not, and one that is confidential.
pub(crate) async fn every_section_comes_back_with_its_marks(store: Arc<dyn Store>) {
    let mut writer = Writer::claim(&store).await;
    let one = fleet("one");
    let mut write = writer.draft(&one, 1, Kind::Everything);
    let sealed = |section: Section, name: &str, body: Bytes| {
        let address = store.address_of_sealed(section, name, &body);
        Resource::at(address, name, body).confidential(true)
    };
    let body = |section: Section, length: usize| Bytes::from(section.as_str().repeat(length));
    let resources = |section: Section| {
        let open = |name: &str, body: Bytes| match section.is_always_sealed() {
            true => sealed(section, name, body),
            false => Resource::new(name, body),
        };
        [
            open("small", body(section, 1)),
            open("large", body(section, 600)),
            sealed(section, "confidential", body(section, 2)),
        ]
    };
    if let Write::Publish(publication) = &mut write {
        let changes = Section::all().flat_map(|section| {
            resources(section).map(|resource| match section {
                Section::Served(kind) => Change::Set(kind, Arc::new(resource)),
                Section::Internal(part) => Change::SetInternal(part, Arc::new(resource)),
            })
        });
        let snapshot = publication.snapshot.with(publication.snapshot.head, changes);
        publication.snapshot = Arc::new(snapshot);
    }
    let record = Arc::new(write.record());
    writer.write(write).await.unwrap();
    let loaded = store.load(record.clone(), None).await.unwrap();
    assert!(loaded.unopened.is_empty());
    assert_eq!(loaded.snapshot.roots(), record.roots());
    for section in Section::all() {
        for resource in resources(section) {
            let found = loaded.snapshot.section(section).get(&resource.name);
            assert_eq!(found.map(|found| &**found), Some(&resource), "{section}");
        }
    }
}

/// The next record, or nothing when all of the start was told.
async fn next_record(watch: &mut dyn Watch) -> Option<Arc<Record>> {
    let notice = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    match notice.expect("no notice came") {
        Notice::Fleet(record) => Some(record),
        Notice::Synced => None,
    }
}
