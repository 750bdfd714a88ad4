use heliograph_snapshot::Snapshot;
use heliograph_store::{PinOrder, Publication, Record, Retirement};
use std::sync::Arc;

/// One thing to ask the store for.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Reads what an earlier term published, so that only what differs from it is written.
    LoadHeld {
        record: Arc<Record>,
        known: Arc<Snapshot>,
    },
    /// Reads what the fleet is pinned to.
    LoadPinned {
        record: Arc<Record>,
        known: Arc<Snapshot>,
    },
    Publish(Publication),
    Retire(Retirement),
    /// Writes an order again that the store lost.
    RestoreOrder(PinOrder),
    Clean(Arc<Snapshot>),
}
