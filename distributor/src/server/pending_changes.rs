use crate::view::FleetChange;
use heliograph_snapshot::Head;
use std::sync::Arc;
use std::time::SystemTime;

/// The changes that a client has not acknowledged yet, to measure how long that takes.
///
/// The oldest and the newest are enough: those between them are acknowledged with the newest at the latest, and a client
/// for which changes come faster than it answers is measured all the same.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    /// Not before the client has caught up: a new client did not wait for existing resources, and a client that rejects
    /// something acknowledges no head until it is repaired.
    counts: bool,
    oldest: Option<Arc<FleetChange>>,
    newest: Option<Arc<FleetChange>>,
}

impl PendingChanges {
    /// A change arrived for the client.
    pub(super) fn arrived(&mut self, change: &Arc<FleetChange>) {
        let is_first = self.counts && self.oldest.is_none();
        let slot = if is_first { &mut self.oldest } else { &mut self.newest };
        *slot = Some(change.clone());
    }

    /// The client has come as far as this. Returns when the changes were made that it acknowledged with that.
    pub(super) fn at(&mut self, acknowledged: Option<Head>) -> [Option<SystemTime>; 2] {
        let Some(head) = acknowledged else { return [None, None] };
        let is_done = |change: &mut Arc<FleetChange>| change.head <= head;
        let done = [self.oldest.take_if(is_done), self.newest.take_if(is_done)];
        if !self.counts {
            self.counts = self.newest.is_none();
            return [None, None];
        }
        if self.oldest.is_none() {
            self.oldest = self.newest.take();
        }
        done.map(|change| change.map(|change| change.time))
    }

    /// It rejected something, so it is to catch up again.
    pub(super) fn rejected(&mut self) {
        self.counts = false;
        let oldest = self.oldest.take();
        self.newest = self.newest.take().or(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn head(sequence: u64) -> Head {
        Head { sequence, ..Head::default() }
    }

    fn time(sequence: u64) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(sequence))
    }

    fn change(sequence: u64) -> Arc<FleetChange> {
        Arc::new(FleetChange { head: head(sequence), time: time(sequence).unwrap() })
    }

    fn caught_up() -> PendingChanges {
        let mut pending = PendingChanges::default();
        assert_eq!(pending.at(None), [None, None]);
        assert_eq!(pending.at(Some(head(1))), [None, None]);
        pending
    }

    #[test]
    fn a_change_counts_once_it_is_acknowledged_and_once() {
        let mut pending = caught_up();
        pending.arrived(&change(2));
        assert_eq!(pending.at(Some(head(1))), [None, None], "not that one");
        assert_eq!(pending.at(Some(head(2))), [time(2), None]);
        assert_eq!(pending.at(Some(head(2))), [None, None]);
    }

    #[test]
    fn changes_without_end_are_measured() {
        let mut pending = caught_up();
        (2..6).for_each(|n| pending.arrived(&change(n)));
        assert_eq!(pending.at(Some(head(3))), [time(2), None]);
        (6..9).for_each(|n| pending.arrived(&change(n)));
        assert_eq!(pending.at(Some(head(8))), [time(5), time(8)]);
        assert_eq!(pending.at(Some(head(9))), [None, None]);
    }

    #[test]
    fn a_newcomer_counts_once_it_has_caught_up() {
        let mut pending = PendingChanges::default();
        pending.arrived(&change(2));
        assert_eq!(pending.at(Some(head(1))), [None, None]);
        pending.arrived(&change(3));
        assert_eq!(pending.at(Some(head(3))), [None, None], "it has only just come");
        pending.arrived(&change(4));
        assert_eq!(pending.at(Some(head(4))), [time(4), None]);
    }

    #[test]
    fn whoever_rejects_counts_again_once_it_is_mended() {
        let mut pending = caught_up();
        pending.arrived(&change(2));
        pending.rejected();
        assert_eq!(pending.at(Some(head(1))), [None, None]);
        pending.arrived(&change(3));
        assert_eq!(pending.at(Some(head(1))), [None, None]);
        assert_eq!(pending.at(Some(head(3))), [None, None], "it was mended");
        pending.arrived(&change(4));
        assert_eq!(pending.at(Some(head(4))), [time(4), None]);
    }
}
