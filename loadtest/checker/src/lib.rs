//! Reads the history of a run and finds violations of invariants.
//!
//! A driver records [`Event`]s: the requests of writers to a store and its answers, what readers of the store received,
//! and what proxies were sent. [`check`] compares all of it with what was published, and verifies:
//!
//! - A reader or a proxy only moves forward.
//! - What it receives comes from one published snapshot, and is all of it. A proxy may keep what awaits its removal, and
//!   what it rejected stays as it was.
//! - Nothing that a proxy is sent refers to a cluster that it does not have, and nothing that it refers to is removed.
//! - What a proxy rejected is not sent to it again on the same stream.
//! - At the end every reader has the last version that the store confirmed as published, or a newer one.
//! - A head is never used for two contents.
//!
//! A history can also be checked during the run: [`Publishes`] grows with each publication, and a [`Proxy`] checks one
//! response after the other. A copy of a proxy is cheap, and the cost of a response grows neither with the number of
//! publications nor with the resources of the proxy, so that a crowd can be checked.
//!
//! There is no IO here and no clock. A driver records the events, of any store and any xDS server.

mod asks;
mod check;
mod event;
mod held_resources;
mod history;
mod proxy;
mod publishes;
mod reader;
mod rejections;
mod violation;

pub use check::check;
pub use event::{Content, Event, Order, Outcome, ResourceId, Response, Sent};
pub use proxy::Proxy;
pub use publishes::{NotNewer, Publishes};
pub use violation::Violation;
