use super::{Run, RunError, during, during_or_failed};
use crate::worker::WorkerOrder;
use crate::workload::{Reach, Schedule, Update, UpdateKind, Workload};
use std::time::{Duration, SystemTime};

/// Some changes, one like the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    pub kind: UpdateKind,
    pub reach: Reach,
    pub every: Duration,
    pub count: u32,
}

/// The time from the order to workers until the first change is due.
const LEAD: Duration = Duration::from_millis(20);

impl Run {
    /// Makes changes, each when it is due: also when the one before has not reached all clients, or any. Returns when
    /// the last was made; [`Run::settle`] waits until all have it.
    pub async fn change(&mut self, changes: Changes) -> Result<(), RunError> {
        self.cost.close();
        let mut start = None;
        let mut made = 0;
        // Workers work out the snapshots themselves, before the first is due. Many at once would take long.
        while made < changes.count {
            let count = changes.at_once().min(changes.count - made);
            let first = self.changes.saturating_add(1);
            let last = first.saturating_add(count - 1);
            debug_assert!(last <= Workload::LAST, "scenarios are checked for this");
            let Changes { kind, reach, every: interval, .. } = changes;
            let updates =
                (first..=last).map(|number| Update { number, kind, reach }).collect::<Vec<_>>();
            self.workers.ask(&WorkerOrder::Expect(updates)).await?;
            during(&self.stop, self.workers.answered()).await??;
            let begin = start.unwrap_or_else(|| SystemTime::now() + LEAD);
            let schedule = Schedule { start: begin, interval, first, count, kind, reach };
            self.workers.send(&WorkerOrder::Schedule(schedule.clone())).await?;
            for update in schedule.updates() {
                self.make(&schedule, update).await?;
            }
            made += count;
            start = begin.checked_add(interval.saturating_mul(count));
        }
        Ok(())
    }

    async fn make(&mut self, schedule: &Schedule, update: Update) -> Result<(), RunError> {
        let due = schedule.due(update.number).unwrap_or_else(SystemTime::now);
        let early = due.duration_since(SystemTime::now()).unwrap_or_default();
        self.during(tokio::time::sleep(early)).await?;
        self.changes = update.number;
        let Self { target, workload, stop, reports, .. } = self;
        let change = target.driver.change(workload, update);
        Ok(during_or_failed(stop, reports, change).await??)
    }
}

impl Changes {
    /// One change, now.
    pub fn one(kind: UpdateKind) -> Self {
        Self { kind, reach: Reach::EveryFleet, every: Duration::from_secs(1), count: 1 }
    }

    /// How many changes one order to workers has.
    fn at_once(&self) -> u32 {
        match self.kind {
            UpdateKind::Endpoint | UpdateKind::Route => 2_000,
            UpdateKind::Clusters | UpdateKind::Full => 20,
        }
    }
}
