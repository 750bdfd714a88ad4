use crate::input::Input;
use bytes::Bytes;
use heliograph_distributor_protocol::{Protocol, Request, RequestError};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use heliograph_snapshot::ResourceType;

/// A scan says of a message what a decoder of all of it says, and refuses nearly nothing that the decoder takes.
pub(crate) fn read(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let protocol = input.protocol();
    let message: Bytes = input.message(protocol, &[]).into();
    let scanned = Request::scan(protocol, message.clone());
    match (scanned, decode(protocol, message)) {
        (Ok((request, node)), Some((type_url, nonce, whole))) => {
            assert_eq!(request.kind(), ResourceType::from_type_url(&type_url));
            assert_eq!(request.nonce(), nonce);
            assert_eq!(node.map(|node| Node::decode(node).expect("a node")), whole);
            if let Err(error @ RequestError::Malformed(_)) = request.check() {
                assert!(error.to_string().contains("comes twice"), "{error}");
            }
        }
        // What is wrong may be in the node, which is not read here.
        (Ok((request, _)), None) => drop(request.check()),
        // It is stricter in three ways.
        (Err(error), Some(_)) => {
            let words = error.to_string();
            let known = ["two nodes", "type of another", "comes twice"];
            assert!(known.into_iter().any(|known| words.contains(known)), "{words}");
        }
        (Err(_), None) => {}
    }
}

/// The type, the nonce and the node, if all of the message is good.
fn decode(protocol: Protocol, message: Bytes) -> Option<(String, String, Option<Node>)> {
    Some(match protocol {
        Protocol::Delta => {
            let request = DeltaDiscoveryRequest::decode(message).ok()?;
            (request.type_url, request.response_nonce, request.node)
        }
        Protocol::StateOfTheWorld => {
            let request = DiscoveryRequest::decode(message).ok()?;
            (request.type_url, request.response_nonce, request.node)
        }
    })
}
