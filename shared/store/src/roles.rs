//! The interface of a store, one trait for each role. A program has handles to its own roles and to no others: see
//! [`crate::TranslatorStore`], [`crate::DistributorStore`] and [`crate::OperatorStore`].
//!
//! A store is a cache: the translator publishes again what it loses.

use crate::{
    AckReport, ClaimedTerm, Cleaned, Inspection, Loaded, Notice, PinOrder, Presence, Publication,
    Published, Record, Retirement, StoreError, Term,
};
use futures::future::BoxFuture;
use heliograph_snapshot::{Address, FleetName, Section, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The work of a store, and its result.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Changes what readers see.
///
/// There is one writer at a time: a term begins with [`Writer::claim`], and the store refuses every write of an earlier
/// term from then on. A writer that did not receive the result of a write may repeat it; the second time changes nothing.
pub trait Writer: Inspector {
    /// Begins a term. `fence` is the token of whatever elected the writer, refused if a newer term has begun;
    /// without an election the store finds one above all it has seen.
    fn claim(&self, fence: Option<u128>) -> StoreFuture<'_, ClaimedTerm>;

    /// Where a body that is sealed is kept, and so what its version is: a store that others can read has a key for that, so
    /// that the address reveals nothing of the content.
    fn address_of_sealed(&self, section: Section, name: &str, body: &[u8]) -> Address;

    /// Makes a snapshot the newest of its fleet, or changes nothing.
    fn publish(&self, publication: Publication) -> StoreFuture<'_, Published>;

    /// Removes a fleet. No older write brings it back.
    fn retire(&self, retirement: Retirement) -> StoreFuture<'_, ()>;

    /// Writes an order again that the store lost, for the writer that obeys it.
    fn restore_order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()>;

    /// Garbage collection of a fleet, never beside another write of the same fleet: deletes objects that no head leads
    /// to any more, and seals bodies again that are sealed with an older key. `newest` is the snapshot that the writer
    /// published last. Work that is not due is not done, so this may be called often.
    fn clean(&self, newest: Arc<Snapshot>) -> StoreFuture<'_, Cleaned>;
}

/// Reads snapshots, and knows which of them the program serves, since the snapshot cache depends on that.
pub trait Reader: Send + Sync + 'static {
    /// Every fleet as it is now, then every change.
    fn watch(&self) -> Box<dyn Watch>;

    /// The newest records of these fleets, as they are at this moment.
    fn newest(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, BTreeMap<FleetName, Arc<Record>>>;

    /// The snapshot of a record. Parts that did not change since `known` are not read again.
    fn load(&self, record: Arc<Record>, known: Option<Arc<Snapshot>>) -> StoreFuture<'_, Loaded>;

    /// How often the keys have changed that secrets are opened with: after that, one that was left out may be opened.
    fn key_changes(&self) -> u64 {
        0
    }

    /// Whether a reader has this fleet from a cache of its own, and the store has not confirmed its head since. Others may
    /// have been served something newer.
    fn is_unconfirmed(&self, _fleet: &FleetName) -> bool {
        false
    }

    /// The reader has clients of these fleets now. The snapshot cache writes these first.
    fn mark_used(&self, _fleets: &[FleetName]) {}

    /// The reader has dropped the snapshot of this fleet from its memory, and serves it to no client.
    fn mark_dropped(&self, _fleet: &FleetName) {}

    /// When the reader last had clients of this fleet, in seconds since 1970, as far as it remembers over a restart.
    fn last_use(&self, _fleet: &FleetName) -> Option<u64> {
        None
    }
}

/// Shows how far the store is, to a writer that compares it with what it wrote, and to operators.
pub trait Inspector: Send + Sync + 'static {
    /// Inspects the store. `fleets` are those that the caller knows.
    fn inspect(&self, fleets: Vec<FleetName>) -> StoreFuture<'_, Inspection>;
}

/// The operations of operators: list earlier snapshots, order a rollback to one, and begin a new epoch.
pub trait History: Inspector {
    /// The snapshots that a fleet can go back to, newest first.
    fn history(&self, fleet: FleetName) -> StoreFuture<'_, Vec<Arc<Record>>>;

    /// Orders the translator to hold a fleet at a snapshot of its history, or to release it. Refused unless the number is
    /// above that of the order before, and unless the snapshot is in the history.
    fn order(&self, fleet: FleetName, order: PinOrder) -> StoreFuture<'_, ()>;

    /// The newest term that has begun.
    fn term(&self) -> StoreFuture<'_, Term>;

    /// Begins a new epoch, so that a translator whose fences start low again can go on. Refused if the term is no longer
    /// `from`. All writers must claim again.
    fn adopt(&self, from: Term) -> StoreFuture<'_, Term>;
}

/// Sends what proxies answered.
pub trait FeedbackSender: Send + Sync + 'static {
    /// Replaces the report of a replica. It expires unless the replica sends one again within [`crate::ACKS_EXPIRY`].
    fn send_report(&self, report: AckReport) -> StoreFuture<'_, ()>;
}

/// Reads what proxies answered.
pub trait FeedbackReader: Send + Sync + 'static {
    /// The last report of every replica.
    fn read_reports(&self) -> StoreFuture<'_, Vec<AckReport>>;
}

/// By which replicas find each other. In a store that has only one reader this does nothing.
pub trait Replicas: Send + Sync + 'static {
    /// Replaces the presence of a replica. It expires unless the replica sends one again within
    /// [`crate::PRESENCE_EXPIRY`].
    fn send_presence(&self, _presence: Presence) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// The replicas whose presence has not expired.
    fn read_presences(&self) -> StoreFuture<'_, Vec<Presence>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// How far one reader is.
pub trait Watch: Send {
    /// The next change. A fleet's records come in order, never one older than the last; a slow reader skips some and
    /// still gets the newest. While the store is unreachable this waits. Dropping the future loses nothing.
    fn next(&mut self) -> BoxFuture<'_, Notice>;

    /// The newest records that this watch returned of fleets which the store has lost since, and of those whose newest
    /// record in the store was refused because it knows less of what operators ordered.
    fn remembered(&self) -> Vec<Arc<Record>> {
        Vec::new()
    }
}
