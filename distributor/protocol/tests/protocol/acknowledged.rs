//! What a session says the client has acknowledged whole.

use crate::stream::*;
use heliograph_distributor_protocol::View;
use heliograph_snapshot::Head;
use std::sync::Arc;

fn head(sequence: u64) -> Option<Head> {
    Some(view(sequence, &[]).head())
}

fn gateway(sequence: u64, content: &str) -> Arc<View> {
    let resources = [
        (Cluster, "c", "1"),
        (Endpoints, "c", content),
        (Listener, "l", "1"),
        (Route, "r", content),
        (Route, "s", "1"),
    ];
    view(sequence, &resources)
}

fn connected(protocol: heliograph_distributor_protocol::Protocol) -> Stream {
    let mut stream = Stream::new(protocol, gateway(1, "1"));
    assert_eq!(stream.session.acknowledged(), None);
    for (kind, names) in
        [(Cluster, &[][..]), (Endpoints, &["c"]), (Listener, &[]), (Route, &["r", "s"])]
    {
        let replies = stream.ask(kind, names);
        assert_eq!(stream.session.acknowledged(), None, "{kind} is not acknowledged");
        stream.settle(replies);
    }
    assert_eq!(stream.session.acknowledged(), head(1));
    stream
}

#[test]
fn change_without_end_does_not_hide_what_was_acknowledged() {
    for protocol in BOTH {
        let mut stream = connected(protocol);
        let endpoints = |n: u64| {
            let text = n.to_string();
            view(n, &[(Cluster, "c", "1"), (Endpoints, "c", &text), (Listener, "l", "1")])
        };
        // The tables go.
        let replies = stream.view(&endpoints(2));
        stream.settle(replies);
        assert_eq!(stream.session.acknowledged(), head(2));
        let mut reply = one(stream.view(&endpoints(3)));
        for n in 4..10 {
            // A newer view is there before each acknowledgement.
            assert_eq!(stream.view(&endpoints(n)), none());
            reply = one(stream.ack(&reply));
            assert_eq!(stream.session.acknowledged(), head(n - 1), "{protocol:?}");
        }
    }
}

#[test]
fn more_content_at_the_same_head_is_sent_and_acknowledged() {
    for protocol in BOTH {
        // A secret that the replica could not open at first.
        let before = view(7, &[(Cluster, "c", "1")]);
        let after = view(7, &[(Cluster, "c", "1"), (Secret, "s", "1")]);
        let mut stream = Stream::new(protocol, before);
        let clusters = one(stream.ask(Cluster, &[]));
        assert_eq!(stream.ack_and_ask(&clusters, &[]), none());
        assert_eq!(stream.ask(Secret, &["s"]), none());
        assert_eq!(stream.session.acknowledged(), head(7));
        let secret = one(stream.view(&after));
        assert_eq!((secret.kind, names(&secret)), (Secret, vec!["s"]));
        assert_ne!(stream.session.acknowledged(), head(7), "{protocol:?}: not yet");
        assert_ne!(secret.nonce, clusters.nonce);
        assert_eq!(stream.ack(&secret), none());
        assert_eq!(stream.session.acknowledged(), head(7));
    }
}

#[test]
fn a_transition_under_way_leaves_the_one_before() {
    for protocol in BOTH {
        let mut stream = connected(protocol);
        let replies = stream.view(&gateway(2, "2"));
        assert_eq!(kinds(&replies), [Endpoints, Route]);
        assert_eq!(stream.view(&gateway(3, "3")), none());
        assert_eq!(stream.session.acknowledged(), head(1));
        stream.ack(&replies[0]);
        assert_eq!(stream.session.acknowledged(), head(1), "the route is still to come");
        stream.ack(&replies[1]);
        assert_eq!(stream.session.acknowledged(), head(2), "although the third is under way");
    }
}

#[test]
fn a_rejected_head_is_not_acknowledged() {
    for protocol in BOTH {
        let mut stream = connected(protocol);
        let replies = stream.view(&gateway(2, "2"));
        stream.ack(&replies[0]);
        stream.nack(&replies[1], "no");
        assert_eq!(stream.session.acknowledged(), head(1));
        // Nor is one that was acknowledged before more was asked of it.
        let mut stream = connected(protocol);
        stream.unask(Route, &["s"]);
        assert_eq!(stream.session.acknowledged(), head(1));
        let table = one(stream.ask(Route, &["s"]));
        assert_eq!(stream.session.acknowledged(), None);
        stream.nack(&table, "no");
        assert_eq!(stream.session.acknowledged(), None);
    }
}

#[test]
fn what_is_asked_for_meanwhile_is_still_to_be_acknowledged() {
    let mut stream = Stream::new(Delta, gateway(1, "1"));
    let table = one(stream.ask(Route, &["r"]));
    assert_eq!(stream.ask(Route, &["s"]), none());
    let second = one(stream.ack(&table));
    assert_eq!(stream.session.acknowledged(), None);
    stream.ack(&second);
    assert_eq!(stream.session.acknowledged(), head(1));
}

#[test]
fn another_view_of_the_same_head_is_still_to_be_acknowledged() {
    for protocol in BOTH {
        let mut stream = connected(protocol);
        let replies = stream.view(&gateway(1, "for another class"));
        assert_eq!(stream.session.acknowledged(), None);
        stream.settle(replies);
        assert_eq!(stream.session.acknowledged(), head(1));
    }
}
