//! The program `loadtest`, whole: every scenario against real servers, and what it says when there is none.
//!
//! Needs the distributor and the translator beside it (`cargo build --workspace --bins`), a Redis (`REDIS_SERVER`, or on the
//! path) and a Kubernetes API (`KUBERNETES` and `GATEWAY_API_CRDS`, as `scripts/tools` prints them).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod control_planes;
mod interrupted;
mod program;
mod refused;
mod scenarios;
mod unread;
