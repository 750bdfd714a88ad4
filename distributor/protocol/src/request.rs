use crate::scan::{Scanned, digest_of};
use crate::session::Protocol;
use bytes::Bytes;
use heliograph_envoy::Message as _;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use heliograph_envoy::google::rpc::Status;
use heliograph_snapshot::ResourceType;
use prost::DecodeError;
use std::collections::BTreeMap;

/// A request of either protocol, without the node, which belongs to the stream.
///
/// What it asks for may be long, and most clients ask what others asked before: it is read only where nobody did.
#[derive(Clone, Debug)]
pub struct Request {
    kind: Option<ResourceType>,
    nonce: String,
    digest: u128,
    content: Content,
}

/// What the client wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// State of the world: all names, each time, and the version last accepted.
    Whole { names: Vec<String>, version: String },
    /// Delta: more names and fewer, and on a type's first request what the client still holds from before.
    Change { subscribe: Vec<String>, unsubscribe: Vec<String>, held: BTreeMap<String, String> },
}

#[derive(Clone, Debug)]
enum Content {
    Wire(Protocol, Bytes),
    Read { error: Option<String>, asks: Asks },
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
}

/// How many names of one type a request may carry and a stream may ask for, how long each may be, and all together.
pub const NAMES_LIMIT: usize = 200_000;
pub const NAME_LENGTH_LIMIT: usize = 1 << 10;
pub const NAMES_BYTES_LIMIT: usize = 16 << 20;
/// How much of a client's error text is read.
const ERROR_LIMIT: usize = 16 << 10;
/// How much of a type that is not known is repeated in an error.
const TYPE_LIMIT: usize = 200;

impl Request {
    /// A message as it came, and the node that was in it, unread.
    pub fn scan(protocol: Protocol, message: Bytes) -> Result<(Self, Option<Bytes>), RequestError> {
        let Scanned { type_url, nonce, node, rest, digest } = Scanned::of(protocol, &message)?;
        let (kind, content) =
            (ResourceType::from_type_url(&type_url), Content::Wire(protocol, rest));
        Ok((Self { kind, nonce, digest, content }, node))
    }

    /// An error is a rejection: the spec's preferred mark of a NACK, and the only one that is right for every type.
    pub fn new(type_url: &str, nonce: &str, error: Option<&str>, asks: Asks) -> Self {
        Self {
            kind: ResourceType::from_type_url(type_url),
            nonce: nonce.to_owned(),
            digest: digest_of(format!("{error:?} {asks:?}").as_bytes()),
            content: Content::Read { error: error.map(str::to_owned), asks },
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

    /// Whether it can be read, and does not ask for too much. For who keeps it unread for long.
    pub fn check(&self) -> Result<(), RequestError> {
        self.read().map(|_| ())
    }

    /// Of the error and of what is asked for. Equal digests mean the same; another order may have another digest.
    pub(crate) fn digest(&self) -> u128 {
        self.digest
    }

    /// The error, and what is asked for.
    pub(crate) fn read(&self) -> Result<(Option<String>, Asks), RequestError> {
        match &self.content {
            Content::Read { error, asks } => Ok((error.clone(), asks.clone())),
            Content::Wire(Protocol::Delta, message) => {
                delta(DeltaDiscoveryRequest::decode(message.clone())?)
            }
            Content::Wire(Protocol::StateOfTheWorld, message) => {
                whole(DiscoveryRequest::decode(message.clone())?)
            }
        }
    }
}

fn whole(request: DiscoveryRequest) -> Result<(Option<String>, Asks), RequestError> {
    check(&request.type_url, request.resource_names.iter().map(String::as_str))?;
    let asks = Asks::Whole { names: request.resource_names, version: request.version_info };
    Ok((request.error_detail.map(words), asks))
}

fn delta(request: DeltaDiscoveryRequest) -> Result<(Option<String>, Asks), RequestError> {
    let held = &request.initial_resource_versions;
    check(&request.type_url, request.resource_names_subscribe.iter().map(String::as_str))?;
    check(&request.type_url, request.resource_names_unsubscribe.iter().map(String::as_str))?;
    check(&request.type_url, held.keys().map(String::as_str))?;
    check(&request.type_url, held.values().map(String::as_str))?;
    let asks = Asks::Change {
        subscribe: request.resource_names_subscribe,
        unsubscribe: request.resource_names_unsubscribe,
        held: request.initial_resource_versions,
    };
    Ok((request.error_detail.map(words), asks))
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

/// An error without words is still a rejection. A long one is cut before anyone looks for names in it.
fn words(status: Status) -> String {
    match bounded(status.message.trim(), ERROR_LIMIT) {
        "" => format!("code {}", status.code),
        message => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for (error, _) in [super::whole(whole).unwrap(), super::delta(delta).unwrap()] {
            assert_eq!(error.unwrap().len(), ERROR_LIMIT);
        }
    }

    #[test]
    fn long_names_and_versions_are_refused() {
        let long = || "x".repeat(NAME_LENGTH_LIMIT + 1);
        let whole = DiscoveryRequest { resource_names: vec![long()], ..Default::default() };
        let refused = RequestError::TooLong { type_url: String::new(), length: long().len() };
        assert_eq!(super::whole(whole).unwrap_err(), refused);
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
            assert_eq!(super::delta(delta).unwrap_err(), refused);
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
