use crate::request::RequestError;
use crate::session::Protocol;
use bytes::Bytes;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// What is known of a request without reading what it asks for: a client that connects again lists all that it
/// holds, 240 KB with 2,000 resources.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) type_url: String,
    pub(crate) nonce: String,
    pub(crate) node: Option<Bytes>,
    /// The message without it: a real Envoy's is 61 KB, and what is left may be kept for long.
    pub(crate) rest: Bytes,
    /// Of all the rest, in whatever order it comes: Envoy writes what it holds in another order each time.
    pub(crate) digest: u128,
}

/// The numbers of the fields that are looked at.
struct Fields {
    node: u32,
    type_url: u32,
    nonce: u32,
    /// Up to this one all fields are texts or messages.
    last: u32,
}

const DELTA: Fields = Fields { node: 1, type_url: 2, nonce: 6, last: 9 };
const WHOLE: Fields = Fields { node: 2, type_url: 4, nonce: 5, last: 7 };

impl Scanned {
    pub(crate) fn of(protocol: Protocol, message: &Bytes) -> Result<Self, RequestError> {
        let fields = match protocol {
            Protocol::Delta => DELTA,
            Protocol::StateOfTheWorld => WHOLE,
        };
        let mut scanned = Self { rest: message.clone(), ..Self::default() };
        let mut rest = &message[..];
        while !rest.is_empty() {
            let begin = rest;
            let (field, wire) = decode_key(&mut rest)?;
            if wire != WireType::LengthDelimited {
                // The decoder would read a map of any wire type as if it were one, and find other fields behind it
                // than there are.
                if field <= fields.last {
                    return Err(malformed("a field of it has the type of another"));
                }
                let before = rest;
                skip_field(wire, field, &mut rest, DecodeContext::default())?;
                scanned.add(field, wire, &before[..before.len() - rest.len()]);
                continue;
            }
            let length = decode_varint(&mut rest)?;
            let value = usize::try_from(length).ok().and_then(|it| rest.split_off(..it));
            let value = value.ok_or_else(|| malformed("it is cut off"))?;
            if field == fields.node {
                if scanned.node.is_some() {
                    return Err(malformed("it has two nodes"));
                }
                scanned.node = Some(message.slice_ref(value));
                let before = &message[..message.len() - begin.len()];
                scanned.rest = [before, rest].concat().into();
            } else if field == fields.type_url {
                scanned.type_url = text(value)?;
            } else if field == fields.nonce {
                scanned.nonce = text(value)?;
            } else {
                scanned.add(field, wire, value);
            }
        }
        Ok(scanned)
    }

    fn add(&mut self, field: u32, wire: WireType, value: &[u8]) {
        let key = u64::from(field) << 3 | wire as u64;
        let digest = xxh3_128_with_seed(value, seed().wrapping_add(key));
        self.digest = self.digest.wrapping_add(digest);
    }
}

pub(crate) fn digest_of(content: &[u8]) -> u128 {
    xxh3_128_with_seed(content, seed())
}

fn text(value: &[u8]) -> Result<String, RequestError> {
    let text = std::str::from_utf8(value).map(str::to_owned);
    text.map_err(|_| malformed("its type or nonce is not UTF-8"))
}

fn malformed(reason: &str) -> RequestError {
    RequestError::Malformed(reason.to_owned())
}

/// Unknown outside, so that nobody can tell which two requests have the same digest.
fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| RandomState::new().hash_one(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::Message as _;
    use heliograph_envoy::envoy::config::core::v3::Node;
    use heliograph_envoy::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DiscoveryRequest,
    };

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
