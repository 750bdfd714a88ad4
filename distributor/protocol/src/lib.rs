//! The xDS protocol as a value: its inputs are a message, a newer view or the time, its outputs replies and events.
//!
//! No IO, no clock, no task. [`Session`] is one client's stream; it speaks delta and state-of-the-world ADS with
//! the same rules, which differ only in how a request is read ([`Request`]) and how a reply is written
//! ([`Encodings`]). Resource bodies are never decoded.
//!
//! The rules come from Envoy's `xds_protocol.rst` and `discovery.proto`; each is stated beside the code that implements
//! it.

mod absent;
mod client_state;
mod encode;
mod event;
mod names;
mod node;
mod nonce;
mod order;
mod progress;
mod reply;
mod request;
mod scan;
mod session;
mod state;
mod subscription;
mod transition_cache;
mod view;
mod watch;
mod wire;

pub use absent::Allocation;
pub use client_state::ClientState;
pub use encode::{Encodings, Message};
pub use event::{Event, Rejection};
pub use node::{LABELS_LIMIT, NODE_LIMIT, NodeFields, UserAgentVersion};
pub use progress::Progress;
pub use reply::{Reply, Response};
pub use request::{
    ABSENT_NAMES_LIMIT, NAME_LENGTH_LIMIT, NAMES_BYTES_LIMIT, NAMES_LIMIT, Request, RequestError,
    SubscriptionRequest,
};
pub use session::{ANSWER_TIMEOUT, Output, Protocol, Session, WARMING_TIMEOUT};
pub use transition_cache::{TransitionCache, TransitionCacheBudget};
pub use view::{Substitute, View};
