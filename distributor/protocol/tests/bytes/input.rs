//! Bytes that become choices.

use heliograph_distributor_protocol::Protocol;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::core::v3::Node;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};
use heliograph_envoy::google::rpc::Status;
use heliograph_snapshot::ResourceType;

/// When the bytes are used up, every choice is the first.
pub(crate) struct Input<'a>(&'a [u8]);

const NAMES: [&str; 6] = ["a", "b", "c", "", "*", "default/\u{fc}"];

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or_default()
    }

    /// One of so many, which are few.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    pub(crate) fn protocol(&mut self) -> Protocol {
        [Protocol::Delta, Protocol::StateOfTheWorld][self.below(2)]
    }

    /// Some of the bytes as they are.
    pub(crate) fn some(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.0.len());
        self.0.split_off(..count).unwrap_or_default()
    }

    /// A request: anything, or one that a client could send, or nearly so. `nonces` are those that it has heard of.
    pub(crate) fn message(&mut self, protocol: Protocol, nonces: &[String]) -> Vec<u8> {
        let choice = self.below(16);
        if choice == 0 {
            return self.some().to_vec();
        }
        let mut message = match protocol {
            Protocol::Delta => self.delta(nonces).encode_to_vec(),
            Protocol::StateOfTheWorld => self.whole(nonces).encode_to_vec(),
        };
        if choice == 1 {
            self.damage(&mut message);
        }
        message
    }

    fn delta(&mut self, nonces: &[String]) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: self.node(),
            type_url: self.type_url(),
            response_nonce: self.nonce(nonces),
            error_detail: self.error(),
            resource_names_subscribe: self.names(),
            resource_names_unsubscribe: self.names(),
            initial_resource_versions: {
                let versions = self.names();
                self.names().into_iter().zip(versions).collect()
            },
            ..Default::default()
        }
    }

    fn whole(&mut self, nonces: &[String]) -> DiscoveryRequest {
        DiscoveryRequest {
            node: self.node(),
            type_url: self.type_url(),
            response_nonce: self.nonce(nonces),
            error_detail: self.error(),
            resource_names: self.names(),
            version_info: self.names().concat(),
            ..Default::default()
        }
    }

    fn node(&mut self) -> Option<Node> {
        let node = || Node { cluster: "default/gateway".to_owned(), ..Default::default() };
        (self.below(4) == 1).then(node)
    }

    fn type_url(&mut self) -> String {
        match self.below(ResourceType::ALL.len() + 1) {
            0 => "of nobody".to_owned(),
            kind => ResourceType::ALL[kind - 1].type_url().to_owned(),
        }
    }

    fn nonce(&mut self, nonces: &[String]) -> String {
        match self.below(nonces.len() + 2) {
            0 => String::new(),
            1 => "of nobody".to_owned(),
            known => nonces[known - 2].clone(),
        }
    }

    fn error(&mut self) -> Option<Status> {
        let message = match self.below(8) {
            0 => "a: no".to_owned(),
            1 => String::new(),
            _ => return None,
        };
        Some(Status { message, ..Default::default() })
    }

    fn names(&mut self) -> Vec<String> {
        let count = self.below(4);
        (0..count).map(|_| NAMES[self.below(NAMES.len())].to_owned()).collect()
    }

    /// Cuts the message, or changes a byte of it, or puts some in.
    pub(crate) fn damage(&mut self, message: &mut Vec<u8>) {
        if message.is_empty() {
            return;
        }
        let at = self.below(message.len().min(256));
        match self.below(3) {
            0 => message.truncate(at),
            1 => message[at] = self.byte(),
            _ => drop(message.splice(at..at, self.some().iter().copied())),
        }
    }
}
