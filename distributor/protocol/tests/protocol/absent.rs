//! How much memory a stream keeps for names that its fleet does not have.

use crate::stream::*;
use heliograph_distributor_protocol::{
    ABSENT_NAMES_LIMIT, ANSWER_TIMEOUT, Allocation, RequestError, TransitionCache, View,
};
use std::sync::Arc;

fn strings(from: usize, count: usize) -> Vec<String> {
    (from..from + count).map(|n| format!("name-{n}")).collect()
}

fn texts(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn with_endpoints(sequence: u64, names: &[String]) -> Arc<View> {
    let resources: Vec<_> = names.iter().map(|name| (Endpoints, name.as_str(), "1")).collect();
    view(sequence, &resources)
}

fn bytes(stream: &Stream) -> usize {
    stream.session.absent_memory().iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn names_that_the_fleet_has_cost_nothing_however_many_they_are() {
    let all = strings(0, 2 * ABSENT_NAMES_LIMIT);
    let large = with_endpoints(1, &all);
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, large.clone());
        let replies = stream.ask(Endpoints, &texts(&all));
        assert_eq!(stream.session.absent_memory(), []);
        stream.settle(replies);
        assert_eq!(stream.session.absent_memory(), []);
    }
}

#[test]
fn names_that_the_fleet_does_not_have_cost_memory_until_they_are_there_or_not_asked_for() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[]));
        let replies = stream.ask(Endpoints, &["a", "b"]);
        let asked = bytes(&stream);
        assert!((90..1000).contains(&asked), "{asked}");
        stream.settle(replies);
        let settled = bytes(&stream);
        assert!((2 * 49..300).contains(&settled), "{settled}");
        let replies = stream.view(&with_endpoints(2, &["a".to_owned()]));
        stream.settle(replies);
        assert_eq!(bytes(&stream), settled / 2);
        stream.unask(Endpoints, &["b"]);
        assert_eq!(stream.session.absent_memory(), []);
        let replies = stream.view(&view(3, &[]));
        stream.settle(replies);
        assert_eq!(bytes(&stream), settled / 2, "the fleet lost what it had");
        stream.unask(Endpoints, &["a"]);
        assert_eq!(stream.session.absent_memory(), []);
    }
}

/// Whoever says nothing has the same in hand for ever.
#[test]
fn what_a_silent_client_has_in_hand_counts() {
    let names = strings(0, 1000);
    let mut stream = Stream::new(Delta, view(1, &[]));
    stream.ask(Endpoints, &texts(&names));
    let asked = bytes(&stream);
    assert!(asked > 250 * names.len(), "{asked}");
    stream.wait(ANSWER_TIMEOUT);
    assert!(bytes(&stream) > 250 * names.len());
    // A fleet whose names come and go: it remembers all of them.
    let mut silent = Stream::new(Delta, view(1, &[]));
    silent.ask(Cluster, &[]);
    for sequence in 0..100 {
        let name = format!("cluster-{sequence}");
        silent.view(&view(2 + sequence, &[(Cluster, name.as_str(), "1")]));
        silent.wait(ANSWER_TIMEOUT * 10);
    }
    assert!(bytes(&silent) > 90 * 250, "{}", bytes(&silent));
}

#[test]
fn what_a_client_says_to_hold_counts_as_well() {
    let names = strings(0, 1000);
    let held: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let mut stream = Stream::new(Delta, view(1, &[]));
    let replies = stream.resume(Cluster, &[], &held, "");
    assert!(bytes(&stream) > 250 * names.len());
    let more = stream.wait(ANSWER_TIMEOUT);
    stream.settle([replies, more].concat());
    assert_eq!(stream.session.absent_memory(), []);
}

#[test]
fn clients_that_do_the_same_share_what_they_keep() {
    let (transitions, view) = (Arc::<TransitionCache>::default(), view(1, &[]));
    let mut streams: Vec<_> =
        (0..3).map(|_| Stream::among(transitions.clone(), Delta, view.clone())).collect();
    for stream in &mut streams {
        stream.ask(Endpoints, &["a", "b"]);
        stream.ask(Route, &["a", "b"]);
    }
    let absent = streams[0].session.absent_memory();
    assert!(streams.iter().all(|stream| stream.session.absent_memory() == absent));
    let sets = absent.iter().filter(|(what, _)| matches!(what, Allocation::Names(_)));
    assert_eq!(sets.count(), 1, "the same names of two types are one set");
    assert_eq!(absent.len(), 2, "{absent:?}");
}

#[test]
fn a_stream_may_name_so_many_more_than_the_fleet_has() {
    let own = strings(0, 5000);
    let view = with_endpoints(1, &own);
    for protocol in BOTH {
        let most = strings(5000, ABSENT_NAMES_LIMIT + own.len());
        let mut stream = Stream::new(protocol, view.clone());
        stream.ask(Endpoints, &texts(&own));
        stream.ask(Endpoints, &texts(&most));
        let subscription_request = stream.subscription_request(Endpoints, &["one-more"], &[]);
        let nonce = "";
        // The same nonce as before would be stale in state of the world, so it asks on a new stream.
        let mut stream = Stream::new(protocol, view.clone());
        let subscription_request = match subscription_request {
            whole @ heliograph_distributor_protocol::SubscriptionRequest::Whole { .. } => whole,
            _ => stream.subscription_request(
                Endpoints,
                &[texts(&most), vec!["one-more"]].concat(),
                &[],
            ),
        };
        let error = stream
            .try_request(Endpoints.type_url(), nonce, None, subscription_request)
            .unwrap_err();
        let count = most.len() + 1;
        let type_url = Endpoints.type_url().to_owned();
        assert_eq!(error, RequestError::TooManyAbsent { type_url, count, existing: own.len() });
    }
    let held: Vec<_> = (0..ABSENT_NAMES_LIMIT + 1).map(|n| n.to_string()).collect();
    let held: Vec<_> = held.iter().map(|name| (name.as_str(), "1")).collect();
    let mut stream = Stream::new(Delta, view);
    let subscription_request = stream.resuming(Cluster, &[], &held, "");
    let error = stream.try_request(Cluster.type_url(), "", None, subscription_request).unwrap_err();
    assert!(matches!(error, RequestError::TooManyAbsent { .. }), "{error}");
}

/// It is not the client's fault, and it may ask for fewer in several steps.
#[test]
fn a_fleet_that_loses_very_much_keeps_its_streams() {
    let all = strings(0, 3 * ABSENT_NAMES_LIMIT);
    let mut stream = Stream::new(Delta, with_endpoints(1, &all));
    let replies = stream.ask(Endpoints, &texts(&all));
    stream.settle(replies);
    let replies = stream.view(&view(2, &[]));
    stream.settle(replies);
    let before = bytes(&stream);
    stream.unask(Endpoints, &texts(&all[..100]));
    assert!(bytes(&stream) < before);
    let subscription_request = stream.subscription_request(Endpoints, &["one-more"], &[]);
    assert!(stream.try_request(Endpoints.type_url(), "", None, subscription_request).is_err());
}
