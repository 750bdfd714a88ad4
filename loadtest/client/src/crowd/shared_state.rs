use crate::cache::ResourceCache;
use crate::digest::{Digest, Digester};
use crate::request::Request;
use crate::resources::HeldResource;
use crate::response::Received;
use heliograph_snapshot::ResourceType;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A computation that is done once for all clients that have the same state and receive the same response.
pub trait Follower: Clone + Send + Sync + 'static {
    /// `client` is the name of the one that came here first. Must not call the crowd.
    fn receive(&mut self, client: &str, response: &Received, resources: &[(String, HeldResource)]);

    /// A stream begins, with what is held.
    fn reconnect(&mut self);

    /// The part of a nonce that shows where in the history a response belongs, if it has one: equal for all clients that
    /// receive the same. Responses that differ in this part are checked separately.
    fn order_in<'a>(&self, _nonce: &'a str) -> &'a str {
        ""
    }

    /// Equal content has an equal digest.
    fn digest(&self, hasher: &mut impl Hasher);
}

/// The state of a client without its name and its connection. Clients that hold the same and have come
/// as far share one.
#[derive(Debug)]
pub struct SharedState<F> {
    cache: ResourceCache,
    follower: F,
    warm: bool,
    pub(super) digest: Digest,
}

/// The effect of a response on a client.
#[derive(Debug)]
pub struct Transition<F> {
    pub kind: ResourceType,
    pub resources: usize,
    pub removed: usize,
    /// Resources that were held just so before.
    pub resent: usize,
    pub accepted: bool,
    pub to: Arc<SharedState<F>>,
    pub(super) requests: Vec<Request>,
}

/// The effect of a stream's beginning on a client.
pub(super) struct Opening<F> {
    pub(super) to: Arc<SharedState<F>>,
    pub(super) requests: Vec<Request>,
}

impl<F: Follower> SharedState<F> {
    pub(super) fn new(cache: ResourceCache, follower: F) -> Self {
        let mut digester = Digester::default();
        cache.hash(&mut digester);
        follower.digest(&mut digester);
        Self { warm: cache.is_warm(), digest: digester.digest(), cache, follower }
    }
}

impl<F> SharedState<F> {
    pub fn cache(&self) -> &ResourceCache {
        &self.cache
    }

    pub fn follower(&self) -> &F {
        &self.follower
    }

    /// Whether everything was answered that Envoy needs before it takes traffic.
    pub fn is_warm(&self) -> bool {
        self.warm
    }
}

impl Follower for () {
    fn receive(&mut self, _: &str, _: &Received, _: &[(String, HeldResource)]) {}

    fn reconnect(&mut self) {}

    fn digest(&self, _: &mut impl Hasher) {}
}
