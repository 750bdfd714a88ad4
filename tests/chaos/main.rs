//! Faults of the store, of its writers and of the ways to it, over real Redis servers: a translator, distributors, and
//! simulated Envoys go on through them, and the history of every run is checked.
//!
//! Each test has servers of its own, which it stops, pauses, empties and cuts off itself. A fault is tried at every kind of
//! site: a single server, three Sentinels and a Cluster of six nodes, the latter two after a failover and, where it tells
//! more, with another one before the fault is over.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ahead;
mod deletions;
mod failovers;
mod forgery;
mod leader;
mod log;
mod losses;
mod outages;
mod proxies;
mod recorded;
mod replica;
mod rollbacks;
mod scene;
#[path = "../../shared/store/tests/servers/mod.rs"]
mod servers;
mod site;
mod standby;
mod storm;
mod upgrade;
mod world;
mod writers;
