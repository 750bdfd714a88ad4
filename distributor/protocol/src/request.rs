use crate::node::NODE_LIMIT;
use crate::scan::{Scanned, digest_of};
use crate::session::Protocol;
use crate::wire::malformed;
use bytes::Bytes;
use heliograph_snapshot::ResourceType;
use prost::{DecodeError, Message};
use std::collections::BTreeMap;

/// A request of either protocol, without the node, which belongs to the stream.
///
/// Its list of names may be long, and most clients send the same as others before: it is decoded only the first time.
#[derive(Clone, Debug)]
pub struct Request {
    kind: Option<ResourceType>,
    nonce: String,
    digest: u128,
    overhead: usize,
    content: Content,
}

/// The resources that a client subscribes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionRequest {
    /// State of the world: all names, each time, and the version last accepted.
    Whole { names: Vec<String>, version: String },
    /// Delta: more names and fewer, and on a type's first request what the client still holds from before.
    Change { subscribe: Vec<String>, unsubscribe: Vec<String>, held: BTreeMap<String, String> },
}

#[derive(Clone, Debug)]
enum Content {
    Wire {
        protocol: Protocol,
        message: Bytes,
        /// Of how many resources it says a version that is held.
        held: usize,
    },
    Read {
        error: Option<String>,
        subscription_request: SubscriptionRequest,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("not a discovery request: {0}")]
    Malformed(String),
    #[error(
        "{count} names of {type_url}: a stream may name at most {NAMES_LIMIT}; ask with the wildcard \"*\" instead"
    )]
    TooManyNames { type_url: String, count: usize },
    #[error(
        "a name or version of {length} bytes in a request for {type_url}: at most {NAME_LENGTH_LIMIT} are allowed"
    )]
    TooLong { type_url: String, length: usize },
    #[error(
        "{bytes} bytes of names of {type_url}: a stream may keep at most {NAMES_BYTES_LIMIT}; ask with the wildcard \
         \"*\" instead"
    )]
    TooManyBytes { type_url: String, bytes: usize },
    #[error(
        "{count} names of {type_url} that this fleet does not have: beside the {existing} that it has, a stream may name at \
         most {ABSENT_NAMES_LIMIT}"
    )]
    TooManyAbsent { type_url: String, count: usize, existing: usize },
    #[error("an error with {count} details: at most {DETAILS_LIMIT} are allowed")]
    TooManyDetails { count: usize },
    #[error("a node of {length} bytes: at most {NODE_LIMIT} are read")]
    NodeTooLarge { length: usize },
}

/// The fields of a `DeltaDiscoveryRequest` that are used. The decoder skips all others, like unknown ones.
#[derive(Clone, PartialEq, Message)]
struct DeltaFields {
    #[prost(string, tag = "2")]
    type_url: String,
    #[prost(string, repeated, tag = "3")]
    subscribe: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    unsubscribe: Vec<String>,
    #[prost(btree_map = "string, string", tag = "5")]
    held: BTreeMap<String, String>,
    #[prost(message, optional, tag = "7")]
    error: Option<ErrorFields>,
}

/// The same of a `DiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
struct WholeFields {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, repeated, tag = "3")]
    names: Vec<String>,
    #[prost(string, tag = "4")]
    type_url: String,
    #[prost(message, optional, tag = "6")]
    error: Option<ErrorFields>,
}

/// The same of a `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct ErrorFields {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// How many names of one type a request may carry and a stream may ask for, how long each may be, and all together.
pub const NAMES_LIMIT: usize = 200_000;
pub const NAME_LENGTH_LIMIT: usize = 1 << 10;
pub const NAMES_BYTES_LIMIT: usize = 16 << 20;
/// How many names of one type a stream may ask for that its view does not have, beyond as many as the view has: some that are
/// yet to come, and all of those that were just removed. Such names are a stream's own, and the others are the view's.
pub const ABSENT_NAMES_LIMIT: usize = 10_000;
/// How many details an error may have. They are not read, and an Envoy sends none.
pub(crate) const DETAILS_LIMIT: usize = 1000;
/// How much of a client's error text is read.
const ERROR_LIMIT: usize = 16 << 10;
/// How much of a type that is not known is repeated in an error.
pub(crate) const TYPE_LIMIT: usize = 200;

impl Request {
    /// A message as it came, and the node that was in it, unread ([`NodeFields`](crate::NodeFields)). One that has too many
    /// parts is refused before any of them is decoded.
    pub fn scan(protocol: Protocol, message: Bytes) -> Result<(Self, Option<Bytes>), RequestError> {
        let scanned = Scanned::of(protocol, &message)?;
        let Scanned { type_url, nonce, node, rest, digest, overhead, held } = scanned;
        let kind = ResourceType::from_type_url(&type_url);
        let content = Content::Wire { protocol, message: rest, held };
        Ok((Self { kind, nonce, digest, overhead, content }, node))
    }

    /// An error is a rejection: the spec's preferred mark of a NACK, and the only one that is right for every type.
    pub fn new(
        type_url: &str,
        nonce: &str,
        error: Option<&str>,
        subscription_request: SubscriptionRequest,
    ) -> Self {
        Self {
            kind: ResourceType::from_type_url(type_url),
            nonce: nonce.to_owned(),
            digest: digest_of(format!("{error:?} {subscription_request:?}").as_bytes()),
            overhead: 0,
            content: Content::Read { error: error.map(str::to_owned), subscription_request },
        }
    }

    /// The type that it is about, if it is served.
    pub fn kind(&self) -> Option<ResourceType> {
        self.kind
    }

    /// The reply that this acknowledges or rejects; empty when it does neither.
    pub fn nonce(&self) -> &str {
        &self.nonce
    }

    /// How much memory its names and versions take beside their bytes while it is read.
    pub fn overhead(&self) -> usize {
        self.overhead
    }

    /// How many bytes of it are kept for as long as it lives.
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Wire { message, .. } => message.len(),
            Content::Read { .. } => 0,
        }
    }

    /// Whether it can be read, and does not ask for too much. For who keeps it unread for long.
    pub fn check(&self) -> Result<(), RequestError> {
        self.read().map(|_| ())
    }

    /// Of the error and of what is asked for. Equal digests mean the same; another order may have another digest.
    pub(crate) fn digest(&self) -> u128 {
        self.digest
    }

    /// The error, and what is asked for.
    pub(crate) fn read(&self) -> Result<(Option<String>, SubscriptionRequest), RequestError> {
        match &self.content {
            Content::Read { error, subscription_request } => {
                Ok((error.clone(), subscription_request.clone()))
            }
            Content::Wire { protocol: Protocol::Delta, message, held } => {
                let request = DeltaFields::decode(message.clone())?;
                // Of two versions of one resource the last one counts, and the digest is the same in either order. What is
                // refused here is never decided, so no other request is taken for it.
                if request.held.len() != *held {
                    return Err(malformed("a version of one resource comes twice"));
                }
                delta(request)
            }
            Content::Wire { protocol: Protocol::StateOfTheWorld, message, .. } => {
                whole(WholeFields::decode(message.clone())?)
            }
        }
    }
}

fn whole(request: WholeFields) -> Result<(Option<String>, SubscriptionRequest), RequestError> {
    let WholeFields { version, names, type_url, error } = request;
    check(&type_url, names.iter().map(String::as_str))?;
    Ok((error.map(words), SubscriptionRequest::Whole { names, version }))
}

fn delta(request: DeltaFields) -> Result<(Option<String>, SubscriptionRequest), RequestError> {
    let DeltaFields { type_url, subscribe, unsubscribe, held, error } = request;
    check(&type_url, subscribe.iter().map(String::as_str))?;
    check(&type_url, unsubscribe.iter().map(String::as_str))?;
    check(&type_url, held.keys().map(String::as_str))?;
    check(&type_url, held.values().map(String::as_str))?;
    Ok((error.map(words), SubscriptionRequest::Change { subscribe, unsubscribe, held }))
}

impl From<DecodeError> for RequestError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Whether so many names, and so long ones, are allowed.
pub(crate) fn check<'a>(
    type_url: &str,
    names: impl ExactSizeIterator<Item = &'a str>,
) -> Result<(), RequestError> {
    // The type is a client's text, and may be long.
    let type_url = || bounded(type_url, TYPE_LIMIT).to_owned();
    let count = names.len();
    if count > NAMES_LIMIT {
        return Err(RequestError::TooManyNames { type_url: type_url(), count });
    }
    let mut bytes = 0;
    for name in names {
        if name.len() > NAME_LENGTH_LIMIT {
            return Err(RequestError::TooLong { type_url: type_url(), length: name.len() });
        }
        bytes += name.len();
    }
    if bytes > NAMES_BYTES_LIMIT {
        return Err(RequestError::TooManyBytes { type_url: type_url(), bytes });
    }
    Ok(())
}

/// The beginning of the text, cut where a character ends.
pub(crate) fn bounded(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    &text[..end]
}

/// An error without a text is still a rejection. A long text is cut before names are searched in it.
fn words(error: ErrorFields) -> String {
    match bounded(error.message.trim(), ERROR_LIMIT) {
        "" => format!("code {}", error.code),
        message => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_envoy::envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DiscoveryRequest,
    };
    use heliograph_envoy::google::rpc::Status;

    type Read = Result<(Option<String>, SubscriptionRequest), RequestError>;

    fn whole(request: DiscoveryRequest) -> Read {
        Request::scan(Protocol::StateOfTheWorld, request.encode_to_vec().into())?.0.read()
    }

    fn delta(request: DeltaDiscoveryRequest) -> Read {
        Request::scan(Protocol::Delta, request.encode_to_vec().into())?.0.read()
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(bounded("häuser", 2), "h");
        assert_eq!(bounded("haus", 10), "haus");
    }

    #[test]
    fn the_text_of_an_error_is_cut_when_it_is_read() {
        let message = "default/service-".repeat(1 << 17);
        let error_detail = Some(Status { message, ..Default::default() });
        let whole = DiscoveryRequest { error_detail: error_detail.clone(), ..Default::default() };
        let delta = DeltaDiscoveryRequest { error_detail, ..Default::default() };
        for (error, _) in [self::whole(whole).unwrap(), self::delta(delta).unwrap()] {
            assert_eq!(error.unwrap().len(), ERROR_LIMIT);
        }
    }

    #[test]
    fn long_names_and_versions_are_refused() {
        let long = || "x".repeat(NAME_LENGTH_LIMIT + 1);
        let whole = DiscoveryRequest { resource_names: vec![long()], ..Default::default() };
        let refused = RequestError::TooLong { type_url: String::new(), length: long().len() };
        assert_eq!(self::whole(whole).unwrap_err(), refused);
        let delta = DeltaDiscoveryRequest::default;
        for delta in [
            DeltaDiscoveryRequest { resource_names_subscribe: vec![long()], ..delta() },
            DeltaDiscoveryRequest { resource_names_unsubscribe: vec![long()], ..delta() },
            DeltaDiscoveryRequest {
                initial_resource_versions: [(long(), String::new())].into(),
                ..delta()
            },
            DeltaDiscoveryRequest {
                initial_resource_versions: [(String::new(), long())].into(),
                ..delta()
            },
        ] {
            assert_eq!(self::delta(delta).unwrap_err(), refused);
        }
    }

    #[test]
    fn two_versions_of_one_resource_are_refused() {
        let read = |entries: &[(&str, &str)]| {
            let entry = |(name, version): &(&str, &str)| DeltaDiscoveryRequest {
                initial_resource_versions: [(name.to_string(), version.to_string())].into(),
                ..Default::default()
            };
            // One message behind the other is one message.
            let message: Vec<u8> =
                entries.iter().flat_map(|it| entry(it).encode_to_vec()).collect();
            Request::scan(Protocol::Delta, message.into())?.0.check()
        };
        assert_eq!(read(&[("a", "1"), ("b", "1")]), Ok(()));
        for twice in [[("a", "1"), ("a", "2")], [("a", "1"), ("a", "1")], [("", "1"), ("", "2")]] {
            let error = read(&twice).unwrap_err();
            assert!(matches!(error, RequestError::Malformed(_)), "{error}");
        }
    }

    #[test]
    fn the_bytes_of_all_names_are_bounded() {
        let name = |n: usize| format!("{n:0NAME_LENGTH_LIMIT$}");
        let count = NAMES_BYTES_LIMIT / NAME_LENGTH_LIMIT;
        let request = |count| DeltaDiscoveryRequest {
            initial_resource_versions: (0..count).map(|n| (name(n), String::new())).collect(),
            ..Default::default()
        };
        assert!(delta(request(count)).is_ok());
        let error = delta(request(count + 1)).unwrap_err();
        assert!(matches!(error, RequestError::TooManyBytes { .. }), "{error}");
    }
}
