use crate::peer::Peer;
use crate::watcher::{Seen, World, comes_true};
use heliograph_client::{Conduct, Protocol};
use heliograph_snapshot::ResourceType;
use std::time::Duration;

#[tokio::test]
async fn who_stops_reading_answers_no_more_until_it_behaves() {
    let peer = Peer::start().await;
    let world = World::of(&[&peer.address], 1);
    let member = world.join("me", Protocol::Delta, Conduct::Well);
    world.warm(member).await;
    peer.keep_changing();
    let requests = || peer.recorded(|recorded| recorded.delta.len());
    comes_true("changes", || requests() > 20).await;
    world.crowd.behave(member..member + 1, Conduct::StopsReading { after: Duration::ZERO });
    quiet(requests).await;
    let stopped = requests();
    world.crowd.behave(member..member + 1, Conduct::Well);
    comes_true("more changes", || requests() > stopped + 20).await;
}

#[tokio::test]
async fn who_rejects_says_so_and_keeps_what_it_had() {
    for protocol in [Protocol::Delta, Protocol::StateOfTheWorld] {
        let peer = Peer::start().await;
        let world = World::of(&[&peer.address], 1);
        let conduct =
            Conduct::Rejects { kind: Some(ResourceType::Endpoints), name: Some("tw".to_owned()) };
        let picky = world.join("picky", protocol, conduct);
        let rejected = |seen: &Seen| matches!(seen, Seen::Received { accepted: false, .. });
        comes_true("a rejection", || world.watcher.seen().iter().any(rejected)).await;
        let state = world.state(picky);
        assert_eq!(state.cache().names(ResourceType::Cluster).len(), 2);
        assert!(state.cache().names(ResourceType::Endpoints).is_empty());
        let message = || {
            let delta = peer.recorded(|recorded| {
                recorded.delta.iter().find_map(|one| one.error_detail.clone())
            });
            delta.or(peer.recorded(|recorded| {
                recorded.whole.iter().find_map(|one| one.error_detail.clone())
            }))
        };
        comes_true("a word of it", || message().is_some()).await;
        assert!(message().unwrap().message.contains("endpoints two"));
        // One that accepts is not led astray by what was worked out for the other.
        let easy = world.join("easy", protocol, Conduct::Well);
        world.warm(easy).await;
    }
}

#[tokio::test]
async fn who_reconnects_in_a_loop_is_soon_back() {
    let peer = Peer::start().await;
    let world = World::of(&[&peer.address], 1);
    world.join("me", Protocol::Delta, Conduct::Reconnects { every: Duration::from_millis(20) });
    comes_true("five connections", || peer.recorded(|recorded| recorded.connections) >= 5).await;
}

#[tokio::test]
async fn a_flood_is_many_equal_requests() {
    let peer = Peer::start().await;
    let world = World::of(&[&peer.address], 1);
    world.join("me", Protocol::Delta, Conduct::Floods { per_second: 1000 });
    let equal = || {
        peer.recorded(|recorded| {
            recorded.delta.iter().filter(|one| one.response_nonce == "nonce-1").count()
        })
    };
    comes_true("fifty of them", || equal() >= 50).await;
    assert_eq!(peer.recorded(|recorded| recorded.unreadable), 0);
}

#[tokio::test]
async fn garbage_is_refused_and_comes_again() {
    let peer = Peer::start().await;
    let world = World::of(&[&peer.address], 1);
    for number in 0..20 {
        world.join(&number.to_string(), Protocol::Delta, Conduct::Garbage);
    }
    comes_true("nonsense", || peer.recorded(|recorded| recorded.unreadable) >= 3).await;
    let ends = || world.watcher.seen().into_iter().filter_map(Seen::end).count();
    comes_true("ends", || ends() >= 20).await;
    assert!(world.watcher.seen().iter().all(|seen| !matches!(seen, Seen::Received { .. })));
}

/// Until the count has not grown for a while.
async fn quiet(count: impl Fn() -> usize) {
    let last = std::cell::Cell::new((0, tokio::time::Instant::now()));
    comes_true("silence", || {
        let now = tokio::time::Instant::now();
        if count() != last.get().0 {
            last.set((count(), now));
        }
        now.duration_since(last.get().1) > Duration::from_millis(300)
    })
    .await;
}
