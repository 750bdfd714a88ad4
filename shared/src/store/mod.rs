//! The store: everything a translator says and a distributor hears goes through it.
//!
//! One trait; [`Embedded`] keeps the snapshots in this process. A store is a cache that can be rebuilt: what it
//! loses, the translator publishes again.

mod embedded;

pub use embedded::Embedded;

use futures::future::BoxFuture;
use heliograph_snapshot::{FleetName, Head, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

pub trait Store: Send + Sync + 'static {
    /// Begins a term: from here on every write of an earlier term is refused. `fence` is the token of whatever
    /// elected the writer, refused if a newer term has begun; without an election the store finds one above all
    /// it has seen.
    fn claim(&self, fence: Option<u128>) -> BoxFuture<'_, Result<Claim, StoreError>>;

    /// Makes `snapshot` the newest of its fleet, or changes nothing. `expected` is the head that the writer
    /// believes to be there: what it read when it claimed, or what it published last.
    fn publish(
        &self,
        snapshot: Arc<Snapshot>,
        expected: Option<Head>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Takes a fleet away. `tombstone` is its last head: no older write brings the fleet back.
    fn retire(
        &self,
        fleet: FleetName,
        tombstone: Head,
        expected: Option<Head>,
    ) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every fleet as it is now, then every change.
    fn subscribe(&self) -> Box<dyn Subscription>;
}

/// A reader's place in the store.
pub trait Subscription: Send {
    /// The next change. A fleet's updates come in order, never one older than the last; a slow reader skips
    /// versions and still gets the newest. `None` once the store is closed. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Option<Update>>;
}

#[derive(Clone, Debug)]
pub enum Update {
    Published(Arc<Snapshot>),
    Retired(FleetName, Head),
    /// All fleets that the store held when the subscription began have been yielded.
    Synced,
}

/// What a writer holds for one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub epoch: u64,
    pub fence: u128,
    /// What the store holds: a live fleet's head, or the tombstone of a retired one.
    pub heads: BTreeMap<FleetName, Head>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("a newer term has begun: this writer's fence is {ours}, the store's is {theirs}")]
    Fenced { ours: u128, theirs: u128 },
    #[error("{fleet}: the head is {}, not {} as expected", or_none(found), or_none(expected))]
    Conflict { fleet: FleetName, expected: Option<Head>, found: Option<Head> },
    #[error("{fleet}: {offered} is not newer than {found}")]
    NotNewer { fleet: FleetName, offered: Head, found: Head },
}

fn or_none(head: &Option<Head>) -> String {
    head.map_or_else(|| "none".to_owned(), |head| head.to_string())
}
