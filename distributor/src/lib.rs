//! Serves snapshots to Envoy proxies over ADS.
//!
//! The way of the data: `feed` receives new snapshots and swaps them in, `view` derives the snapshot that one class of
//! clients sees, the session of `heliograph-distributor-protocol` decides what a client is sent, and `server` sends it.
//! `acks` sums up the answers of clients, and reports them to the store. `comparison` asks the store whether a client
//! that comes from another replica is ahead of this one. `identity` authenticates clients and decides which fleets they
//! may read; `tls` makes the handshake. `load` limits requests and connections, and decides when a client must reconnect
//! elsewhere. `clients` is an index of all streams, for the `pages` of the admin port.

mod acks;
mod app;
mod clients;
mod comparison;
mod feed;
mod identity;
mod load;
mod log_limit;
mod metrics;
mod pages;
pub mod program;
mod server;
mod tls;
mod view;
mod watched_files;

pub use acks::{Acks, AcksSummary, QuarantineSummary, RejectionSummary};
pub use app::{Bound, DistributorArgs, DistributorError, build};
pub use identity::{SecurityArgs, SecurityError};
pub use load::{LoadArgs, allow_open_files};
