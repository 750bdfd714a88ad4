use crate::Watched;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The total usage of the processes of clients: where they had no core left, latencies are due to the clients
/// themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// Each is one thread.
    pub processes: u64,
    /// How many they may run on.
    pub cpus: u64,
    pub used: Watched,
}

/// Shorter, and the kernel's ticks would show.
const MIN_SPAN: Duration = Duration::from_secs(2);

impl Clients {
    /// How much they used of what they could have, in the busiest moments: 1 is all. None if they were not looked at
    /// for long enough.
    pub fn busiest(&self) -> Option<f64> {
        let cores = self.processes.min(self.cpus).max(1);
        self.used.busiest(MIN_SPAN).map(|used| used / cores as f64)
    }
}
