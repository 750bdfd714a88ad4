use crate::metrics::TranslatorMetrics;
use crate::provider::Input;
use crate::publish::Publisher;
use crate::report::{Report, in_words};
use heliograph_shared::admin::Guard;
use heliograph_shared::store::{Store, StoreError};
use heliograph_snapshot::{FleetName, Head};
use heliograph_translator_core::objects::{Kind, ObjectKey};
use heliograph_translator_core::status::Status;
use heliograph_translator_core::{Event, Outcome, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// How many inputs are merged into one publish at most, which bounds how stale a publish can be in a storm.
const MERGED: usize = 256;

/// One term of the translator: owns the world, and publishes what follows from it.
pub struct Translator {
    world: World,
    publisher: Publisher,
    report: watch::Sender<Report>,
    metrics: TranslatorMetrics,
    /// The objects that changed since the last publish.
    changed: BTreeSet<ObjectKey>,
    /// Done once the first publish is out.
    unready: Option<Guard>,
}

/// Why a term ended.
#[derive(Debug, thiserror::Error)]
pub enum TermError {
    #[error("another translator writes to the same store: {0}")]
    Store(#[from] StoreError),
    #[error("translation failed: {0}")]
    Died(#[from] tokio::task::JoinError),
}

/// What one round took from the channel.
#[derive(Default)]
struct Round {
    events: Vec<Event>,
    synced: bool,
}

impl Translator {
    /// Begins a term. `fence` is the token of whatever elected this translator; without an election there is none.
    /// `unready` is done after the first publish.
    pub async fn claim(
        store: Arc<dyn Store>,
        fence: Option<u128>,
        metrics: TranslatorMetrics,
        unready: Guard,
    ) -> Result<Self, TermError> {
        Ok(Self {
            world: World::new(),
            publisher: Publisher::claim(store, fence).await?,
            report: watch::Sender::new(Report::default()),
            metrics,
            changed: BTreeSet::new(),
            unready: Some(unready),
        })
    }

    /// What was last found.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Translates what comes, until it is stopped or the term ends.
    pub async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        stop: CancellationToken,
    ) -> Result<(), TermError> {
        let mut synced = false;
        loop {
            let round = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                round = Round::take(&mut inputs) => round,
            };
            let Some(round) = round else {
                // The provider has ended, and it is for it to say why.
                stop.cancelled().await;
                return Ok(());
            };
            self.apply(round.events);
            if !synced && !round.synced {
                continue;
            }
            let outcome = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                outcome = self.settle() => outcome?,
            };
            let heads = self.publish(&outcome).await?;
            if !synced {
                self.retire_forgotten().await?;
            }
            self.tell(&outcome, !synced);
            synced = true;
            self.metrics.fleets(self.publisher.fleets());
            self.report.send_modify(|report| report.note(outcome, heads));
            if let Some(guard) = self.unready.take() {
                guard.done();
            }
        }
    }

    fn apply(&mut self, events: Vec<Event>) {
        for event in events {
            self.metrics.event(&event);
            self.changed.insert(match &event {
                Event::Applied(object) => object.key(),
                Event::Deleted(key) => key.clone(),
            });
            self.world.apply(event);
        }
    }

    /// Logs what people who edit objects want to know.
    fn tell(&mut self, outcome: &Outcome, first: bool) {
        let changed = std::mem::take(&mut self.changed);
        let objects = count(changed.len(), "object");
        if first {
            let of_kind =
                |wanted: fn(Kind) -> bool| changed.iter().filter(|key| wanted(key.kind)).count();
            let gateways = count(of_kind(|kind| kind == Kind::Gateway), "Gateway");
            let routes = count(of_kind(Kind::is_route), "route");
            tracing::info!("translated {objects}, among them {gateways} and {routes}");
        } else if !changed.is_empty() {
            tracing::info!("translated again: {objects} changed");
        }
        let report = self.report.borrow();
        for (key, status) in &outcome.statuses {
            let Some(status) = status else { continue };
            let before = report.statuses.get(key).map(|before| before.problems(key));
            let before = before.unwrap_or_default();
            for problem in status.problems(key).iter().filter(|new| !before.contains(new)) {
                match status {
                    Status::Ignored(_) => tracing::info!("{}", in_words(problem)),
                    _ => tracing::warn!("{}", in_words(problem)),
                }
            }
        }
    }

    /// Computes where that does not hold up tasks that wait for IO.
    async fn settle(&mut self) -> Result<Outcome, TermError> {
        let mut world = std::mem::take(&mut self.world);
        let started = Instant::now();
        let (world, outcome) = tokio::task::spawn_blocking(move || {
            let outcome = world.settle();
            (world, outcome)
        })
        .await?;
        self.world = world;
        self.metrics.settled(started.elapsed(), &outcome.work);
        Ok(outcome)
    }

    /// Returns where the fleets that changed stand now.
    async fn publish(&mut self, outcome: &Outcome) -> Result<BTreeMap<FleetName, Head>, TermError> {
        let mut heads = BTreeMap::new();
        for (fleet, changes) in &outcome.changes {
            let (head, written) = self.publisher.publish(fleet, changes.clone()).await?;
            if written {
                self.metrics.published();
                tracing::debug!(%fleet, %head, changes = changes.len(), "published");
            }
            heads.insert(fleet.clone(), head);
        }
        for fleet in &outcome.retired {
            self.publisher.retire(fleet).await?;
            tracing::info!(%fleet, "retired");
        }
        Ok(heads)
    }

    async fn retire_forgotten(&mut self) -> Result<(), TermError> {
        for fleet in self.publisher.retire_forgotten().await? {
            tracing::info!(%fleet, "retired: its Gateway went while nobody was translating");
        }
        Ok(())
    }
}

impl Round {
    /// Waits for one input and takes what has come behind it, so that the first change goes at once and a storm
    /// is merged. None once nothing can come any more.
    async fn take(inputs: &mut mpsc::Receiver<Input>) -> Option<Self> {
        let mut round = Self::default();
        round.add(inputs.recv().await?);
        // Nothing is taken that this round has no room for: it would be lost.
        for _ in 1..MERGED {
            let Ok(input) = inputs.try_recv() else { break };
            round.add(input);
        }
        Some(round)
    }

    fn add(&mut self, input: Input) {
        match input {
            Input::Batch(events) => self.events.extend(events),
            Input::Synced => self.synced = true,
        }
    }
}

/// `1 route`, `2 routes`.
fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heliograph_translator_core::objects::ObjectName;

    /// A storm that is longer than a round is cut into rounds, and nothing of it is lost.
    #[tokio::test]
    async fn rounds_together_take_all_there_is() {
        let (sender, mut inputs) = mpsc::channel(3 * MERGED);
        for number in 0..2 * MERGED + 1 {
            let key = ObjectName::new("", &number.to_string()).of(Kind::Namespace);
            sender.try_send(Input::Batch(vec![Event::Deleted(key)])).unwrap();
        }
        drop(sender);
        let mut taken = Vec::new();
        while let Some(round) = Round::take(&mut inputs).await {
            taken.push(round.events.len());
        }
        assert_eq!(taken, [MERGED, MERGED, 1]);
    }
}
