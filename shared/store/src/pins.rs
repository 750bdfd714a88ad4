use crate::{Inspector, Reader, Record, StoreError};
use heliograph_snapshot::{FleetName, Head};
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// An operator's order: to pin a fleet to a snapshot of its history, endpoints excepted, or to release it.
///
/// It is signed, and a release is an order like a pin. A missing order has no meaning: the store may have lost it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinOrder {
    /// Orders of a fleet count up, so that none can be put back after a later one.
    pub number: u64,
    /// The record of the fleet's history that it is held at; none releases it.
    pub at: Option<Arc<Record>>,
    pub time: SystemTime,
    /// Who gave the order.
    pub by: Arc<str>,
    /// Why, for those who find the fleet pinned.
    pub reason: Arc<str>,
}

/// The orders that a record obeys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinState {
    /// That of the last order, 0 before the first. It only grows along the heads of a fleet.
    pub number: u64,
    pub pinned: Option<Pinned>,
}

/// The head to which a fleet is pinned, the operator and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// The head of the history that it is held at.
    pub head: Head,
    pub since: SystemTime,
    pub by: Arc<str>,
    pub reason: Arc<str>,
}

impl PinOrder {
    /// How many bytes of a name and of a reason are kept.
    pub const TEXT: usize = 1024;

    /// The state of a record that obeys this order. `head` is the pinned one.
    pub fn state(&self, head: Head) -> PinState {
        let Self { number, at, time, by, reason } = self;
        let pinned = at.is_some().then(|| Pinned {
            head,
            since: *time,
            by: by.clone(),
            reason: reason.clone(),
        });
        PinState { number: *number, pinned }
    }

    /// A number above all that the store knows of the fleet, and above those that it may have lost.
    pub async fn next_number(
        inspector: &dyn Inspector,
        reader: &dyn Reader,
        fleet: &FleetName,
        now: SystemTime,
    ) -> Result<u64, StoreError> {
        let inspection = inspector.inspect(vec![fleet.clone()]).await?;
        let ordered = inspection.orders.get(fleet).map_or(0, |order| order.number);
        let newest = reader.newest(vec![fleet.clone()]).await?;
        let obeyed = newest.get(fleet).map_or(0, |record| record.pin.number);
        let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        Ok(ordered.max(obeyed).saturating_add(1).max(time))
    }
}

impl Pinned {
    /// The pin of a fleet, from its newest record and its last order, which may not be obeyed yet.
    pub fn of(record: Option<&Record>, order: Option<&PinOrder>) -> Option<Self> {
        let obeyed = record.map(|record| &record.pin);
        match order {
            Some(order) if obeyed.is_none_or(|obeyed| order.number > obeyed.number) => {
                order.state(order.at.as_ref()?.head).pinned
            }
            _ => obeyed?.pinned.clone(),
        }
    }
}

/// `0.1261.25 by ann: checkout is broken`.
impl fmt::Display for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { head, since: _, by, reason } = self;
        write!(f, "{head} by {}", if by.is_empty() { "an operator" } else { by })?;
        if !reason.is_empty() {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
