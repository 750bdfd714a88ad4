//! A store beside the model of one: random writers that crash, pause and ask again, readers that read at random moments.

use crate::Store;
use crate::follower::Follower;
use crate::history::{pin, release};
use crate::model::Model;
use crate::writer::{Kind, Write, Writer, fleet};
use futures::FutureExt;
use heliograph_snapshot::FleetName;
use heliograph_store::{StoreError, Update};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A writer forgets all it knew, as after a crash, and begins a term.
    Claim {
        writer: usize,
    },
    /// A writer decides on a write, and pauses before it sends it.
    Draft(Draft),
    /// A writer goes on with one of the writes that it decided on, or asks again for one whose answer it did not hear.
    Send {
        writer: usize,
        draft: usize,
        answer: Reply,
    },
    /// Both at once.
    Write(Draft, Reply),
    Adopt,
    Clean {
        writer: usize,
        fleet: usize,
    },
    Pin {
        fleet: usize,
        step: usize,
    },
    Release {
        fleet: usize,
    },
    Subscribe,
    Read {
        reader: usize,
        updates: usize,
    },
    LoadHistory {
        fleet: usize,
        step: usize,
    },
}

/// The sequence moves by `advance`, which may be 0 and so must be refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    writer: usize,
    fleet: usize,
    advance: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Received,
    Lost,
}

struct Walk {
    store: Arc<dyn Store>,
    model: Model,
    writers: Vec<Undecided>,
    readers: Vec<Reader>,
}

/// A writer, and the writes whose outcome it does not know.
struct Undecided {
    writer: Writer,
    drafts: Vec<Write>,
}

struct Reader {
    follower: Follower,
    /// What was live when it subscribed and has not been retired since: what it hears before `Synced`.
    owed: BTreeSet<FleetName>,
}

const WRITERS: usize = 3;
const FLEETS: usize = 4;

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let kind = prop_oneof![
        4 => Just(Kind::Everything),
        3 => Just(Kind::Endpoints),
        2 => Just(Kind::Retirement),
    ];
    let draft = (0..WRITERS, 0..FLEETS, prop_oneof![1 => Just(0), 9 => 1..3u64], kind)
        .prop_map(|(writer, fleet, advance, kind)| Draft { writer, fleet, advance, kind })
        .boxed();
    let reply = prop_oneof![4 => Just(Reply::Received), 1 => Just(Reply::Lost)].boxed();
    let send = (0..WRITERS, any::<usize>(), reply.clone());
    let step = prop_oneof![
        3 => (0..WRITERS).prop_map(|writer| Step::Claim { writer }),
        3 => draft.clone().prop_map(Step::Draft),
        5 => send.prop_map(|(writer, draft, answer)| Step::Send { writer, draft, answer }),
        20 => (draft, reply).prop_map(|(draft, reply)| Step::Write(draft, reply)),
        1 => Just(Step::Adopt),
        2 => (0..WRITERS, 0..FLEETS).prop_map(|(writer, fleet)| Step::Clean { writer, fleet }),
        2 => (0..FLEETS, any::<usize>()).prop_map(|(fleet, step)| Step::Pin { fleet, step }),
        1 => (0..FLEETS).prop_map(|fleet| Step::Release { fleet }),
        2 => Just(Step::Subscribe),
        10 => (any::<usize>(), 1..4usize).prop_map(|(reader, updates)| Step::Read { reader, updates }),
        3 => (0..FLEETS, any::<usize>()).prop_map(|(fleet, step)| Step::LoadHistory { fleet, step }),
    ];
    prop::collection::vec(step, 1..200)
}

pub(crate) fn config(cases: u32) -> ProptestConfig {
    // A reader that never arrives is known by its deadline, so looking for the smallest such case takes long.
    ProptestConfig { cases, max_shrink_time: 60_000, ..ProptestConfig::default() }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) async fn walk(store: Arc<dyn Store>, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let writer = Writer::claim(&store).await;
        model.term = writer.term;
        writers.push(Undecided { writer, drafts: Vec::new() });
    }
    let readers = vec![Reader::new(&store, &model)];
    let mut walk = Walk { store, model, writers, readers };
    for step in steps {
        walk.carry_out(step).await?;
    }
    walk.arrive().await
}

impl Walk {
    async fn carry_out(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Claim { writer } => self.claim(writer).await,
            Step::Draft(draft) => {
                self.draft(draft);
                Ok(())
            }
            Step::Send { writer, draft, answer } => self.send(writer, draft, answer).await,
            Step::Write(draft, reply) => {
                let place = self.draft(draft);
                self.send(draft.writer, place, reply).await
            }
            Step::Adopt => self.adopt().await,
            Step::Clean { writer, fleet } => self.clean(writer, &numbered(fleet)).await,
            Step::Pin { fleet, step } => self.pin(&numbered(fleet), step).await,
            Step::Release { fleet } => self.release(numbered(fleet)).await,
            Step::Subscribe => {
                self.readers.push(Reader::new(&self.store, &self.model));
                Ok(())
            }
            Step::Read { reader, updates } => {
                let place = reader % self.readers.len();
                self.readers[place].read(updates, &self.model).await
            }
            Step::LoadHistory { fleet, step } => self.load_history(&numbered(fleet), step).await,
        }
    }

    async fn claim(&mut self, writer: usize) -> Result<(), TestCaseError> {
        let claim = self.store.claim(None).await?;
        prop_assert!(claim.term > self.model.term);
        prop_assert_eq!(claim.term.epoch, self.model.term.epoch);
        prop_assert_eq!(&claim.records, &self.model.records);
        prop_assert_eq!(&claim.orders, &self.model.orders);
        self.model.term = claim.term;
        // Its drafts stay: they are what was on its way when it crashed, and may arrive late.
        self.writers[writer].writer = Writer::of(&self.store, claim);
        Ok(())
    }

    /// Where the draft is kept.
    fn draft(&mut self, draft: Draft) -> usize {
        let Draft { writer, fleet, advance, kind } = draft;
        let Undecided { writer, drafts } = &mut self.writers[writer];
        drafts.push(writer.draft(&numbered(fleet), advance, kind));
        drafts.len() - 1
    }

    async fn send(
        &mut self,
        writer: usize,
        draft: usize,
        reply: Reply,
    ) -> Result<(), TestCaseError> {
        let Undecided { writer, drafts } = &mut self.writers[writer];
        if drafts.is_empty() {
            return Ok(());
        }
        let place = draft % drafts.len();
        let write = drafts[place].clone();
        let outcome = write.send(&*self.store).await;
        prop_assert_eq!(&outcome, &self.model.write(&write));
        if outcome.is_ok()
            && let Write::Retire(retirement) = &write
        {
            self.readers.iter_mut().for_each(|reader| {
                reader.owed.remove(&retirement.fleet);
            });
        }
        if let Reply::Received = reply {
            drafts.remove(place);
            // An answer about an earlier term must not count for its own.
            if outcome.is_ok() && writer.term == write.record().head.into() {
                writer.learn(write);
            }
        }
        Ok(())
    }

    async fn adopt(&mut self) -> Result<(), TestCaseError> {
        let term = self.store.term().await?;
        prop_assert_eq!(term, self.model.term);
        self.model.term = self.store.adopt(term).await?;
        prop_assert!(self.model.term.epoch > term.epoch);
        Ok(())
    }

    /// Whoever it is that tidies up, and whatever it believes: nothing is lost by it.
    async fn clean(&mut self, writer: usize, fleet: &FleetName) -> Result<(), TestCaseError> {
        if let Some(newest) = self.writers[writer].writer.held.get(fleet) {
            match self.store.clean(newest.clone()).await {
                Ok(_) | Err(StoreError::Fenced { .. } | StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn pin(&mut self, fleet: &FleetName, step: usize) -> Result<(), TestCaseError> {
        let history = self.model.history(fleet);
        if !history.is_empty() {
            let order = pin(self.next_order(fleet), &history[step % history.len()]);
            self.store.order(fleet.clone(), order.clone()).await?;
            self.model.orders.insert(fleet.clone(), order);
        }
        Ok(())
    }

    async fn release(&mut self, fleet: FleetName) -> Result<(), TestCaseError> {
        // A fleet that does not exist is not released.
        if self.model.history(&fleet).is_empty() {
            return Ok(());
        }
        let order = release(self.next_order(&fleet));
        self.store.order(fleet.clone(), order.clone()).await?;
        self.model.orders.insert(fleet, order);
        Ok(())
    }

    fn next_order(&self, fleet: &FleetName) -> u64 {
        self.model.orders.get(fleet).map_or(1, |order| order.number + 1)
    }

    async fn load_history(&mut self, fleet: &FleetName, step: usize) -> Result<(), TestCaseError> {
        let history = self.store.history(fleet.clone()).await?;
        prop_assert_eq!(&*history, self.model.history(fleet));
        let pinned = self.model.orders.get(fleet).and_then(|order| order.at.as_ref());
        let loadable: Vec<_> = history.iter().chain(pinned).collect();
        if !loadable.is_empty() {
            let record = loadable[step % loadable.len()];
            let loaded = self.store.load(record.clone(), None).await?.snapshot;
            let published = self.model.snapshot(fleet, record.head);
            prop_assert!(published.is_some_and(|published| published.same_content(&loaded)));
        }
        Ok(())
    }

    /// With the writers at rest, all comes to be as the model says.
    async fn arrive(&mut self) -> Result<(), TestCaseError> {
        let inspection = self.store.inspect(Vec::new()).await?;
        prop_assert_eq!(inspection.term, self.model.term);
        prop_assert_eq!(inspection.heads, self.model.heads());
        prop_assert_eq!(&inspection.orders, &self.model.orders);
        for reader in &mut self.readers {
            reader.arrive(&self.model).await?;
        }
        Ok(())
    }
}

impl Reader {
    fn new(store: &Arc<dyn Store>, model: &Model) -> Self {
        Self { follower: Follower::new(store), owed: model.live().into_keys().collect() }
    }

    /// Reads while there must be more, and gives up waiting where there is nothing.
    async fn read(&mut self, updates: usize, model: &Model) -> Result<(), TestCaseError> {
        for _ in 0..updates {
            if !self.is_at(model) {
                let update = self.follower.next().await;
                self.check(&update, model)?;
            } else if !self.receives_late(model)? {
                break;
            }
        }
        Ok(())
    }

    async fn arrive(&mut self, model: &Model) -> Result<(), TestCaseError> {
        while !self.is_at(model) || self.receives_late(model)? {
            self.read(1, model).await?;
        }
        Ok(())
    }

    /// Whether there is an update for a reader that has heard all there is to hear. It can only be what was on its way
    /// to the reader when the fleet moved on.
    fn receives_late(&mut self, model: &Model) -> Result<bool, TestCaseError> {
        let Some(update) = self.follower.subscription.next().now_or_never() else {
            return Ok(false);
        };
        let late = match &update {
            Update::Published(snapshot, _) => snapshot.head < model.records[&snapshot.fleet].head,
            _ => false,
        };
        prop_assert!(late, "more than there is: {:?}", update);
        self.follower.receive(&update);
        self.check(&update, model)?;
        Ok(true)
    }

    fn check(&self, update: &Update, model: &Model) -> Result<(), TestCaseError> {
        match update {
            Update::Synced => {
                let received = |fleet| self.follower.newest.contains_key(fleet);
                let missing = self.owed.iter().find(|fleet| !received(*fleet));
                prop_assert!(missing.is_none(), "synced without {:?}", missing);
            }
            Update::Published(snapshot, _) => {
                let published = model.snapshot(&snapshot.fleet, snapshot.head);
                let is_that = published.is_some_and(|published| published.same_content(snapshot));
                prop_assert!(is_that, "{} was never at {}", snapshot.fleet, snapshot.head);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether it has heard all there is to hear. A life that began and ended between two reads is not.
    fn is_at(&self, model: &Model) -> bool {
        self.follower.synced && self.follower.live == model.live()
    }
}

fn numbered(number: usize) -> FleetName {
    fleet(&number.to_string())
}
