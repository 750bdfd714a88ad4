//! Logs failures of the store: when they begin and when they end, each once.

use super::Publisher;
use crate::report::count;
use heliograph_snapshot::FleetName;
use heliograph_store::StoreError;
use tokio::time::Instant;

impl Publisher {
    /// Logs when an outage ends. `fleet` is none for a survey.
    pub(super) fn record_success(&mut self, fleet: Option<&FleetName>) {
        let subject = fleet.cloned();
        self.broken.remove(&subject);
        self.unanswered.remove(&subject);
        if self.unanswered.is_empty() && self.outage.worked() {
            tracing::info!("the store responds again");
        }
    }

    /// Counts what failed, and logs when that begins. `fleet` is none for a survey.
    pub(super) fn record_failure(&mut self, fleet: Option<&FleetName>, error: &StoreError) {
        let subject = fleet.cloned();
        self.metrics.store_failed(error);
        match error {
            StoreError::Unavailable(_) | StoreError::Full(_) => {
                self.unanswered.insert(subject);
                if self.outage.failed(Instant::now(), false) {
                    let fleets = count(self.state.pending(), "fleet");
                    tracing::warn!("cannot write to the store, {fleets} waiting: {error}");
                }
            }
            StoreError::Damaged { .. } | StoreError::Refused(_) => {
                if self.broken.insert(subject) {
                    tracing::warn!("the store: {error}");
                }
            }
            // A survey looks into these, and tells what it finds.
            StoreError::Conflict { .. } | StoreError::NotNewer { .. } => {
                tracing::debug!("the store: {error}");
            }
            // This ends the term, and the caller logs why.
            StoreError::Fenced { .. } => {}
        }
    }

    pub(super) fn record_cleaned(&mut self, fleet: &FleetName, error: Option<&StoreError>) {
        let Some(error) = error else {
            self.uncleaned.remove(fleet);
            return;
        };
        // A store that is unreachable fails all fleets, and is logged once.
        let is_logged = error.is_temporary() && !self.uncleaned.is_empty();
        if self.uncleaned.insert(fleet.clone()) && !is_logged {
            tracing::warn!(%fleet, "cannot delete unused objects from the store, retrying later: {error}");
        }
    }
}
