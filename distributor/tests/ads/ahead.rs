//! A client that was served something newer by another replica.

use crate::errors::{answer_to, request};
use crate::faulty::{Faults, Faulty};
use crate::wire::DELTA;
use crate::world::*;
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use heliograph_snapshot::Resource;
use std::time::Duration;

const SILENT: Faults = Faults { silent: true, away: false, keyless: false, forgetful: false };
const UNCOMPARED: &str = "heliograph_distributor_uncompared_streams_total";

/// A request for clusters of a client that holds these.
fn holding(clusters: &[Resource]) -> DeltaDiscoveryRequest {
    let held = clusters.iter();
    DeltaDiscoveryRequest {
        initial_resource_versions: held
            .map(|cluster| (cluster.name.to_string(), cluster.version.to_string()))
            .collect(),
        ..request(fleet().as_str())
    }
}

/// A replica that has "blue", and hears nothing of the newer snapshot in its store. That has "green" and "red".
async fn behind() -> (World, World) {
    let mut ahead = World::start().await;
    ahead.publish(&gateway("blue")).await;
    let behind = World::over(Faulty::over(ahead.store.inner())).await;
    assert!(comes_true(|| behind.acks.of(&fleet()).is_some()).await);
    behind.store.set(SILENT);
    ahead.publish(&[cluster("green", 1), cluster("red", 1)]).await;
    (ahead, behind)
}

/// What a client that holds "green" is told by a replica that is behind. It is told nothing for so long, and then all of
/// the newer snapshot.
async fn told_once_caught_up(
    ahead: &World,
    behind: &World,
    silence: Duration,
) -> DeltaDiscoveryResponse {
    let held = [cluster("green", 1).1];
    let mut answer = Box::pin(answer_to(behind, DELTA, holding(&held)));
    let early = tokio::time::timeout(silence, &mut answer).await;
    assert!(early.is_err(), "answered from an older snapshot: {early:?}");
    behind.store.set(Faults::default());
    let response = answer.await.unwrap().unwrap();
    let newest = ahead.acks.of(&fleet()).unwrap().head.unwrap();
    assert!(response.nonce.starts_with(&format!("{newest}-")), "{}", response.nonce);
    response
}

#[tokio::test]
async fn it_waits_until_the_replica_has_caught_up() {
    let (ahead, behind) = behind().await;
    let response = told_once_caught_up(&ahead, &behind, Duration::from_millis(200)).await;
    let names: Vec<_> = response.resources.iter().map(|resource| &*resource.name).collect();
    assert_eq!((names, response.removed_resources), (vec!["red"], vec![]));
    assert_eq!(behind.metric(UNCOMPARED), 0);
}

#[tokio::test]
async fn a_store_that_lost_something_does_not_tell() {
    let (ahead, behind) = behind().await;
    behind.store.set(Faults { forgetful: true, ..SILENT });
    told_once_caught_up(&ahead, &behind, Duration::from_millis(500)).await;
}

#[tokio::test]
async fn it_is_left_alone_for_a_bounded_time_while_the_store_is_away() {
    let (_ahead, behind) = behind().await;
    behind.store.set(Faults { away: true, ..SILENT });
    let held = [cluster("green", 1).1];
    let response = answer_to(&behind, DELTA, holding(&held)).await.unwrap().unwrap();
    let names: Vec<_> = response.resources.iter().map(|resource| &*resource.name).collect();
    assert_eq!(names, ["blue"]);
    assert_eq!(behind.metric(UNCOMPARED), 1);
}

#[tokio::test]
async fn one_that_holds_nothing_unknown_is_answered_without_the_store() {
    let (_ahead, behind) = behind().await;
    behind.store.set(Faults { away: true, ..SILENT });
    for known in [holding(&[]), holding(&[cluster("blue", 1).1])] {
        // Asked for by name, so that there is an answer.
        let names = vec!["*".to_owned(), "absent".to_owned()];
        let known = DeltaDiscoveryRequest { resource_names_subscribe: names, ..known };
        answer_to(&behind, DELTA, known).await.unwrap().unwrap();
    }
    assert_eq!(behind.metric(UNCOMPARED), 0);
}
