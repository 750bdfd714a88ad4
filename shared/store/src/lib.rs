//! The store: everything a translator says and a distributor hears goes through it.
//!
//! One trait, [`Store`], and two of them: [`Embedded`] keeps the snapshots in this process, [`redis::RedisStore`] in
//! Redis, for any number of processes. A reader that wants whole snapshots in order has a [`Subscription`].

mod acks;
mod codec;
mod embedded;
mod error;
pub mod keys;
mod pins;
mod presence;
pub mod redis;
mod store;
mod subscription;

pub use self::redis::StoreArgs;
pub use self::redis::cache::SnapshotCacheArgs;
/// The largest resource that a store takes, in bytes. What goes with it in its value is far less than the rest.
pub const LARGEST_RESOURCE: usize = codec::LARGEST - (1 << 20);

pub use acks::{ACKS_EXPIRY, AckReport, Dispute, FleetReport, RejectionReport, Voter, Voters};
pub use embedded::Embedded;
pub use error::StoreError;
pub use pins::{PinOrder, PinState, Pinned};
pub use presence::{PRESENCE_EXPIRY, Presence};
pub use store::{
    Answer, Claim, Cleaned, Inspection, Loaded, Notice, Publication, Published, Record, Retirement,
    State, Store, Term, Watch,
};
pub use subscription::{Subscription, Update};
