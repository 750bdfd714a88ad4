use crate::peer::{CLUSTERS, Peer};
use crate::watcher::{Seen, World, comes_true};
use heliograph_client::{Conduct, Protocol, Server};
use heliograph_snapshot::ResourceType;

const BOTH: [Protocol; 2] = [Protocol::Delta, Protocol::StateOfTheWorld];

#[tokio::test]
async fn a_member_comes_to_hold_what_it_is_told_and_acknowledges_it() {
    for protocol in BOTH {
        let peer = Peer::start().await;
        let world = World::of(&[&peer.address], 1);
        let member = world.join("me", protocol, Conduct::Well);
        let state = world.warm(member).await;
        assert_eq!(state.cache().names(ResourceType::Cluster), CLUSTERS);
        assert_eq!(state.cache().names(ResourceType::Endpoints), CLUSTERS);
        assert_eq!((state.follower().responses, state.follower().streams), (3, 1));
        peer.change();
        let changed = || world.state(member).follower().responses == 4;
        comes_true("the change", changed).await;
        let answers =
            || world.watcher.seen().iter().filter(|seen| matches!(seen, Seen::Answered)).count();
        comes_true("four answers", || answers() == 4).await;
        match protocol {
            Protocol::Delta => {
                let held = |recorded: &crate::peer::Recorded| recorded.delta.clone();
                comes_true("four replies", || replies(&held_nonces(&peer.recorded(held))) == 4)
                    .await;
                let requests = peer.recorded(held);
                assert_eq!(requests[0].node.as_ref().unwrap().id, "me");
                assert_eq!(requests[0].node.as_ref().unwrap().cluster, "default/gateway");
                assert!(requests[1..].iter().all(|request| request.node.is_none()));
            }
            Protocol::StateOfTheWorld => {
                let last = || peer.recorded(|recorded| recorded.whole.last().cloned().unwrap());
                comes_true("the last reply", || last().response_nonce == "nonce-4").await;
                assert_eq!(last().version_info, "v1");
                assert_eq!(last().resource_names, CLUSTERS);
                assert!(
                    peer.recorded(|recorded| recorded.whole[1..]
                        .iter()
                        .all(|one| one.node.is_none()))
                );
            }
        }
    }
}

#[tokio::test]
async fn a_member_comes_back_by_itself_and_says_what_it_holds() {
    for protocol in BOTH {
        let peer = Peer::start().await;
        let world = World::of(&[&peer.address], 1);
        let member = world.join("me", protocol, Conduct::Well);
        world.warm(member).await;
        peer.end_streams();
        comes_true("a second stream", || peer.recorded(|recorded| recorded.streams) == 2).await;
        assert!(world.ended().await.contains("come back"));
        comes_true("warm again", || {
            let state = world.state(member);
            state.follower().streams == 2 && state.is_warm()
        })
        .await;
        match protocol {
            Protocol::Delta => {
                let requests = peer.recorded(|recorded| recorded.delta.clone());
                let opening =
                    requests.iter().skip(1).position(|one| one.node.is_some()).unwrap() + 1;
                let [clusters, endpoints, listeners] = &requests[opening..opening + 3] else {
                    panic!("{requests:?}");
                };
                assert!(clusters.resource_names_subscribe.is_empty());
                assert_eq!(clusters.initial_resource_versions.len(), CLUSTERS.len());
                assert_eq!(endpoints.resource_names_subscribe, CLUSTERS);
                assert_eq!(endpoints.initial_resource_versions["one"], "v0");
                assert_eq!(listeners.type_url, ResourceType::Listener.type_url());
                assert!(
                    requests[opening..opening + 3].iter().all(|one| one.response_nonce.is_empty())
                );
            }
            Protocol::StateOfTheWorld => {
                let requests = peer.recorded(|recorded| recorded.whole.clone());
                let opening =
                    requests.iter().skip(1).position(|one| one.node.is_some()).unwrap() + 1;
                let [clusters, endpoints, _] = &requests[opening..opening + 3] else {
                    panic!("{requests:?}");
                };
                assert_eq!((&*clusters.version_info, &*clusters.response_nonce), ("v0", ""));
                assert_eq!((&*endpoints.version_info, &*endpoints.response_nonce), ("v0", ""));
                assert_eq!(endpoints.resource_names, CLUSTERS);
            }
        }
        let resent = world.watcher.seen().into_iter().any(
            |seen| matches!(seen, Seen::Received { resent, resources, .. } if resent == resources && resent > 0),
        );
        assert!(resent, "the server sent again what was held");
    }
}

#[tokio::test]
async fn members_that_hold_the_same_are_in_one_place() {
    let peer = Peer::start().await;
    let world = World::of(&[&peer.address], 1);
    let members: Vec<_> =
        (0..50).map(|n| world.join(&n.to_string(), Protocol::Delta, Conduct::Well)).collect();
    for member in &members {
        world.warm(*member).await;
    }
    let first = world.state(members[0]);
    assert!(members.iter().all(|member| std::sync::Arc::ptr_eq(&world.state(*member), &first)));
    assert_eq!(peer.recorded(|recorded| recorded.connections), 50);
    let states = world.crowd.distinct_states();
    assert!(states < 10, "{states}");
}

#[tokio::test]
async fn several_streams_share_a_connection_when_asked() {
    let peer = Peer::start().await;
    let world = World::of(&[&peer.address], 4);
    for number in 0..8 {
        world.join(&number.to_string(), Protocol::Delta, Conduct::Well);
    }
    for member in 0..8 {
        world.warm(member).await;
    }
    assert_eq!(peer.recorded(|recorded| (recorded.connections, recorded.streams)), (2, 8));
    world.crowd.reconnect(0..1);
    comes_true("a ninth stream", || peer.recorded(|recorded| recorded.streams) == 9).await;
    assert_eq!(peer.recorded(|recorded| recorded.connections), 2);
}

#[tokio::test]
async fn members_reconnect_move_and_leave_when_ordered() {
    let (one, other) = (Peer::start().await, Peer::start().await);
    let world = World::of(&[&one.address, &other.address], 1);
    for number in 0..4 {
        world.join(&number.to_string(), Protocol::Delta, Conduct::Well);
    }
    for member in 0..4 {
        world.warm(member).await;
    }
    world.crowd.reconnect(0..2);
    comes_true("two more", || one.recorded(|recorded| recorded.connections) == 6).await;
    world.crowd.move_to(2..4, 1);
    comes_true("two elsewhere", || other.recorded(|recorded| recorded.streams) == 2).await;
    for member in 0..4 {
        world.warm(member).await;
    }
    world.crowd.leave(0..4);
    let ends = || world.watcher.seen().into_iter().filter_map(Seen::end).count();
    comes_true("eight ends", || ends() == 8).await;
    assert_eq!(
        (
            one.recorded(|recorded| recorded.connections),
            other.recorded(|recorded| recorded.connections)
        ),
        (6, 2)
    );
    assert_eq!(world.state(0).cache().names(ResourceType::Cluster), CLUSTERS);
}

#[tokio::test]
async fn who_reconnects_finds_new_servers() {
    let (one, other) = (Peer::start().await, Peer::start().await);
    let world = World::of(&[&one.address], 1);
    let member = world.join("me", Protocol::Delta, Conduct::Well);
    world.warm(member).await;
    world.crowd.set_servers(vec![Server::new(&other.address, None, None).unwrap()]);
    assert_eq!(other.recorded(|recorded| recorded.streams), 0);
    one.end_streams();
    comes_true("a stream elsewhere", || other.recorded(|recorded| recorded.streams) == 1).await;
}

fn held_nonces(
    requests: &[heliograph_envoy::envoy::service::discovery::v3::DeltaDiscoveryRequest],
) -> Vec<String> {
    requests.iter().map(|request| request.response_nonce.clone()).collect()
}

fn replies(nonces: &[String]) -> usize {
    nonces.iter().filter(|nonce| !nonce.is_empty()).count()
}
