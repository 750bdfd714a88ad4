//! Load-test any xDS server with simulated fleets of Envoys.
//!
//! A [`scenario`] says what happens, a [`population`] who the clients are, a [`workload`] what the servers serve; a
//! driver ([`drive`]) tells the [`servers`] of changes. Clients live in processes of their own ([`worker`]), and a
//! [`run`] is the whole: it gives the orders, gathers the figures and ends in a report. [`play`] takes the steps of a
//! scenario in a run.

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
