//! The whole walk: a directory, `helio standalone --envoy`, a real Envoy, and requests through it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod edits;
mod envoys;
mod golden;
mod harness;
mod rejection;
mod routing;
mod running;
mod tls;
