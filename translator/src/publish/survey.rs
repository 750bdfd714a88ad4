use heliograph_snapshot::FleetName;

/// A look at all that the store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Survey {
    Claim(Option<u128>),
    Inspect(Vec<FleetName>),
}

/// The problems that a survey found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Fleets whose head is not the one that was written.
    pub(super) lost: usize,
    /// Fleets that were not written in this term.
    pub(super) unknown: usize,
    /// Fleets that replicas remember otherwise than the store has them.
    pub(super) remembered: usize,
}
