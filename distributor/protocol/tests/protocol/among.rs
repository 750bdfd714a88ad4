//! Streams that share their decisions are sent what they would be sent alone.

use crate::plan::{Plan, plan};
use crate::stream::*;
use heliograph_distributor_protocol::{
    ANSWER_TIMEOUT, Protocol, Reply, TransitionCache, TransitionCacheBudget, View, WARMING_TIMEOUT,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;

/// Few, so that streams often do the same.
#[derive(Clone, Copy, Debug)]
enum Act {
    Look,
    Acknowledge,
    Reject,
    AskClusters,
    AskEndpoints(usize),
    AskListeners,
    AskRoutes,
    Release(usize),
    Wait,
    WaitLong,
    Age,
    Reconnect,
}

const NAMES: [&str; 3] = ["c0", "c1", "c2"];

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Look),
        12 => Just(Act::Acknowledge),
        1 => Just(Act::Reject),
        3 => Just(Act::AskClusters),
        4 => (0..NAMES.len()).prop_map(Act::AskEndpoints),
        2 => Just(Act::AskListeners),
        2 => Just(Act::AskRoutes),
        1 => (0..NAMES.len()).prop_map(Act::Release),
        1 => Just(Act::Wait),
        1 => Just(Act::WaitLong),
        1 => Just(Act::Age),
        1 => Just(Act::Reconnect),
    ]
}

/// A stream, and all that it was told and has not answered.
struct Client {
    stream: Stream,
    inbox: VecDeque<Reply>,
    received: Vec<Reply>,
}

impl Client {
    fn new(transitions: &Arc<TransitionCache>, protocol: Protocol, view: &Arc<View>) -> Self {
        let stream = Stream::among(transitions.clone(), protocol, view.clone());
        Self { stream, inbox: VecDeque::new(), received: Vec::new() }
    }

    fn act(&mut self, act: Act, transitions: &Arc<TransitionCache>, newest: &Arc<View>) {
        let stream = &mut self.stream;
        let replies = match act {
            Act::Look => stream.view(newest),
            Act::Acknowledge => match self.inbox.pop_front() {
                Some(reply) => stream.ack(&reply),
                None => Vec::new(),
            },
            Act::Reject => match self.inbox.pop_front() {
                Some(reply) => {
                    let name = reply.resources.first().map_or("", |resource| &resource.name);
                    stream.nack(&reply, &format!("no {name}"))
                }
                None => Vec::new(),
            },
            Act::AskClusters => stream.ask(Cluster, &[]),
            Act::AskEndpoints(n) => stream.ask(Endpoints, &[NAMES[n]]),
            Act::AskListeners => stream.ask(Listener, &[]),
            Act::AskRoutes => stream.ask(Route, &["r0", "r1"]),
            Act::Release(n) => stream.unask(Endpoints, &[NAMES[n]]),
            Act::Wait => stream.wait(ANSWER_TIMEOUT),
            Act::WaitLong => stream.wait(WARMING_TIMEOUT),
            Act::Age => {
                (0..100).for_each(|_| transitions.age());
                Vec::new()
            }
            Act::Reconnect => {
                let versions = stream.accepted_versions();
                *stream = Stream::among(transitions.clone(), stream.protocol, newest.clone());
                self.inbox.clear();
                let version = versions.get(&Cluster).map_or("", String::as_str);
                stream.resume(Cluster, &[], &[("c0", "an old version")], version)
            }
        };
        self.inbox.extend(replies.iter().cloned());
        self.received.extend(replies);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_among_others_is_told_what_it_would_be_told_alone(
        whole in any::<bool>(),
        plans in prop::collection::vec(plan(), 1..5),
        // Which stream does what. The same for several, so that they find what others decided.
        acts in prop::collection::vec((prop::collection::vec(any::<bool>(), 3), act()), 0..80),
    ) {
        let protocol = if whole { StateOfTheWorld } else { Delta };
        let views: Vec<Arc<View>> =
            plans.iter().zip(1..).map(|(plan, sequence): (&Plan, u64)| plan.view(sequence)).collect();
        let shared = Arc::new(TransitionCache::default());
        let mut together: Vec<_> =
            (0..3).map(|_| Client::new(&shared, protocol, &views[0])).collect();
        let loners: Vec<Arc<TransitionCache>> = (0..3).map(|_| Arc::default()).collect();
        let mut alone: Vec<_> =
            loners.iter().map(|transitions| Client::new(transitions, protocol, &views[0])).collect();
        for (at, (who, act)) in acts.iter().enumerate() {
            // Views come as time goes.
            let newest = &views[at * views.len() / acts.len()];
            for (n, takes_part) in who.iter().enumerate() {
                if *takes_part {
                    together[n].act(*act, &shared, newest);
                    alone[n].act(*act, &loners[n], newest);
                }
            }
            for (one, other) in together.iter().zip(&alone) {
                prop_assert_eq!(&one.received, &other.received);
                prop_assert_eq!(&one.stream.events, &other.stream.events);
                let (one, other) = (&one.stream.session, &other.stream.session);
                prop_assert_eq!(one.wake_at(), other.wake_at());
                prop_assert_eq!(one.acknowledged(), other.acknowledged());
            }
        }
    }
}

/// Connects as Envoy does, and acknowledges everything.
fn connect(transitions: &Arc<TransitionCache>, view: &Arc<View>) -> (Stream, Vec<Reply>) {
    let mut stream = Stream::among(transitions.clone(), Delta, view.clone());
    let clusters = stream.ask(Cluster, &[]);
    let mut received = stream.settle(clusters);
    let endpoints = stream.ask(Endpoints, &["a", "b"]);
    received.extend(stream.settle(endpoints));
    (stream, received)
}

/// One stream after the other, and none is left in the state where the next begins: all are sent what the first was
/// sent.
#[test]
fn what_one_stream_was_told_is_not_decided_again_for_the_next() {
    let transitions = Arc::default();
    let all =
        [(Cluster, "a", "1"), (Cluster, "b", "1"), (Endpoints, "a", "1"), (Endpoints, "b", "1")];
    let mut changed = all;
    changed[2] = (Endpoints, "a", "2");
    let (view, newer) = (view(1, &all), view(2, &changed));
    let shared = |one: &[Reply], other: &[Reply]| {
        let mut pairs = one.iter().zip(other);
        one.len() == other.len() && pairs.all(|(one, other)| one.is_shared_with(other))
    };
    let (mut one, first) = connect(&transitions, &view);
    let (mut other, second) = connect(&transitions, &view);
    assert!(first.len() > 1 && shared(&first, &second));
    // They heard as much as each other up to here. One that is asked again and one that is not are together too.
    let again = one.ask(Endpoints, &["b"]);
    one.settle(again);
    let pushes = [one.view(&newer), other.view(&newer)];
    assert!(shared(&pushes[0], &pushes[1]) && pushes[0].len() == 1);
    assert_ne!(pushes[0][0].nonce, pushes[1][0].nonce);
}

/// Fleets that share a budget: what one decides does not push out what another has decided, nor keep it from deciding once for all.
#[test]
fn clients_of_one_fleet_cannot_take_the_room_of_another() {
    let budget = Arc::new(TransitionCacheBudget::default());
    let (greedy, modest) =
        (TransitionCache::within(budget.clone()), TransitionCache::within(budget));
    let (greedy, modest) = (Arc::new(greedy), Arc::new(modest));
    let empty = view(1, &[]);
    // A hundred streams with other names each, of which a third would fill what there is.
    for stream in 0..100 {
        let names: Vec<_> =
            (0..10_000).map(|n| format!("a-name-of-its-own-{stream}-{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        Stream::among(greedy.clone(), Delta, empty.clone()).ask(Endpoints, &names);
    }
    let position = |transitions: &Arc<TransitionCache>| {
        let names: Vec<_> = (0..5000).map(|n| n.to_string()).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut stream = Stream::among(transitions.clone(), Delta, empty.clone());
        stream.ask(Endpoints, &names);
        stream.session.client_state().id()
    };
    assert_ne!(position(&greedy), position(&greedy), "it has taken all that it may");
    assert_eq!(position(&modest), position(&modest));
}
