use super::oversized::TooLarge;
use super::quarantine::Decision;
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{Pinned, Term};
use heliograph_views::LeftOut;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An event of the term, or of a fleet, in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PublishEvent {
    /// The store is this writer's, and had so many fleets.
    Claimed {
        term: Term,
        fleets: usize,
    },
    /// The store has the fleet at this head: written now, or found to be what it should be.
    Stored {
        fleet: FleetName,
        head: Head,
        written: bool,
    },
    /// An earlier term left this out of it, because proxies reject it. The fleet waits until it is left out again.
    Inherited {
        fleet: FleetName,
        left_out: Vec<LeftOut>,
    },
    Retired {
        fleet: FleetName,
        cause: Arc<str>,
    },
    /// The fleets that operators hold are now these.
    Pins(BTreeMap<FleetName, Pinned>),
    /// A resource is larger than the store takes, and stays as it was.
    TooLarge {
        fleet: FleetName,
        resource: TooLarge,
    },
    /// What is served of one of its resources follows what proxies say.
    Decided {
        fleet: FleetName,
        decision: Decision,
    },
}
