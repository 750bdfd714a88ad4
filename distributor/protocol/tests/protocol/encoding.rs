//! Replies on the wire.

use crate::stream::*;
use heliograph_distributor_protocol::{Encodings, Message};
use heliograph_envoy::Message as _;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};

fn whole(message: &Message) -> Vec<u8> {
    [&message.own[..], &message.removed[..], &message.shared[..]].concat()
}

#[test]
fn rows_20_and_21_both_protocols_carry_nonce_replica_and_content() {
    let encodings = Encodings::default();
    let resources = [(Cluster, "a", "one"), (Cluster, "b", "two")];
    let reply = one(Stream::new(Delta, view(7, &resources)).ask(Cluster, &["a", "b", "absent"]));
    let message = encodings.message(Delta, &reply, "replica-1/0.1.0");
    let decoded = DeltaDiscoveryResponse::decode(&whole(&message)[..]).unwrap();
    assert_eq!(decoded.type_url, Cluster.type_url());
    assert_eq!(decoded.nonce, "0.1.7-1");
    assert_eq!(decoded.control_plane.unwrap().identifier, "replica-1/0.1.0");
    assert_eq!(decoded.removed_resources, ["absent"]);
    assert_eq!(decoded.resources[0].name, "a");
    assert_eq!(decoded.resources[0].version, reply.resources[0].version.as_str());
    let body = decoded.resources[1].resource.as_ref().unwrap();
    assert_eq!((body.type_url.as_str(), &body.value[..]), (Cluster.type_url(), &b"two"[..]));

    let reply = one(Stream::new(StateOfTheWorld, view(7, &resources)).ask(Cluster, &[]));
    let message = encodings.message(StateOfTheWorld, &reply, "replica-1/0.1.0");
    let decoded = DiscoveryResponse::decode(&whole(&message)[..]).unwrap();
    assert_eq!(decoded.version_info, reply.version);
    assert_eq!(decoded.nonce, "0.1.7-1");
    assert_eq!(decoded.control_plane.unwrap().identifier, "replica-1/0.1.0");
    assert_eq!(decoded.resources.len(), 2);
    assert_eq!(&decoded.resources[0].value[..], b"one");
}

#[test]
fn streams_that_are_told_the_same_share_the_bytes() {
    let encodings = Encodings::default();
    let view = view(1, &[(Cluster, "a", "1"), (Cluster, "b", "1")]);
    for protocol in BOTH {
        let message = |stream: &mut Stream, names: &[&str]| {
            let reply = one(stream.ask(Cluster, names));
            encodings.message(protocol, &reply, "replica")
        };
        let one = message(&mut Stream::new(protocol, view.clone()), &[]);
        let other = message(&mut Stream::new(protocol, view.clone()), &[]);
        assert_eq!(one.shared.as_ptr(), other.shared.as_ptr());
        let less = message(&mut Stream::new(protocol, view.clone()), &["a"]);
        assert_ne!(one.shared, less.shared);
    }
}

/// A client can ask for any names that there are not, and has an answer to those of its own.
#[test]
fn who_asks_for_what_there_is_not_shares_the_bytes_of_what_there_is() {
    let encodings = Encodings::default();
    let body = "x".repeat(1000);
    let names: Vec<_> = (0..100).map(|n| format!("cluster-{n}")).collect();
    let resources: Vec<_> =
        names.iter().map(|name| (Cluster, name.as_str(), body.as_str())).collect();
    let view = view(1, &resources);
    let own = |number: usize, count: usize| {
        let absent: Vec<_> = (0..count).map(|n| format!("absent-{number}-{n:04}")).collect();
        let all = names.iter().chain(&absent).map(String::as_str).collect::<Vec<_>>();
        let reply = one(Stream::new(Delta, view.clone()).ask(Cluster, &all));
        let message = encodings.message(Delta, &reply, "replica");
        let decoded = DeltaDiscoveryResponse::decode(&whole(&message)[..]).unwrap();
        assert_eq!((decoded.resources.len(), decoded.removed_resources), (100, absent));
        assert_eq!(message.size(), whole(&message).len());
        message
    };
    let first = own(0, 1);
    // More of them than there are encodings that are kept.
    let messages: Vec<_> = (1..1000).map(|number| own(number, 1)).collect();
    assert!(messages.iter().all(|it| it.shared.as_ptr() == first.shared.as_ptr()));
    assert!(messages.iter().all(|it| it.own.len() + it.removed.len() < 200));
    // Where a fleet loses much, all of its clients are sent the same.
    assert_eq!(own(0, 1000).removed.as_ptr(), own(0, 1000).removed.as_ptr());
    assert_eq!(own(0, 1000).shared.as_ptr(), first.shared.as_ptr());
}
