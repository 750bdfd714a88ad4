//! Reads the history of a run and says what no run may show.
//!
//! A driver notes what it sees as [`Event`]s: what writers asked of a store and what they were told, what readers of the
//! store were given, what proxies were sent. [`check`] compares all of it with what was published, and promises:
//!
//! - A reader or a proxy only moves forward.
//! - What it is given comes from one snapshot that was published, and is the whole of it. A proxy may keep what awaits
//!   its removal, and what it rejected stays as it was.
//! - Nothing that a proxy is sent refers to a cluster that it does not have, and nothing is taken away that it refers to.
//! - What a proxy rejected is not sent to it again on the same stream.
//! - What a writer was told is published is what everybody has at the end, unless something newer is.
//! - A head is never used for two contents.
//!
//! A history can also be checked while it happens: [`Publishes`] grows by what is published, and a [`Proxy`] takes one
//! response after the other. A copy of a proxy is cheap, and what a response costs grows neither with the number of
//! publishes nor with what is held, so that a crowd can be checked.
//!
//! There is no IO here and no clock. How the events were gathered is the driver's: any store and any xDS server will do.

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
