//! A client that was served something newer by another replica.

use crate::errors::{answer_to, request};
use crate::faulty::{Faults, Faulty};
use crate::wire::DELTA;
use crate::world::*;
use heliograph_client::{Protocol, State};
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use heliograph_snapshot::{Resource, ResourceType};
use std::time::Duration;

const SILENT: Faults =
    Faults { silent: true, away: false, keyless: false, forgetful: false, unconfirmed: false };
/// As a replica is that has started with its snapshot cache while the store is away.
const CACHED: Faults = Faults { away: true, unconfirmed: true, ..SILENT };
/// Longer than a client is left alone by a replica that has heard of the store before.
const LONGER: Duration = Duration::from_secs(3);
const STALE_READ_FALLBACKS: &str = "heliograph_distributor_stale_read_fallbacks_total";

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

/// What a replica that is behind sends to a client that has "green": nothing while it is behind, and then all of the
/// newer snapshot.
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
    assert_eq!(behind.metric(STALE_READ_FALLBACKS), 0);
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
    assert_eq!(behind.metric(STALE_READ_FALLBACKS), 1);
}

/// A client that has all of `newest` comes to a replica that is at `cached` and has started without the store. It is
/// sent nothing until the replica has been compared, and never anything older.
async fn is_left_alone(
    protocol: Protocol,
    cached: &[(ResourceType, Resource)],
    newest: &[(ResourceType, Resource)],
) {
    let mut ahead = World::start().await;
    ahead.publish(cached).await;
    let behind = World::over(Faulty::over(ahead.store.inner())).await;
    assert!(comes_true(|| behind.acks.of(&fleet()).is_some()).await);
    behind.store.set(CACHED);
    ahead.publish(newest).await;
    let mut client = ahead.client(protocol);
    ahead.acknowledged(1).await;
    let held = held_by(&client.state());
    client.move_to(&behind.server).unwrap();

    // Who holds nothing is served what there is.
    let fresh = behind.client(protocol);
    let has_all = |state: &State| held_by(state) == names_in(cached);
    fresh.until("all that is cached", DEADLINE, has_all).await.unwrap();
    let answered = |state: &State| !state.received.is_empty() || state.ended.is_some();
    let outcome = client.until("anything", LONGER, answered).await;
    assert!(outcome.is_err(), "{protocol:?}: told from an older snapshot: {outcome:?}");
    assert_eq!(held_by(&client.state()), held, "{protocol:?}");
    assert_eq!(behind.metric(STALE_READ_FALLBACKS), 0);

    behind.store.set(Faults::default());
    ahead.publish(&[newest, &[cluster("later", 1), endpoints("later")]].concat()).await;
    let has_later = |state: &State| state.body(ResourceType::Cluster, "later").is_some();
    for client in [&client, &fresh] {
        client.until("what is published later", DEADLINE, has_later).await.unwrap();
    }
    for response in &client.state().received {
        let names = response.names.iter();
        let older = names.filter(|name| !held.contains(*name) && *name != "later");
        assert_eq!(older.collect::<Vec<_>>(), Vec::<&String>::new(), "{protocol:?}");
    }
}

fn held_by(state: &State) -> Vec<String> {
    state.names(ResourceType::Cluster).into_iter().map(str::to_owned).collect()
}

fn names_in(resources: &[(ResourceType, Resource)]) -> Vec<String> {
    let clusters = resources.iter().filter(|(kind, _)| *kind == ResourceType::Cluster);
    let mut names: Vec<_> = clusters.map(|(_, cluster)| cluster.name.to_string()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn while_a_start_is_unconfirmed_it_is_left_alone_for_as_long_as_that_takes() {
    for protocol in BOTH {
        let newest = [cluster("green", 1), endpoints("green"), cluster("red", 1), endpoints("red")];
        is_left_alone(protocol, &gateway("blue"), &newest).await;
    }
}

/// All that it holds is known here, and what it does not hold may have been removed.
#[tokio::test]
async fn so_is_one_that_lacks_what_was_removed_since() {
    for protocol in BOTH {
        let kept = [cluster("blue", 1), endpoints("blue")];
        let cached = [&kept[..], &[cluster("gone", 1), endpoints("gone")]].concat();
        is_left_alone(protocol, &cached, &kept).await;
    }
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
    assert_eq!(behind.metric(STALE_READ_FALLBACKS), 0);
}
