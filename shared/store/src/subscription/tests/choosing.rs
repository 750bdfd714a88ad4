//! A reader that says which fleets it has in memory.

use super::*;

/// A reader that chooses among existing fleets, and knows all of them.
async fn listed(names: &[&str]) -> (Bench, Vec<Head>) {
    let mut bench = Bench::new();
    let mut heads = Vec::new();
    for name in names {
        heads.push(bench.publish(name).await);
    }
    bench.subscription = Subscription::choosing(bench.store.clone());
    for (name, head) in names.iter().zip(&heads) {
        assert_eq!(bench.next().await, known(name, *head));
    }
    assert_eq!(bench.next().await, "listed");
    (bench, heads)
}

fn known(name: &str, head: Head) -> String {
    format!("default/{name} {head} known")
}

fn begun(bench: &Bench) -> usize {
    bench.store.loading.borrow().begun
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_loaded_and_the_rest_is_only_known() {
    let (mut bench, heads) = listed(&["one", "two"]).await;
    bench.subscription.keep(&fleet("two"));
    assert_eq!(bench.next().await, published("two", heads[1]));
    assert_eq!(bench.next().await, "synced");
    let two = bench.publish("two").await;
    assert_eq!(bench.next().await, published("two", two));
    for _ in 0..10 {
        let one = bench.publish("one").await;
        assert_eq!(bench.next().await, known("one", one));
    }
    bench.expect_nothing_for(30).await;
    assert_eq!(begun(&bench), 2, "changes of what is not kept cost no load");
}

#[tokio::test(start_paused = true)]
async fn where_nothing_is_kept_nothing_is_waited_for() {
    let (mut bench, _) = listed(&["one"]).await;
    assert_eq!(bench.next().await, "synced");
    bench.expect_nothing_for(30).await;
    assert_eq!(begun(&bench), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_released_and_kept_again_comes_at_its_newest_head() {
    let (mut bench, heads) = listed(&["one"]).await;
    bench.subscription.keep(&fleet("one"));
    assert_eq!(bench.next().await, published("one", heads[0]));
    assert_eq!(bench.next().await, "synced");
    bench.subscription.release(&fleet("one"));
    let newer = bench.publish("one").await;
    assert_eq!(bench.next().await, known("one", newer));
    bench.subscription.keep(&fleet("one"));
    assert_eq!(bench.next().await, published("one", newer));
    assert_eq!(bench.store.loading.borrow().known, None, "nothing of it was left");

    // Also where nothing is newer.
    bench.subscription.release(&fleet("one"));
    bench.subscription.keep(&fleet("one"));
    assert_eq!(bench.next().await, published("one", newer));
    bench.expect_nothing_for(30).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_released_while_it_is_loaded_is_not_yielded() {
    let (mut bench, _) = listed(&["one"]).await;
    bench.store.hold(HoldPoint::BeforeRead);
    bench.subscription.keep(&fleet("one"));
    bench.expect_nothing_for(1).await;
    bench.subscription.release(&fleet("one"));
    assert_eq!(bench.next().await, "synced");
    bench.store.resume();
    bench.expect_nothing_for(30).await;
    assert_eq!(begun(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn it_is_told_that_a_fleet_which_it_waits_for_cannot_be_loaded() {
    let (mut bench, heads) = listed(&["one"]).await;
    bench.store.break_fleet(fleet("one"), away());
    bench.subscription.keep(&fleet("one"));
    assert_eq!(bench.next().await, "default/one failed: the store is away");
    assert_eq!(begun(&bench), 1, "at once");
    bench.store.repair();
    assert_eq!(bench.next().await, published("one", heads[0]));
    assert_eq!(bench.next().await, "synced");

    // What it has already it can do with.
    bench.store.break_fleet(fleet("one"), away());
    bench.publish("one").await;
    bench.expect_nothing_for(30).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_that_was_released() {
    let (mut bench, _) = listed(&["one"]).await;
    bench.store.break_fleet(fleet("one"), damaged("one"));
    bench.subscription.keep(&fleet("one"));
    assert!(bench.next().await.starts_with("default/one failed: "));
    assert_eq!((begun(&bench), bench.subscription.damaged()), (2, 1), "once is no damage");
    bench.subscription.release(&fleet("one"));
    assert_eq!(bench.next().await, "synced");
    bench.expect_nothing_for(30).await;
    assert_eq!((begun(&bench), bench.subscription.damaged()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_retires_was_known_and_is_no_longer_kept() {
    let (mut bench, heads) = listed(&["kept", "known"]).await;
    bench.subscription.keep(&fleet("kept"));
    assert_eq!(bench.next().await, published("kept", heads[0]));
    assert_eq!(bench.next().await, "synced");
    for name in ["kept", "known"] {
        let tombstone = bench.retire(name).await;
        assert_eq!(bench.next().await, format!("default/{name} {tombstone} retired"));
    }
    bench.subscription.keep(&fleet("kept"));
    let back = bench.publish("kept").await;
    assert_eq!(bench.next().await, known("kept", back));
}

#[tokio::test(start_paused = true)]
async fn what_was_retired_while_it_was_loaded_cannot_be_kept_before_it_is_back() {
    let (mut bench, _) = listed(&["one"]).await;
    bench.store.hold(HoldPoint::BeforeRead);
    bench.subscription.keep(&fleet("one"));
    bench.expect_nothing_for(1).await;
    let tombstone = bench.retire("one").await;
    assert_eq!(bench.next().await, format!("default/one {tombstone} retired"));
    assert_eq!(bench.next().await, "synced");
    bench.subscription.keep(&fleet("one"));
    let back = bench.publish("one").await;
    assert_eq!(bench.next().await, known("one", back));
    bench.store.resume();
    bench.expect_nothing_for(30).await;
    assert_eq!(begun(&bench), 1);
}

/// Fleets that streams wait for come in their own order, before the others.
#[test]
fn who_is_waited_for_goes_first() {
    let (mut scheduler, now) = (LoadScheduler::choosing(), Instant::now());
    let names: Vec<_> = (0..6).map(|number| number.to_string()).collect();
    for name in &names {
        scheduler.receive(Notice::Fleet(record(name, 1)));
        scheduler.keep(&fleet(name));
    }
    for hurried in ["4", "2", "4"] {
        scheduler.prioritise(&fleet(hurried));
    }
    let order = std::iter::from_fn(|| scheduler.begin_load(now));
    let order: Vec<_> = order.map(|request| request.record.fleet.to_string()).collect();
    assert_eq!(order, ["4", "2", "0", "1", "3", "5"].map(|name| format!("default/{name}")));
}
