use super::AdmissionControl;
use crate::load::{Ending, OtherReplicas, shed, spread_delay};
use heliograph_shared::admin::Readiness;
use heliograph_store::{Presence, Replicas};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The task that lets the other replicas know of this one, and ends streams while it has more than they. Without the store,
/// all streams stay.
pub(crate) struct Rebalancer {
    replicas: Arc<dyn Replicas>,
    admission_control: Arc<AdmissionControl>,
    /// A name that no other replica has.
    replica: String,
    per_second: u32,
}

/// The time between two heartbeats, and the timeout of one: several fit into the time after which a replica is forgotten.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The time between two comparisons with the other replicas. Each of them sends at least one heartbeat meanwhile.
const BALANCE_INTERVAL: Duration = Duration::from_secs(5);

impl Rebalancer {
    /// `replica` need not be unique: another replica, or this one before a restart, may have the same.
    pub(crate) fn new(
        replicas: Arc<dyn Replicas>,
        admission_control: Arc<AdmissionControl>,
        replica: &str,
        per_second: u32,
    ) -> Self {
        let replica = format!("{replica}-{:08x}", fastrand::u32(..));
        Self { replicas, admission_control, replica, per_second }
    }

    /// Begins once clients can be sent here.
    pub(crate) async fn run(self, readiness: Readiness, stop: CancellationToken) -> Infallible {
        readiness.ready().await;
        tokio::select! {
            never = self.beat(&stop) => never,
            never = self.balance(&stop) => never,
        }
    }

    async fn beat(&self, stop: &CancellationToken) -> Infallible {
        let mut beat = fastrand::u64(..u64::MAX / 2);
        loop {
            let leaving = stop.is_cancelled();
            let streams = self.admission_control.streams() as u64;
            let presence = Presence { replica: self.replica.clone(), beat, streams, leaving };
            // The store itself logs that it is unreachable, or accepts no writes.
            let _ = timeout(HEARTBEAT_INTERVAL, self.replicas.send_presence(presence)).await;
            beat += 1;
            if leaving {
                sleep(HEARTBEAT_INTERVAL).await;
            } else {
                // The others learn at once that it leaves.
                let _ = timeout(HEARTBEAT_INTERVAL, stop.cancelled()).await;
            }
        }
    }

    async fn balance(&self, stop: &CancellationToken) -> Infallible {
        let mut others = OtherReplicas::default();
        loop {
            let begun = Instant::now();
            if let Ok(present) = self.replicas.read_presences().await
                && !stop.is_cancelled()
            {
                let counts = others.update(&self.replica, present);
                let own = self.admission_control.streams() as u64;
                let count = shed(own, &counts, BALANCE_INTERVAL, self.per_second);
                if count > 0 {
                    tracing::info!(own, others = ?counts, count, "other replicas have fewer streams; closing some streams to rebalance");
                }
                self.end_streams(count, begun).await;
            }
            sleep_until(begun + BALANCE_INTERVAL).await;
        }
    }

    /// Ends so many streams, spread over the time until the next comparison, so that they do not come to another replica together.
    async fn end_streams(&self, count: usize, begun: Instant) {
        for (index, handle) in self.admission_control.choose(count).into_iter().enumerate() {
            sleep_until(begun + spread_delay(index, count, BALANCE_INTERVAL, fastrand::f64()))
                .await;
            handle.close(Ending::Excess);
        }
    }
}
