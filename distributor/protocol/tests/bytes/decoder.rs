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
            let checked = request.check();
            assert!(!matches!(checked, Err(RequestError::Malformed(_))), "{checked:?}");
        }
        // What is wrong may be in the node, which is not read here.
        (Ok((request, _)), None) => drop(request.check()),
        // It is stricter in two ways.
        (Err(error), Some(_)) => {
            let words = error.to_string();
            assert!(words.contains("two nodes") || words.contains("type of another"), "{words}");
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
