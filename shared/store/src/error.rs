use crate::Term;
use heliograph_snapshot::{FleetName, Head};

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error(
        "a newer term has begun: this translator's is {ours}, the store's is {theirs}. If no other translator runs, \
         as after an etcd restore or a move to another cluster, `helio store adopt` lets this one continue"
    )]
    Fenced { ours: Term, theirs: Term },
    #[error("{fleet}: the head is {}, not {} as expected", or_none(found), or_none(expected))]
    Conflict { fleet: FleetName, expected: Option<Head>, found: Option<Head> },
    #[error("{fleet}: {offered} is not newer than {found}")]
    NotNewer { fleet: FleetName, offered: Head, found: Head },
    /// The store cannot be reached or does not take this now. Whether a write was done is not known; asking again for the
    /// same one is safe.
    #[error("{0}")]
    Unavailable(String),
    /// The store is out of memory. The same may succeed once the garbage collection has deleted what nothing leads to.
    #[error("{0}")]
    Full(String),
    /// What the store holds of a fleet cannot be used: missing, damaged or forged. Written again whole, it is repaired: a
    /// newer snapshot alone writes only what changed.
    #[error("{fleet}: {reason}")]
    Damaged { fleet: FleetName, reason: String },
    /// What was asked can not be done with what there is.
    #[error("{0}")]
    Refused(String),
}

impl StoreError {
    /// Whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Full(_))
    }
}

fn or_none(head: &Option<Head>) -> String {
    head.map_or_else(|| "none".to_owned(), |head| head.to_string())
}
