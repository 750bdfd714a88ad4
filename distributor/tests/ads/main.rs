//! The whole distributor over real gRPC: the embedded store on one side, simulated Envoys on the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ahead;
mod applied;
mod errors;
mod faulty;
mod load;
mod pages;
mod quarantine;
mod reports;
mod sealed;
mod serving;
mod views;
#[allow(dead_code, reason = "the tests of the program use the rest")]
#[path = "../wire/mod.rs"]
mod wire;
mod world;
