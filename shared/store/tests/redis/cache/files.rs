//! What is on the disk, and what becomes of it.

use super::reader::Disk;
use super::{Scene, UNCONFIRMED};
use crate::raw::Raw;
use crate::servers::{Server, until};
use crate::world::{Keys, Program, cluster, fleet, secret, set, settings, until_at};
use heliograph_snapshot::ResourceType;
use heliograph_store::Reader as _;
use heliograph_store::keys::{KeyFile, KeyRing};
use heliograph_store::redis::cache::CacheOptions;
use heliograph_store::redis::link::Link;
use heliograph_store::redis::{RedisOptions, RedisStore};
use prometheus::Registry;
use std::fs;
use std::path::Path;

const IGNORED: &str = "cache_ignored_files_total";
const FAILED: &str = "cache_writes_total{outcome=\"failed\"}";

/// What harms a file leaves a reader as if it had none: without Redis it waits, and with it, it is served by it.
async fn is_ignored(harm: impl FnOnce(&Scene, Vec<u8>)) {
    let mut scene = Scene::new().await;
    harm(&scene, fs::read(scene.disk.file()).unwrap());
    scene.server.query::<()>(&["SAVE"]).await.unwrap();
    scene.server.stop();
    let mut reader = scene.open();
    reader.until("it is ignored", |it| it.metric(IGNORED) == 1).await;
    assert_eq!(reader.program.metric(UNCONFIRMED), 0);
    scene.server.restart_stopped().await;
    let found = reader.start().await;
    assert!(found[&scene.one].same_content(&scene.leader.held[&scene.one]));
    assert_eq!(found[&scene.one].head, scene.leader.head(2));
    assert_eq!(reader.program.metric(IGNORED), 1, "once");
    // It has another one then.
    reader.until("it is written", |it| it.metric("cache_fleets") == 1).await;
    reader.end_with(1).await;
    scene.server.stop();
    scene.started_without_redis().await;
}

#[tokio::test]
async fn a_file_that_is_damaged() {
    is_ignored(|scene, mut file| {
        file[150] ^= 1;
        fs::write(scene.disk.file(), file).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_cut_off() {
    is_ignored(|scene, file| fs::write(scene.disk.file(), &file[..file.len() - 10]).unwrap()).await;
}

#[tokio::test]
async fn a_file_that_is_empty() {
    is_ignored(|scene, _| fs::write(scene.disk.file(), "").unwrap()).await;
}

#[tokio::test]
async fn a_file_of_somebody_else() {
    is_ignored(|scene, _| fs::write(scene.disk.file(), "#!/bin/sh\nexit 1\n").unwrap()).await;
}

#[tokio::test]
async fn a_file_in_another_format() {
    is_ignored(|scene, mut file| {
        file[8] += 1;
        fs::write(scene.disk.file(), file).unwrap();
    })
    .await;
}

/// Another installation's, or one that somebody made: all is right but the MAC.
#[tokio::test]
async fn a_file_whose_record_is_not_of_this_key_ring() {
    let others = Scene::new().await.disk.read();
    is_ignored(|scene, _| fs::write(scene.disk.file(), others).unwrap()).await;
}

#[tokio::test]
async fn an_older_file_that_was_put_back() {
    let mut scene = Scene::new().await;
    let older = scene.disk.read();
    scene.leader.publish(&scene.one, [cluster("third")]).await.unwrap();
    let mut reader = scene.open();
    reader.start().await;
    reader.end_with(1).await;
    fs::write(scene.disk.file(), older).unwrap();
    scene.server.query::<()>(&["SAVE"]).await.unwrap();
    scene.server.stop();
    let mut reader = scene.open();
    reader.until("it is ignored", |it| it.metric(IGNORED) == 1).await;
    scene.server.restart_stopped().await;
    assert_eq!(reader.start().await[&scene.one].head, scene.leader.head(3));
}

/// What is around the record is not signed: here it says that the newest is in the file, and its checksum is right.
#[tokio::test]
async fn an_older_record_under_a_newer_head() {
    let mut scene = Scene::new().await;
    let mut older = scene.disk.read();
    scene.leader.publish(&scene.one, [cluster("third")]).await.unwrap();
    let mut reader = scene.open();
    reader.start().await;
    reader.end_with(1).await;
    const LENGTHS: usize = 8 + 4 + 1;
    const CHECKSUM: usize = LENGTHS + 3 * 8;
    const INDEX: usize = CHECKSUM + 2 * 32;
    let number = |at: usize| u64::from_le_bytes(older[at..at + 8].try_into().unwrap()) as usize;
    let end = INDEX + number(LENGTHS) + number(LENGTHS + 8);
    let sequence = INDEX + 8 + number(INDEX) + 8 + 16;
    assert_eq!(number(sequence), 2);
    older[sequence] = 3;
    let checksum = blake3::hash(&older[INDEX..end]);
    older[CHECKSUM..CHECKSUM + 32].copy_from_slice(checksum.as_bytes());
    fs::write(scene.disk.file(), older).unwrap();
    scene.server.query::<()>(&["SAVE"]).await.unwrap();
    scene.server.stop();
    let mut reader = scene.open();
    reader.until("it is ignored", |it| it.metric(IGNORED) == 1).await;
    assert_eq!(reader.program.metric(UNCONFIRMED), 0);
    scene.server.restart_stopped().await;
    assert_eq!(reader.start().await[&scene.one].head, scene.leader.head(3));
    assert_eq!(reader.program.metric(IGNORED), 1, "once");
}

/// The files alone suffice.
#[tokio::test]
async fn a_directory_file_that_is_damaged_or_lost() {
    let mut scene = Scene::new().await;
    scene.server.stop();
    let directory = scene.disk.path().join("directory");
    fs::write(&directory, "damaged").unwrap();
    let reader = scene.open_and_start().await;
    assert_eq!(reader.program.metric(IGNORED), 1);
    reader.end_with(1).await;
    fs::remove_file(&directory).unwrap();
    let reader = scene.open_and_start().await;
    assert_eq!(reader.program.metric(IGNORED), 0);
}

/// What is found out when it is loaded, and not before.
#[tokio::test]
async fn objects_that_are_damaged_are_read_from_redis() {
    let scene = Scene::new().await;
    let mut file = scene.disk.read();
    *file.last_mut().unwrap() ^= 1;
    fs::write(scene.disk.file(), file).unwrap();
    let mut reader = scene.open();
    let found = reader.start().await;
    assert!(found[&scene.one].same_content(&scene.leader.held[&scene.one]));
    assert_eq!(reader.program.metric(IGNORED), 1);
    assert_eq!(reader.program.metric("damaged_objects_total"), 0, "the store has none");
}

/// What Redis lacks of a newer head is not held against the file of the older one.
#[tokio::test]
async fn a_file_is_kept_when_redis_lacks_what_is_newer() {
    let mut scene = Scene::new().await;
    let (file, objects) = (scene.disk.read(), "heliograph:{default/one}:objects");
    let mut raw = Raw::of(&scene.server).await;
    let before = raw.addresses(objects).await;
    scene.leader.publish(&scene.one, [cluster("third")]).await.unwrap();
    for address in raw.addresses(objects).await.difference(&before) {
        raw.delete_field(objects, address).await;
    }
    let mut reader = scene.open();
    assert!(reader.start().await.is_empty(), "the newest cannot be loaded");
    assert!(reader.program.metric("damaged_objects_total") > 0);
    assert_eq!(reader.program.metric(IGNORED), 0);
    assert_eq!(scene.disk.read(), file);
    scene.leader.clean(&scene.one).await.unwrap();
    until_at(&mut reader.subscription, scene.leader.head(3)).await;
}

#[tokio::test]
async fn secrets_are_sealed_and_files_are_written_again_with_a_newer_key() {
    let (mut server, keys, disk) = (Server::start(&[]).await, Keys::new(), Disk::new());
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let one = fleet("one");
    let tls = secret(&leader.store, "tls", b"a private key");
    leader.publish(&one, [cluster("in the clear, as in Redis"), tls]).await.unwrap();
    let mut reader = disk.open(&server.url(), &keys);
    reader.start().await;
    reader.until("it is written", |it| it.metric("cache_fleets") == 1).await;
    let contains =
        |text: &str| disk.everything().windows(text.len()).any(|window| window == text.as_bytes());
    assert!(!contains("a private key") && contains("in the clear") && contains("first"));

    keys.write(&KeyRing::rotate(&keys.text(), "later").unwrap());
    reader.until("it is sealed again", |_| contains("later")).await;
    reader.end_with(1).await;
    keys.write(&KeyRing::forget(&keys.text(), "first").unwrap());
    server.stop();
    let mut reader = disk.open(&server.url(), &keys);
    assert!(reader.start().await[&one].same_content(&leader.held[&one]));
}

/// With the key gone that a file is sealed with, Redis is asked.
#[tokio::test]
async fn secrets_that_cannot_be_opened_are_not_written_over_those_that_can() {
    let (server, keys, disk) = (Server::start(&[]).await, Keys::new(), Disk::new());
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let one = fleet("one");
    leader.publish(&one, [secret(&leader.store, "tls", b"a private key")]).await.unwrap();
    let mut reader = disk.open(&server.url(), &keys);
    reader.start().await;
    reader.end_with(1).await;
    let before = disk.read();

    let blind = keys.copy();
    blind.write(&KeyRing::generate("none").unwrap());
    let root = |text: &str| text.lines().find(|line| line.starts_with("root:")).unwrap().to_owned();
    blind.write(&blind.text().replace(&root(&blind.text()), &root(&keys.text())));
    leader.publish(&one, [cluster("newer")]).await.unwrap();
    let mut reader = disk.open(&server.url(), &blind);
    let found = reader.start().await;
    assert_eq!(found[&one].tree(ResourceType::Secret).len(), 0);
    reader.end_with(1).await;
    assert_eq!(disk.read(), before);
}

#[tokio::test]
async fn a_disk_that_fails_disturbs_nobody_and_is_used_again_when_it_works() {
    let mut scene = Scene::new().await;
    let mut reader = scene.open();
    reader.start().await;
    let (here, away) = (scene.disk.path().to_owned(), scene.disk.path().with_extension("away"));
    fs::rename(&here, &away).unwrap();
    scene.leader.publish(&scene.one, [cluster("third")]).await.unwrap();
    until_at(&mut reader.subscription, scene.leader.head(3)).await;
    reader.until("it is counted", |it| it.metric(FAILED) == 1).await;
    fs::rename(&away, &here).unwrap();
    scene.leader.publish(&scene.one, [cluster("fourth")]).await.unwrap();
    until_at(&mut reader.subscription, scene.leader.head(4)).await;
    reader.end().await;
    scene.server.stop();
    let mut reader = scene.open();
    assert_eq!(reader.start().await[&scene.one].head, scene.leader.head(4));
}

#[tokio::test]
async fn what_was_used_last_is_kept_within_the_budget() {
    let (mut server, keys, disk) = (Server::start(&[]).await, Keys::new(), Disk::new());
    let mut leader = Program::open(&server.url(), &keys).lead(1).await;
    let fleets: Vec<_> = (0..6).map(|number| fleet(&number.to_string())).collect();
    let limit = 350 << 10;
    let mut reader = disk.open_with(&server.url(), &keys, limit);
    reader.program.store.mark_used(&fleets[3..]);
    reader.start().await;
    let written = "cache_writes_total{outcome=\"ok\"}";
    // The first one has to go, and the last two find no room.
    for (count, number) in (1..).zip([0, 3, 4, 5, 1, 2]) {
        let large = set(ResourceType::Route, "table", "x".repeat(100 << 10));
        let one = &fleets[number];
        leader.publish(one, [cluster(one.as_str()), large]).await.unwrap();
        until_at(&mut reader.subscription, leader.head(1)).await;
        if count <= 4 {
            reader.until("it is written", |it| it.metric(written) == count).await;
        }
    }
    let skipped = "cache_writes_total{outcome=\"skipped\"}";
    reader.until("two are not written", |it| it.metric(skipped) >= 2).await;
    assert_eq!((reader.program.metric("cache_fleets"), reader.program.metric(written)), (3, 4));
    assert!(reader.program.metric("cache_bytes") <= limit);
    reader.end().await;
    let size: u64 = disk.files().iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!((300 << 10..=limit).contains(&size), "{size}");
    server.stop();
    let mut reader = disk.open_with(&server.url(), &keys, limit);
    let found = reader.start().await;
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), fleets[3..]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_told_at_once() {
    let (keys, disk) = (Keys::new(), Disk::new());
    let open = |path: &Path| {
        let link = Link::new(settings("redis://127.0.0.1:1"));
        let (ring, registry) = (KeyFile::open(keys.path()).unwrap(), Registry::new());
        let cache = CacheOptions { path: path.to_owned(), limit: 1 << 20 };
        RedisStore::with_cache(link, ring, RedisOptions::default(), &cache, &registry)
    };
    let refused = |path: &Path| open(path).unwrap_err().to_string();
    let file = disk.path().join("file");
    fs::write(&file, "").unwrap();
    let line = refused(&file.join("cache"));
    assert!(line.contains("--snapshot-cache") && line.contains("Not a directory"), "{line}");
    let line = refused(Path::new("/proc/cache"));
    assert!(line.contains("/proc/cache"), "{line}");
    let inner = disk.path().join("a/b");
    let held = open(&inner).unwrap();
    let line = refused(&inner);
    assert!(line.contains("another program uses"), "{line}");
    drop(held);
    until("it is let go", async || open(&inner).is_ok()).await;
}
