//! What is published when nothing fails.

use crate::faulty::{Faulty, Noted};
use crate::writer::{Writer, at, fleet, found, set, set_of, written};
use heliograph_snapshot::{Address, Change, ResourceType};
use heliograph_translator::PublishEvent;

#[tokio::test(start_paused = true)]
async fn each_change_is_one_step_and_no_change_is_none() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 7);
    writer.publisher.complete();
    let edge = fleet("edge");
    let steps: [(&[Change], PublishEvent); 4] = [
        (&[], written("edge", at(7, 1))),
        (&[set("a", "1")], written("edge", at(7, 2))),
        // What is there holds this change too.
        (&[set("a", "1")], found("edge", at(7, 2))),
        (&[set("b", "1")], written("edge", at(7, 3))),
    ];
    for (changes, expected) in steps {
        writer.change(&edge, changes);
        assert_eq!(writer.catch_up().await, [expected], "{changes:?}");
    }
    assert_eq!(store.noted().publications.len(), 3);
    assert_eq!(store.live().await[&edge].tree(ResourceType::Cluster).len(), 2);
    for publication in &store.noted().publications[1..] {
        assert_eq!(Noted::written(publication), 1, "only what differs is written");
    }
    for _ in 0..2 {
        writer.publisher.retire(&edge);
        writer.catch_up().await;
        assert!(store.live().await.is_empty());
    }
    assert_eq!(store.noted().retirements, 1);
    writer.change(&edge, &[]);
    assert_eq!(writer.catch_up().await, [written("edge", at(7, 5))], "it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_new_term_goes_on_where_the_last_one_ended() {
    let store = Faulty::new();
    let mut first = Writer::new(&store, 1);
    for name in ["same", "changed", "gone"] {
        first.change(&fleet(name), &[set("a", "1"), set("b", "1")]);
    }
    first.publisher.complete();
    first.catch_up().await;

    let mut second = Writer::new(&store, 2);
    second.change(&fleet("same"), &[set("b", "1"), set("a", "1")]);
    second.change(&fleet("changed"), &[set("a", "2"), set("b", "1")]);
    second.publisher.complete();
    let mut events = second.catch_up().await;
    events.retain(
        |event| !matches!(event, PublishEvent::Retired { fleet, .. } if fleet.as_str() == "default/gone"),
    );
    events.sort_by_key(|event| format!("{event:?}"));
    assert_eq!(events, [written("changed", at(2, 2)), found("same", at(1, 1))]);
    let noted = store.noted();
    assert_eq!((noted.publications.len(), noted.loads), (4, 1), "only what differs is looked at");
    assert_eq!(Noted::written(&noted.publications[3]), 1, "and only what differs is written");
    assert_eq!(store.live().await.len(), 2);

    first.change(&fleet("same"), &[set("c", "1")]);
    let error = first.end().await.to_string();
    assert!(error.contains("this translator's is 0.1, the store's is 0.2"), "{error}");
    assert!(error.contains("helio store adopt"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_unchanged_fleets_cost_a_new_leader_one_read() {
    let store = Faulty::new();
    let names: Vec<_> = (0..1_000).map(|number| fleet(&format!("fleet-{number}"))).collect();
    let mut events = vec![];
    for fence in [1, 2] {
        let mut writer = Writer::new(&store, fence);
        names.iter().for_each(|name| writer.change(name, &[set("a", name.as_str())]));
        writer.publisher.complete();
        events = writer.catch_up().await;
    }
    assert_eq!(events.len(), 1_000);
    let noted = store.noted();
    assert_eq!((noted.publications.len(), noted.loads, noted.claims), (1_000, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_newer_term_is_noticed_without_a_write() {
    let store = Faulty::new();
    let mut first = Writer::new(&store, 1);
    first.change(&fleet("edge"), &[]);
    first.publisher.complete();
    first.catch_up().await;
    let mut second = Writer::new(&store, 2);
    second.publisher.complete();
    second.catch_up().await;
    first.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_version_of_a_secret_is_the_stores() {
    let store = Faulty::new();
    for fence in [1, 2] {
        let mut writer = Writer::new(&store, fence);
        writer.change(&fleet("edge"), &[set_of(ResourceType::Secret, "tls", "PRIVATE")]);
        writer.publisher.complete();
        writer.catch_up().await;
    }
    let live = store.live().await;
    let secret = live[&fleet("edge")].get(ResourceType::Secret, "tls").unwrap().clone();
    assert_eq!(secret.version, Address::of(b"keyPRIVATE").into());
    assert_eq!(secret.body, "PRIVATE");
    assert_eq!(store.noted().publications.len(), 1, "it is the same in the next term");
}

#[tokio::test(start_paused = true)]
async fn fleets_are_cleaned_after_a_publish_and_from_time_to_time() {
    let store = Faulty::new();
    let mut writer = Writer::new(&store, 1);
    writer.change(&fleet("edge"), &[set("a", "1")]);
    writer.publisher.complete();
    writer.catch_up().await;
    writer.until("cleaned", |_| store.noted().cleaned == [at(1, 1)]).await;
    writer.until("cleaned again", |_| store.noted().cleaned == [at(1, 1), at(1, 1)]).await;
}
