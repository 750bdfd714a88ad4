use crate::world::*;
use heliograph_client::{Protocol, State};
use heliograph_snapshot::ResourceType::{self, Cluster, Endpoints, Listener, Route};
use std::sync::Arc;

fn kinds(state: &State) -> Vec<ResourceType> {
    state.received.iter().map(|received| received.kind).collect()
}

#[tokio::test]
async fn the_first_state_arrives_in_order() {
    for protocol in BOTH {
        let mut world = World::start().await;
        let head = world.publish(&gateway("blue")).await;
        let client = world.client(protocol);
        let state = client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        assert_eq!(kinds(&state), [Cluster, Endpoints, Listener, Route]);
        assert_eq!(leads_to(&state, "table").unwrap(), "blue");
        assert!(state.received.iter().all(|received| received.accepted));
        let first = &state.received[0];
        assert!(first.nonce.starts_with(&head.to_string()), "{}", first.nonce);
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(first.control_plane, format!("replica-7 heliograph/{version}"));
        world.acknowledged(1).await;
    }
}

#[tokio::test]
async fn a_client_waits_for_a_fleet_that_is_not_published_yet() {
    for protocol in BOTH {
        let mut world = World::start().await;
        let client = world.client(protocol);
        let line = format!("heliograph_distributor_streams{{protocol=\"{}\"}}", label(protocol));
        assert!(comes_true(|| world.metric(&line) == 1).await);
        world.publish(&gateway("blue")).await;
        client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
    }
}

#[tokio::test]
async fn an_update_makes_before_it_breaks() {
    for protocol in BOTH {
        let mut world = World::start().await;
        world.publish(&gateway("blue")).await;
        let client = world.client(protocol);
        client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        world.acknowledged(1).await;
        let before = client.state().received.len();
        world.publish(&gateway("green")).await;
        let moved = |state: &State| {
            leads_to(state, "table").as_deref() == Some("green")
                && state.names(Cluster) == ["green"]
        };
        let state = client.until("route to green alone", DEADLINE, moved).await.unwrap();
        let steps = &state.received[before..];
        let order: Vec<_> = steps.iter().take(4).map(|received| received.kind).collect();
        assert_eq!(order, [Cluster, Endpoints, Route, Cluster], "{protocol:?}: {steps:?}");
        match protocol {
            Protocol::Delta => {
                assert_eq!(
                    (&*steps[0].names, &*steps[0].removed),
                    (&["green".to_owned()][..], &[][..])
                );
                assert_eq!(steps[3].removed, ["blue"]);
            }
            Protocol::StateOfTheWorld => {
                assert_eq!(steps[0].names, ["blue", "green"]);
                assert_eq!(steps[3].names, ["green"]);
            }
        }
        world.acknowledged(1).await;
    }
}

#[tokio::test]
async fn a_rejection_keeps_the_last_good_and_the_others_go_on() {
    for protocol in BOTH {
        let mut world = World::start().await;
        world.publish(&gateway("blue")).await;
        let mut options = world.options(protocol);
        options.rejects = Arc::new(|kind, name, _| {
            (kind == Route && name == "bad").then(|| format!("{name} is no table"))
        });
        let mut picky = options.clone();
        picky.node_id = "picky".to_owned();
        picky.rejects = Arc::new(|kind, name, body| {
            let led = body.windows(5).any(|part| part == b"green");
            (kind == Route && led).then(|| format!("{name} leads to green"))
        });
        let easy = heliograph_client::Client::connect(options).unwrap();
        let picky = heliograph_client::Client::connect(picky).unwrap();
        easy.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        picky.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        world.publish(&gateway("green")).await;
        let rejected = |state: &State| state.received.iter().any(|received| !received.accepted);
        let state = picky.until("rejection", DEADLINE, rejected).await.unwrap();
        assert_eq!(leads_to(&state, "table").unwrap(), "blue");
        assert!(state.names(Cluster).contains(&"blue"), "what the old table leads to stays");
        // The other client is not held up, and the first recovers with new content.
        let green = |state: &State| leads_to(state, "table").as_deref() == Some("green");
        easy.until("route to green", DEADLINE, green).await.unwrap();
        world.acknowledged(1).await;
        let rejections = || world.acks.of(&fleet()).unwrap().rejections;
        assert!(comes_true(|| !rejections().is_empty()).await);
        let summary = world.acks.of(&fleet()).unwrap();
        assert_eq!((summary.connected, summary.rejections.len()), (2, 1));
        assert_eq!(summary.newest_acknowledged, summary.head);
        assert_eq!(summary.rejections[0].detail, "table leads to green");
        assert_eq!((summary.rejections[0].kind, summary.rejections[0].count), (Route, 1));
        world.publish(&gateway("red")).await;
        let red = |state: &State| leads_to(state, "table").as_deref() == Some("red");
        let state = picky.until("route to red", DEADLINE, red).await.unwrap();
        let rejections = state.received.iter().filter(|received| !received.accepted).count();
        assert_eq!(rejections, 1, "the rejected table came once");
        world.acknowledged(2).await;
        let summary = world.acks.of(&fleet()).unwrap();
        assert_eq!((summary.connected, summary.rejections), (2, vec![]), "healed");
        assert_eq!(world.metric("heliograph_distributor_rejections_total{type=\"route\"}"), 1);
    }
}

#[tokio::test]
async fn a_reconnect_resends_nothing() {
    for protocol in BOTH {
        let mut world = World::start().await;
        world.publish(&gateway("blue")).await;
        let mut client = world.client(protocol);
        client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        world.acknowledged(1).await;
        // What is acknowledged from here on is so by the new stream.
        client.disconnect();
        assert!(comes_true(|| world.acks.of(&fleet()).unwrap().connected == 0).await);
        client.reconnect();
        world.acknowledged(1).await;
        // A later change shows that the new stream lives, and that nothing came before it.
        let mut changed = gateway("blue");
        changed[0] = cluster("blue", 2);
        world.publish(&changed).await;
        let moved = |state: &State| state.received.len() == 2;
        let state = client.until("cluster and endpoints", DEADLINE, moved).await.unwrap();
        assert_eq!(kinds(&state), [Cluster, Endpoints]);
        world.acknowledged(1).await;
        assert_eq!(client.state().received.len(), 2);
    }
}

#[tokio::test]
async fn listeners_that_are_gone_are_removed() {
    for protocol in BOTH {
        let mut world = World::start().await;
        world.publish(&gateway("blue")).await;
        let client = world.client(protocol);
        client.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        world.publish(&[]).await;
        let empty =
            |state: &State| state.names(Listener).is_empty() && state.names(Cluster).is_empty();
        client.until("nothing", DEADLINE, empty).await.unwrap();
        world.acknowledged(1).await;
    }
}

#[tokio::test]
async fn a_retired_fleet_keeps_its_clients_and_may_come_back() {
    for protocol in BOTH {
        let mut world = World::start().await;
        world.publish(&gateway("blue")).await;
        let client = world.client(protocol);
        world.acknowledged(1).await;
        world.retire().await;
        assert!(comes_true(|| world.acks.of(&fleet()).unwrap().head.is_none()).await);
        let late = world.client(protocol);
        assert!(client.state().ended.is_none());
        world.publish(&gateway("green")).await;
        world.acknowledged(2).await;
        for client in [client, late] {
            assert_eq!(leads_to(&client.state(), "table").unwrap(), "green");
        }
    }
}

#[tokio::test]
async fn many_clients_are_served_and_counted() {
    let mut world = World::start().await;
    world.publish(&gateway("blue")).await;
    let clients: Vec<_> = (0..20).map(|n| world.client(BOTH[n % 2])).collect();
    world.acknowledged(20).await;
    for label in ["delta", "sotw"] {
        let line = format!("heliograph_distributor_streams{{protocol=\"{label}\"}}");
        assert_eq!(world.metric(&line), 10);
    }
    assert!(world.metric("heliograph_distributor_response_bytes_total") > 0);
    drop(clients);
    assert!(comes_true(|| world.acks.of(&fleet()).unwrap().connected == 0).await);
}

fn label(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Delta => "delta",
        Protocol::StateOfTheWorld => "sotw",
    }
}
