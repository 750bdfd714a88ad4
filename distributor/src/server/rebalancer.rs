use super::Door;
use crate::load::{Ending, Others, shed, turn};
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
    door: Arc<Door>,
    /// A name that no other replica has.
    replica: String,
    per_second: u32,
}

/// The time between two beats, and after how long one is given up: several fit into the time after which a replica is
/// forgotten.
const BEAT: Duration = Duration::from_secs(2);
/// The time between two looks at the others. Each of them beats at least once meanwhile.
const LOOK: Duration = Duration::from_secs(5);

impl Rebalancer {
    /// `replica` need not be unique: another replica, or this one before a restart, may have the same.
    pub(crate) fn new(
        replicas: Arc<dyn Replicas>,
        door: Arc<Door>,
        replica: &str,
        per_second: u32,
    ) -> Self {
        let replica = format!("{replica}-{:08x}", fastrand::u32(..));
        Self { replicas, door, replica, per_second }
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
            let streams = self.door.streams() as u64;
            let presence = Presence { replica: self.replica.clone(), beat, streams, leaving };
            // That the store is away, or takes nothing, is the store's to say.
            let _ = timeout(BEAT, self.replicas.send_presence(presence)).await;
            beat += 1;
            if leaving {
                sleep(BEAT).await;
            } else {
                // The others hear at once that it leaves.
                let _ = timeout(BEAT, stop.cancelled()).await;
            }
        }
    }

    async fn balance(&self, stop: &CancellationToken) -> Infallible {
        let mut others = Others::default();
        loop {
            let begun = Instant::now();
            if let Ok(present) = self.replicas.read_presences().await
                && !stop.is_cancelled()
            {
                let counts = others.look(&self.replica, present);
                let own = self.door.streams() as u64;
                let count = shed(own, &counts, LOOK, self.per_second);
                if count > 0 {
                    tracing::info!(own, others = ?counts, count, "other replicas have fewer streams, some are let go");
                }
                self.let_go(count, begun).await;
            }
            sleep_until(begun + LOOK).await;
        }
    }

    /// Spread over the time until the next look, so that they do not come to another replica together.
    async fn let_go(&self, count: usize, begun: Instant) {
        for (place, tenure) in self.door.some(count).into_iter().enumerate() {
            sleep_until(begun + turn(place, count, LOOK, fastrand::f64())).await;
            tenure.dismiss(Ending::Excess);
        }
    }
}
