use crate::feedback::{Blame, Blamed, Feedback};
use crate::publish::{PublishEvent, Publisher, StoredHead};
use crate::recent::Recent;
use heliograph_gateway::Outcome;
use heliograph_gateway::infra::Infra;
use heliograph_gateway::objects::ObjectKey;
use heliograph_gateway::status::reasons::Type;
use heliograph_gateway::status::{ListenerStatus, Problem, Status};
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::Pinned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The latest results of the translator, for other tasks. A copy costs pointers.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The token of the term that it is of, if that was won.
    pub fence: Option<u128>,
    /// What is to be said of each object, as `status` of the object in Kubernetes would say it.
    pub statuses: BTreeMap<ObjectKey, Arc<Status>>,
    /// What is to run for each fleet.
    pub infra: BTreeMap<FleetName, Arc<Infra>>,
    /// The fleets of which nothing is known: what runs for them stays as it is.
    pub preserved: BTreeSet<FleetName>,
    /// Where each fleet stands in the store.
    pub heads: BTreeMap<FleetName, Head>,
    /// The fleets that operators hold, where and why.
    pub pins: BTreeMap<FleetName, Pinned>,
    /// All objects that there are have been translated: one that has no status here is to have none of ours.
    pub complete: bool,
    /// The Gateways and ListenerSets of each fleet, and since when it holds them as they are now.
    pub published: BTreeMap<FleetName, BTreeMap<ObjectKey, Published>>,
    /// What proxies answered; `None` until the reports of the replicas have been read.
    pub feedback: Option<Arc<Feedback>>,
    /// The objects that proxies reject something of, by fleet.
    pub blamed: Blamed,
    /// The objects of which there is something else to say.
    pub changed: Recent<ObjectKey>,
}

/// Since when a fleet holds a Gateway, or a ListenerSet, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub generation: i64,
    /// The listeners that proxies are given.
    served: Vec<String>,
    /// The change of the fleet that brought it about.
    revision: u64,
    /// The first head that is known to hold it.
    pub head: Option<Head>,
    /// It came from another fleet, and none of the proxies here has it yet: what others had counts no more.
    pub is_moved: bool,
}

impl Report {
    /// Takes over what was translated and handed to the publisher.
    pub(crate) fn record(&mut self, outcome: Outcome, publisher: &Publisher) {
        let Outcome { changes: _, retired: _, statuses, infra, work: _ } = outcome;
        for (key, status) in statuses {
            self.record_listeners(&key, status.as_ref(), publisher);
            self.changed.push(key.clone());
            match status {
                Some(status) => self.statuses.insert(key, Arc::new(status)),
                None => self.statuses.remove(&key),
            };
        }
        for (fleet, infra) in infra {
            self.preserved.remove(&fleet);
            match infra {
                Some(infra) => self.infra.insert(fleet, infra),
                None => self.infra.remove(&fleet),
            };
        }
        self.complete = true;
    }

    /// Takes over of which fleets nothing is known.
    pub(crate) fn preserve(&mut self, preserved: &BTreeSet<FleetName>) {
        let infra = &mut self.infra;
        for known in self.preserved.extract_if(.., |fleet| !preserved.contains(fleet)) {
            infra.remove(&known);
        }
        for fleet in preserved {
            infra.entry(fleet.clone()).or_insert_with(|| {
                self.preserved.insert(fleet.clone());
                Arc::new(Infra { fleet: fleet.clone(), ports: Vec::new(), proxies: None })
            });
        }
    }

    /// Takes over what is in the store.
    pub(crate) fn record_events(&mut self, events: Vec<PublishEvent>, publisher: &Publisher) {
        for event in events {
            match event {
                PublishEvent::Stored { fleet, head, .. } => {
                    if let Some(stored_head) = publisher.stored_head(&fleet) {
                        self.record_stored_head(&fleet, stored_head);
                    }
                    self.heads.insert(fleet, head);
                }
                PublishEvent::Retired { fleet, .. } => {
                    self.heads.remove(&fleet);
                }
                PublishEvent::Pins(pins) => self.record_pins(pins),
                PublishEvent::Claimed { .. }
                | PublishEvent::Inherited { .. }
                | PublishEvent::TooLarge { .. }
                | PublishEvent::Decided { .. } => {}
            }
        }
    }

    /// Takes over which fleets operators hold.
    fn record_pins(&mut self, pins: BTreeMap<FleetName, Pinned>) {
        let before = std::mem::replace(&mut self.pins, pins);
        let fleets: BTreeSet<_> = before.keys().chain(self.pins.keys()).collect();
        for fleet in fleets.into_iter().filter(|it| before.get(*it) != self.pins.get(*it)) {
            let objects = self.published.get(fleet).into_iter().flat_map(BTreeMap::keys);
            objects.for_each(|object| self.changed.push(object.clone()));
        }
    }

    /// Takes over what proxies answered.
    pub(crate) fn receive(&mut self, feedback: Arc<Feedback>) {
        let before = self.feedback.replace(feedback.clone());
        for (name, gateways) in &mut self.published {
            let fleet = feedback.fleets.get(name);
            let is_same =
                before.as_ref().is_some_and(|before| match (before.fleets.get(name), fleet) {
                    (Some(before), Some(fleet)) => fleet.has_same_sums(before),
                    (before, fleet) => before.is_none() && fleet.is_none(),
                });
            if is_same {
                continue;
            }
            for (gateway, published) in gateways {
                let have = fleet.zip(published.head).map_or(0, |(fleet, head)| fleet.have(head));
                published.is_moved &= have == 0;
                self.changed.push(gateway.clone());
            }
        }
    }

    /// Takes over which objects proxies mean, of the fleets that are named.
    pub(crate) fn record_blame(&mut self, blamed: Blamed) {
        for (fleet, blamed) in blamed {
            let before = match blamed.is_empty() {
                true => self.blamed.remove(&fleet),
                false => self.blamed.insert(fleet, blamed.clone()),
            };
            let before = before.unwrap_or_default();
            let objects: BTreeSet<&ObjectKey> = before.keys().chain(blamed.keys()).collect();
            for object in objects.into_iter().filter(|it| before.get(it) != blamed.get(it)) {
                self.changed.push(object.clone());
            }
        }
    }

    /// The rejections that mean an object.
    pub fn blame<'a>(&'a self, object: &'a ObjectKey) -> impl Iterator<Item = &'a Blame> {
        self.blamed.values().filter_map(|blamed| blamed.get(object)).flatten()
    }

    /// Takes over since when a Gateway, or a ListenerSet, is as it is.
    fn record_listeners(
        &mut self,
        key: &ObjectKey,
        status: Option<&Status>,
        publisher: &Publisher,
    ) {
        let listeners = status.and_then(Status::listeners);
        // It may have moved from one fleet to another.
        let before = self.statuses.get(key).and_then(|before| before.listeners());
        let left = before.filter(|(before, _)| listeners.is_none_or(|(now, _)| now != *before));
        let is_moved = left.is_some();
        if let Some((left, _)) = left
            && let Some(others) = self.published.get_mut(left)
        {
            others.remove(key);
            if others.is_empty() {
                self.published.remove(left);
            }
        }
        let Some((fleet, listeners)) = listeners else { return };
        let is_given = |listener: &&ListenerStatus| listener.conditions.is_true(Type::Programmed);
        let served = listeners.iter().filter(is_given).map(|it| it.name.clone()).collect();
        let generation = status.and_then(Status::generation);
        let mut published = Published {
            generation: generation.unwrap_or_default(),
            served,
            revision: publisher.revision(fleet),
            head: None,
            is_moved,
        };
        let all = self.published.entry(fleet.clone()).or_default();
        // What else changed, say how many routes it has, proxies need not answer to.
        let is_same = |before: &&Published| {
            before.generation == published.generation && before.served == published.served
        };
        let known = all.get(key);
        published.is_moved |= known.is_some_and(|known| known.is_moved);
        if known.filter(is_same).is_none() {
            published.record_head(publisher.stored_head(fleet));
            all.insert(key.clone(), published);
        }
    }

    fn record_stored_head(&mut self, fleet: &FleetName, stored_head: StoredHead) {
        for (key, published) in self.published.get_mut(fleet).into_iter().flatten() {
            if published.record_head(Some(stored_head)) {
                self.changed.push(key.clone());
            }
        }
    }
}

impl Published {
    #[cfg(test)]
    pub(crate) fn at(generation: i64, head: Option<Head>) -> Self {
        Self { generation, served: Vec::new(), revision: 0, head, is_moved: false }
    }

    /// Whether this is the first head that holds it.
    fn record_head(&mut self, stored_head: Option<StoredHead>) -> bool {
        let holding = stored_head
            .filter(|stored_head| stored_head.revision >= self.revision && self.head.is_none());
        self.head = self.head.or(holding.map(|stored_head| stored_head.head));
        holding.is_some()
    }
}

/// A problem in one line: `HTTPRoute shop/cart, parent web: ResolvedRefs: BackendNotFound: ...`.
pub fn in_words(problem: &Problem) -> String {
    let Problem { object, part, condition, reason, message } = problem;
    let part = part.as_ref().map(|part| format!(", {part}")).unwrap_or_default();
    format!("{object}{part}: {condition}: {reason}: {message}")
}

/// `1 route`, `2 routes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
