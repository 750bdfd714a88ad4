//! How long a change takes from the translator to the clients.

use crate::world::*;
use heliograph_client::{Client, Protocol, State};
use heliograph_snapshot::ResourceType::Route;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const COUNT: &str = "heliograph_apply_to_ack_seconds_count";

fn within(world: &World, seconds: &str) -> u64 {
    world.metric(&format!("heliograph_apply_to_ack_seconds_bucket{{le=\"{seconds}\"}}"))
}

#[tokio::test]
async fn a_change_is_timed_for_those_who_were_there() {
    for protocol in BOTH {
        let mut world = World::start().await;
        let day = Duration::from_secs(24 * 3600);
        world.publish_at(SystemTime::now() - day, &gateway("blue"), []).await;
        let _first = world.client(protocol);
        world.acknowledged(1).await;
        assert_eq!(world.metric(COUNT), 0, "it did not wait for what was there");

        let earlier = SystemTime::now() - Duration::from_secs(6);
        world.publish_at(earlier, &gateway("green"), []).await;
        world.acknowledged(1).await;
        assert!(comes_true(|| world.metric(COUNT) == 1).await, "{}", world.metric(COUNT));
        assert_eq!((within(&world, "5"), within(&world, "+Inf")), (0, 1), "{protocol:?}");

        // Whoever comes now waits for nothing; the next change is theirs, too.
        let second = world.client(protocol);
        second.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        world.acknowledged(2).await;
        assert_eq!(world.metric(COUNT), 1);
        // The translator's clock may be ahead.
        world.publish_at(SystemTime::now() + day, &gateway("blue"), []).await;
        world.acknowledged(2).await;
        assert!(comes_true(|| world.metric(COUNT) == 3).await, "{}", world.metric(COUNT));
        assert_eq!(within(&world, "0.005"), 2);

        // A publication that changes nothing for any client is not acknowledged.
        world.publish(&gateway("blue")).await;
        world.acknowledged(2).await;
        assert_eq!(world.metric(COUNT), 3);
    }
}

#[tokio::test]
async fn a_rejected_change_is_not_timed_when_it_is_mended() {
    let mut world = World::start().await;
    world.publish(&gateway("blue")).await;
    let mut picky = world.options(Protocol::Delta);
    picky.rejects = Arc::new(|kind, _, body| {
        let led = body.windows(5).any(|part| part == b"green");
        (kind == Route && led).then(|| "not green".to_owned())
    });
    let _picky = Client::connect(picky).unwrap();
    world.acknowledged(1).await;
    let hour = SystemTime::now() - Duration::from_secs(3600);
    world.publish_at(hour, &gateway("green"), []).await;
    let rejections = "heliograph_distributor_rejections_total{type=\"route\"}";
    assert!(comes_true(|| world.metric(rejections) == 1).await);
    world.publish(&gateway("red")).await;
    world.acknowledged(1).await;
    world.publish(&gateway("blue")).await;
    world.acknowledged(1).await;
    assert!(comes_true(|| world.metric(COUNT) == 1).await, "{}", world.metric(COUNT));
    assert_eq!(within(&world, "60"), 1, "only the change after it was mended");
}
