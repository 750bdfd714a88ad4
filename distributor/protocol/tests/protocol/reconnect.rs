//! Rows 14 and 15: a client that was connected before, here or to another replica.

use crate::stream::*;
use heliograph_distributor_protocol::{ANSWER_TIMEOUT, Reply, Request, View};
use heliograph_snapshot::ResourceType;
use std::sync::Arc;

const ALL: [(ResourceType, &str, &str); 6] = [
    (Cluster, "a", "1"),
    (Cluster, "b", "1"),
    (Endpoints, "a", "1"),
    (Endpoints, "b", "1"),
    (Listener, "l", "1"),
    (Route, "r", "1"),
];

/// Connects as Envoy does and gives every reply.
fn connect(stream: &mut Stream) -> Vec<Reply> {
    let mut seen = Vec::new();
    for (kind, names) in
        [(Cluster, &[][..]), (Endpoints, &["a", "b"]), (Listener, &[]), (Route, &["r"])]
    {
        let replies = stream.ask(kind, names);
        seen.extend(stream.settle(replies));
    }
    seen
}

/// Connects again with all that `before` gave, to a server at `view`.
fn reconnect(
    protocol: heliograph_distributor_protocol::Protocol,
    view: &Arc<View>,
    before: &[Reply],
) -> (Stream, Vec<Reply>) {
    let mut stream = Stream::new(protocol, view.clone());
    let mut replies = Vec::new();
    for (kind, names) in
        [(Cluster, &[][..]), (Endpoints, &["a", "b"]), (Listener, &[]), (Route, &["r"])]
    {
        let of_kind = || before.iter().filter(move |reply| reply.kind == kind);
        let resources = of_kind().flat_map(|reply| &reply.resources);
        let held: Vec<_> =
            resources.map(|resource| (&*resource.name, resource.version.as_str())).collect();
        let version = of_kind().next_back().map_or("", |reply| &reply.version);
        replies.extend(stream.resume(kind, names, &held, version));
    }
    (stream, replies)
}

#[test]
fn rows_14_and_15_an_unchanged_client_is_sent_nothing() {
    for protocol in BOTH {
        let before = connect(&mut Stream::new(protocol, view(1, &ALL)));
        // Another replica, or the same after a restart, with a newer head of the same content.
        let (stream, replies) = reconnect(protocol, &view(9, &ALL), &before);
        assert_eq!(replies, none(), "{protocol:?}");
        assert_eq!(stream.session.acknowledged(), Some(view(9, &ALL).head()));
    }
}

#[test]
fn a_client_that_holds_something_else_is_noticed() {
    let mut changed = ALL;
    changed[0] = (Cluster, "a", "2");
    changed[3] = (Endpoints, "b", "2");
    let fewer = view(2, &ALL[1..3]);
    for protocol in BOTH {
        let before = connect(&mut Stream::new(protocol, view(1, &ALL)));
        for (kind, names) in [(Cluster, &[][..]), (Endpoints, &["a", "b"])] {
            let of_kind = || before.iter().filter(move |reply| reply.kind == kind);
            let resources = of_kind().flat_map(|reply| &reply.resources);
            let held: Vec<_> =
                resources.map(|resource| (&*resource.name, resource.version.as_str())).collect();
            let version = &of_kind().next_back().unwrap().version;
            let noticed = |view: &Arc<View>, held: &[(&str, &str)], version: &str| {
                let mut stream = Stream::new(protocol, view.clone());
                let subscription_request = stream.resuming(kind, names, held, version);
                let request = Request::new(kind.type_url(), "", None, subscription_request);
                stream.session.holds_other(&request).unwrap()
            };
            assert!(!noticed(&view(2, &ALL), &held, version), "{protocol:?} {kind}: the same");
            assert!(noticed(&view(2, &changed), &held, version), "{protocol:?} {kind}: changed");
            assert!(noticed(&fewer, &held, version), "{protocol:?} {kind}: more than there is");
            assert!(!noticed(&fewer, &[], ""), "{protocol:?} {kind}: a new client holds nothing");
            // Of what it asks for by name, something may be new to it.
            let less = connect(&mut Stream::new(protocol, fewer.clone()));
            let less: Vec<_> = less.iter().filter(|reply| reply.kind == kind).collect();
            let resources = less.iter().flat_map(|reply| &reply.resources);
            let held: Vec<_> =
                resources.map(|resource| (&*resource.name, resource.version.as_str())).collect();
            let version = less.last().map_or("", |reply| &reply.version);
            let by_name = protocol == Delta && kind == Endpoints;
            let noticed = noticed(&view(2, &ALL), &held, version);
            assert_eq!(noticed, !by_name && !less.is_empty(), "{protocol:?} {kind}: less");
        }
    }
}

#[test]
fn row_14_only_what_changed_is_sent_and_endpoints_with_their_cluster() {
    let before = connect(&mut Stream::new(Delta, view(1, &ALL)));
    let mut changed = ALL;
    changed[0] = (Cluster, "a", "2");
    let (mut stream, replies) = reconnect(Delta, &view(2, &changed), &before);
    assert_eq!(kinds(&replies), [Cluster, Endpoints]);
    assert_eq!((names(&replies[0]), names(&replies[1])), (vec!["a"], vec!["a"]));
    assert_eq!(stream.settle(replies).len(), 2);
}

#[test]
fn row_14_what_is_gone_is_removed_once_nothing_refers_to_it() {
    let before = connect(&mut Stream::new(Delta, view(1, &ALL)));
    let now = view(
        2,
        &[(Cluster, "a", "1"), (Endpoints, "a", "1"), (Listener, "l", "1"), (Route, "r", "2")],
    );
    let (mut stream, replies) = reconnect(Delta, &now, &before);
    assert_eq!(kinds(&replies), [Route], "the removals wait, also for types not asked for yet");
    let clusters = one(stream.ack(&replies[0]));
    assert_eq!((clusters.kind, removed(&clusters)), (Cluster, vec!["b"]));
    let endpoints = one(stream.ack(&clusters));
    assert_eq!((endpoints.kind, removed(&endpoints)), (Endpoints, vec!["b"]));
}

#[test]
fn row_14_removals_wait_for_an_extension_config_that_the_client_is_yet_to_name() {
    let before = connect(&mut Stream::new(Delta, view(1, &ALL)));
    let mut now = ALL[2..].to_vec();
    now.retain(|(_, name, _)| *name != "a");
    now.extend([(Cluster, "b", "1"), (ExtensionConfig, "x", "2")]);
    let (mut stream, replies) = reconnect(Delta, &view(2, &now), &before);
    assert_eq!(replies, none(), "the client may have one that calls what is gone");
    let filter = one(stream.resume(ExtensionConfig, &["x"], &[("x", "of before")], ""));
    assert_eq!(names(&filter), ["x"]);
    let clusters = one(stream.ack(&filter));
    assert_eq!((clusters.kind, removed(&clusters)), (Cluster, vec!["a"]));
}

#[test]
fn row_14_removals_do_not_wait_for_types_that_are_never_asked_for() {
    let mut stream = Stream::new(Delta, view(1, &[(Cluster, "a", "1")]));
    let reply = one(stream.resume(Cluster, &[], &[("gone", "v")], ""));
    assert_eq!((names(&reply), removed(&reply)), (vec!["a"], vec![]));
    assert_eq!(stream.ack(&reply), none());
    assert_eq!(stream.session.wake_at(), Some(ANSWER_TIMEOUT));
    assert_eq!(removed(&one(stream.wait(ANSWER_TIMEOUT))), ["gone"]);
}

#[test]
fn row_14_versions_in_later_requests_are_not_read() {
    use heliograph_distributor_protocol::SubscriptionRequest;
    let mut stream = Stream::new(Delta, view(1, &[(Endpoints, "a", "1")]));
    let first = one(stream.ask(Endpoints, &["b"]));
    stream.ack(&first);
    let version = view(1, &[(Endpoints, "a", "1")]);
    let mut peek = Stream::new(Delta, version);
    let known = one(peek.ask(Endpoints, &["a"])).resources[0].version;
    let held = [("a".to_owned(), known.to_string())].into();
    let subscription_request =
        SubscriptionRequest::Change { subscribe: vec!["a".into()], unsubscribe: vec![], held };
    assert_eq!(names(&one(stream.request(Endpoints, "", None, subscription_request))), ["a"]);
}

#[test]
fn row_15_one_more_name_is_answered() {
    let mut stream = Stream::new(StateOfTheWorld, view(1, &ALL));
    let reply = one(stream.ask(Endpoints, &["a"]));
    stream.ack(&reply);
    let mut same = Stream::new(StateOfTheWorld, view(2, &ALL));
    assert_eq!(same.resume(Endpoints, &["a"], &[], &reply.version), none());
    let mut more = Stream::new(StateOfTheWorld, view(2, &ALL));
    let answer = one(more.resume(Endpoints, &["a", "b"], &[], &reply.version));
    assert!(names(&answer).contains(&"b"));
}

#[test]
fn row_15_a_version_covers_only_what_was_sent() {
    // Disconnected between the first table and the second: the version must not claim both.
    let tables = [(Route, "r", "1"), (Route, "s", "1")];
    let mut stream = Stream::new(StateOfTheWorld, view(1, &tables));
    let first = one(stream.ask(Route, &["r", "s"]));
    assert_eq!(names(&first), ["r"]);
    let mut again = Stream::new(StateOfTheWorld, view(1, &tables));
    let replies = again.resume(Route, &["r", "s"], &[], &first.version);
    let seen = again.settle(replies);
    assert!(seen.iter().any(|reply| names(reply) == ["s"]));
}

#[test]
fn row_15_a_changed_type_is_sent_and_the_others_are_not() {
    let before = connect(&mut Stream::new(StateOfTheWorld, view(1, &ALL)));
    let mut changed = ALL;
    changed[5] = (Route, "r", "2");
    let (_, replies) = reconnect(StateOfTheWorld, &view(2, &changed), &before);
    assert_eq!(kinds(&replies), [Route]);
}

#[test]
fn row_15_a_rejection_after_a_reconnect_removes_nothing() {
    let mut stream =
        Stream::new(StateOfTheWorld, view(1, &[(Cluster, "a", "bad"), (Cluster, "b", "1")]));
    let reply = one(stream.resume(Cluster, &[], &[], "a version of long ago"));
    assert_eq!(names(&reply), ["a", "b"]);
    // Whatever the client holds under these names it keeps, so a later list must have them.
    assert_eq!(stream.nack(&reply, "no"), none());
    let news = [(Cluster, "a", "bad"), (Cluster, "b", "1"), (Cluster, "c", "1")];
    let reply = one(stream.view(&view(2, &news)));
    assert_eq!(names(&reply), ["a", "b", "c"]);
    assert_eq!(stream.nack(&reply, "Error adding/updating cluster(s) a: no"), none());
    let news = [(Cluster, "a", "1"), (Cluster, "b", "1"), (Cluster, "c", "1")];
    let reply = one(stream.view(&view(3, &news)));
    assert_eq!(content(&reply), [("a", "1"), ("b", "1"), ("c", "1")]);
    assert_eq!(stream.ack(&reply), none());
    assert!(stream.session.acknowledged().is_some());
}
