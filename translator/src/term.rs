use crate::metrics::TranslatorMetrics;
use crate::provider::Input;
use crate::proxies::{self, Blamed, Proxies};
use crate::publish::{Answers, Decision, News, Publisher, TermError};
use crate::report::{Report, count, in_words};
use heliograph_shared::admin::Guard;
use heliograph_snapshot::FleetName;
use heliograph_store::Store;
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

const QUARANTINED: &str =
    "proxies reject it: others are served the last version that was accepted, until it changes";
const LIFTED: &str = "more proxies have it than reject it: it is served to all";

/// One term of the translator: owns the world, and publishes what follows from it.
pub struct Translator {
    world: World,
    publisher: Publisher,
    report: watch::Sender<Report>,
    damage: watch::Sender<BTreeSet<FleetName>>,
    answers: watch::Sender<BTreeMap<FleetName, Answers>>,
    proxies: watch::Sender<Option<Arc<Proxies>>>,
    metrics: TranslatorMetrics,
    /// The objects that changed since the last settling.
    changed: BTreeSet<ObjectKey>,
    /// Done once every fleet is out.
    unready: Option<Guard>,
}

/// What one round took from the channel.
#[derive(Default)]
struct Round {
    events: Vec<Event>,
    synced: bool,
}

impl Translator {
    /// `fence` is the token of whatever elected this translator; without an election there is none. `unready` is done
    /// once every fleet has been published, or found to be what it should be.
    pub fn new(
        store: Arc<dyn Store>,
        fence: Option<u128>,
        metrics: TranslatorMetrics,
        unready: Guard,
    ) -> Self {
        Self {
            world: World::new(),
            publisher: Publisher::new(store, fence, metrics.clone()),
            report: watch::Sender::new(Report::default()),
            damage: watch::Sender::default(),
            answers: watch::Sender::default(),
            proxies: watch::Sender::default(),
            metrics,
            changed: BTreeSet::new(),
            unready: Some(unready),
        }
    }

    /// What was last found.
    pub fn report(&self) -> watch::Receiver<Report> {
        self.report.subscribe()
    }

    /// Where to say which fleets replicas cannot load. It may be said again for as long as it is so.
    pub fn damage(&self) -> watch::Sender<BTreeSet<FleetName>> {
        self.damage.clone()
    }

    /// Where to say what proxies answer.
    pub(crate) fn answers(&self) -> watch::Sender<BTreeMap<FleetName, Answers>> {
        self.answers.clone()
    }

    /// Where to say how many proxies have what was published, and what they reject.
    pub(crate) fn proxies(&self) -> watch::Sender<Option<Arc<Proxies>>> {
        self.proxies.clone()
    }

    /// Claims the store, and translates what comes, until it is stopped or the term ends. A store that is away holds
    /// up nothing but what is written to it.
    pub async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        stop: CancellationToken,
    ) -> Result<(), TermError> {
        let (mut provided, mut synced) = (true, false);
        let (mut damage, mut answers) = (self.damage.subscribe(), self.answers.subscribe());
        let mut proxies = self.proxies.subscribe();
        // What they said before counts.
        proxies.mark_changed();
        loop {
            let round = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                news = self.publisher.news() => {
                    self.note(news?);
                    continue;
                }
                Ok(()) = damage.changed() => {
                    let damaged = damage.borrow_and_update().clone();
                    self.publisher.mend(&damaged);
                    continue;
                }
                Ok(()) = answers.changed() => {
                    self.publisher.heard(&answers.borrow_and_update());
                    continue;
                }
                Ok(()) = proxies.changed() => {
                    self.heard(proxies.borrow_and_update().clone());
                    continue;
                }
                round = Round::take(&mut inputs), if provided => round,
            };
            let Some(round) = round else {
                // The provider has ended, and it is for it to say why. What it told goes on to be kept in the store.
                provided = false;
                continue;
            };
            self.apply(round.events);
            if !synced && !round.synced {
                continue;
            }
            let outcome = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                outcome = self.settle() => outcome?,
            };
            self.tell(&outcome, !synced);
            self.publish(outcome);
            if !synced {
                self.publisher.complete();
            }
            synced = true;
            self.note(vec![]);
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
    fn tell(&self, outcome: &Outcome, first: bool) {
        let changed = &self.changed;
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

    /// Hands over what changed. When it is in the store is told as news.
    fn publish(&mut self, mut outcome: Outcome) {
        let objects = std::mem::take(&mut self.changed).len();
        let blamed = match &*self.proxies.borrow() {
            Some(proxies) => proxies::blamed_anew(proxies, &self.world, &outcome),
            None => Blamed::new(),
        };
        for (fleet, changes) in std::mem::take(&mut outcome.changes) {
            self.publisher.change(&fleet, changes, objects);
        }
        for fleet in &outcome.retired {
            self.publisher.retire(fleet);
        }
        self.metrics.fleets(self.publisher.fleets());
        self.report.send_modify(|report| {
            report.note(outcome, &self.publisher);
            report.note_blame(blamed);
        });
    }

    /// Takes note of what proxies say.
    fn heard(&mut self, proxies: Option<Arc<Proxies>>) {
        let Some(proxies) = proxies else { return };
        let mut blamed = proxies::blamed(&proxies, &self.world);
        // Those that reject nothing any more are named too.
        for fleet in self.report.borrow().blamed.keys() {
            blamed.entry(fleet.clone()).or_default();
        }
        self.report.send_modify(|report| {
            report.note_proxies(proxies);
            report.note_blame(blamed);
        });
    }

    /// Takes note of what is in the store.
    fn note(&mut self, news: Vec<News>) {
        for news in &news {
            match news {
                News::Stands { fleet, head, written } if *written => {
                    self.metrics.published();
                    tracing::debug!(%fleet, %head, "published");
                }
                News::Stands { fleet, head, .. } => tracing::debug!(%fleet, %head, "unchanged"),
                News::Retired { fleet, cause } => tracing::info!(%fleet, "retired: {cause}"),
                News::Decided { fleet, decision } => tell_decision(fleet, decision),
            }
        }
        if !news.is_empty() {
            self.report.send_modify(|report| report.note_news(news, &self.publisher));
        }
        if let Some(guard) = self.unready.take_if(|_| self.publisher.is_out()) {
            guard.done();
        }
    }
}

fn tell_decision(fleet: &FleetName, decision: &Decision) {
    let Decision { kind, name, version, rejected, accepted, lifted } = decision;
    if *lifted {
        tracing::info!(%fleet, %kind, name = &**name, %version, rejected, accepted, "{LIFTED}");
    } else {
        tracing::warn!(%fleet, %kind, name = &**name, %version, rejected, accepted, "{QUARANTINED}");
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
