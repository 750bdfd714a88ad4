//! A program that starts with its snapshot cache.

use crate::running::*;
use crate::site::Site;
use heliograph_client::State;
use heliograph_snapshot::ResourceType;
use heliograph_testing::Port;
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;

const UNCONFIRMED: &str = "heliograph_store_cache_unconfirmed_fleets ";

fn flags(cache: &TempDir) -> [&str; 4] {
    ["--drain-time", "0", "--snapshot-cache", cache.path().to_str().unwrap()]
}

fn files(cache: &TempDir) -> Vec<PathBuf> {
    let all = fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|it| it == "fleet")).collect()
}

/// A site whose distributor has ended, with what it had on its disk, and whose Redis is gone.
async fn ended(cache: &TempDir) -> Site {
    let mut site = Site::start(&flags(cache), None).await;
    // Within the time between two writes, so that the end has something to write.
    site.goes_on().await;
    site.goes_on().await;
    assert!(site.distributor.end().await.success(), "{}", site.distributor.log());
    assert_eq!(files(cache).len(), 1);
    site.lose_redis();
    site
}

#[tokio::test]
async fn without_redis_it_serves_what_it_had_and_says_so() {
    let cache = tempfile::tempdir().unwrap();
    let mut site = ended(&cache).await;
    site.replace_distributor(&flags(&cache));
    let distributor = &site.distributor;
    let expected =
        "serving 1 fleet from the snapshot cache, not confirmed by Redis since the start";
    until("ready", async || distributor.responds_with("/readyz", expected).await).await;
    let ready = distributor.get("/readyz").await.unwrap();
    assert!(ready.contains("200 OK") && ready.contains(" s old"), "{ready}");
    assert_eq!(distributor.metric(UNCONFIRMED).await, 1);
    let line = "serving from the snapshot cache, because Redis does not answer";
    assert_eq!(distributor.log().matches(line).count(), 1, "{}", distributor.log());

    let name = site.newest_cluster();
    let has_all = |state: &State| state.body(ResourceType::Cluster, &name).is_some();
    let proxy = site.new_proxy();
    proxy.until("the newest, from the disk", DEADLINE, has_all).await.unwrap();

    // With Redis it goes on, for those who were there before as well.
    site.move_proxy();
    site.refill_redis().await;
    let distributor = &site.distributor;
    until("confirmed", async || distributor.metric(UNCONFIRMED).await == 0).await;
    assert!(!distributor.responds_with("/readyz", "cache").await);
    site.goes_on().await;
    let name = site.newest_cluster();
    let has_all = |state: &State| state.body(ResourceType::Cluster, &name).is_some();
    proxy.until("what came since", DEADLINE, has_all).await.unwrap();
}

/// As with a file that is cut off, or of somebody else: `shared/store/tests/redis/cache/files.rs` has them all.
#[tokio::test]
async fn a_damaged_file_is_one_line_and_redis_is_waited_for() {
    let cache = tempfile::tempdir().unwrap();
    let mut site = ended(&cache).await;
    let file = files(&cache).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[200] ^= 1;
    fs::write(&file, bytes).unwrap();
    site.replace_distributor(&flags(&cache));
    let distributor = &site.distributor;
    until("a line", async || distributor.log().contains("the snapshot cache ignores")).await;
    assert!(distributor.responds_with("/readyz", "not ready, awaiting: snapshots").await);
    site.refill_redis().await;
    let distributor = &site.distributor;
    until("ready", async || distributor.responds_with("/readyz", "200 OK").await).await;
    let log = distributor.log();
    assert_eq!(log.matches("the snapshot cache ignores").count(), 1, "{log}");
    assert!(log.contains("it is damaged"), "{log}");
    site.move_proxy();
    site.goes_on().await;
}

/// All of it, as it once was: nothing tells that it is old.
#[tokio::test]
async fn a_cache_that_was_put_back_sends_nobody_back() {
    let (cache, older) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = |from: &TempDir, to: &TempDir| {
        for entry in fs::read_dir(from.path()).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
    };
    let mut site = Site::start(&flags(&cache), None).await;
    assert!(site.distributor.end().await.success());
    copy(&cache, &older);
    let then = site.newest_cluster();
    site.replace_distributor(&flags(&cache));
    let distributor = &site.distributor;
    until("ready", async || distributor.responds_with("/readyz", "200 OK").await).await;
    site.move_proxy();
    site.goes_on().await;
    assert!(site.distributor.end().await.success());
    site.lose_redis();

    copy(&older, &cache);
    site.replace_distributor(&flags(&cache));
    let distributor = &site.distributor;
    until("ready", async || distributor.responds_with("/readyz", "snapshot cache").await).await;
    site.move_proxy();
    let has_then = |state: &State| state.body(ResourceType::Cluster, &then).is_some();
    let new = site.new_proxy();
    new.until("what was published then", DEADLINE, has_then).await.unwrap();
    let distributor = &site.distributor;
    let streams = "heliograph_distributor_streams{protocol=\"delta\"} ";
    until("both are connected", async || distributor.metric(streams).await == 2).await;
    site.refill_redis().await;
    let now = site.newest_cluster();
    let has_now = |state: &State| state.body(ResourceType::Cluster, &now).is_some();
    new.until("the newest", DEADLINE, has_now).await.unwrap();
    site.was_told_nothing();
    site.goes_on().await;
}

/// Starts another distributor, which cannot write a byte to any file from its start: a limit on the size of files stands
/// for a full disk. Its log goes through a pipe, which has no such limit.
fn start_with_a_full_disk(site: &mut Site, cache: &TempDir) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("log").display().to_string();
    let log = format!("mkfifo '{pipe}'; cat '{pipe}' >&2 & exec 2>'{pipe}';");
    site.replace_distributor_after(&format!("{log} trap '' XFSZ; ulimit -f 0;"), &flags(cache));
    directory
}

/// A write has failed, and the disk was named once.
async fn is_one_line(distributor: &Distributor) {
    let failed = "heliograph_store_cache_writes_total{outcome=\"failed\"} ";
    until("a write fails", async || distributor.metric(failed).await >= 1).await;
    let log = distributor.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("snapshot cache in")).collect();
    let [line] = lines[..] else { panic!("{log}") };
    assert!(line.contains("cannot be written") && line.contains("proxies are served"), "{line}");
}

#[tokio::test]
async fn with_a_disk_that_is_full_at_the_start_proxies_are_served() {
    let cache = tempfile::tempdir().unwrap();
    let mut site = Site::start(&["--drain-time", "0"], None).await;
    let _pipe = start_with_a_full_disk(&mut site, &cache);
    let distributor = &site.distributor;
    until("ready", async || distributor.responds_with("/readyz", "200 OK").await).await;
    site.move_proxy();
    site.goes_on().await;
    is_one_line(&site.distributor).await;
    assert!(site.distributor.end().await.success(), "{}", site.distributor.log());
    assert_eq!(files(&cache).len(), 0);
}

/// What was written before is read all the same.
#[tokio::test]
async fn with_a_disk_that_is_full_at_the_start_and_no_redis_proxies_are_served() {
    let cache = tempfile::tempdir().unwrap();
    let mut site = ended(&cache).await;
    let _pipe = start_with_a_full_disk(&mut site, &cache);
    let distributor = &site.distributor;
    until("ready", async || distributor.responds_with("/readyz", "snapshot cache").await).await;
    let name = site.newest_cluster();
    let has_all = |state: &State| state.body(ResourceType::Cluster, &name).is_some();
    site.new_proxy().until("the newest, from the disk", DEADLINE, has_all).await.unwrap();
    site.move_proxy();
    site.refill_redis().await;
    site.goes_on().await;
    is_one_line(&site.distributor).await;
    assert_eq!(files(&cache).len(), 1);
}

/// A name in the directory that is no file of the cache, and one that is in the way.
#[tokio::test]
async fn other_files_are_left_alone() {
    let cache = tempfile::tempdir().unwrap();
    let other = cache.path().join("notes.txt");
    fs::write(&other, "not ours").unwrap();
    fs::create_dir(cache.path().join("lost+found")).unwrap();
    let distributor = Distributor::start(Port::reserve().unwrap().number(), &flags(&cache));
    until("it serves", async || distributor.responds_with("/livez", "200 OK").await).await;
    let log = distributor.log();
    assert_eq!(log.matches("notes.txt").count(), 1, "{log}");
    assert!(!log.contains("lost+found"), "{log}");
    assert_eq!(fs::read_to_string(other).unwrap(), "not ours");
}
