//! Serves snapshots to Envoy proxies over ADS.
//!
//! The way of the data: `feed` receives new snapshots and swaps them in, `view` is a snapshot as one
//! class of clients sees it, the session of `heliograph-distributor-protocol` decides what a client is sent, and
//! `server` carries it. What clients answer is summed up in `acks`, and reported to the store. `comparison` asks the
//! store whether a client that comes from another replica is ahead of this one. Who a client is and what it may read is
//! decided in `identity`; `tls` makes its connection safe. `load` decides how much clients may ask of this replica, and
//! how long they stay. `clients` knows every stream, for the `pages` of the admin port.

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
