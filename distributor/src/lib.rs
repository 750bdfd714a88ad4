//! Serves snapshots to Envoy proxies over ADS.
//!
//! The way of the data: `feed` hears of new snapshots and swaps them in, `view` is a snapshot as one
//! class of clients sees it, the session of `heliograph-distributor-protocol` decides what a client is told, and
//! `server` carries it. What clients answer is summed up in `acks`.

mod acks;
mod app;
mod feed;
mod metrics;
mod server;
mod view;

pub use acks::{Acks, AcksSummary, RejectionSummary};
pub use app::{Bound, DistributorArgs, DistributorError, build};
