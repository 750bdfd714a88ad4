//! The session as a value, against the protocol's rules. `asking`, `order` and `reconnect` name the rule in each
//! test; `model` lets random clients loose on it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod absent;
mod acknowledged;
mod among;
mod asking;
mod blame;
mod client_state;
mod encoding;
mod model;
mod order;
mod owed;
mod plan;
mod quarantine;
mod reconnect;
mod silence;
mod stream;
