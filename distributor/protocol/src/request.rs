use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use heliograph_envoy::google::rpc::Status;
use std::collections::BTreeMap;

/// A request of either protocol, without the node, which belongs to the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub type_url: String,
    /// The reply that this acknowledges or rejects; empty when it does neither.
    pub nonce: String,
    /// Present: a rejection. The spec's preferred mark of a NACK, and the only one that is right for every type.
    pub error: Option<String>,
    pub asks: Asks,
}

/// What the client wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// State of the world: all names, each time, and the version last accepted.
    Whole { names: Vec<String>, version: String },
    /// Delta: more names and fewer, and on a type's first request what the client still holds from before.
    Change { subscribe: Vec<String>, unsubscribe: Vec<String>, held: BTreeMap<String, String> },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error(
        "{count} names of {type_url}: a stream may name at most {NAMES_LIMIT}; ask with the wildcard \"*\" instead"
    )]
    TooManyNames { type_url: String, count: usize },
}

/// How many names of one type a request may carry and a stream may ask for.
pub const NAMES_LIMIT: usize = 200_000;

impl TryFrom<DiscoveryRequest> for Request {
    type Error = RequestError;

    fn try_from(request: DiscoveryRequest) -> Result<Self, RequestError> {
        check(&request.type_url, request.resource_names.len())?;
        Ok(Self {
            type_url: request.type_url,
            nonce: request.response_nonce,
            error: request.error_detail.map(words),
            asks: Asks::Whole { names: request.resource_names, version: request.version_info },
        })
    }
}

impl TryFrom<DeltaDiscoveryRequest> for Request {
    type Error = RequestError;

    fn try_from(request: DeltaDiscoveryRequest) -> Result<Self, RequestError> {
        check(&request.type_url, request.resource_names_subscribe.len())?;
        check(&request.type_url, request.resource_names_unsubscribe.len())?;
        check(&request.type_url, request.initial_resource_versions.len())?;
        Ok(Self {
            type_url: request.type_url,
            nonce: request.response_nonce,
            error: request.error_detail.map(words),
            asks: Asks::Change {
                subscribe: request.resource_names_subscribe,
                unsubscribe: request.resource_names_unsubscribe,
                held: request.initial_resource_versions,
            },
        })
    }
}

pub(crate) fn check(type_url: &str, count: usize) -> Result<(), RequestError> {
    if count > NAMES_LIMIT {
        // The type is a client's text, and may be long.
        let type_url = type_url.chars().take(200).collect();
        return Err(RequestError::TooManyNames { type_url, count });
    }
    Ok(())
}

/// An error without words is still a rejection.
fn words(status: Status) -> String {
    match status.message.trim() {
        "" => format!("code {}", status.code),
        message => message.to_owned(),
    }
}
