use crate::node::NODE_LIMIT;
use crate::request::{DETAILS_LIMIT, NAMES_LIMIT, RequestError, TYPE_LIMIT, bounded};
use crate::session::Protocol;
use crate::wire::{Field, Fields, NO_FIELD, malformed};
use bytes::Bytes;
use prost::encoding::WireType;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The fields of a request that are read without decoding its lists: a client that reconnects lists all its resources,
/// 240 KB with 2,000 of them.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) type_url: String,
    pub(crate) nonce: String,
    pub(crate) node: Option<Bytes>,
    /// The message without it: a real Envoy's is 61 KB, and what is left may be kept for long.
    pub(crate) rest: Bytes,
    /// Of all the rest, in whatever order it comes: Envoy writes what it holds in another order each time. Nothing that can
    /// be read means another thing in another order.
    pub(crate) digest: u128,
    /// What its names and versions take beside their bytes once they are decoded: an empty one has two bytes.
    pub(crate) overhead: usize,
    /// Of how many resources it says a version that is held.
    pub(crate) held: usize,
}

/// The role of a request's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Node,
    TypeUrl,
    Nonce,
    /// Names that are asked for, or no longer.
    Subscribe,
    Unsubscribe,
    /// A name and the version that is held of it.
    Held,
    /// A name with parameters. It is not used.
    Locator,
    Version,
    Error,
    Unknown,
}

/// By their numbers. All that are known are texts or messages.
const DELTA: [Role; 10] = {
    use Role::*;
    [Unknown, Node, TypeUrl, Subscribe, Unsubscribe, Held, Nonce, Error, Locator, Locator]
};
const WHOLE: [Role; 8] = {
    use Role::*;
    [Unknown, Version, Node, Subscribe, TypeUrl, Nonce, Error, Locator]
};
/// `initial_resource_versions` of delta.
const INITIAL_VERSIONS: u32 = 5;
/// `details` of a `google.rpc.Status`.
const DETAILS: u32 = 3;
/// The size of a decoded text without its bytes.
const DECODED_TEXT: usize = 56;

/// How many there are of each part that a request may have many of.
#[derive(Debug, Default)]
struct Counts {
    subscribe: usize,
    unsubscribe: usize,
    held: usize,
    locators: usize,
    details: usize,
    versions: usize,
    errors: usize,
}

impl Scanned {
    pub(crate) fn of(protocol: Protocol, message: &Bytes) -> Result<Self, RequestError> {
        let (roles, map) = match protocol {
            Protocol::Delta => (&DELTA[..], INITIAL_VERSIONS),
            Protocol::StateOfTheWorld => (&WHOLE[..], NO_FIELD),
        };
        let (mut scanned, mut counts) = (Self::default(), Counts::default());
        let (mut type_url, mut nonce, mut node) = ("", "", None);
        let mut fields = Fields::of(message);
        let mut begin = 0;
        while let Some(field) = fields.next_with_map(map)? {
            let end = message.len() - fields.left();
            let role = roles.get(field.number as usize).copied().unwrap_or(Role::Unknown);
            if role != Role::Unknown {
                field.expect(WireType::LengthDelimited)?;
            }
            match role {
                Role::Node => {
                    check_node(field.value)?;
                    if node.replace((field.value, begin..end)).is_some() {
                        return Err(malformed("it has two nodes"));
                    }
                }
                Role::TypeUrl => type_url = field.text()?,
                Role::Nonce => nonce = field.text()?,
                _ => {
                    counts.add(role, field)?;
                    scanned.add(field);
                }
            }
            begin = end;
        }
        counts.check(type_url)?;
        (scanned.overhead, scanned.held) = (counts.overhead(), counts.held);
        (scanned.type_url, scanned.nonce) = (type_url.to_owned(), nonce.to_owned());
        scanned.rest = match node {
            None => message.clone(),
            Some((node, Range { start, end })) => {
                scanned.node = Some(message.slice_ref(node));
                [&message[..start], &message[end..]].concat().into()
            }
        };
        Ok(scanned)
    }

    fn add(&mut self, field: Field<'_>) {
        let key = u64::from(field.number) << 3 | field.wire as u64;
        let digest = xxh3_128_with_seed(field.value, seed().wrapping_add(key));
        self.digest = self.digest.wrapping_add(digest);
    }
}

impl Counts {
    fn add(&mut self, role: Role, field: Field<'_>) -> Result<(), RequestError> {
        match role {
            Role::Subscribe => self.subscribe += 1,
            Role::Unsubscribe => self.unsubscribe += 1,
            Role::Locator => self.locators += 1,
            Role::Held => self.held += 1,
            Role::Version => self.versions += 1,
            Role::Error => {
                self.errors += 1;
                let mut status = field.message()?;
                while let Some(part) = status.next()? {
                    self.details += usize::from(part.number == DETAILS);
                }
            }
            Role::Node | Role::TypeUrl | Role::Nonce | Role::Unknown => {}
        }
        Ok(())
    }

    /// Whether all of it may be decoded.
    fn check(&self, type_url: &str) -> Result<(), RequestError> {
        let names = [self.subscribe, self.unsubscribe, self.held, self.locators];
        if let Some(count) = names.into_iter().find(|count| *count > NAMES_LIMIT) {
            let type_url = bounded(type_url, TYPE_LIMIT).to_owned();
            return Err(RequestError::TooManyNames { type_url, count });
        }
        if self.details > DETAILS_LIMIT {
            return Err(RequestError::TooManyDetails { count: self.details });
        }
        // Of two that say different things the last one counts, and the digest is the same in either order.
        match self.versions > 1 || self.errors > 1 {
            true => Err(malformed("a part of it that there is once comes twice")),
            false => Ok(()),
        }
    }

    fn overhead(&self) -> usize {
        (self.subscribe + self.unsubscribe + 2 * self.held) * DECODED_TEXT
    }
}

fn check_node(node: &[u8]) -> Result<(), RequestError> {
    match node.len() {
        ..=NODE_LIMIT => Ok(()),
        length => Err(RequestError::NodeTooLarge { length }),
    }
}

pub(crate) fn digest_of(content: &[u8]) -> u128 {
    xxh3_128_with_seed(content, seed())
}

/// Secret, so that a client cannot construct two requests with the same digest.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::envoy::config::core::v3::Node;
    use heliograph_envoy::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DiscoveryRequest,
    };
    use heliograph_envoy::{Message as _, append_message};

    fn scan(protocol: Protocol, message: Vec<u8>) -> Result<Scanned, RequestError> {
        Scanned::of(protocol, &message.into())
    }

    fn delta(subscribe: &[&str], held: &[(&str, &str)]) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            type_url: "a type".to_owned(),
            response_nonce: "a nonce".to_owned(),
            resource_names_subscribe: subscribe.iter().map(|name| name.to_string()).collect(),
            initial_resource_versions: held
                .iter()
                .map(|(name, version)| (name.to_string(), version.to_string()))
                .collect(),
            ..Default::default()
        }
    }

    fn digest(request: &DeltaDiscoveryRequest) -> u128 {
        scan(Protocol::Delta, request.encode_to_vec()).unwrap().digest
    }

    #[test]
    fn type_nonce_and_node_are_found_in_both_protocols() {
        let node = Some(Node { id: "me".to_owned(), ..Default::default() });
        let delta = DeltaDiscoveryRequest { node: node.clone(), ..delta(&["a"], &[]) };
        let whole = DiscoveryRequest {
            node: node.clone(),
            type_url: "a type".to_owned(),
            response_nonce: "a nonce".to_owned(),
            ..Default::default()
        };
        for (protocol, message) in [
            (Protocol::Delta, delta.encode_to_vec()),
            (Protocol::StateOfTheWorld, whole.encode_to_vec()),
        ] {
            let scanned = scan(protocol, message).unwrap();
            assert_eq!((&*scanned.type_url, &*scanned.nonce), ("a type", "a nonce"));
            assert_eq!(Node::decode(scanned.node.unwrap()).ok(), node);
            let rest = scan(protocol, scanned.rest.to_vec()).unwrap();
            assert!(rest.node.is_none());
            assert_eq!((rest.type_url, rest.digest), (scanned.type_url, scanned.digest));
        }
    }

    #[test]
    fn a_digest_is_of_what_is_asked_for() {
        let request = delta(&["a", "b"], &[("c", "1"), ("d", "2")]);
        let same = DeltaDiscoveryRequest {
            node: Some(Node { id: "another".to_owned(), ..Default::default() }),
            response_nonce: "another".to_owned(),
            ..delta(&["b", "a"], &[("c", "1"), ("d", "2")])
        };
        assert_eq!(digest(&request), digest(&same));
        for other in [
            delta(&["a"], &[("c", "1"), ("d", "2")]),
            delta(&["a", "c"], &[("c", "1"), ("d", "2")]),
            delta(&["a", "b"], &[("c", "2"), ("d", "1")]),
            DeltaDiscoveryRequest {
                resource_names_subscribe: Vec::new(),
                resource_names_unsubscribe: vec!["a".to_owned(), "b".to_owned()],
                ..request.clone()
            },
            DeltaDiscoveryRequest { error_detail: Some(Default::default()), ..request.clone() },
        ] {
            assert_ne!(digest(&request), digest(&other), "{other:?}");
        }
    }

    /// A request with so many empty parts in this field.
    fn empty_parts(field: u8, count: usize) -> Vec<u8> {
        [field << 3 | 2, 0].repeat(count)
    }

    #[test]
    fn what_would_mean_another_thing_in_another_order_is_refused() {
        for (protocol, field) in
            [(Protocol::Delta, 7), (Protocol::StateOfTheWorld, 1), (Protocol::StateOfTheWorld, 6)]
        {
            assert!(scan(protocol, empty_parts(field, 1)).is_ok());
            assert!(scan(protocol, empty_parts(field, 2)).is_err(), "{protocol:?}, field {field}");
        }
    }

    #[test]
    fn too_many_parts_are_refused_before_they_are_decoded() {
        for (protocol, fields) in
            [(Protocol::Delta, &[3, 4, 5, 8, 9][..]), (Protocol::StateOfTheWorld, &[3, 7])]
        {
            for field in fields {
                let most = scan(protocol, empty_parts(*field, NAMES_LIMIT));
                assert!(!matches!(most, Err(RequestError::TooManyNames { .. })), "field {field}");
                let error = scan(protocol, empty_parts(*field, NAMES_LIMIT + 1)).unwrap_err();
                let count = NAMES_LIMIT + 1;
                let type_url = String::new();
                assert_eq!(error, RequestError::TooManyNames { type_url, count }, "field {field}");
            }
        }
        // Of two fields of locators it is the sum.
        let half = NAMES_LIMIT / 2 + 1;
        let both = [empty_parts(8, half), empty_parts(9, half)].concat();
        assert!(matches!(scan(Protocol::Delta, both), Err(RequestError::TooManyNames { .. })));
    }

    #[test]
    fn too_many_details_of_an_error_are_refused() {
        for (protocol, field) in [(Protocol::Delta, 7), (Protocol::StateOfTheWorld, 6)] {
            let error = |count| {
                let mut message = Vec::new();
                append_message(&mut message, field, &empty_parts(3, count));
                scan(protocol, message).map(|_| ())
            };
            assert_eq!(error(DETAILS_LIMIT), Ok(()));
            let count = DETAILS_LIMIT + 1;
            assert_eq!(error(count), Err(RequestError::TooManyDetails { count }));
        }
    }

    #[test]
    fn a_large_node_is_refused() {
        for (protocol, field) in [(Protocol::Delta, 1), (Protocol::StateOfTheWorld, 2)] {
            let node = |length| {
                let mut message = Vec::new();
                append_message(&mut message, field, &vec![0; length]);
                scan(protocol, message).map(|_| ())
            };
            assert_eq!(node(NODE_LIMIT), Ok(()));
            let length = NODE_LIMIT + 1;
            assert_eq!(node(length), Err(RequestError::NodeTooLarge { length }));
        }
    }

    #[test]
    fn names_and_versions_have_an_overhead() {
        let of = |request: DeltaDiscoveryRequest| {
            scan(Protocol::Delta, request.encode_to_vec()).unwrap().overhead / DECODED_TEXT
        };
        let request = delta(&["a", "b"], &[("c", "1")]);
        assert_eq!(of(DeltaDiscoveryRequest::default()), 0);
        assert_eq!(of(request.clone()), 4);
        let node = Some(Node { client_features: vec![String::new(); 100], ..Default::default() });
        assert_eq!(of(DeltaDiscoveryRequest { node, ..request }), 4);
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let message = delta(&["name"], &[("held", "version")]).encode_to_vec();
        let whole = message.len();
        let refused = (1..whole)
            .filter(|cut| scan(Protocol::Delta, message[..whole - cut].to_vec()).is_err());
        // At the ends of the five fields it is another message.
        assert_eq!(refused.count(), whole - 1 - 3);
    }

    #[test]
    fn a_field_of_another_type_is_refused_and_one_that_is_not_known_is_not() {
        for (protocol, last) in [(Protocol::Delta, 9), (Protocol::StateOfTheWorld, 7)] {
            for field in 1..=last {
                let fixed = vec![field << 3 | 5, 0, 0x60, 0x2d, 0];
                assert!(scan(protocol, fixed).is_err(), "{protocol:?}, field {field}");
            }
            assert!(scan(protocol, vec![(last + 1) << 3 | 5, 0, 0x60, 0x2d, 0]).is_ok());
        }
    }
}
