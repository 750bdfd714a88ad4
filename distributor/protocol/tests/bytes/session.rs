use crate::input::Input;
use bytes::{Bytes, BytesMut};
use heliograph_distributor_protocol::{
    Encodings, Output, Protocol, Reply, Request, Session, TransitionCache, View,
};
use heliograph_envoy::Message;
use heliograph_envoy::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use heliograph_snapshot::{Change, FleetName, Head, Resource, ResourceType, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A client of whom nothing is expected.
struct Talk {
    protocol: Protocol,
    session: Session,
    transitions: Arc<TransitionCache>,
    encodings: Encodings,
    now: Duration,
    sequence: u64,
    replies: usize,
    /// Those of the last replies.
    nonces: Vec<String>,
    /// The newest that was told of each type.
    heads: BTreeMap<ResourceType, Head>,
}

/// As many as the session may be asked about; the oldest are forgotten.
const NONCES: usize = 12;

/// Requests, views and silence in any order. A request that cannot be read ends its stream, and another begins. How many
/// replies there were.
pub(crate) fn talk(bytes: &[u8]) -> usize {
    let mut input = Input::new(bytes);
    let mut talk = Talk::new(&mut input);
    while !input.is_empty() {
        if !talk.go_on(&mut input) {
            talk = talk.again(&mut input);
        }
    }
    talk.replies
}

impl Talk {
    fn new(input: &mut Input<'_>) -> Self {
        let (protocol, transitions) = (input.protocol(), Arc::<TransitionCache>::default());
        Self {
            protocol,
            session: Session::new(protocol, view(input, 1), transitions.clone()),
            transitions,
            encodings: Encodings::default(),
            now: Duration::ZERO,
            sequence: 1,
            replies: 0,
            nonces: Vec::new(),
            heads: BTreeMap::new(),
        }
    }

    /// Another stream of the same replica.
    fn again(self, input: &mut Input<'_>) -> Self {
        let (protocol, sequence) = (input.protocol(), self.sequence + 1);
        let session = Session::new(protocol, view(input, sequence), self.transitions.clone());
        Self { protocol, session, sequence, nonces: Vec::new(), heads: BTreeMap::new(), ..self }
    }

    /// Whether the stream lives on.
    fn go_on(&mut self, input: &mut Input<'_>) -> bool {
        let output = match input.below(8) {
            0 => {
                // Sometimes an older one, which must change nothing.
                let is_older = input.below(4) == 1;
                self.sequence += u64::from(!is_older);
                let view = view(input, self.sequence - u64::from(is_older));
                self.session.on_view(self.now, &view)
            }
            1 => {
                self.now += Duration::from_secs(u64::from(input.byte() % 32));
                self.transitions.age();
                self.session.on_clock(self.now)
            }
            _ => {
                let message: Bytes = input.message(self.protocol, &self.nonces).into();
                let Ok((request, _)) = Request::scan(self.protocol, message) else { return false };
                let outcome = self.session.holds_other(&request);
                match self.session.on_request(self.now, &request) {
                    Ok(output) => {
                        assert!(outcome.is_ok(), "one says what the other says");
                        output
                    }
                    Err(_) => return false,
                }
            }
        };
        self.check(&output);
        true
    }

    fn check(&mut self, output: &Output) {
        let kinds: BTreeSet<_> = output.replies.iter().map(|reply| reply.kind).collect();
        assert_eq!(kinds.len(), output.replies.len(), "one reply of each type at most");
        self.replies += output.replies.len();
        for reply in &output.replies {
            assert!(!self.nonces.contains(&reply.nonce), "a nonce is said once");
            self.nonces.push(reply.nonce.clone());
            let before = self.heads.insert(reply.kind, reply.head);
            assert!(before.is_none_or(|before| before <= reply.head), "never back");
            self.check_message(reply);
        }
        let oldest = self.nonces.len().saturating_sub(NONCES);
        self.nonces.drain(..oldest);
    }

    /// What is said can be read, and says nothing twice.
    fn check_message(&self, reply: &Reply) {
        let message = self.encodings.message(self.protocol, reply, "replica");
        let mut bytes = BytesMut::from(&message.own[..]);
        bytes.extend_from_slice(&message.removed);
        bytes.extend_from_slice(&message.shared);
        let count = reply.resources.len();
        let names: BTreeSet<_> = reply.resources.iter().map(|resource| &resource.name).collect();
        assert_eq!(names.len(), count, "no name twice");
        let decoded = match self.protocol {
            Protocol::Delta => {
                let decoded = DeltaDiscoveryResponse::decode(bytes).unwrap();
                assert_eq!(decoded.removed_resources.len(), reply.removed.len());
                assert!(reply.removed.iter().all(|name| !names.contains(name)));
                (decoded.nonce, decoded.resources.len())
            }
            Protocol::StateOfTheWorld => {
                let decoded = DiscoveryResponse::decode(bytes).unwrap();
                (decoded.nonce, decoded.resources.len())
            }
        };
        assert_eq!(decoded, (reply.nonce.clone(), count));
    }
}

fn view(input: &mut Input<'_>, sequence: u64) -> Arc<View> {
    let mut changes = Vec::new();
    for kind in ResourceType::ALL {
        let (there, content) = (input.byte(), input.byte());
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            if there & (1 << number) != 0 {
                let body = Bytes::from(format!("{}", content >> (2 * number) & 3));
                changes.push(Change::Set(kind, Arc::new(Resource::new(name, body))));
            }
        }
    }
    let head = Head { epoch: 0, fence: 1, sequence };
    let snapshot = Snapshot::empty(FleetName::new("default", "gateway")).with(head, changes);
    Arc::new(View::new(Arc::new(snapshot)))
}
