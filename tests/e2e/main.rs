//! The whole walk: a directory, `helio standalone --envoy` or the programs over Redis, real Envoys, and requests through
//! them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod edge;
mod edits;
mod envoys;
mod features;
mod golden;
mod harness;
mod mutual_tls;
mod policies;
mod redis_access;
mod redis_cache;
mod redis_cli;
mod redis_extensions;
mod redis_flips;
mod redis_keys;
mod redis_left_out;
mod redis_operator;
mod redis_outages;
mod redis_pages;
mod redis_rejection;
mod redis_replicas;
mod redis_secrets;
mod redis_site;
mod redis_votes;
mod redis_walk;
mod rejection;
mod routing;
mod running;
#[path = "../../shared/store/tests/servers/mod.rs"]
mod servers;
mod tcp;
mod tls;
mod traffic;
mod views;
