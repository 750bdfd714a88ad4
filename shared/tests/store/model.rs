//! A store against a model that is too simple to be wrong: random writers, readers that read at random moments.

use crate::contract::{assert_whole, fleet, next, snapshot};
use futures::FutureExt;
use heliograph_shared::store::{Store, StoreError, Subscription, Update};
use heliograph_snapshot::{FleetName, Head};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Claim {
        writer: usize,
    },
    /// The sequence moves by `advance`, which may be 0 and so must be refused.
    Publish {
        writer: usize,
        fleet: usize,
        advance: u64,
    },
    Retire {
        writer: usize,
        fleet: usize,
        advance: u64,
    },
    Subscribe,
    Read {
        reader: usize,
        updates: usize,
    },
}

/// What a store must hold after the steps so far.
#[derive(Default)]
struct Model {
    fence: u128,
    fleets: BTreeMap<FleetName, (Head, Life)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Live,
    Retired,
}

#[derive(Default)]
struct Writer {
    fence: u128,
    believed: BTreeMap<FleetName, Head>,
}

struct Reader {
    subscription: Box<dyn Subscription>,
    /// The newest head heard of each fleet, live or not.
    heard: BTreeMap<FleetName, (Head, Life)>,
    synced: bool,
    /// What was live when it subscribed and has not been retired since: what it hears before `Synced`.
    owed: BTreeSet<FleetName>,
}

const WRITERS: usize = 3;
const FLEETS: usize = 4;

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = || (0..WRITERS, 0..FLEETS, 0..3u64);
    let step = prop_oneof![
        1 => (0..WRITERS).prop_map(|writer| Step::Claim { writer }),
        6 => write().prop_map(|(writer, fleet, advance)| Step::Publish { writer, fleet, advance }),
        2 => write().prop_map(|(writer, fleet, advance)| Step::Retire { writer, fleet, advance }),
        1 => Just(Step::Subscribe),
        4 => (any::<usize>(), 1..4usize).prop_map(|(reader, updates)| Step::Read { reader, updates }),
    ];
    prop::collection::vec(step, 1..200)
}

pub(crate) fn config() -> ProptestConfig {
    // A reader that never arrives is known by its deadline, so looking for the smallest such case takes long.
    ProptestConfig { max_shrink_time: 60_000, ..ProptestConfig::default() }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) async fn walk(store: Arc<dyn Store>, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = Model::default();
    let mut writers: Vec<_> = (0..WRITERS).map(|_| Writer::default()).collect();
    let mut readers = vec![Reader::new(&*store, &model)];
    for step in steps {
        match step {
            Step::Claim { writer } => {
                let claim = store.claim(None).await?;
                prop_assert!(claim.fence > model.fence);
                prop_assert_eq!(&claim.heads, &model.heads());
                model.fence = claim.fence;
                writers[writer] = Writer { fence: claim.fence, believed: claim.heads };
            }
            Step::Publish { writer, fleet, advance } => {
                let (fleet, head, expected) = writers[writer].offer(fleet, advance);
                let outcome = store.publish(snapshot(&fleet, head), expected).await;
                let predicted = model.write(&fleet, head, expected, Life::Live);
                prop_assert_eq!(&outcome, &predicted);
                writers[writer].learn(fleet, head, outcome);
            }
            Step::Retire { writer, fleet, advance } => {
                let (fleet, head, expected) = writers[writer].offer(fleet, advance);
                let outcome = store.retire(fleet.clone(), head, expected).await;
                let predicted = model.write(&fleet, head, expected, Life::Retired);
                prop_assert_eq!(&outcome, &predicted);
                if outcome.is_ok() {
                    readers.iter_mut().for_each(|reader| {
                        reader.owed.remove(&fleet);
                    });
                }
                writers[writer].learn(fleet, head, outcome);
            }
            Step::Subscribe => readers.push(Reader::new(&*store, &model)),
            Step::Read { reader, updates } => {
                let index = reader % readers.len();
                readers[index].read_up_to(updates)?;
            }
        }
    }
    for reader in &mut readers {
        reader.arrive(&model).await?;
    }
    Ok(())
}

impl Model {
    fn heads(&self) -> BTreeMap<FleetName, Head> {
        self.fleets.iter().map(|(fleet, (head, _))| (fleet.clone(), *head)).collect()
    }

    fn write(
        &mut self,
        fleet: &FleetName,
        head: Head,
        expected: Option<Head>,
        life: Life,
    ) -> Result<(), StoreError> {
        if head.fence < self.fence {
            return Err(StoreError::Fenced { ours: head.fence, theirs: self.fence });
        }
        let (fleet, found) = (fleet.clone(), self.fleets.get(fleet).map(|(head, _)| *head));
        match found {
            _ if found != expected => Err(StoreError::Conflict { fleet, expected, found }),
            Some(found) if head <= found => {
                Err(StoreError::NotNewer { fleet, offered: head, found })
            }
            _ => {
                self.fleets.insert(fleet, (head, life));
                Ok(())
            }
        }
    }
}

impl Writer {
    fn offer(&self, number: usize, advance: u64) -> (FleetName, Head, Option<Head>) {
        let fleet = fleet(&number.to_string());
        let expected = self.believed.get(&fleet).copied();
        let sequence = expected.map_or(0, |head| head.sequence) + advance;
        (fleet, Head { epoch: 0, fence: self.fence, sequence }, expected)
    }

    fn learn(&mut self, fleet: FleetName, head: Head, outcome: Result<(), StoreError>) {
        if outcome.is_ok() {
            self.believed.insert(fleet, head);
        }
    }
}

impl Reader {
    fn new(store: &dyn Store, model: &Model) -> Self {
        let live = model.fleets.iter().filter(|(_, (_, life))| *life == Life::Live);
        Self {
            subscription: store.subscribe(),
            heard: BTreeMap::new(),
            synced: false,
            owed: live.map(|(fleet, _)| fleet.clone()).collect(),
        }
    }

    /// Takes what is there, and gives up waiting where there is nothing.
    fn read_up_to(&mut self, updates: usize) -> Result<(), TestCaseError> {
        for _ in 0..updates {
            let Some(update) = self.subscription.next().now_or_never() else { break };
            let update = update.ok_or_else(|| TestCaseError::fail("the store closed"))?;
            self.hear(update)?;
        }
        Ok(())
    }

    fn hear(&mut self, update: Update) -> Result<(), TestCaseError> {
        let (fleet, head, life) = match update {
            Update::Synced => {
                prop_assert!(!self.synced, "synced twice");
                self.synced = true;
                for fleet in &self.owed {
                    prop_assert!(self.heard.contains_key(fleet), "synced without {}", fleet);
                }
                return Ok(());
            }
            Update::Published(snapshot) => {
                assert_whole(&snapshot);
                (snapshot.fleet.clone(), snapshot.head, Life::Live)
            }
            Update::Retired(fleet, head) => (fleet, head, Life::Retired),
        };
        if let Some((before, _)) = self.heard.get(&fleet) {
            prop_assert!(head > *before, "{} went from {} to {}", fleet, before, head);
        } else {
            prop_assert_eq!(life, Life::Live, "{} retired before it was heard of", &fleet);
        }
        self.heard.insert(fleet, (head, life));
        Ok(())
    }

    /// With the writers at rest the reader comes to hold what the store holds.
    async fn arrive(&mut self, model: &Model) -> Result<(), TestCaseError> {
        while !(self.synced && self.is_at(model)) {
            let update = next(&mut *self.subscription).await;
            self.hear(update)?;
        }
        prop_assert!(self.subscription.next().now_or_never().is_none(), "more than there is");
        Ok(())
    }

    /// Every live fleet heard of at its head, and no retired one believed live. A life that began and ended
    /// between two reads is not heard of, so a reader may know an older tombstone.
    fn is_at(&self, model: &Model) -> bool {
        model.fleets.iter().all(|(fleet, now)| match (self.heard.get(fleet), now) {
            (heard, (_, Life::Live)) => heard == Some(now),
            (heard, (_, Life::Retired)) => !matches!(heard, Some((_, Life::Live))),
        })
    }
}
