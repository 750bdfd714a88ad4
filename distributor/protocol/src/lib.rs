//! The xDS protocol as a value: a message, a newer view or the time goes in, replies and events come out.
//!
//! No IO, no clock, no task. [`Session`] is one client's stream; it speaks delta and state-of-the-world ADS with
//! the same rules, which differ only in how a request is read ([`Request`]) and how a reply is written
//! ([`Encodings`]). Resource bodies are never looked into.
//!
//! The rules come from Envoy's `xds_protocol.rst` and `discovery.proto`; each is stated beside the code that
//! keeps it.

mod encode;
mod event;
mod kept;
mod memo;
mod names;
mod node;
mod nonce;
mod order;
mod progress;
mod reply;
mod request;
mod scan;
mod session;
mod standing;
mod state;
mod subscription;
mod view;
mod watch;
mod wire;

pub use encode::{Encodings, Message};
pub use event::{Event, Rejection};
pub use kept::Allocation;
pub use memo::{Memo, MemoBudget};
pub use node::{LABELS_LIMIT, NODE_LIMIT, NodeFields, UserAgentVersion};
pub use progress::Progress;
pub use reply::{Reply, Response};
pub use request::{
    ABSENT_NAMES_LIMIT, Asks, NAME_LENGTH_LIMIT, NAMES_BYTES_LIMIT, NAMES_LIMIT, Request,
    RequestError,
};
pub use session::{ANSWER_TIMEOUT, Output, Protocol, Session, WARMING_TIMEOUT};
pub use standing::Standing;
pub use view::{Substitute, View};
