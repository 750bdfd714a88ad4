//! The store in real Redis servers: what it costs, and everything that it has to survive.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cache;
mod costs;
mod damage;
mod forgery;
mod memory;
mod outages;
mod raw;
mod refusals;
mod sealing;
#[path = "../servers/mod.rs"]
mod servers;
mod shared;
mod sweep;
mod terms;
mod users;
mod world;
mod writers;
