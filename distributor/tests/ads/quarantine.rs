//! What proxies reject, who is to blame, and what others get in its place.

use crate::faulty::Faulty;
use crate::world::*;
use heliograph_client::{Client, Options, Protocol, State};
use heliograph_snapshot::ResourceType::{Cluster, Route};
use heliograph_snapshot::{Change, Internal, Resource, ResourceType};
use heliograph_store::{Dispute, FeedbackReader};
use heliograph_views::Quarantined;
use std::sync::Arc;

/// Two clusters, and a table that leads to one of them.
fn led_to(to: &str) -> Vec<(ResourceType, Resource)> {
    let clusters = ["blue", "green", "red"].map(|name| [cluster(name, 1), endpoints(name)]);
    let doors = [listener("http", "table"), routes("table", to)];
    clusters.into_iter().flatten().chain(doors).collect()
}

/// A client that takes no table that leads to green.
fn picky(world: &World, protocol: Protocol) -> Options {
    let mut options = world.options(protocol);
    options.node_id = "picky".to_owned();
    options.rejects = Arc::new(|kind, name, body| {
        let led = body.windows(5).any(|part| part == b"green");
        (kind == Route && led).then(|| format!("{name} leads to green"))
    });
    options
}

fn leads(to: &'static str) -> impl Fn(&State) -> bool {
    move |state| leads_to(state, "table").as_deref() == Some(to)
}

fn rejections(state: &State) -> usize {
    state.received.iter().filter(|received| !received.accepted).count()
}

/// Waits until so many proxies reject this resource, by the report, and so many have it.
async fn counted(world: &World, name: &str, counts: (u64, u64)) {
    let mut ticker = tokio::time::interval(std::time::Duration::from_millis(5));
    let mut found = Vec::new();
    let looking = async {
        loop {
            found = disputes(world).await;
            let is_it = |it: &Dispute| &*it.name == name && (it.rejected, it.accepted) == counts;
            if let [dispute] = &found[..]
                && is_it(dispute)
            {
                let named = (dispute.rejecting.len() as u64, dispute.accepting.len() as u64);
                assert_eq!(named, counts, "few are named");
                return;
            }
            ticker.tick().await;
        }
    };
    let in_time = tokio::time::timeout(DEADLINE, looking).await.is_ok();
    assert!(in_time, "not {counts:?}: {found:?}");
}

async fn disputes(world: &World) -> Vec<Dispute> {
    let reports = world.store.inner().read_reports().await.unwrap();
    reports
        .into_iter()
        .flat_map(|mut report| report.fleets.remove(&fleet()))
        .flat_map(|it| it.disputes)
        .collect()
}

#[tokio::test]
async fn a_newcomer_on_another_replica_gets_the_last_good_and_nobody_goes_back() {
    for protocol in BOTH {
        let mut first = World::start().await;
        first.publish(&led_to("blue")).await;
        let mut easy = first.client(protocol);
        let rejecting = Client::connect(picky(&first, protocol)).unwrap();
        first.acknowledged(2).await;
        first.publish(&led_to("green")).await;
        easy.until("route to green", DEADLINE, leads("green")).await.unwrap();
        rejecting.until("rejection", DEADLINE, |state| rejections(state) == 1).await.unwrap();

        // What a translator has to know.
        let [(_, newest), (_, good)] = ["green", "blue"].map(|to| routes("table", to));
        let (name, version) = (newest.name.clone(), newest.version);
        counted(&first, &name, (1, 1)).await;

        // What it says then.
        let (rejected, good) = (Arc::new(newest), Arc::new(good));
        let entry = Quarantined { kind: Route, rejected, good: good.clone(), lifted: false };
        let entry = Change::SetInternal(Internal::Quarantine, Arc::new(entry.resource()));
        let head = first.publish_with(&led_to("green"), [entry]).await;
        first.acknowledged(2).await;
        let summary = first.acks.of(&fleet()).unwrap();
        assert_eq!(summary.rejections.len(), 1, "it stands");
        let quarantine = &summary.quarantine[0];
        assert_eq!((quarantine.version, quarantine.served), (version, good.version));

        let second = World::over(Faulty::over(first.store.inner())).await;
        let newcomer = Client::connect(picky(&second, protocol)).unwrap();
        newcomer.until("warm client", DEADLINE, State::is_warm).await.unwrap();
        // Who took what others reject keeps it, there too.
        easy.move_to(second.server.clone()).unwrap();
        let at_head = |world: &World, clients| {
            let summary = world.acks.of(&fleet());
            summary.is_some_and(|it| it.head == Some(head) && it.acknowledged == clients)
        };
        assert!(comes_true(|| at_head(&second, 2) && at_head(&first, 1)).await);
        assert!(leads("blue")(&newcomer.state()) && leads("green")(&easy.state()));
        assert_eq!(easy.state().received.len(), 0, "it is told nothing");

        // The next good version heals all.
        first.publish(&led_to("red")).await;
        for client in [&easy, &rejecting, &newcomer] {
            client.until("route to red", DEADLINE, leads("red")).await.unwrap();
        }
        assert_eq!([&rejecting, &newcomer].map(|it| rejections(&it.state())), [1, 0]);
        first.acknowledged(1).await;
        let summary = first.acks.of(&fleet()).unwrap();
        assert_eq!((summary.rejections, summary.quarantine), (vec![], vec![]));
    }
}

#[tokio::test]
async fn a_proxy_has_one_vote_however_many_streams_it_has() {
    for protocol in BOTH {
        let mut world = World::start().await;
        world.publish(&led_to("blue")).await;
        let easy: Vec<_> = (0..3)
            .map(|number| {
                let node_id = format!("easy-{number}");
                Client::connect(Options { node_id, ..world.options(protocol) }).unwrap()
            })
            .collect();
        let mut rejecting: Vec<_> =
            (0..10).map(|_| Client::connect(picky(&world, protocol)).unwrap()).collect();
        world.acknowledged(13).await;
        world.publish(&led_to("green")).await;
        for client in &rejecting {
            client.until("rejection", DEADLINE, |state| rejections(state) == 1).await.unwrap();
        }
        for client in &easy {
            client.until("route to green", DEADLINE, leads("green")).await.unwrap();
        }
        counted(&world, "table", (1, 3)).await;
        // It has its vote while it has a stream.
        rejecting.truncate(1);
        let connected = || world.acks.of(&fleet()).is_some_and(|it| it.connected == 4);
        assert!(comes_true(connected).await);
        counted(&world, "table", (1, 3)).await;
        drop(rejecting);
        assert!(comes_true(|| world.acks.of(&fleet()).is_some_and(|it| it.connected == 3)).await);
        let mut ticker = tokio::time::interval(std::time::Duration::from_millis(5));
        let over = async {
            while !disputes(&world).await.is_empty() {
                ticker.tick().await;
            }
        };
        tokio::time::timeout(DEADLINE, over).await.unwrap();
    }
}

#[tokio::test]
async fn a_culprit_without_a_name_is_found_and_the_others_flow() {
    const COUNT: usize = 20;
    for protocol in BOTH {
        let mut world = World::start().await;
        let clusters = |revision| -> Vec<_> {
            (0..COUNT).map(|n| cluster(&format!("c{n:02}"), revision)).collect()
        };
        let [old, new] = [clusters(1), clusters(2)];
        let bad = new[7].1.body.clone();
        world.publish(&old).await;
        let mut options = world.options(protocol);
        options.rejects =
            Arc::new(move |_, _, body| (*body == bad).then(|| "it is no good".to_owned()));
        let client = Client::connect(options).unwrap();
        world.acknowledged(1).await;
        world.publish(&new).await;
        let rest = |state: &State| {
            new.iter().zip(&old).enumerate().all(|(n, ((_, new), (_, old)))| {
                let expected = if n == 7 { old } else { new };
                state.body(Cluster, &new.name) == Some(&expected.body)
            })
        };
        client.until("all but one", DEADLINE, rest).await.unwrap();
        let culprit = [(new[7].1.name.clone(), Some(new[7].1.version))];
        let found = || {
            let rejections = world.acks.of(&fleet()).unwrap().rejections;
            rejections.len() == 1 && rejections[0].attributed && rejections[0].resources == culprit
        };
        assert!(comes_true(found).await, "{:?}", world.acks.of(&fleet()));
        assert!(rejections(&client.state()) <= 6, "{:?}", client.state().received);
    }
}
