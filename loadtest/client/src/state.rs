use crate::cache::{Effect, ResourceCache, Validator};
use crate::request::Ask;
use crate::resources::HeldResource;
use crate::response::{Received, Response};
use crate::wire::Protocol;
use std::fmt;
use std::ops::Deref;

/// The state of one simulated Envoy: its resources, and counts of what it received.
#[derive(Clone, Debug)]
pub struct State {
    cache: ResourceCache,
    /// Every response of the current stream, in order.
    pub received: Vec<Received>,
    /// Why the server ended the stream.
    pub ended: Option<(tonic::Code, String)>,
}

/// Called with every response and what was in it, in order and on all streams, before the client answers.
pub type Witness = dyn Fn(&Received, &[(String, HeldResource)]) + Send + Sync;

/// A state without bodies.
pub(crate) struct StateSummary<'a>(pub(crate) &'a State);

impl State {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self { cache: ResourceCache::new(protocol), received: Vec::new(), ended: None }
    }

    /// Whether everything was answered that Envoy needs before it takes traffic.
    pub fn is_warm(&self) -> bool {
        self.cache.is_warm()
    }

    pub(crate) fn open(&mut self) -> Vec<Ask> {
        self.received.clear();
        self.ended = None;
        self.cache.open()
    }

    pub(crate) fn receive(
        &mut self,
        response: Response,
        validator: &Validator,
        witness: &Witness,
    ) -> Vec<Ask> {
        let Effect { received, resources, asks, .. } = self.cache.receive(response, validator);
        witness(&received, &resources);
        self.received.push(received);
        asks
    }
}

impl Deref for State {
    type Target = ResourceCache;

    fn deref(&self) -> &ResourceCache {
        &self.cache
    }
}

impl fmt::Debug for StateSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let State { cache, received, ended } = self.0;
        for (kind, resources) in &cache.held {
            write!(f, "{kind}: {:?}, ", resources.keys().collect::<Vec<_>>())?;
        }
        write!(f, "after {} responses", received.len())?;
        match ended {
            Some((code, message)) => write!(f, ", and was told {code:?}: {message}"),
            None => Ok(()),
        }
    }
}
