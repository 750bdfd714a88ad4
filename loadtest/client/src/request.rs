use crate::wire::Protocol;
use bytes::{BufMut, Bytes, BytesMut};
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use heliograph_envoy::google::rpc;
use heliograph_snapshot::ResourceType;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Code;

/// A request for either protocol.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) kind: ResourceType,
    /// Whether it bears the last nonce of its type.
    pub(crate) replies: bool,
    pub(crate) error: Option<String>,
    /// Delta.
    pub(crate) subscribe: Vec<Arc<str>>,
    pub(crate) unsubscribe: Vec<Arc<str>>,
    pub(crate) held: BTreeMap<Arc<str>, Arc<str>>,
    /// State of the world.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) version: Arc<str>,
}

/// A request without what is the client's own: node and nonce. Many clients share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    kind: ResourceType,
    replies: bool,
    protocol: Protocol,
    content: Bytes,
}

/// The last nonce of each type on a stream.
#[derive(Debug, Default)]
pub(crate) struct Nonces([Option<Box<[u8]>>; ResourceType::ALL.len()]);

/// A gRPC message starts with a byte for compression and four for its length.
pub(crate) const HEADER: usize = 5;
/// Smaller messages are copied into one frame with their header.
const SMALL: usize = 2048;

impl Request {
    pub(crate) fn new(protocol: Protocol, ask: Ask) -> Self {
        let (kind, replies) = (ask.kind, ask.replies);
        let content = match protocol {
            Protocol::Delta => delta(ask).encode_to_vec(),
            Protocol::StateOfTheWorld => whole(ask).encode_to_vec(),
        };
        Self { kind, replies, protocol, content: content.into() }
    }

    /// At most, without a node.
    pub(crate) fn length(&self, nonce: &[u8]) -> usize {
        HEADER + 16 + nonce.len() + self.content.len()
    }

    /// The bytes to send, in at most two parts: what is the client's own, and what is shared if that is large.
    pub(crate) fn framed(&self, node: Option<(&Node, &str)>, nonce: &[u8]) -> (Bytes, Bytes) {
        let (node_tag, nonce_tag) = match self.protocol {
            Protocol::Delta => (1, 6),
            Protocol::StateOfTheWorld => (2, 5),
        };
        let mut own =
            BytesMut::with_capacity(HEADER + 64 + nonce.len() + self.content.len().min(SMALL));
        own.put_bytes(0, HEADER);
        if let Some((node, id)) = node {
            // Of a field that comes twice the last counts.
            let id_len = 1 + encoded_len_varint(id.len() as u64) + id.len();
            encode_key(node_tag, WireType::LengthDelimited, &mut own);
            encode_varint((node.encoded_len() + id_len) as u64, &mut own);
            node.encode_raw(&mut own);
            field(1, id.as_bytes(), &mut own);
        }
        if !nonce.is_empty() {
            field(nonce_tag, nonce, &mut own);
        }
        let length = own.len() - HEADER + self.content.len();
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if let Some(header) = own.get_mut(1..HEADER) {
            header.copy_from_slice(&length.to_be_bytes());
        }
        if self.content.len() <= SMALL {
            own.put_slice(&self.content);
            return (own.freeze(), Bytes::new());
        }
        (own.freeze(), self.content.clone())
    }
}

impl Nonces {
    pub(crate) fn set(&mut self, kind: ResourceType, nonce: &[u8]) {
        if let Some(last) = self.0.get_mut(kind as usize) {
            *last = Some(nonce.into());
        }
    }

    pub(crate) fn of(&self, request: &Request) -> &[u8] {
        let last = self.0.get(request.kind as usize).filter(|_| request.replies);
        last.and_then(Option::as_deref).unwrap_or_default()
    }
}

fn field(tag: u32, value: &[u8], buffer: &mut BytesMut) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(value.len() as u64, buffer);
    buffer.put_slice(value);
}

fn delta(ask: Ask) -> DeltaDiscoveryRequest {
    let held = ask.held.iter().map(|(name, version)| (name.to_string(), version.to_string()));
    DeltaDiscoveryRequest {
        type_url: ask.kind.type_url().to_owned(),
        resource_names_subscribe: strings(&ask.subscribe),
        resource_names_unsubscribe: strings(&ask.unsubscribe),
        initial_resource_versions: held.collect(),
        error_detail: ask.error.map(detail),
        ..Default::default()
    }
}

fn whole(ask: Ask) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: ask.kind.type_url().to_owned(),
        resource_names: strings(&ask.names),
        version_info: ask.version.to_string(),
        error_detail: ask.error.map(detail),
        ..Default::default()
    }
}

fn strings(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn detail(message: String) -> rpc::Status {
    rpc::Status { code: Code::InvalidArgument.into(), message, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(names: usize) -> Ask {
        let name = |number| Arc::from(format!("a-name-that-is-not-short-{number}"));
        Ask {
            kind: ResourceType::Endpoints,
            replies: true,
            error: Some("no".to_owned()),
            subscribe: (0..names).map(name).collect(),
            unsubscribe: vec!["other".into()],
            held: [("held".into(), "1".into())].into(),
            names: (0..names).map(name).collect(),
            version: "7".into(),
        }
    }

    fn message(parts: (Bytes, Bytes)) -> Vec<u8> {
        let bytes = [parts.0, parts.1].concat();
        let (header, message) = bytes.split_at(HEADER);
        assert_eq!(header, [&[0], &(message.len() as u32).to_be_bytes()[..]].concat());
        message.to_vec()
    }

    /// Small and large requests are put together differently.
    #[test]
    fn a_request_says_who_asks_and_to_what_it_replies() {
        let node = Node { id: "shared".into(), cluster: "a/b".into(), ..Default::default() };
        let introduced = Some(Node { id: "me".into(), ..node.clone() });
        for names in [1, 1000] {
            let request = Request::new(Protocol::Delta, ask(names));
            let first = message(request.framed(Some((&node, "me")), b""));
            let first = DeltaDiscoveryRequest::decode(&*first).unwrap();
            let expected = delta(ask(names));
            assert_eq!(
                first,
                DeltaDiscoveryRequest { node: introduced.clone(), ..expected.clone() }
            );
            let later = message(request.framed(None, b"nonce"));
            let later = DeltaDiscoveryRequest::decode(&*later).unwrap();
            assert_eq!(later, DeltaDiscoveryRequest { response_nonce: "nonce".into(), ..expected });

            let request = Request::new(Protocol::StateOfTheWorld, ask(names));
            let both = message(request.framed(Some((&node, "me")), b"nonce"));
            let expected = DiscoveryRequest {
                node: introduced.clone(),
                response_nonce: "nonce".into(),
                ..whole(ask(names))
            };
            assert_eq!(DiscoveryRequest::decode(&*both).unwrap(), expected);
            assert!(request.length(b"nonce") >= message(request.framed(None, b"nonce")).len());
        }
    }

    #[test]
    fn only_a_reply_bears_a_nonce() {
        let mut nonces = Nonces::default();
        let reply = Request::new(Protocol::Delta, ask(1));
        assert_eq!(nonces.of(&reply), b"");
        nonces.set(ResourceType::Endpoints, b"7");
        nonces.set(ResourceType::Cluster, b"8");
        assert_eq!(nonces.of(&reply), b"7");
        assert_eq!(
            nonces.of(&Request::new(Protocol::Delta, Ask { replies: false, ..ask(1) })),
            b""
        );
    }
}
