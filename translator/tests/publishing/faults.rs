//! What is published when the store fails: each change once, in order, and in the end all of it.

use crate::faulty::{Faulty, Noted};
use crate::writer::{Writer, at, fleet, set, written};
use heliograph_snapshot::{Head, ResourceType, Snapshot};
use heliograph_store::{Embedded, PinState, Publication, StoreError, Writer as _};
use heliograph_translator::TermError;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// A writer of term 7 that has published `edge`.
async fn begun(store: &Arc<Faulty>) -> Writer {
    let mut writer = Writer::new(store, 7);
    writer.change(&fleet("edge"), &[set("a", "1"), set("b", "1")]);
    writer.publisher.complete();
    assert_eq!(writer.catch_up().await, [written("edge", at(7, 1))]);
    writer
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_gives_one_version() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    store.lose_answers(3);
    writer.change(&fleet("edge"), &[set("a", "2")]);
    writer.until("the answer is lost", |_| store.noted().unanswered > 0).await;
    writer.change(&fleet("edge"), &[set("a", "3")]);
    assert_eq!(
        writer.catch_up().await,
        [written("edge", at(7, 2)), written("edge", at(7, 3))],
        "what was under way, then what came after"
    );
    let noted = store.noted();
    assert_eq!(noted.unanswered, 3);
    assert_eq!(noted.publications.len(), 6, "three answers were lost");
    assert_eq!(noted.versions().len(), 3);
    assert!(!writer.metrics().contains("repairs_total 1"));
    assert!(writer.metrics().contains(r#"store_failures_total{reason="unavailable"} 3"#));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_retirement_gives_one_tombstone() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    store.lose_answers(1);
    writer.publisher.retire(&fleet("edge"));
    writer.until("the answer is lost", |_| store.noted().unanswered > 0).await;
    writer.change(&fleet("edge"), &[set("a", "1")]);
    writer.catch_up().await;
    assert_eq!(store.records().await[&fleet("edge")].head, at(7, 3));
}

#[tokio::test(start_paused = true)]
async fn what_changes_while_the_store_is_away_is_merged() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    store.set_away(true);
    for body in 2..50 {
        writer.change(&fleet("edge"), &[set("a", &body.to_string())]);
        writer.change(&fleet("new"), &[set("a", &body.to_string())]);
        writer.work().await.unwrap();
    }
    let asked = store.noted().publications.len();
    writer.until("asked again", |_| store.noted().publications.len() > asked + 5).await;
    assert!(writer.metrics().contains("pending_fleets 2"));
    store.set_away(false);
    writer.catch_up().await;
    // What was under way when the store went, and what there was when it came back.
    assert_eq!(store.records().await[&fleet("edge")].head, at(7, 3));
    assert_eq!(&*store.records().await[&fleet("edge")].cause, "47 objects changed");
    assert_eq!(store.noted().versions().len(), 1 + 2 + 2);
    let snapshot = &store.live().await[&fleet("edge")];
    assert_eq!(snapshot.get(ResourceType::Cluster, "a").unwrap().body, "49");
    assert!(writer.metrics().contains("pending_fleets 0"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_at_the_start_is_claimed_when_it_comes() {
    let store = Faulty::new();
    store.set_away(true);
    let mut writer = Writer::new(&store, 7);
    writer.change(&fleet("edge"), &[set("a", "1")]);
    writer.publisher.complete();
    writer.until("asked again", |_| store.noted().claims > 5).await;
    assert!(writer.metrics().contains("translator_claimed 0"));
    writer.change(&fleet("edge"), &[set("a", "2")]);
    store.set_away(false);
    assert_eq!(writer.catch_up().await, [written("edge", at(7, 1))], "all in one step");
    assert!(writer.metrics().contains("translator_claimed 1"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lost_everything_is_filled_again() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    writer.change(&fleet("gone"), &[]);
    writer.catch_up().await;
    writer.publisher.retire(&fleet("gone"));
    writer.catch_up().await;
    store.lose_everything();
    writer.until("noticed", |it| it.metrics().contains("repairs_total 2")).await;
    writer.catch_up().await;
    let records = store.records().await;
    assert_eq!(records[&fleet("edge")].head, at(7, 2), "its own highest sequence plus one");
    assert_eq!(&*records[&fleet("edge")].cause, "repair: the store had lost it");
    assert!(!records[&fleet("gone")].is_live(), "a reader that was away must hear of it");
    let last = store.noted().publications.pop().unwrap();
    assert_eq!(Noted::written(&last), 2, "all of it");
    let older = store.claim(Some(6)).await;
    assert!(matches!(older, Err(StoreError::Fenced { .. })), "it knows again whom to refuse");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_went_back_is_brought_forward() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    let before = store.live().await[&fleet("edge")].clone();
    writer.change(&fleet("edge"), &[set("a", "2")]);
    writer.catch_up().await;
    store.replace(holding(before).await);
    // A write that comes before a look is refused, and looks.
    writer.change(&fleet("edge"), &[set("a", "3")]);
    writer.catch_up().await;
    let snapshot = &store.live().await[&fleet("edge")];
    assert_eq!(snapshot.get(ResourceType::Cluster, "a").unwrap().body, "3");
    assert_eq!(snapshot.head, at(7, 4), "three was refused");
    assert!(writer.metrics().contains("repairs_total 1"));
    assert!(writer.metrics().contains(r#"store_failures_total{reason="conflict"} 1"#));
    store.noted().versions();
}

#[tokio::test(start_paused = true)]
async fn what_a_late_writer_left_goes() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    let ghost = Snapshot::empty(fleet("ghost")).with(at(7, 4), []);
    let ghost = Publication { expected: None, ..publication(ghost.into()) };
    store.inner().publish(ghost).await.unwrap();
    writer.until("noticed", |it| it.metrics().contains("repairs_total 1")).await;
    writer.catch_up().await;
    assert_eq!(store.live().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_replicas_cannot_load_is_published_again_once_in_a_while() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    let damaged = |head| BTreeMap::from([(fleet("edge"), head), (fleet("never there"), head)]);
    let began = Instant::now();
    // Replicas go on to say so until they have loaded what is newer.
    while began.elapsed() < Duration::from_secs(29) {
        writer.publisher.repair(&damaged(at(7, 1)));
        writer.work().await.unwrap();
    }
    assert_eq!(writer.catch_up().await, [written("edge", at(7, 2))]);
    let last = store.noted().publications.pop().unwrap();
    assert_eq!(
        (Noted::written(&last), &*last.cause),
        (2, "repair: the content of the store was damaged")
    );
    assert!(writer.metrics().contains("repairs_total 1"));

    writer.publisher.repair(&damaged(at(7, 2)));
    assert_eq!(writer.catch_up().await, [], "it was written a moment ago");
    tokio::time::advance(Duration::from_secs(2)).await;
    writer.publisher.repair(&damaged(at(7, 1)));
    assert_eq!(writer.catch_up().await, [], "that was repaired");
    writer.publisher.repair(&damaged(at(7, 2)));
    assert_eq!(writer.catch_up().await, [written("edge", at(7, 3))], "it was damaged again");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_dies_is_not_said_to_translate() {
    let store = Faulty::new();
    let mut writer = begun(&store).await;
    store.break_down();
    writer.change(&fleet("edge"), &[set("a", "2")]);
    let error = writer.end().await;
    assert!(matches!(error, TermError::WriterDied(_)), "{error}");
}

/// Whatever fails in whatever order: no head comes with two contents, heads only grow, and in the end the store
/// holds what is wanted.
#[tokio::test(start_paused = true)]
async fn any_faults_in_any_order() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = Faulty::new();
        let names = ["a", "b", "c"].map(fleet);
        let mut writer = Writer::new(&store, 7);
        let mut wanted = Vec::from_iter(names.iter().map(|name| Snapshot::empty(name.clone())));
        names.iter().for_each(|name| writer.change(name, &[]));
        writer.publisher.complete();
        let mut kept = None;
        for _ in 0..60 {
            match random.u8(0..10) {
                0 => store.set_away(true),
                1 | 2 => store.set_away(false),
                3 => store.lose_answers(random.usize(0..3)),
                4 if random.u8(0..4) == 0 => store.lose_everything(),
                5 => kept = store.live().await.remove(&names[0]),
                6 if random.u8(0..4) == 0 => {
                    if let Some(kept) = &kept {
                        store.replace(holding(kept.clone()).await);
                    }
                }
                _ => {
                    let at = random.usize(0..names.len());
                    let body = random.u8(0..3).to_string();
                    let change = set(["x", "y"][random.usize(0..2)], &body);
                    wanted[at] = wanted[at].with(Head::default(), [change.clone()]);
                    writer.change(&names[at], &[change]);
                }
            }
            for _ in 0..random.usize(0..40) {
                writer.work().await.unwrap();
            }
        }
        store.set_away(false);
        writer.catch_up().await;
        // What was lost since the last look is noticed by the next.
        for _ in 0..500 {
            writer.work().await.unwrap();
        }
        writer.catch_up().await;
        let live = store.live().await;
        for wanted in &wanted {
            assert!(live[&wanted.fleet].same_content(wanted), "{} of seed {seed}", wanted.fleet);
        }
        let noted = store.noted();
        noted.versions();
        for name in &names {
            let of = noted.publications.iter().filter(|it| it.snapshot.fleet == *name);
            let heads: Vec<_> = of.map(|it| it.snapshot.head).collect();
            assert!(heads.is_sorted(), "{name} of seed {seed}: {heads:?}");
        }
    }
}

/// A store of term 7 that holds one snapshot.
async fn holding(snapshot: Arc<Snapshot>) -> Arc<Embedded> {
    let store = Arc::new(Embedded::new());
    store.claim(Some(7)).await.unwrap();
    store.publish(publication(snapshot)).await.unwrap();
    store
}

fn publication(snapshot: Arc<Snapshot>) -> Publication {
    Publication {
        snapshot,
        expected: None,
        held: None,
        time: SystemTime::UNIX_EPOCH,
        cause: "told by a test".into(),
        pin: PinState::default(),
    }
}
