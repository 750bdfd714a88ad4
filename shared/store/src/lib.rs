//! The store: snapshots pass through it from the translator to distributors, and the answers of proxies pass back.
//!
//! One trait for each role: [`Writer`], [`Reader`], [`Inspector`], [`History`], [`FeedbackSender`], [`FeedbackReader`] and
//! [`Replicas`]. Two stores have all of them: [`Embedded`] keeps the snapshots in this process, [`redis::RedisStore`] in
//! Redis, for any number of processes. A program has handles to its own roles alone: [`TranslatorStore`],
//! [`DistributorStore`], [`OperatorStore`]. A reader that wants whole snapshots in order has a [`Subscription`].

mod acks;
mod codec;
mod embedded;
mod error;
mod handles;
pub mod keys;
mod pins;
mod presence;
pub mod redis;
mod roles;
mod subscription;
mod values;

pub use self::redis::StoreArgs;
pub use self::redis::cache::SnapshotCacheArgs;
/// The largest resource that a store accepts, in bytes. The other fields of its value need far less than the reserve.
pub const LARGEST_RESOURCE: usize = codec::LARGEST - (1 << 20);

pub use acks::{ACKS_EXPIRY, AckReport, Dispute, FleetReport, RejectionReport, Voter, Voters};
pub use embedded::Embedded;
pub use error::StoreError;
pub use handles::{DistributorStore, OperatorStore, TranslatorStore};
pub use pins::{PinOrder, PinState, Pinned};
pub use presence::{PRESENCE_EXPIRY, Presence};
pub use roles::{
    FeedbackReader, FeedbackSender, History, Inspector, Reader, Replicas, StoreFuture, Watch,
    Writer,
};
pub use subscription::{Subscription, Update};
pub use values::{
    ClaimedTerm, Cleaned, Inspection, Loaded, Notice, Publication, Published, Record, Retirement,
    State, Term,
};
