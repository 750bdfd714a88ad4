use crate::wire::Protocol;
use bytes::Bytes;
use heliograph_envoy::Any;
use heliograph_envoy::envoy::config::core::v3::ControlPlane;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use heliograph_snapshot::ResourceType;
use prost::{DecodeError, Message};

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub kind: ResourceType,
    pub nonce: String,
    pub version: String,
    /// The server's name for itself.
    pub control_plane: String,
    pub names: Vec<String>,
    pub removed: Vec<String>,
    /// A whole list: what is not in it is gone.
    pub whole: bool,
    pub accepted: bool,
}

/// A response in the words of either protocol.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) kind: ResourceType,
    pub(crate) nonce: String,
    pub(crate) version: String,
    pub(crate) control_plane: String,
    /// Version and body; the version is empty in state of the world.
    pub(crate) resources: Vec<(String, Bytes)>,
    pub(crate) removed: Vec<String>,
    /// A whole list: what is not in it is gone.
    pub(crate) whole: bool,
}

impl Response {
    /// Reads a message, with its nonce beside it. One of a type that is not served here is of no interest.
    pub(crate) fn read(
        protocol: Protocol,
        nonce: &[u8],
        content: Bytes,
    ) -> Result<Option<Self>, DecodeError> {
        let nonce = String::from_utf8_lossy(nonce).into_owned();
        Ok(match protocol {
            Protocol::Delta => delta(DeltaDiscoveryResponse::decode(content)?, nonce),
            Protocol::StateOfTheWorld => whole(DiscoveryResponse::decode(content)?, nonce),
        })
    }
}

fn delta(response: DeltaDiscoveryResponse, nonce: String) -> Option<Response> {
    let resources = response.resources.into_iter();
    Some(Response {
        kind: ResourceType::from_type_url(&response.type_url)?,
        nonce,
        version: response.system_version_info,
        control_plane: identifier(response.control_plane),
        resources: resources
            .map(|resource| (resource.version, resource.resource.unwrap_or_default().value))
            .collect(),
        removed: response.removed_resources,
        whole: false,
    })
}

fn whole(response: DiscoveryResponse, nonce: String) -> Option<Response> {
    let kind = ResourceType::from_type_url(&response.type_url)?;
    let body = |resource: Any| (String::new(), resource.value);
    Some(Response {
        kind,
        nonce,
        version: response.version_info,
        control_plane: identifier(response.control_plane),
        resources: response.resources.into_iter().map(body).collect(),
        removed: Vec::new(),
        whole: kind.is_asked_whole(),
    })
}

fn identifier(control_plane: Option<ControlPlane>) -> String {
    control_plane.unwrap_or_default().identifier
}
