//! Gateway API objects to xDS resources and statuses, as a pure function: no IO, no clock, no environment, no
//! unordered map.
//!
//! The stages, each a folder: [`objects`] ▶ `accept` (Gateways and listeners) ▶ `routes` (rules, with `filters` and
//! `backends`, and `policies` for both) ▶ `attach` (routes to listeners) ▶ the model ▶ `merge` (virtual hosts) ▶ the
//! dialect (protobuf), and `status` beside it; `views` is for clients that see something else, and [`infra`] for the
//! Kubernetes objects that run for a Gateway. [`World`] computes only the units that a change affects.

mod accept;
mod attach;
mod backends;
mod budget;
mod duration;
mod filters;
pub mod infra;
pub mod left_out;
mod limits;
mod merge;
pub mod objects;
mod policies;
mod regex;
mod routes;
pub mod status;
mod views;
mod world;

pub use budget::OverBudget;
pub use limits::Limits;
pub use world::{Culprit, Event, MeantMatch, Outcome, RejectedResource, Source, Work, World};

/// Which GatewayClasses are ours.
pub const CONTROLLER_NAME: &str = "heliograph.dev/gateway-controller";
