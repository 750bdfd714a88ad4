//! The program `loadtest`, whole: every scenario against real servers, and what it says when there is none.
//!
//! Needs the distributor beside it (`cargo build --workspace --bins`) and a Redis (`REDIS_SERVER`, or on the path).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod interrupted;
mod program;
mod refused;
mod scenarios;
