//! What a client asks for and what it is answered. Each test names its row of the protocol's checklist.

use crate::stream::*;
use heliograph_distributor_protocol::{Event, NAMES_LIMIT, SubscriptionRequest};
use std::collections::BTreeMap;

#[test]
fn row_2_an_unknown_type_is_counted_and_the_stream_lives() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Cluster, "a", "1")]));
        let subscription_request = stream.subscription_request(Cluster, &[], &[]);
        let unheard = "type.googleapis.com/unheard.Of";
        assert_eq!(stream.try_request(unheard, "", None, subscription_request).unwrap(), none());
        assert_eq!(stream.events, [Event::UnknownType]);
        assert_eq!(names(&one(stream.ask(Cluster, &[]))), ["a"]);
    }
}

#[test]
fn row_3_a_stale_nonce_is_ignored_in_state_of_the_world() {
    let first = view(1, &[(Endpoints, "a", "1"), (Endpoints, "b", "1")]);
    let mut stream = Stream::new(StateOfTheWorld, first);
    let reply = one(stream.ask(Endpoints, &["a"]));
    // Both were sent before the client saw the reply.
    assert_eq!(stream.ask(Endpoints, &["b"]), none());
    let subscription_request =
        SubscriptionRequest::Whole { names: vec!["a".into(), "b".into()], version: String::new() };
    assert_eq!(stream.request(Endpoints, "0.1.0-77", Some("old"), subscription_request), none());
    assert_eq!(stream.events, none());
    // The acknowledgement carries all names again.
    assert_eq!(names(&one(stream.ack(&reply))), ["b"]);
}

#[test]
fn row_3_one_response_in_flight_per_type() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Endpoints, "a", "1")]));
        let reply = one(stream.ask(Endpoints, &["a"]));
        assert_eq!(stream.view(&view(2, &[(Endpoints, "a", "2")])), none());
        assert_eq!(stream.view(&view(3, &[(Endpoints, "a", "3")])), none());
        let next = one(stream.ack(&reply));
        assert_eq!(content(&next), [("a", "3")], "{protocol:?}: the latest wins");
        assert_eq!(stream.ack(&next), none());
    }
}

#[test]
fn row_4_names_in_a_delta_message_with_a_stale_nonce_count() {
    let first = view(1, &[(Endpoints, "a", "1"), (Endpoints, "b", "1")]);
    let mut stream = Stream::new(Delta, first);
    let reply = one(stream.ask(Endpoints, &["a"]));
    stream.ack(&reply);
    let change = |subscribe: &[&str], unsubscribe: &[&str]| SubscriptionRequest::Change {
        subscribe: subscribe.iter().map(|name| name.to_string()).collect(),
        unsubscribe: unsubscribe.iter().map(|name| name.to_string()).collect(),
        held: BTreeMap::new(),
    };
    let answer = one(stream.request(Endpoints, "0.1.0-77", Some("old"), change(&["b"], &["a"])));
    assert_eq!(names(&answer), ["b"]);
    stream.ack(&answer);
    let next = one(stream.view(&view(2, &[(Endpoints, "a", "2"), (Endpoints, "b", "2")])));
    assert_eq!(names(&next), ["b"]);
    assert!(stream.events.iter().all(|event| matches!(event, Event::Acknowledged(_))));
}

#[test]
fn row_5_rejected_content_is_not_sent_again() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Endpoints, "a", "1")]));
        let reply = one(stream.ask(Endpoints, &["a"]));
        stream.ack(&reply);
        let bad = one(stream.view(&view(2, &[(Endpoints, "a", "bad")])));
        // No answer to the rejection, nor to another view with the same content, nor to the clock.
        assert_eq!(stream.nack(&bad, "cannot"), none());
        assert_eq!(stream.view(&view(3, &[(Endpoints, "a", "bad"), (Cluster, "x", "1")])), none());
        assert_eq!(stream.wait(std::time::Duration::from_secs(60)), none());
        assert_eq!(stream.session.acknowledged(), Some(view(1, &[]).head()));
        let Some(Event::Rejected(rejection)) = stream.events.last() else { panic!("no rejection") };
        assert_eq!((rejection.kind, &*rejection.detail), (Endpoints, "cannot"));
        assert_eq!(rejection.resources, [("a".into(), Some(bad.resources[0].version))]);
        // New content is sent at once.
        let good = one(stream.view(&view(4, &[(Endpoints, "a", "good")])));
        assert_eq!(content(&good), [("a", "good")]);
        stream.ack(&good);
        assert!(stream.session.acknowledged().is_some());
    }
}

#[test]
fn row_5_back_at_what_the_client_holds_nothing_is_sent() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Cluster, "a", "1")]));
        let reply = one(stream.ask(Cluster, &[]));
        stream.ack(&reply);
        let bad = one(stream.view(&view(2, &[(Cluster, "a", "bad")])));
        assert_eq!(stream.nack(&bad, "cannot"), none());
        assert_eq!(stream.session.acknowledged(), Some(view(1, &[]).head()));
        assert_eq!(stream.view(&view(3, &[(Cluster, "a", "1")])), none());
        assert!(stream.session.acknowledged().is_some());
        assert_eq!(stream.view(&view(4, &[(Cluster, "a", "bad")])), none());
    }
}

#[test]
fn row_5_names_beside_a_rejection_count_and_other_types_go_on() {
    for protocol in BOTH {
        let first = [(Endpoints, "a", "bad"), (Endpoints, "b", "1"), (Secret, "s", "1")];
        let mut stream = Stream::new(protocol, view(1, &first));
        let bad = one(stream.ask(Endpoints, &["a"]));
        assert_eq!(names(&one(stream.nack_and_ask(&bad, "cannot", &["b"]))), ["b"]);
        assert_eq!(names(&one(stream.ask(Secret, &["s"]))), ["s"]);
    }
}

#[test]
fn row_5_what_an_error_names_is_held_back_and_the_rest_flows() {
    for protocol in BOTH {
        let mut stream =
            Stream::new(protocol, view(1, &[(Cluster, "a", "1"), (Cluster, "b", "1")]));
        let reply = one(stream.ask(Cluster, &[]));
        stream.ack(&reply);
        let next = view(2, &[(Cluster, "a", "bad"), (Cluster, "b", "2")]);
        let reply = one(stream.view(&next));
        let rest = one(stream.nack(&reply, "Error adding/updating cluster(s) a: cannot"));
        match protocol {
            Delta => assert_eq!(content(&rest), [("b", "2")]),
            // The whole state has the rejected one as the client last accepted it: absence would remove it.
            StateOfTheWorld => assert_eq!(content(&rest), [("a", "1"), ("b", "2")]),
        }
        assert_eq!(stream.ack(&rest), none());
    }
}

#[test]
fn row_6_wildcards_and_names_beside_them() {
    let all = [(Cluster, "a", "1"), (Cluster, "b", "1")];
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &all));
        let reply = one(stream.ask(Cluster, &["*"]));
        assert_eq!(names(&reply), ["a", "b"]);
        stream.ack(&reply);
        let reply = one(stream
            .unask(Cluster, &["*"])
            .into_iter()
            .chain(stream.ask(Cluster, &["a"]))
            .collect());
        assert!(names(&reply) == ["a"], "{reply:?}");
        stream.ack(&reply);
        assert_eq!(stream.view(&view(2, &[(Cluster, "a", "1"), (Cluster, "b", "2")])), none());
        // Names were given, so no names mean nothing now.
        assert_eq!(stream.unask(Cluster, &["a"]), none());
        assert_eq!(stream.view(&view(3, &[(Cluster, "a", "3"), (Cluster, "b", "3")])), none());
        let reply = one(stream.ask(Cluster, &["*"]));
        assert_eq!(content(&reply), [("a", "3"), ("b", "3")]);
    }
}

#[test]
fn row_7_a_name_released_under_the_wildcard_is_told_again() {
    let mut stream = Stream::new(Delta, view(1, &[(Cluster, "a", "1")]));
    let reply = one(stream.ask(Cluster, &["*", "a", "absent"]));
    assert_eq!((names(&reply), removed(&reply)), (vec!["a"], vec!["absent"]));
    stream.ack(&reply);
    let reply = one(stream.unask(Cluster, &["a", "absent"]));
    assert_eq!((names(&reply), removed(&reply)), (vec!["a"], vec!["absent"]));
}

#[test]
fn row_8_asked_again_is_sent_again() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Endpoints, "a", "1")]));
        let reply = one(stream.ask(Endpoints, &["a"]));
        stream.ack(&reply);
        if protocol == StateOfTheWorld {
            // The same list once more is no new request.
            assert_eq!(stream.ask(Endpoints, &["a"]), none());
            assert_eq!(stream.unask(Endpoints, &["a"]), none());
        }
        assert_eq!(names(&one(stream.ask(Endpoints, &["a"]))), ["a"]);
    }
}

#[test]
fn row_9_a_missing_name_is_remembered() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[]));
        for kind in [Endpoints, Route, Secret] {
            let replies = stream.ask(kind, &["late"]);
            if protocol == Delta && kind != Secret {
                let reply = one(replies);
                assert_eq!(removed(&reply), ["late"]);
                stream.ack(&reply);
            } else {
                assert_eq!(replies, none(), "{protocol:?} {kind}");
            }
        }
        let all = [(Endpoints, "late", "1"), (Route, "late", "1"), (Secret, "late", "1")];
        let replies = stream.view(&view(2, &all));
        let replies = stream.settle(replies);
        assert_eq!(kinds(&replies), [Secret, Endpoints, Route]);
        assert!(replies.iter().all(|reply| names(reply) == ["late"]));
    }
}

#[test]
fn row_9_everything_of_nothing_is_answered() {
    // Without an answer Envoy waits for 15 s before it starts.
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[]));
        let reply = one(stream.ask(Cluster, &[]));
        assert!(reply.resources.is_empty() && reply.removed.is_empty());
        assert_eq!(stream.ack(&reply), none());
        assert_eq!(kinds(&stream.ask(Listener, &[])), [Listener]);
    }
}

#[test]
fn row_10_whole_types_are_sent_whole_and_others_in_part() {
    let resources =
        |a| [(Cluster, "a", a), (Cluster, "b", "1"), (Endpoints, "a", a), (Endpoints, "b", "1")];
    let mut stream = Stream::new(StateOfTheWorld, view(1, &resources("1")));
    let clusters = one(stream.ask(Cluster, &[]));
    stream.ack(&clusters);
    let endpoints = one(stream.ask(Endpoints, &["a", "b", "a"]));
    assert_eq!(names(&endpoints), ["a", "b"]);
    stream.ack(&endpoints);
    let replies = stream.view(&view(2, &resources("2")));
    assert_eq!(kinds(&replies), [Cluster, Endpoints]);
    assert_eq!(content(&replies[0]), [("a", "2"), ("b", "1")]);
    assert_eq!(content(&replies[1]), [("a", "2")]);
    assert_ne!(replies[0].version, clusters.version);
}

#[test]
fn row_11_an_answer_by_name_waits_for_no_other_name() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Endpoints, "a", "1")]));
        let reply = one(stream.ask(Endpoints, &["a", "absent"]));
        assert_eq!(names(&reply), ["a"]);
    }
}

#[test]
fn row_16_many_names_are_accepted_and_too_many_refused() {
    let strings = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
    let small = view(1, &[(Endpoints, "7", "1")]);
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, small.clone());
        let many = strings(10_000);
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(names(&one(stream.ask(Endpoints, &many))), ["7"]);
        for (kind, count) in [(Endpoints, 10_000), (Cluster, 0)] {
            let subscription_request = stream.subscription_request(kind, &[], &[]);
            let request = Request::new(kind.type_url(), "", None, subscription_request);
            assert_eq!(stream.session.names(&request), count);
        }
    }
    use heliograph_distributor_protocol::Request;
    use heliograph_envoy::Message as _;
    use heliograph_envoy::envoy::service::discovery::v3::*;
    let type_url = Endpoints.type_url().to_owned();
    let whole = DiscoveryRequest {
        type_url: type_url.clone(),
        resource_names: strings(1_000_000),
        ..Default::default()
    };
    let delta = DeltaDiscoveryRequest {
        type_url,
        resource_names_subscribe: strings(1_000_000),
        ..Default::default()
    };
    for (protocol, message) in
        [(StateOfTheWorld, whole.encode_to_vec()), (Delta, delta.encode_to_vec())]
    {
        // Before any of them is decoded.
        let error = Request::scan(protocol, message.into()).unwrap_err();
        assert!(error.to_string().contains("1000000 names"), "{error}");
        assert!(error.to_string().contains(&NAMES_LIMIT.to_string()), "{error}");
    }
}

/// As they come over the wire, of a fleet that has them all.
#[test]
fn row_16_as_many_names_as_are_allowed_are_served() {
    use heliograph_distributor_protocol::Request;
    use heliograph_envoy::Message as _;
    use heliograph_envoy::envoy::service::discovery::v3::*;
    let all: Vec<_> = (0..NAMES_LIMIT).map(|n| n.to_string()).collect();
    let large: Vec<_> = all.iter().map(|name| (Endpoints, name.as_str(), "1")).collect();
    let large = view(1, &large);
    let type_url = Endpoints.type_url().to_owned();
    let whole = DiscoveryRequest {
        type_url: type_url.clone(),
        resource_names: all.clone(),
        ..Default::default()
    };
    let delta =
        DeltaDiscoveryRequest { type_url, resource_names_subscribe: all, ..Default::default() };
    for (protocol, message) in
        [(StateOfTheWorld, whole.encode_to_vec()), (Delta, delta.encode_to_vec())]
    {
        let (request, _) = Request::scan(protocol, message.into()).unwrap();
        let mut stream = Stream::new(protocol, large.clone());
        let output = stream.session.on_request(stream.now, &request).unwrap();
        assert_eq!(one(output.replies).resources.len(), NAMES_LIMIT);
        assert_eq!(stream.session.names(&request), NAMES_LIMIT);
        assert_eq!(stream.session.absent_memory(), [], "they are the view's");
    }
}

#[test]
fn row_18_clusters_asked_on_demand() {
    let all = [(Cluster, "a", "1"), (Cluster, "b", "1")];
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &all));
        let reply = one(stream.ask(Cluster, &["b"]));
        assert_eq!(names(&reply), ["b"]);
        let reply = one(stream.ack_and_ask(&reply, &["a"]));
        assert!(names(&reply).contains(&"a"));
        stream.ack(&reply);
        let reply = one(stream.view(&view(2, &[(Cluster, "a", "1")])));
        match protocol {
            Delta => assert_eq!(removed(&reply), ["b"]),
            StateOfTheWorld => assert_eq!(names(&reply), ["a"]),
        }
    }
}
