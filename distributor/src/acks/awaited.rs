use crate::view::Arrival;
use heliograph_snapshot::Head;
use std::sync::Arc;
use std::time::SystemTime;

/// Which changes a client is yet to acknowledge, to tell how long that took.
///
/// The oldest and the newest are enough: those between them are acknowledged with the newest at the latest, and a client
/// for which changes come faster than it answers is measured all the same.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Not before the client has caught up once: a newcomer did not wait for what was there, and whoever rejects
    /// something acknowledges nothing until it is mended.
    counts: bool,
    oldest: Option<Arc<Arrival>>,
    newest: Option<Arc<Arrival>>,
}

impl Awaited {
    /// Something arrived for the client.
    pub(super) fn arrived(&mut self, arrival: &Arc<Arrival>) {
        if !self.counts {
            return;
        }
        let place = if self.oldest.is_none() { &mut self.oldest } else { &mut self.newest };
        *place = Some(arrival.clone());
    }

    /// The client has come as far as this. Returns when the changes were made that it waited for.
    pub(super) fn acknowledged(&mut self, head: Head) -> [Option<SystemTime>; 2] {
        self.counts = true;
        let is_done = |arrival: &mut Arc<Arrival>| arrival.head <= head;
        let done = [self.oldest.take_if(is_done), self.newest.take_if(is_done)];
        if self.oldest.is_none() {
            self.oldest = self.newest.take();
        }
        done.map(|arrival| arrival.map(|arrival| arrival.time))
    }

    pub(super) fn rejected(&mut self) {
        *self = Self::default();
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

    fn arrival(sequence: u64) -> Arc<Arrival> {
        Arc::new(Arrival { head: head(sequence), time: time(sequence).unwrap() })
    }

    fn caught_up() -> Awaited {
        let mut awaited = Awaited::default();
        assert_eq!(awaited.acknowledged(head(1)), [None, None]);
        awaited
    }

    #[test]
    fn a_change_counts_once_it_is_acknowledged_and_once() {
        let mut awaited = caught_up();
        awaited.arrived(&arrival(2));
        assert_eq!(awaited.acknowledged(head(1)), [None, None], "not that one");
        assert_eq!(awaited.acknowledged(head(2)), [time(2), None]);
        assert_eq!(awaited.acknowledged(head(2)), [None, None]);
    }

    #[test]
    fn changes_without_end_are_measured() {
        let mut awaited = caught_up();
        (2..6).for_each(|n| awaited.arrived(&arrival(n)));
        assert_eq!(awaited.acknowledged(head(3)), [time(2), None]);
        (6..9).for_each(|n| awaited.arrived(&arrival(n)));
        assert_eq!(awaited.acknowledged(head(8)), [time(5), time(8)]);
        assert_eq!(awaited.acknowledged(head(9)), [None, None]);
    }

    #[test]
    fn newcomers_and_those_who_reject_do_not_count() {
        let mut awaited = Awaited::default();
        awaited.arrived(&arrival(1));
        assert_eq!(awaited.acknowledged(head(1)), [None, None], "it has only just come");
        awaited.arrived(&arrival(2));
        awaited.rejected();
        awaited.arrived(&arrival(3));
        assert_eq!(awaited.acknowledged(head(4)), [None, None], "it was mended");
        awaited.arrived(&arrival(5));
        assert_eq!(awaited.acknowledged(head(5)), [time(5), None]);
    }
}
