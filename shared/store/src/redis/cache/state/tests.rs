use super::*;
use heliograph_snapshot::Change;

const KB: u64 = 4096;

struct Scene {
    state: CacheState,
    now: Instant,
}

impl Scene {
    fn new(limit: u64) -> Self {
        Self { state: CacheState::new(limit, []), now: Instant::now() }
    }

    /// A snapshot is loaded. Whether it is to be written.
    fn load(&mut self, name: &str, sequence: u64) -> bool {
        let snapshot = snapshot(name, sequence);
        let record = Bytes::from(format!("{name} {sequence}"));
        self.state.set_newest_record(&snapshot.fleet, snapshot.head, record.clone());
        self.state.offer(record, snapshot, self.now)
    }

    /// Writes what is due, each with so many bytes. Returns what was written, in order.
    fn write(&mut self, bytes: u64) -> Vec<(String, u64)> {
        let mut written = Vec::new();
        while let Some(Job::Write(work)) = self.state.next_job(self.now, false) {
            let (fleet, head) = (&work.snapshot.fleet, work.snapshot.head);
            match self.state.room(fleet, bytes) {
                Room::Evict(others) => {
                    others.iter().for_each(|other| self.state.deleted(other));
                    self.state.written(fleet, head, 0, bytes, String::new(), self.now);
                    written.push((fleet.to_string(), head.sequence));
                }
                Room::None => self.state.postpone(work, self.now),
            }
        }
        written
    }

    fn used(&mut self, name: &str, at: u64) {
        self.state.used_now([&fleet(name)], at);
    }

    /// When the file of a fleet was last what Redis had.
    fn confirmed(&self, name: &str) -> u64 {
        let summary = self.state.summary();
        summary.iter().find(|it| it.fleet == fleet(name)).unwrap().confirmed
    }

    fn files(&self) -> Vec<&str> {
        self.state.files.keys().map(FleetName::as_str).collect()
    }
}

fn fleet(name: &str) -> FleetName {
    FleetName::new("default", name)
}

fn snapshot(name: &str, sequence: u64) -> Arc<Snapshot> {
    let head = Head { epoch: 0, fence: 1, sequence };
    Arc::new(Snapshot::empty(fleet(name)).with(head, std::iter::empty::<Change>()))
}

fn named(name: &str, sequence: u64) -> (String, u64) {
    (format!("default/{name}"), sequence)
}

#[test]
fn a_fleet_that_changes_all_the_time_is_written_now_and_then() {
    let mut scene = Scene::new(100 * KB);
    assert!(scene.load("a", 1));
    assert_eq!(scene.write(KB), [named("a", 1)]);
    for sequence in 2..10 {
        scene.load("a", sequence);
        assert_eq!(scene.write(KB), []);
    }
    scene.now += INTERVAL;
    assert_eq!(scene.state.next_due(scene.now), Some(scene.now));
    assert_eq!(scene.write(KB), [named("a", 9)], "the newest alone");
    assert!(!scene.load("a", 9), "it is there");
    assert_eq!(scene.state.used(), KB);
}

#[test]
fn at_the_end_all_is_written_that_waits() {
    let mut scene = Scene::new(100 * KB);
    scene.load("a", 1);
    scene.write(KB);
    scene.load("a", 2);
    assert!(scene.state.next_job(scene.now, false).is_none());
    assert!(matches!(scene.state.next_job(scene.now, true), Some(Job::Write(_))));
    assert!(scene.state.next_job(scene.now, true).is_none());
}

#[test]
fn the_fleets_that_were_used_last_are_written_first_and_stay() {
    let mut scene = Scene::new(3 * KB);
    for name in ["a", "b", "c", "d"] {
        scene.load(name, 1);
    }
    scene.used("c", 10);
    scene.used("d", 20);
    assert_eq!(scene.write(KB), [named("d", 1), named("c", 1), named("a", 1)]);
    assert_eq!(scene.files(), ["default/a", "default/c", "default/d"], "b is no better than a");

    // It has clients now.
    scene.used("b", 30);
    let kept = snapshot("b", 2);
    scene.state.set_newest_record(&kept.fleet, kept.head, Bytes::new());
    scene.state.offer(Bytes::new(), kept.clone(), scene.now);
    scene.now += RETRY;
    assert_eq!(scene.write(KB), [named("b", 2)]);
    assert_eq!(scene.files(), ["default/b", "default/c", "default/d"]);
    assert_eq!(scene.state.recent_first(), ["b", "d", "c"].map(fleet));
}

#[test]
fn the_file_and_the_one_that_it_replaces_fit_together() {
    let mut scene = Scene::new(4 * KB);
    scene.load("a", 1);
    assert_eq!(scene.write(3 * KB), [named("a", 1)]);
    assert_eq!(scene.state.room(&fleet("a"), 2 * KB), Room::None);
    assert_eq!(scene.state.room(&fleet("a"), KB), Room::Evict(vec![]));
    assert_eq!(scene.state.room(&fleet("b"), KB), Room::Evict(vec![]));
    assert_eq!(scene.state.room(&fleet("b"), KB + 1), Room::None, "disks count in blocks");
    scene.used("b", 1);
    assert_eq!(scene.state.room(&fleet("b"), KB + 1), Room::Evict(vec![fleet("a")]));
    assert_eq!(scene.state.room(&fleet("b"), 5 * KB), Room::None);
}

#[test]
fn what_cannot_be_written_is_not_kept_in_memory() {
    let mut scene = Scene::new(KB);
    let first = snapshot("a", 1);
    let weak = Arc::downgrade(&first);
    scene.state.set_newest_record(&first.fleet, first.head, Bytes::new());
    scene.state.offer(Bytes::new(), first, scene.now);
    assert!(weak.upgrade().is_some());
    assert_eq!(scene.write(2 * KB), []);
    assert!(weak.upgrade().is_none());
    scene.now += RETRY;
    assert!(scene.state.next_job(scene.now, false).is_none(), "nobody has it any more");
    assert_eq!(scene.state.next_due(scene.now), None);
}

#[test]
fn a_retired_fleet_goes_even_while_it_is_written() {
    let mut scene = Scene::new(100 * KB);
    scene.load("a", 1);
    scene.write(KB);
    scene.state.retire(&fleet("a"));
    assert!(matches!(scene.state.next_job(scene.now, false), Some(Job::Delete(_))));
    assert_eq!((scene.state.fleets(), scene.state.used()), (0, 0));

    scene.load("b", 1);
    let Some(Job::Write(work)) = scene.state.next_job(scene.now, false) else { panic!("b waits") };
    scene.state.retire(&fleet("b"));
    scene.state.written(&fleet("b"), work.snapshot.head, 0, KB, String::new(), scene.now);
    assert!(matches!(scene.state.next_job(scene.now, false), Some(Job::Delete(_))));
    scene.state.postpone(work, scene.now);
    assert_eq!(scene.state.next_due(scene.now), None);
    // What was being loaded when it was retired.
    let late = snapshot("b", 1);
    assert!(!scene.state.offer(Bytes::new(), late, scene.now));
}

#[test]
fn the_record_of_a_load_is_found_although_there_is_a_newer_one() {
    let mut scene = Scene::new(100 * KB);
    assert!((1..=3).all(|sequence| scene.load("a", sequence)));
    let record = |sequence| scene.state.record(&fleet("a"), snapshot("a", sequence).head);
    assert_eq!([1, 2, 3].map(record), [None, Some("a 2".into()), Some("a 3".into())]);
}

#[test]
fn a_file_is_as_old_as_the_last_comparison_at_which_it_was_the_newest() {
    let (mut scene, a) = (Scene::new(100 * KB), fleet("a"));
    scene.load("a", 1);
    scene.write(KB);
    scene.state.compared(1_000);
    assert_eq!(scene.confirmed("a"), 1_000);
    // Written or not, loaded or not.
    scene.state.set_newest_record(&a, snapshot("a", 2).head, Bytes::new());
    scene.state.compared(2_000);
    scene.state.set_newest_record(&a, snapshot("a", 3).head, Bytes::new());
    scene.state.compared(3_000);
    assert_eq!(scene.confirmed("a"), 1_000);
    scene.now += INTERVAL;
    scene.load("a", 2);
    scene.write(KB);
    assert_eq!(scene.confirmed("a"), 2_000);
    scene.now += INTERVAL;
    scene.load("a", 3);
    scene.write(KB);
    assert_eq!(scene.confirmed("a"), 3_000);
}

#[test]
fn a_fleet_without_room_makes_no_other_look_older() {
    let (mut scene, kept) = (Scene::new(2 * KB), snapshot("b", 1));
    scene.used("a", 1);
    scene.load("a", 1);
    scene.state.set_newest_record(&kept.fleet, kept.head, Bytes::new());
    scene.state.offer(Bytes::new(), kept.clone(), scene.now);
    assert_eq!(scene.write(2 * KB), [named("a", 1)]);
    scene.state.compared(5_000);
    assert_eq!(scene.confirmed("a"), 5_000);
}

#[test]
fn what_is_unconfirmed_is_as_old_as_its_oldest_file() {
    let mut scene = Scene::new(100 * KB);
    for (name, time) in [("a", 1_000), ("b", 2_000)] {
        scene.load(name, 1);
        scene.write(KB);
        scene.state.compared(time);
        scene.state.set_newest_record(&fleet(name), snapshot(name, 2).head, Bytes::new());
    }
    let mut state = CacheState::new(100 * KB, scene.state.summary());
    assert_eq!(state.oldest_unconfirmed(), None);
    for name in ["a", "b"] {
        state.mark_unconfirmed(&fleet(name));
        state.set_newest_record(&fleet(name), snapshot(name, 1).head, Bytes::new());
    }
    state.compared(9_000);
    assert_eq!(state.oldest_unconfirmed(), Some(1_000), "Redis has not told of it");
    // Sealed again meanwhile.
    state.written(&fleet("a"), snapshot("a", 1).head, 0, KB, String::new(), scene.now);
    state.confirm(&fleet("b"), snapshot("b", 1).head, false);
    assert_eq!(state.oldest_unconfirmed(), Some(1_000));
    let times: Vec<_> = state.summary().iter().map(|it| it.confirmed).collect();
    assert_eq!(times, [1_000, 9_000]);
    state.confirm(&fleet("a"), snapshot("a", 1).head, false);
    assert_eq!(state.oldest_unconfirmed(), None);
    assert_eq!(state.summary()[0].confirmed, 9_000);
}

#[test]
fn what_is_newer_in_redis_is_loaded_before_a_fleet_counts_as_confirmed() {
    let (mut scene, a) = (Scene::new(100 * KB), fleet("a"));
    let head = |sequence| snapshot("a", sequence).head;
    scene.state.mark_unconfirmed(&a);
    scene.state.confirm(&a, head(2), true);
    assert!(!scene.state.is_unconfirmed(&a), "nobody was served what is here");
    scene.state.mark_unconfirmed(&a);
    scene.state.loading(&a);
    scene.state.loaded(&a, head(1));
    scene.state.confirm(&a, head(3), true);
    scene.state.loaded(&a, head(2));
    assert!(scene.state.is_unconfirmed(&a));
    scene.state.confirm(&a, head(3), false);
    assert!(scene.state.is_unconfirmed(&a), "Redis repeats what is not loaded yet");
    scene.state.loaded(&a, head(3));
    assert!(!scene.state.is_unconfirmed(&a));
}

#[test]
fn a_fleet_that_is_not_in_memory_needs_no_load_to_be_confirmed() {
    let (mut scene, a) = (Scene::new(100 * KB), fleet("a"));
    let head = |sequence| snapshot("a", sequence).head;
    let mut load_and_drop = |is_dropped_first: bool| {
        scene.state.mark_unconfirmed(&a);
        scene.state.loading(&a);
        scene.state.loaded(&a, head(1));
        if is_dropped_first {
            scene.state.dropped(&a);
            assert!(scene.state.is_unconfirmed(&a), "Redis has not answered");
        }
        scene.state.confirm(&a, head(2), true);
        if !is_dropped_first {
            assert!(scene.state.is_unconfirmed(&a), "proxies have what is older");
            scene.state.dropped(&a);
        }
        assert!(!scene.state.is_unconfirmed(&a));
    };
    load_and_drop(true);
    load_and_drop(false);
}

#[test]
fn after_a_restart_uses_and_heads_are_known() {
    let mut scene = Scene::new(100 * KB);
    scene.load("a", 7);
    scene.load("b", 1);
    scene.used("a", 50);
    scene.write(KB);
    let summary = scene.state.summary();
    let state = CacheState::new(100 * KB, summary.clone());
    assert_eq!((state.fleets(), state.used()), (2, 2 * KB));
    assert_eq!(state.recent_first(), ["a", "b"].map(fleet));
    assert_eq!((state.last_use(&fleet("a")), state.last_use(&fleet("b"))), (Some(50), None));
    assert_eq!(state.head(&fleet("a")).map(|head| head.sequence), Some(7));

    // With less room than before.
    let mut state = CacheState::new(KB, summary);
    assert_eq!((state.recent_first(), state.used()), (vec![fleet("a")], KB));
    assert!(
        matches!(state.next_job(scene.now, false), Some(Job::Delete(gone)) if gone == fleet("b"))
    );
}

#[test]
fn files_of_an_older_key_are_written_again_one_by_one() {
    let mut scene = Scene::new(100 * KB);
    for (name, key) in [("a", "old"), ("b", "new"), ("c", "")] {
        scene.load(name, 1);
        let _ = scene.state.next_job(scene.now, false);
        scene.state.written(&fleet(name), snapshot(name, 1).head, 0, KB, key.to_owned(), scene.now);
    }
    scene.state.keys_changed("new");
    assert_eq!(scene.state.next_due(scene.now), Some(scene.now));
    match scene.state.next_job(scene.now, false) {
        Some(Job::Reseal(found)) => assert_eq!(found, fleet("a")),
        other => panic!("{other:?}"),
    }
    assert!(scene.state.next_job(scene.now, false).is_none());
}
