//! Load-test any xDS server with simulated fleets of Envoys.
//!
//! A [`scenario`] has the steps, a [`population`] the clients, a [`workload`] the resources that the servers serve; a
//! driver ([`drive`]) passes changes to the [`servers`]. Clients run in processes of their own ([`worker`]), and a
//! [`run`] coordinates all: it sends orders to workers, collects the figures and writes a report. [`play`] takes the
//! steps of a scenario in a run.

pub mod bench;
pub mod commands;
pub mod drive;
mod http1;
pub mod play;
pub mod population;
pub mod run;
pub mod scenario;
mod security;
pub mod servers;
mod tied;
pub mod worker;
pub mod workload;

pub use security::Security;
