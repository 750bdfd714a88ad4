use crate::client_state::ClientState;
use heliograph_snapshot::{Head, ResourceType};
use std::sync::Arc;

/// How far a client is with one type that it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    pub kind: ResourceType,
    /// Whether it asks for all there are.
    pub wildcard: bool,
    /// How many it asks for by name.
    pub names: usize,
    /// The newest head of which it has acknowledged all that it asks for.
    pub acknowledged: Option<Head>,
    /// How many resources, or removals of them, it is yet to acknowledge: sent, or waiting for their turn.
    pub outstanding: usize,
    /// How many it rejected that stand in what it is to have.
    pub rejected: usize,
    /// Whether a reply was taken for accepted because no answer came in time, and none has come since.
    pub silent: bool,
}

impl ClientState {
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// See [`Session::acknowledged`](crate::Session::acknowledged).
    pub fn acknowledged(&self) -> Option<Head> {
        self.0.acknowledged()
    }

    /// The types that the client subscribes to, in the order of updates. The cost is in proportion to the replies under
    /// way.
    pub fn progress(&self) -> impl Iterator<Item = Progress> {
        let state = self.0.state();
        ResourceType::ALL.into_iter().filter_map(|kind| Some(state.watch(kind)?.progress()))
    }
}
