//! Rows 12 and 13: make before break.

use crate::stream::*;
use heliograph_distributor_protocol::{ANSWER_TIMEOUT, Protocol, Reply, View, WARMING_TIMEOUT};
use heliograph_snapshot::ResourceType;
use std::sync::Arc;

/// A client that asked as Envoy does and holds all of `first`.
fn settled(protocol: Protocol, first: &Arc<View>, routes: &[&str], clusters: &[&str]) -> Stream {
    let mut stream = Stream::new(protocol, first.clone());
    let replies = stream.ask(Cluster, &[]);
    stream.settle(replies);
    let replies = stream.ask(Endpoints, clusters);
    stream.settle(replies);
    let replies = stream.ask(Listener, &[]);
    stream.settle(replies);
    let replies = stream.ask(Route, routes);
    stream.settle(replies);
    assert_eq!(stream.session.acknowledged(), Some(first.head()), "{protocol:?}");
    stream
}

fn old() -> Arc<View> {
    view(
        1,
        &[
            (Cluster, "old", "1"),
            (Endpoints, "old", "1"),
            (Listener, "l", "1"),
            (Route, "r", "old"),
        ],
    )
}

fn new() -> Arc<View> {
    view(
        2,
        &[
            (Cluster, "new", "1"),
            (Endpoints, "new", "1"),
            (Listener, "l", "2"),
            (Route, "r", "new"),
        ],
    )
}

#[track_caller]
fn expect(replies: Vec<Reply>, kind: ResourceType) -> Reply {
    let reply = one(replies);
    assert_eq!(reply.kind, kind);
    reply
}

#[test]
fn row_12_clusters_endpoints_listeners_routes_then_removals() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &old(), &["r"], &["old"]);
        let clusters = expect(stream.view(&new()), Cluster);
        match protocol {
            Delta => assert_eq!((names(&clusters), removed(&clusters)), (vec!["new"], vec![])),
            StateOfTheWorld => assert_eq!(names(&clusters), ["new", "old"]),
        }
        assert_eq!(stream.ack(&clusters), none(), "endpoints are to come first");
        let endpoints = expect(stream.ask(Endpoints, &["new"]), Endpoints);
        let listeners = expect(stream.ack(&endpoints), Listener);
        let routes = expect(stream.ack(&listeners), Route);
        let removals = stream.ack(&routes);
        match protocol {
            Delta => {
                let clusters = expect(removals, Cluster);
                assert_eq!(removed(&clusters), ["old"]);
                let endpoints = expect(stream.ack(&clusters), Endpoints);
                assert_eq!(removed(&endpoints), ["old"]);
                assert_eq!(stream.ack(&endpoints), none());
            }
            StateOfTheWorld => {
                let clusters = expect(removals, Cluster);
                assert_eq!(names(&clusters), ["new"]);
                assert_eq!(stream.ack(&clusters), none());
            }
        }
        assert_eq!(stream.session.acknowledged(), Some(new().head()));
        assert_eq!(stream.session.wake_at(), None);
    }
}

#[test]
fn row_12_first_listeners_wait_for_clusters_and_their_endpoints() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, old());
        let clusters = expect(stream.ask(Cluster, &[]), Cluster);
        assert_eq!(stream.ask(Listener, &[]), none());
        assert_eq!(stream.ask(Route, &["r"]), none());
        assert_eq!(stream.ack(&clusters), none());
        let endpoints = expect(stream.ask(Endpoints, &["old"]), Endpoints);
        let listeners = expect(stream.ack(&endpoints), Listener);
        let routes = expect(stream.ack(&listeners), Route);
        assert_eq!(stream.ack(&routes), none());
    }
}

#[test]
fn row_12_clusters_without_endpoints_of_their_own_hold_nothing_up() {
    for protocol in BOTH {
        let mut stream =
            Stream::new(protocol, view(1, &[(Cluster, "dns", "1"), (Listener, "l", "1")]));
        let clusters = expect(stream.ask(Cluster, &[]), Cluster);
        assert_eq!(stream.ask(Listener, &[]), none());
        expect(stream.ack(&clusters), Listener);
    }
}

#[test]
fn row_12_endpoints_pass_at_any_time() {
    let resources = |cluster, endpoints, route| {
        [(Cluster, "c", cluster), (Endpoints, "c", endpoints), (Route, "r", route)]
    };
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(1, &resources("1", "1", "1")), &["r"], &["c"]);
        let replies = stream.view(&view(2, &resources("2", "1", "2")));
        assert_eq!(kinds(&replies), [Cluster, Endpoints]);
        // Mid-transition, with nothing acknowledged but the endpoints.
        assert_eq!(stream.ack(&replies[1]), none());
        let endpoints = expect(stream.view(&view(3, &resources("3", "3", "3"))), Endpoints);
        assert_eq!(content(&endpoints), [("c", "3")]);
        // The transition to the second view is finished before the one to the third begins.
        let routes = expect(stream.ack(&replies[0]), Route);
        assert_eq!(content(&routes), [("r", "2")]);
        let clusters = expect(stream.ack(&routes), Cluster);
        assert_eq!(content(&clusters), [("c", "3")]);
    }
}

#[test]
fn row_12_churn_of_clusters_does_not_starve_routes() {
    let at = |n: u64| {
        let text = n.to_string();
        view(n, &[(Cluster, "c", &text), (Route, "r", &text)])
    };
    for protocol in BOTH {
        let mut stream = settled(protocol, &at(1), &["r"], &[]);
        let mut clusters = expect(stream.view(&at(2)), Cluster);
        for n in 3..10 {
            // A newer view is there before each acknowledgement.
            assert_eq!(stream.view(&at(n)), none());
            let routes = expect(stream.ack(&clusters), Route);
            assert_eq!(
                content(&routes),
                content(&clusters).iter().map(|(_, n)| ("r", *n)).collect::<Vec<_>>()
            );
            clusters = expect(stream.ack(&routes), Cluster);
        }
    }
}

#[test]
fn row_12_a_name_asked_for_mid_transition_is_answered_from_the_view_before() {
    let first = [(Cluster, "old", "1"), (Route, "r", "1"), (Route, "s", "old")];
    let second = [(Cluster, "new", "1"), (Route, "r", "1"), (Route, "s", "new")];
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(1, &first), &["r"], &[]);
        let clusters = expect(stream.view(&view(2, &second)), Cluster);
        let routes = expect(stream.ask(Route, &["s"]), Route);
        assert_eq!(
            content(&routes),
            [("s", "old")],
            "the new one refers to a cluster still to arrive"
        );
        assert_eq!(stream.ack(&routes), none());
        let routes = expect(stream.ack(&clusters), Route);
        assert_eq!(content(&routes), [("s", "new")]);
    }
}

#[test]
fn row_12_a_rejected_referrer_holds_the_removal() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &old(), &["r"], &["old"]);
        let clusters = expect(stream.view(&new()), Cluster);
        stream.ack(&clusters);
        let endpoints = expect(stream.ask(Endpoints, &["new"]), Endpoints);
        let listeners = expect(stream.ack(&endpoints), Listener);
        let routes = expect(stream.ack(&listeners), Route);
        assert_eq!(
            stream.nack(&routes, "no"),
            none(),
            "the old route still points at the old cluster"
        );
        assert_eq!(stream.wait(10 * ANSWER_TIMEOUT), none());
        let fixed = [
            (Cluster, "new", "1"),
            (Endpoints, "new", "1"),
            (Listener, "l", "2"),
            (Route, "r", "fixed"),
        ];
        let routes = expect(stream.view(&view(3, &fixed)), Route);
        let clusters = expect(stream.ack(&routes), Cluster);
        match protocol {
            Delta => assert_eq!(removed(&clusters), ["old"]),
            StateOfTheWorld => assert_eq!(names(&clusters), ["new"]),
        }
    }
}

#[test]
fn row_12_a_rejected_cluster_does_not_stop_the_others() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &old(), &["r"], &["old"]);
        let clusters = expect(stream.view(&new()), Cluster);
        expect(stream.nack(&clusters, "Error adding/updating cluster(s) new: no"), Listener);
    }
}

#[test]
fn row_12_a_clock_frees_silent_clients() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &old(), &["r"], &["old"]);
        let clusters = expect(stream.view(&new()), Cluster);
        assert_eq!(stream.session.wake_at(), Some(stream.now + WARMING_TIMEOUT));
        assert_eq!(stream.wait(WARMING_TIMEOUT / 2), none());
        // The clusters are not acknowledged, then their endpoints not asked for.
        assert_eq!(stream.wait(WARMING_TIMEOUT / 2), none());
        let listeners = expect(stream.wait(ANSWER_TIMEOUT), Listener);
        let routes = expect(stream.wait(ANSWER_TIMEOUT), Route);
        expect(stream.wait(ANSWER_TIMEOUT), Cluster);
        assert_eq!(
            stream.session.acknowledged(),
            Some(old().head()),
            "silence is no acknowledgement"
        );
        // Late answers do no harm.
        for reply in [clusters, listeners, routes] {
            stream.ack(&reply);
        }
    }
}

#[test]
fn row_12_one_route_table_secret_or_extension_config_per_response() {
    let kinds = [Route, Secret, ExtensionConfig];
    for (protocol, kind) in BOTH.into_iter().flat_map(|it| kinds.map(|kind| (it, kind))) {
        let mut stream =
            Stream::new(protocol, view(1, &[(kind, "r", "1"), (kind, "s", "1"), (kind, "t", "1")]));
        let replies = stream.ask(kind, &["r", "s", "t"]);
        let seen = stream.settle(replies);
        assert_eq!(seen.iter().map(names).collect::<Vec<_>>(), [["r"], ["s"], ["t"]]);
        // A bad one keeps no good one back.
        let next = [(kind, "r", "2"), (kind, "s", "2"), (kind, "t", "1")];
        let bad = expect(stream.view(&view(2, &next)), kind);
        assert_eq!(names(&bad), ["r"]);
        let good = expect(stream.nack(&bad, "no"), kind);
        assert_eq!(names(&good), ["s"]);
        assert_eq!(stream.ack(&good), none());
    }
}

/// A listener that has a filter by `config_discovery`, which calls a cluster.
fn filtered(sequence: u64, cluster: &'static str, filter: &str, listener: &str) -> Arc<View> {
    let resources = [
        (Cluster, cluster, "1"),
        (Endpoints, cluster, "1"),
        (ExtensionConfig, "x", filter),
        (Listener, "l", listener),
        (Route, "r", listener),
    ];
    view(sequence, &resources)
}

/// A client that holds all of `first`.
fn settled_with_filter(protocol: Protocol, first: &Arc<View>, clusters: &[&str]) -> Stream {
    let mut stream = settled(protocol, first, &["r"], clusters);
    let replies = stream.ask(ExtensionConfig, &["x"]);
    assert_eq!(stream.settle(replies).len(), 1);
    assert_eq!(stream.session.acknowledged(), Some(first.head()), "{protocol:?}");
    stream
}

#[test]
fn row_12_extension_configs_come_after_clusters_and_before_listeners() {
    for protocol in BOTH {
        let (old, new) = (filtered(1, "old", "1", "1"), filtered(2, "new", "2", "2"));
        let mut stream = settled_with_filter(protocol, &old, &["old"]);
        let clusters = expect(stream.view(&new), Cluster);
        assert_eq!(stream.ack(&clusters), none(), "endpoints are to come first");
        let endpoints = expect(stream.ask(Endpoints, &["new"]), Endpoints);
        let filter = expect(stream.ack(&endpoints), ExtensionConfig);
        assert_eq!(content(&filter), [("x", "2")]);
        let listeners = expect(stream.ack(&filter), Listener);
        let routes = expect(stream.ack(&listeners), Route);
        let clusters = expect(stream.ack(&routes), Cluster);
        match protocol {
            Delta => assert_eq!(removed(&clusters), ["old"]),
            StateOfTheWorld => assert_eq!(names(&clusters), ["new"]),
        }
        let rest = stream.ack(&clusters);
        stream.settle(rest);
        assert_eq!(stream.session.acknowledged(), Some(new.head()));
        assert_eq!(stream.session.wake_at(), None);
    }
}

#[test]
fn row_12_an_extension_config_changes_without_its_listener() {
    for protocol in BOTH {
        let mut stream = settled_with_filter(protocol, &filtered(1, "c", "1", "1"), &["c"]);
        let filter = expect(stream.view(&filtered(2, "c", "2", "1")), ExtensionConfig);
        assert_eq!(stream.ack(&filter), none());
    }
}

#[test]
fn row_12_a_listener_that_goes_releases_its_extension_config_and_what_that_calls() {
    for protocol in BOTH {
        let first = filtered(1, "c", "1", "1");
        let mut stream = settled_with_filter(protocol, &first, &["c"]);
        let last = view(2, &[]);
        let listeners = expect(stream.view(&last), Listener);
        match protocol {
            Delta => assert_eq!(removed(&listeners), ["l"]),
            StateOfTheWorld => assert_eq!(names(&listeners), none::<&str>()),
        }
        let mut seen = stream.ack(&listeners);
        // The client drops it by itself, with the routes, and the server says nothing of it before or after.
        seen.extend(stream.unask(ExtensionConfig, &["x"]));
        seen.extend(stream.unask(Route, &["r"]));
        let seen = stream.settle(seen);
        assert!(!kinds(&seen).contains(&ExtensionConfig), "{seen:?}");
        let clusters = seen.iter().find(|reply| reply.kind == Cluster).unwrap();
        match protocol {
            Delta => assert_eq!(removed(clusters), ["c"]),
            StateOfTheWorld => assert_eq!(names(clusters), none::<&str>()),
        }
        assert_eq!(stream.session.acknowledged(), Some(last.head()));
        assert_eq!(stream.session.wake_at(), None);
    }
}

/// Envoy would answer 500 where the filter is, also on connections of an earlier listener that drain.
#[test]
fn row_12_an_extension_config_is_never_removed_from_a_client() {
    for protocol in BOTH {
        let mut stream = settled_with_filter(protocol, &filtered(1, "c", "1", "1"), &["c"]);
        let without = view(
            2,
            &[(Cluster, "c", "1"), (Endpoints, "c", "1"), (Listener, "l", "1"), (Route, "r", "1")],
        );
        assert_eq!(stream.view(&without), none());
        assert_eq!(stream.session.acknowledged(), Some(without.head()));
        // Nor is one denied that is yet to come: the listener that waits for it would do so for ever.
        assert_eq!(stream.ask(ExtensionConfig, &["later"]), none());
        let again = view(3, &[(ExtensionConfig, "x", "1"), (ExtensionConfig, "later", "1")]);
        let replies = stream.view(&again);
        let seen = stream.settle(replies);
        let received = seen.iter().filter(|reply| reply.kind == ExtensionConfig);
        let received: Vec<_> = received.flat_map(content).collect();
        assert_eq!(received, [("later", "1"), ("x", "1")]);
    }
}

#[test]
fn row_12_a_rejected_extension_config_holds_the_removal_of_what_it_calls() {
    for protocol in BOTH {
        let mut stream = settled_with_filter(protocol, &filtered(1, "old", "1", "1"), &["old"]);
        let clusters = expect(stream.view(&filtered(2, "new", "2", "1")), Cluster);
        stream.ack(&clusters);
        let endpoints = expect(stream.ask(Endpoints, &["new"]), Endpoints);
        let filter = expect(stream.ack(&endpoints), ExtensionConfig);
        assert_eq!(stream.nack(&filter, "no"), none(), "the old one still calls the old cluster");
        assert_eq!(stream.wait(10 * ANSWER_TIMEOUT), none());
        let filter = expect(stream.view(&filtered(3, "new", "3", "1")), ExtensionConfig);
        let clusters = expect(stream.ack(&filter), Cluster);
        match protocol {
            Delta => assert_eq!(removed(&clusters), ["old"]),
            StateOfTheWorld => assert_eq!(names(&clusters), ["new"]),
        }
    }
}

#[test]
fn row_13_a_changed_cluster_gets_its_endpoints_again() {
    let resources = |cluster| {
        [(Cluster, "c", cluster), (Cluster, "d", "1"), (Endpoints, "c", "1"), (Endpoints, "d", "1")]
    };
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(1, &resources("1")), &[], &["c", "d"]);
        let replies = stream.view(&view(2, &resources("2")));
        assert_eq!(kinds(&replies), [Cluster, Endpoints]);
        assert_eq!(names(&replies[1]), ["c"]);
        assert_eq!(stream.settle(replies).len(), 2);
    }
}

#[test]
fn row_13_endpoints_already_under_way_are_sent_after_the_cluster_once_more() {
    let resources = |cluster, endpoints| [(Cluster, "c", cluster), (Endpoints, "c", endpoints)];
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(1, &resources("1", "1")), &[], &["c"]);
        let early = expect(stream.view(&view(2, &resources("1", "2"))), Endpoints);
        let clusters = expect(stream.view(&view(3, &resources("3", "2"))), Cluster);
        assert_eq!(stream.ack(&clusters), none());
        let again = expect(stream.ack(&early), Endpoints);
        assert_eq!(content(&again), [("c", "2")]);
        assert_eq!(stream.ack(&again), none());
    }
}

#[test]
fn endpoints_that_a_later_view_drops_still_arrive_for_the_cluster_being_made() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(1, &[(Listener, "l", "1")]), &[], &[]);
        let second = [(Cluster, "c", "1"), (Endpoints, "c", "1"), (Listener, "l", "2")];
        let clusters = expect(stream.view(&view(2, &second)), Cluster);
        assert_eq!(stream.view(&view(3, &[(Listener, "l", "3")])), none());
        assert_eq!(stream.ack(&clusters), none());
        let endpoints = expect(stream.ask(Endpoints, &["c"]), Endpoints);
        assert_eq!(names(&endpoints), ["c"]);
        let listeners = expect(stream.ack(&endpoints), Listener);
        let listeners = expect(stream.ack(&listeners), Listener);
        assert_eq!(content(&listeners), [("l", "3")]);
        expect(stream.ack(&listeners), Cluster);
    }
}

#[test]
fn an_older_view_is_no_view() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(5, &[(Cluster, "c", "5")]), &[], &[]);
        assert_eq!(stream.view(&view(4, &[(Cluster, "c", "4")])), none());
        assert_eq!(kinds(&stream.view(&view(6, &[(Cluster, "c", "6")]))), [Cluster]);
    }
}

#[test]
fn another_view_of_the_same_head_is_one() {
    for protocol in BOTH {
        let mut stream = settled(protocol, &view(5, &[(Cluster, "c", "5")]), &[], &[]);
        let other = view(5, &[(Cluster, "c", "for another class")]);
        let reply = expect(stream.view(&other), Cluster);
        assert_eq!(content(&reply), [("c", "for another class")]);
        assert_eq!(stream.ack(&reply), none());
        assert_eq!(stream.view(&other), none());
        assert_eq!(stream.session.acknowledged(), Some(other.head()));
    }
}
