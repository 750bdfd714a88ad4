//! What is served in the place of what others rejected, and to whom.

use crate::stream::*;
use heliograph_distributor_protocol::{Substitute, View};
use heliograph_snapshot::{Resource, ResourceType, Version};
use std::sync::Arc;

/// A view in which the first listener is at an older version.
fn spared(sequence: u64, resources: &[(ResourceType, &str, &str)], newest: &str) -> Arc<View> {
    let (kind, name, good) = resources[0];
    let rejected = Arc::new(Resource::new(name, newest.to_owned().into()));
    let good = Version::of(good.as_bytes());
    view_with(sequence, resources, vec![Substitute { kind, rejected, good }])
}

fn connect(stream: &mut Stream) {
    let replies = stream.ask(Listener, &[]);
    stream.settle(replies);
}

#[test]
fn row_5_a_newcomer_gets_the_last_good() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, spared(2, &[(Listener, "l", "good")], "bad"));
        assert_eq!(content(&one(stream.ask(Listener, &[]))), [("l", "good")]);
    }
}

#[test]
fn row_5_who_took_what_others_rejected_keeps_it() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Listener, "l", "bad")]));
        connect(&mut stream);
        let spared = spared(2, &[(Listener, "l", "good")], "bad");
        assert_eq!(stream.view(&spared), none());
        assert_eq!(stream.session.acknowledged(), Some(spared.head()));
        assert!(stream.session.client_state().holds(Listener, "l", Version::of(b"bad")));
        // Also when it comes back, here or elsewhere.
        let version = stream.accepted_versions()[&Listener].clone();
        let taken = Version::of(b"bad");
        let held = [("l", taken.as_str())];
        let mut again = Stream::new(protocol, spared.clone());
        assert_eq!(again.resume(Listener, &[], &held, &version), none());
        assert_eq!(again.session.acknowledged(), Some(spared.head()));
        // Once it is served to all again there is nothing to say, and the next version goes to all.
        for stream in [&mut stream, &mut again] {
            assert_eq!(stream.view(&view(3, &[(Listener, "l", "bad")])), none());
            assert_eq!(
                content(&one(stream.view(&view(4, &[(Listener, "l", "better")])))),
                [("l", "better")]
            );
        }
    }
}

#[test]
fn row_5_who_rejected_it_is_at_the_head_with_the_last_good_and_gets_the_next() {
    for protocol in BOTH {
        let mut stream = Stream::new(protocol, view(1, &[(Listener, "l", "good")]));
        connect(&mut stream);
        let bad = one(stream.view(&view(2, &[(Listener, "l", "bad")])));
        assert_eq!(stream.nack(&bad, "no"), none());
        let spared = spared(3, &[(Listener, "l", "good")], "bad");
        assert_eq!(stream.view(&spared), none());
        assert_eq!(stream.session.acknowledged(), Some(spared.head()));
        assert_eq!(stream.session.client_state().rejections().len(), 1, "it still says so");
        // What it rejected is not sent to it, although all others get it.
        assert_eq!(stream.view(&view(4, &[(Listener, "l", "bad")])), none());
        let next = one(stream.view(&view(5, &[(Listener, "l", "better")])));
        stream.ack(&next);
        assert_eq!(stream.session.acknowledged(), Some(view(5, &[]).head()));
        assert!(stream.session.client_state().rejections().is_empty());
    }
}

/// The last good refers to what the newest no longer needs.
#[test]
fn row_12_what_the_last_good_may_need_is_not_removed() {
    for protocol in BOTH {
        let before = [(Route, "r", "to a"), (Cluster, "a", "1"), (Cluster, "b", "1")];
        let after = [(Route, "r", "to a"), (Cluster, "b", "1")];
        let mut stream = Stream::new(protocol, view(1, &before));
        for (kind, asked) in [(Cluster, &[][..]), (Route, &["r"])] {
            let replies = stream.ask(kind, asked);
            stream.settle(replies);
        }
        // It did not reject anything itself: it was away.
        assert_eq!(stream.view(&spared(2, &after, "to b")), none());
        let moved =
            one(stream.view(&view(3, &[(Route, "r", "to b, in good order"), (Cluster, "b", "1")])));
        assert_eq!(moved.kind, Route);
        let gone = one(stream.ack(&moved));
        assert_eq!(gone.kind, Cluster);
    }
}
