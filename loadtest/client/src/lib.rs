//! A simulated Envoy that speaks xDS to any server: for tests over real gRPC, and for many at once.
//!
//! [`State`] decides as Envoy does what to ask for and what to answer; it does no IO. [`Client`] carries it.

mod client;
mod connection;
mod references;
mod state;

pub use client::{Client, ClientError, Options};
pub use connection::Protocol;
pub use references::references;
pub use state::{Held, Received, State, Verdict, Witness};
