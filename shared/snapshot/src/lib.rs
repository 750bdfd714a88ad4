//! The content of a fleet, as immutable values: a [`Snapshot`] has one [`Tree`] of [`Resource`]s per [`ResourceType`],
//! and trees that are never served, at one [`Head`].
//!
//! Translator, store and distributor share these values and nothing else. There is no IO here and no clock.

mod dialect;
mod fleet;
mod head;
mod resource;
mod section;
mod snapshot;
mod tree;

pub use dialect::{Dialect, Interest, Removal, ResourceType, Sealing, TypeProperties};
pub use fleet::{FleetName, InvalidFleetName};
pub use head::{Head, InvalidHead};
pub use resource::{Address, InvalidVersion, Resource, Version};
pub use section::{Internal, Section};
pub use snapshot::{Change, Snapshot};
pub use tree::{
    Additions, Assembly, Difference, Entry, Malformed, Missing, Part, Tree, VerifiedPart,
};
