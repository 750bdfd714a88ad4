//! Identifies a proxy, which has one vote in its fleet.

use super::Identity;
use heliograph_store::Voter;
use std::net::IpAddr;

/// A client that has proven its pod is that pod, whichever replica it connects to and whatever node id it has. Others
/// are identified by their identity, their address, and the node id that they choose.
pub(super) fn voter(pod: Option<&str>, identity: &Identity, address: IpAddr, node: &str) -> Voter {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &str| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    };
    match pod {
        Some(pod) => add(pod),
        None => {
            add(&identity.to_string());
            add(&address.to_canonical().to_string());
            add(node);
        }
    }
    let mut digest = [0; 8];
    hasher.finalize_xof().fill(&mut digest);
    Voter(u64::from_le_bytes(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_one_voter_and_others_are_told_apart_by_where_they_are_and_what_they_say() {
        let account = Identity::ServiceAccount { namespace: "edge".into(), name: "envoy".into() };
        let [here, there] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        let in_pod = voter(Some("f3c2"), &account, here, "one");
        assert_eq!(voter(Some("f3c2"), &account, there, "two"), in_pod);
        assert_ne!(voter(Some("f3c3"), &account, here, "one"), in_pod);

        let one = voter(None, &account, here, "one");
        assert_eq!(voter(None, &account, here, "one"), one, "the same on every replica");
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(voter(None, &account, mapped, "one"), one, "whatever the socket is");
        let other = [
            voter(None, &account, here, "two"),
            voter(None, &account, there, "one"),
            voter(None, &Identity::Anybody, here, "one"),
            voter(Some("one"), &account, here, "one"),
            voter(None, &Identity::Subject("a".into()), here, "one"),
        ];
        assert!(other.iter().all(|other| *other != one));
    }
}
