//! Many simulated Envoys in one process, each with its own stream.
//!
//! A client is a pointer to its [`SharedState`] and a connection. A response costs it a digest and a lookup.

mod conduct;
mod handle;
mod life;
mod lines;
mod shared_state;
mod transitions;

use crate::wire::{Ended, Protocol, Server};
pub use conduct::Conduct;
use handle::Orders;
use heliograph_envoy::envoy::config::core::v3::Node;
use life::Inner;
pub use shared_state::{Follower, SharedState, Transition};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Simulated Envoys. They leave when it is dropped.
pub struct Crowd<F: Follower, O: Observer<F>> {
    inner: Arc<Inner<F, O>>,
    runtime: tokio::runtime::Handle,
}

pub struct Member<F> {
    /// The id of its node.
    pub name: Arc<str>,
    /// Who it says it is, but for the id. Its fleet is in `cluster`.
    pub node: Arc<Node>,
    pub protocol: Protocol,
    /// Which of the servers it connects to first.
    pub server: usize,
    pub conduct: Conduct,
    /// Where its follower begins.
    pub follower: F,
}

/// How long a client waits before it connects again: a random part of an interval that doubles, as Envoy does. Our own programs
/// wait by `Backoff` of `heliograph-shared`, whose pauses have a least part; this crate does not depend on what programs have.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    pub base: Duration,
    pub max: Duration,
}

/// Observes the members of a crowd, on the tasks of the members: it must be quick.
pub trait Observer<F>: Send + Sync + 'static {
    /// The connection is up: the server has answered on it.
    fn connected(&self, member: usize);

    /// A response is there; `bytes` of it on the wire. The member has not answered yet.
    fn received(&self, member: usize, step: &Transition<F>, bytes: usize, at: Instant);

    /// The answer is given to the socket, or to the connection where several streams share it; `bytes` on the wire.
    fn answered(&self, member: usize, step: &Transition<F>, bytes: usize, at: Instant);

    /// A request that answers nothing: the first of a type, or one for other names.
    fn asked(&self, member: usize, bytes: usize, at: Instant);

    /// The member has no stream any more. It comes back, unless it was ordered to leave.
    fn ended(&self, member: usize, how: &Ended);
}

impl<F: Follower, O: Observer<F>> Crowd<F, O> {
    /// Its members live on the runtime that this is called in. `servers` must not be empty.
    pub fn new(
        servers: Vec<Server>,
        streams_per_connection: usize,
        backoff: Backoff,
        observer: Arc<O>,
    ) -> Self {
        let inner = Arc::new(Inner::new(servers, streams_per_connection, backoff, observer));
        Self { inner, runtime: tokio::runtime::Handle::current() }
    }

    /// A member begins to connect at once. Its number.
    pub fn add(&self, member: Member<F>) -> usize {
        let (number, life) = self.inner.clone().admit(member);
        self.runtime.spawn(life);
        number
    }

    /// Ends the streams of members, which come back at once with what they hold.
    pub fn reconnect(&self, members: Range<usize>) {
        self.order(members, |orders| orders.reconnects += 1);
    }

    /// The same, to another server.
    pub fn move_to(&self, members: Range<usize>, server: usize) {
        let servers = self.inner.servers().1;
        self.order(members, |orders| {
            (orders.server, orders.servers) = (server, servers);
            orders.reconnects += 1;
        });
    }

    pub fn behave(&self, members: Range<usize>, conduct: Conduct) {
        self.order(members, |orders| orders.conduct = conduct.clone());
    }

    /// Clients that reconnect choose one of these. Open streams stay where they are.
    pub fn set_servers(&self, servers: Vec<Server>) {
        self.inner.set_servers(servers);
    }

    pub fn leave(&self, members: Range<usize>) {
        self.order(members, |orders| orders.leaves = true);
    }

    /// The state of a member, or its last one when it left.
    pub fn state(&self, member: usize) -> Option<Arc<SharedState<F>>> {
        self.inner.handles(member..member.saturating_add(1)).first().map(|handle| handle.state())
    }

    pub fn members(&self) -> usize {
        self.inner.handles(0..usize::MAX).len()
    }

    /// How many different states the members have.
    pub fn distinct_states(&self) -> usize {
        self.inner.distinct_states()
    }

    fn order(&self, members: Range<usize>, change: impl Fn(&mut Orders)) {
        self.inner.handles(members).iter().for_each(|handle| handle.order(&change));
    }
}

impl<F: Follower, O: Observer<F>> Drop for Crowd<F, O> {
    fn drop(&mut self) {
        self.leave(0..usize::MAX);
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(500), max: Duration::from_secs(30) }
    }
}

impl Backoff {
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        let interval = self.base.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX));
        interval.min(self.max).mul_f64(fastrand::f64())
    }
}
