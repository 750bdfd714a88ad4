//! A simulated Envoy that speaks xDS to any server: one, for tests, and crowds.
//!
//! [`ResourceCache`] decides as Envoy does which resources to request and how to answer; it does no IO. [`Client`] has
//! one of them, [`Crowd`] thousands, cheaply: clients in the same state share it, and the effect of a response is
//! computed once for all of them.

mod cache;
mod client;
mod crowd;
mod digest;
mod references;
mod request;
mod resources;
mod response;
#[cfg(test)]
mod samples;
mod state;
mod wire;

pub use cache::{ResourceCache, Validator};
pub use client::{Client, ClientError, Options};
pub use crowd::{Backoff, Conduct, Crowd, Follower, Member, Observer, SharedState, Transition};
pub use references::references;
pub use resources::{HeldResource, Resources};
pub use response::Received;
pub use state::{State, Witness};
pub use wire::{Ended, Protocol, Server, ServerError};
