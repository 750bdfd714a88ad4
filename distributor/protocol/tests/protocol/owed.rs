//! Listeners wait for the endpoints of the clusters that were sent, and for no others.

use crate::stream::*;
use heliograph_distributor_protocol::{ANSWER_TIMEOUT, View};
use std::sync::Arc;

/// Two clusters with endpoints.
fn both() -> Arc<View> {
    view(
        1,
        &[
            (Cluster, "x", "1"),
            (Endpoints, "x", "1"),
            (Cluster, "y", "1"),
            (Endpoints, "y", "1"),
            (Listener, "l", "1"),
        ],
    )
}

/// One of them, with endpoints of the given content.
fn without_x(sequence: u64, endpoints: &str) -> Arc<View> {
    view(sequence, &[(Cluster, "y", "1"), (Endpoints, "y", endpoints), (Listener, "l", "1")])
}

#[test]
fn a_cluster_whose_endpoints_are_released_in_flight_is_no_longer_waited_for() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, both());
        let clusters = one(stream.ask(Cluster, &[]));
        stream.ack(&clusters);
        let endpoints = one(stream.ask(Endpoints, &["x", "y"]));
        let released = stream.unask(Endpoints, &["x"]);
        assert_eq!(released, none());
        stream.ack(&endpoints);
        assert_eq!(names(&one(stream.ask(Listener, &[]))), ["l"], "{protocol:?}");
    }
}

#[test]
fn a_cluster_that_is_removed_before_its_endpoints_were_asked_for_is_no_longer_waited_for() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, both());
        let clusters = one(stream.ask(Cluster, &[]));
        assert_eq!(stream.view(&without_x(2, "1")), none());
        let removal = one(stream.ack(&clusters));
        assert_eq!(removal.kind, Cluster);
        assert_eq!(stream.ack(&removal), none());
        let endpoints = one(stream.ask(Endpoints, &["y"]));
        stream.ack(&endpoints);
        assert_eq!(names(&one(stream.ask(Listener, &[]))), ["l"], "{protocol:?}");
    }
}

#[test]
fn endpoints_that_no_view_has_any_more_are_not_waited_for() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, both());
        let clusters = one(stream.ask(Cluster, &[]));
        stream.ack(&clusters);
        let resources =
            [(Cluster, "x", "1"), (Cluster, "y", "1"), (Endpoints, "y", "1"), (Listener, "l", "1")];
        assert_eq!(stream.view(&view(2, &resources)), none());
        let endpoints = one(stream.ask(Endpoints, &["y"]));
        stream.ack(&endpoints);
        assert_eq!(names(&one(stream.ask(Listener, &[]))), ["l"], "{protocol:?}");
    }
}

#[test]
fn a_release_that_crosses_the_return_of_the_cluster_leaves_its_endpoints_owed() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, both());
        for (kind, names) in [(Cluster, &[][..]), (Endpoints, &["x", "y"]), (Listener, &[])] {
            let replies = stream.ask(kind, names);
            stream.settle(replies);
        }
        let removal = one(stream.view(&without_x(2, "1")));
        let back = [
            (Cluster, "x", "3"),
            (Endpoints, "x", "3"),
            (Cluster, "y", "1"),
            (Endpoints, "y", "1"),
            (Listener, "l", "3"),
        ];
        assert_eq!(stream.view(&view(3, &back)).len(), 1, "endpoints of x, which need not wait");
        let clusters = stream.ack(&removal);
        let clusters = clusters.into_iter().find(|reply| reply.kind == Cluster).unwrap();
        assert!(names(&clusters).contains(&"x"));
        stream.unask(Endpoints, &["x"]);
        // The client has not seen the new one when it lets go of the old one's endpoints.
        let replies = stream.ack(&clusters);
        assert!(!kinds(&replies).contains(&Listener), "{protocol:?}: {replies:?}");
    }
}

#[test]
fn changing_endpoints_do_not_postpone_the_clock() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, both());
        let clusters = one(stream.ask(Cluster, &[]));
        stream.ack(&clusters);
        // This client never asks for the endpoints of x.
        let endpoints = one(stream.ask(Endpoints, &["y"]));
        stream.ack(&endpoints);
        assert_eq!(stream.ask(Listener, &[]), none());
        let waited = (2..10).find(|sequence| {
            stream.now += ANSWER_TIMEOUT / 2;
            let text = sequence.to_string();
            let resources = [
                (Cluster, "x", "1"),
                (Endpoints, "x", "1"),
                (Cluster, "y", "1"),
                (Endpoints, "y", &text),
                (Listener, "l", "1"),
            ];
            let mut replies = stream.view(&view(*sequence, &resources));
            if stream.session.wake_at().is_some_and(|at| at <= stream.now) {
                replies.extend(stream.wait(std::time::Duration::ZERO));
            }
            stream.settle(replies).iter().any(|reply| reply.kind == Listener)
        });
        assert_eq!(waited, Some(3), "{protocol:?}: once the timeout is over");
    }
}
