use crate::reply::{Reply, Response};
use crate::session::Protocol;
use bytes::Bytes;
use heliograph_envoy::envoy::config::core::v3::ControlPlane;
use heliograph_envoy::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource as DeltaResource,
};
use heliograph_envoy::{Any, Message as _};
use heliograph_snapshot::{Resource, ResourceType, Version};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// A response on the wire: `own`, then `shared`, then `removed`. Protobuf fields may come in any order, so pieces that are put
/// one after the other are one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The nonce and the control plane's name: small, and this stream's alone.
    pub own: Bytes,
    /// The names that are removed, the same bytes for every stream from which the same ones are removed. They are a piece of their own,
    /// because a client can ask for any names that there are not: the answer would be no other's, resources and all.
    pub removed: Bytes,
    /// All the rest, the same bytes for every stream that is sent the same resources.
    pub shared: Bytes,
}

/// A response that is encoded once for all streams to which it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Encoded {
    removed: Bytes,
    shared: Bytes,
}

/// Recently encoded responses. Streams that receive the same response share one encoding; they receive it at nearly the
/// same time, so a few are enough for each class of clients.
#[derive(Debug, Default)]
pub struct Encodings {
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    encodings: VecDeque<(Key, Bytes)>,
    bytes: usize,
}

/// Identifies the content of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    protocol: Protocol,
    kind: ResourceType,
    version: String,
    content: Content,
}

/// Which piece, and a digest of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Resources(Version),
    Removed(Version),
}

/// Bounds of what is kept beyond the life of the streams' own use.
const COUNT_LIMIT: usize = 256;
const BYTES_LIMIT: usize = 64 << 20;
/// Fewer names that are removed are not kept: they would push out what is sent to more streams.
const FEW_REMOVED: usize = 64;

impl Message {
    /// How many bytes it has.
    pub fn size(&self) -> usize {
        self.own.len() + self.removed.len() + self.shared.len()
    }
}

impl Encodings {
    /// `identifier` names this replica to the client.
    pub fn message(&self, protocol: Protocol, reply: &Reply, identifier: &str) -> Message {
        let encoded = reply.encoded.get_or_init(|| self.encoded(protocol, reply)).clone();
        let Encoded { removed, shared } = encoded;
        Message { own: encode_own(protocol, &reply.nonce, identifier), removed, shared }
    }

    /// Streams that reached this state in different ways may be sent the same, too.
    fn encoded(&self, protocol: Protocol, response: &Response) -> Encoded {
        let key = |content| Key::of(protocol, response, content);
        let removed = match response.removed.len() {
            ..=FEW_REMOVED => encode_removed(response),
            _ => self.find_or_insert(key(removed_in(response)), || encode_removed(response)),
        };
        let shared =
            self.find_or_insert(key(resources_in(response)), || encode_shared(protocol, response));
        Encoded { removed, shared }
    }

    fn find_or_insert(&self, key: Key, encode: impl FnOnce() -> Bytes) -> Bytes {
        // Encoded outside the lock: other streams have other things to say meanwhile.
        self.find(&key).unwrap_or_else(|| self.insert(key, encode()))
    }

    fn find(&self, key: &Key) -> Option<Bytes> {
        let recent = self.recent.lock();
        recent.find(key)
    }

    fn insert(&self, key: Key, bytes: Bytes) -> Bytes {
        let mut recent = self.recent.lock();
        if let Some(earlier) = recent.find(&key) {
            return earlier;
        }
        recent.bytes += bytes.len();
        recent.encodings.push_back((key, bytes.clone()));
        while recent.encodings.len() > COUNT_LIMIT || recent.bytes > BYTES_LIMIT {
            let Some((_, oldest)) = recent.encodings.pop_front() else { break };
            recent.bytes -= oldest.len();
        }
        bytes
    }
}

impl Recent {
    fn find(&self, key: &Key) -> Option<Bytes> {
        // The newest is the likeliest.
        let found = self.encodings.iter().rev().find(|(known, _)| known == key);
        found.map(|(_, bytes)| bytes.clone())
    }
}

impl Key {
    fn of(protocol: Protocol, response: &Response, content: Content) -> Self {
        Self { protocol, kind: response.kind, version: response.version.clone(), content }
    }
}

fn resources_in(response: &Response) -> Content {
    let resources = response.resources.iter();
    let resources = resources.map(|resource| (&*resource.name, resource.version));
    Content::Resources(Version::of_set(resources))
}

fn removed_in(response: &Response) -> Content {
    let nothing = Version::of(b"");
    Content::Removed(Version::of_set(response.removed.iter().map(|name| (&**name, nothing))))
}

/// State of the world has no words for it, and nothing is removed there.
fn encode_removed(response: &Response) -> Bytes {
    let removed_resources = response.removed.iter().map(|name| name.to_string()).collect();
    DeltaDiscoveryResponse { removed_resources, ..Default::default() }.encode_to_vec().into()
}

fn encode_shared(protocol: Protocol, response: &Response) -> Bytes {
    let type_url = response.kind.type_url();
    let body =
        |resource: &Resource| Any { type_url: type_url.to_owned(), value: resource.body.clone() };
    let bytes = match protocol {
        Protocol::Delta => DeltaDiscoveryResponse {
            system_version_info: response.version.clone(),
            type_url: type_url.to_owned(),
            resources: response
                .resources
                .iter()
                .map(|resource| DeltaResource {
                    name: resource.name.to_string(),
                    version: resource.version.to_string(),
                    resource: Some(body(resource)),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }
        .encode_to_vec(),
        Protocol::StateOfTheWorld => DiscoveryResponse {
            version_info: response.version.clone(),
            type_url: type_url.to_owned(),
            resources: response.resources.iter().map(|resource| body(resource)).collect(),
            ..Default::default()
        }
        .encode_to_vec(),
    };
    bytes.into()
}

fn encode_own(protocol: Protocol, nonce: &str, identifier: &str) -> Bytes {
    let nonce = nonce.to_owned();
    let control_plane = Some(ControlPlane { identifier: identifier.to_owned() });
    let bytes = match protocol {
        Protocol::Delta => {
            DeltaDiscoveryResponse { nonce, control_plane, ..Default::default() }.encode_to_vec()
        }
        Protocol::StateOfTheWorld => {
            DiscoveryResponse { nonce, control_plane, ..Default::default() }.encode_to_vec()
        }
    };
    bytes.into()
}
