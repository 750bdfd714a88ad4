//! A client that answers late, after the clock took its silence for consent.

use crate::stream::*;
use heliograph_distributor_protocol::{ANSWER_TIMEOUT, Event, Rejection, WARMING_TIMEOUT};
use std::time::Duration;

fn last_rejection(stream: &Stream) -> &Rejection {
    match stream.events.last() {
        Some(Event::Rejected(rejection)) => rejection,
        other => panic!("no rejection but {other:?}"),
    }
}

/// A client at `old` tables that keeps silent about its new ones.
fn silent(protocol: heliograph_distributor_protocol::Protocol) -> Stream {
    let tables = [(Listener, "l", "1"), (Route, "r", "old"), (Route, "s", "old")];
    let mut stream = Stream::new(protocol, view(1, &tables));
    for (kind, names) in [(Listener, &[][..]), (Route, &["r", "s"])] {
        let replies = stream.ask(kind, names);
        stream.settle(replies);
    }
    stream
}

#[test]
fn a_late_rejection_is_a_rejection() {
    for protocol in BOTH {
        let mut stream = silent(protocol);
        let bad = view(2, &[(Listener, "l", "1"), (Route, "r", "bad"), (Route, "s", "old")]);
        let table = one(stream.view(&bad));
        assert_eq!(stream.wait(ANSWER_TIMEOUT), none());
        assert_eq!(stream.nack(&table, "cannot"), none());
        let rejection = last_rejection(&stream);
        assert_eq!(rejection.detail, "cannot");
        assert_eq!(rejection.resources, [("r".into(), Some(table.resources[0].version))]);
        assert_eq!(stream.session.acknowledged(), Some(view(1, &[]).head()), "{protocol:?}");
        assert_eq!(stream.session.wake_at(), None);
        // It holds the old table: back there nothing is sent, and the bad one is not sent again.
        let back = [(Listener, "l", "1"), (Route, "r", "old"), (Route, "s", "old")];
        assert_eq!(stream.view(&view(3, &back)), none(), "{protocol:?}");
        assert_eq!(stream.session.acknowledged(), Some(view(3, &[]).head()));
        let bad = [(Listener, "l", "1"), (Route, "r", "bad"), (Route, "s", "old")];
        assert_eq!(stream.view(&view(4, &bad)), none());
        // The answer counts once.
        let events = stream.events.len();
        stream.nack(&table, "cannot");
        assert_eq!(stream.events.len(), events);
    }
}

#[test]
fn a_late_rejection_counts_although_the_next_reply_is_under_way() {
    for protocol in BOTH {
        let mut stream = silent(protocol);
        let news = [(Listener, "l", "1"), (Route, "r", "bad"), (Route, "s", "new")];
        let first = one(stream.view(&view(2, &news)));
        let second = one(stream.wait(ANSWER_TIMEOUT));
        assert_eq!((names(&first), names(&second)), (vec!["r"], vec!["s"]));
        assert_eq!(stream.nack(&first, "cannot"), none());
        assert_eq!(last_rejection(&stream).resources.len(), 1);
        assert_eq!(&*last_rejection(&stream).resources[0].0, "r");
        assert_eq!(stream.ack(&second), none());
        assert_eq!(stream.session.acknowledged(), Some(view(1, &[]).head()));
        let fixed = [(Listener, "l", "1"), (Route, "r", "good"), (Route, "s", "new")];
        let table = one(stream.view(&view(3, &fixed)));
        assert_eq!(content(&table), [("r", "good")]);
        stream.ack(&table);
        assert_eq!(stream.session.acknowledged(), Some(view(3, &[]).head()));
    }
}

#[test]
fn a_late_acknowledgement_is_one() {
    for protocol in BOTH {
        let mut stream = silent(protocol);
        let next = view(2, &[(Listener, "l", "1"), (Route, "r", "new"), (Route, "s", "old")]);
        let table = one(stream.view(&next));
        stream.wait(ANSWER_TIMEOUT);
        assert_eq!(
            stream.session.acknowledged(),
            Some(view(1, &[]).head()),
            "silence is no acknowledgement"
        );
        assert_eq!(stream.ack(&table), none());
        assert_eq!(stream.events.last(), Some(&Event::Acknowledged(Route)));
        assert_eq!(stream.session.acknowledged(), Some(next.head()));
    }
}

#[test]
fn what_a_late_rejection_does_not_name_is_sent_again() {
    for protocol in BOTH {
        let clusters = |content| [(Cluster, "a", content), (Cluster, "b", content)];
        let mut stream = Stream::new(protocol, view(1, &clusters("1")));
        let replies = stream.ask(Cluster, &[]);
        stream.settle(replies);
        let both = one(stream.view(&view(2, &clusters("2"))));
        assert_eq!(stream.wait(WARMING_TIMEOUT), none());
        let rest = one(stream.nack(&both, "Error adding/updating cluster(s) a: cannot"));
        match protocol {
            Delta => assert_eq!(content(&rest), [("b", "2")]),
            StateOfTheWorld => assert_eq!(content(&rest), [("a", "1"), ("b", "2")]),
        }
        assert_eq!(stream.ack(&rest), none());
    }
}

#[test]
fn a_late_rejection_of_a_removal_keeps_the_cluster_in_mind() {
    let mut stream = Stream::new(Delta, view(1, &[(Cluster, "a", "1")]));
    let replies = stream.ask(Cluster, &[]);
    stream.settle(replies);
    let removal = one(stream.view(&view(2, &[])));
    assert_eq!(removed(&removal), ["a"]);
    stream.wait(WARMING_TIMEOUT);
    stream.nack(&removal, "cannot");
    assert_eq!(last_rejection(&stream).resources, [("a".into(), None)]);
    // It is still there, so the same content need not be sent.
    assert_eq!(stream.view(&view(3, &[(Cluster, "a", "1")])), none());
}

#[test]
fn a_client_whose_clusters_are_warming_is_not_silent() {
    let resources = |cluster, endpoints| {
        [(Cluster, "c", cluster), (Endpoints, "c", endpoints), (Listener, "l", cluster)]
    };
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &resources("1", "1")));
        for (kind, names) in [(Cluster, &[][..]), (Endpoints, &["c"]), (Listener, &[])] {
            let replies = stream.ask(kind, names);
            stream.settle(replies);
        }
        let replies = stream.view(&view(2, &resources("2", "1")));
        assert_eq!(kinds(&replies), [Cluster, Endpoints]);
        assert_eq!(stream.ack(&replies[1]), none());
        // Envoy waits for a secret of the cluster, and answers once it gives up.
        assert_eq!(stream.wait(Duration::from_secs(15)), none());
        assert_eq!(kinds(&stream.ack(&replies[0])), [Listener]);
    }
}

#[test]
fn endpoints_of_clusters_in_flight_are_not_given_up() {
    let first = [(Cluster, "c", "1"), (Endpoints, "c", "1"), (Listener, "l", "1")];
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &first));
        let clusters = one(stream.ask(Cluster, &[]));
        assert_eq!(stream.ask(Listener, &[]), none());
        assert_eq!(stream.session.wake_at(), Some(WARMING_TIMEOUT));
        assert_eq!(stream.wait(Duration::from_secs(15)), none());
        assert_eq!(stream.ack(&clusters), none(), "its endpoints are still to come");
        assert_eq!(kinds(&stream.wait(ANSWER_TIMEOUT)), [Listener]);
    }
}

#[test]
fn an_answer_that_comes_twice_is_not_taken_for_one_to_a_newer_reply() {
    let before = [(Route, "r", "1"), (Route, "s", "1")];
    let after = [(Route, "r", "2"), (Route, "s", "1")];
    for answer in ["", "no"] {
        let mut stream = Stream::new(Delta, view(1, &before));
        // One table a reply.
        let first = one(stream.ask(Route, &["r", "s"]));
        let second = one(stream.ack(&first));
        assert_eq!(stream.ack(&second), none());
        let newest = one(stream.view(&view(2, &after)));
        stream.events.clear();
        let again = match answer {
            "" => stream.ack(&first),
            error => stream.nack(&first, error),
        };
        assert_eq!((again, &stream.events[..]), (none(), &[][..]));
        stream.ack(&newest);
        assert_eq!(stream.events, [Event::Acknowledged(Route)]);
        assert_eq!(stream.session.acknowledged().map(|head| head.sequence), Some(2));
    }
}
