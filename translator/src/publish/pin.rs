//! The pin of a fleet, as its writer knows it: decided without IO.

use super::step::Step;
use heliograph_snapshot::{Change, Head, Section, Snapshot};
use heliograph_store::{PinOrder, PinState, Pinned, Record};
use std::sync::Arc;

/// The last order for a fleet. Only a later one replaces it: what the store does not have, or has again, is no order.
#[derive(Debug, Default)]
pub(super) struct Pin {
    /// That of the last order, or of one that a record said it obeys.
    number: u64,
    /// What the order says besides, for a record that obeys it. A release that an earlier term obeyed says nothing more.
    order: Option<PinOrder>,
    hold: Option<Hold>,
}

/// The pin of a fleet, with its snapshot.
#[derive(Debug)]
pub(super) struct Hold {
    number: u64,
    pub(super) at: Arc<Record>,
    /// Its content, once it is loaded.
    pub(super) snapshot: Option<Arc<Snapshot>>,
    /// The store lost the order, and with it perhaps the history that it points into. It is written again, for the first
    /// record that holds the same.
    lost: bool,
}

impl Pin {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether the order is to be written again.
    pub(super) fn is_lost(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.lost)
    }

    pub(super) fn hold(&mut self) -> Option<&mut Hold> {
        self.hold.as_mut()
    }

    /// The state of a record at `head` that obeys the order.
    pub(super) fn state(&self, head: Head) -> PinState {
        let pinned = self.hold.as_ref().zip(self.order.as_ref()).and_then(|(hold, order)| {
            let held_at = if hold.lost && head != Head::default() { head } else { hold.at.head };
            order.state(held_at).pinned
        });
        PinState { number: self.number, pinned }
    }

    /// Why the fleet goes on, in words.
    pub(super) fn released(&self) -> String {
        match self.order.as_ref().map(|order| &*order.by) {
            None | Some("") => "released".to_owned(),
            Some(by) => format!("released by {by}"),
        }
    }

    /// The store's record at the beginning of a term: a record that obeys an order has everything that is needed to go
    /// on obeying it.
    pub(super) fn begins_at(&mut self, record: &Arc<Record>) {
        self.remembers(record, None);
    }

    /// A record says which order it obeys. Returns whether that is news.
    pub(super) fn remembers(
        &mut self,
        record: &Arc<Record>,
        snapshot: Option<&Arc<Snapshot>>,
    ) -> bool {
        let PinState { number, pinned } = &record.pin;
        if let Some(hold) = self.hold.as_mut().filter(|hold| hold.number == *number)
            && pinned.is_some()
            && hold.snapshot.is_none()
        {
            hold.snapshot = snapshot.cloned();
        }
        if *number <= self.number {
            return false;
        }
        self.number = *number;
        self.order = pinned.as_ref().map(|Pinned { head: _, since, by, reason }| PinOrder {
            number: *number,
            at: Some(record.clone()),
            time: *since,
            by: by.clone(),
            reason: reason.clone(),
        });
        self.hold = pinned.is_some().then(|| Hold {
            number: *number,
            at: record.clone(),
            snapshot: snapshot.cloned(),
            // Whether the store has the order is not known yet; its next answer shows it.
            lost: false,
        });
        true
    }

    /// The fleet is no more: what was ordered for it means nothing to a later one of its name.
    pub(super) fn retired(&mut self) {
        (self.order, self.hold) = (None, None);
    }

    /// The last order in the store. Returns whether a step may follow.
    pub(super) fn ordered(&mut self, order: Option<&PinOrder>) -> bool {
        match order {
            Some(order) if order.number > self.number => {
                self.obey(order);
                true
            }
            Some(order) if order.number == self.number && order.at.is_some() => {
                self.found(order);
                false
            }
            // None, one that was put back, or one that contradicts the record which obeys this number.
            _ => self.hold.as_mut().is_some_and(|hold| !std::mem::replace(&mut hold.lost, true)),
        }
    }

    /// The order, for the store, if it has lost it. `record` is what is published, and holds the fleet where it is.
    pub(super) fn restored_at(&self, record: &Arc<Record>) -> Option<PinOrder> {
        self.hold.as_ref().filter(|hold| hold.lost)?;
        let order = self.order.clone()?;
        Some(PinOrder { at: Some(record.clone()), ..order })
    }

    /// The step that leads to the content that the fleet is held at. First the store gets the order back, so that an operator
    /// can give the next one where the content is lost.
    pub(super) fn load(&self, known: Arc<Snapshot>) -> Option<Step> {
        let hold = self.hold.as_ref()?;
        let lost = self.order.clone().filter(|_| hold.lost);
        let load = || Step::LoadPinned { record: hold.at.clone(), known };
        Some(lost.map_or_else(load, Step::RestoreOrder))
    }

    /// The store has the order again.
    pub(super) fn restored(&mut self, order: &PinOrder) {
        if order.number == self.number {
            self.found(order);
        }
    }

    fn obey(&mut self, order: &PinOrder) {
        // A retired fleet is not served.
        let at = order.at.as_ref().filter(|record| record.is_live());
        let before = self.hold.take();
        self.hold = at.map(|at| {
            let same = before.filter(|before| before.at.head == at.head);
            Hold {
                number: order.number,
                at: at.clone(),
                snapshot: same.and_then(|same| same.snapshot),
                lost: false,
            }
        });
        self.number = order.number;
        self.order = Some(order.clone());
    }

    /// The store has the order that is obeyed.
    fn found(&mut self, order: &PinOrder) {
        if let (Some(hold), Some(at)) = (&mut self.hold, &order.at) {
            hold.at = at.clone();
            hold.lost = false;
            self.order = Some(order.clone());
        }
    }
}

impl Hold {
    /// Whether a record was published in obedience to the order.
    pub(super) fn is_obeyed_by(&self, record: &Record) -> bool {
        record.pin.number == self.number && record.pin.pinned.is_some()
    }
}

/// Old endpoints are addresses of pods that are gone, and so may be old proxies, so they are never gone back to. But a cluster
/// that no object asks for any more has no live endpoints: it keeps those that it has, as proxies would wait for them.
pub(super) fn with_endpoints_of(
    pinned: &Snapshot,
    live: &Snapshot,
    published: Option<&Snapshot>,
) -> Arc<Snapshot> {
    let trees = Section::all().map(|section| {
        let source = if section.lasts() { pinned } else { live };
        (section, source.section(section).clone())
    });
    let content = Snapshot::assembled(live.fleet.clone(), Head::default(), trees);
    let passing = pinned.dialect().types().filter(|kind| !kind.properties().lasts);
    let orphans = passing.flat_map(|kind| {
        let of = move |snapshot: &Snapshot, name: &str| snapshot.get(kind, name).cloned();
        let former = pinned.tree(kind).iter();
        former.filter(move |former| of(live, &former.name).is_none()).map(move |former| {
            let last = published.and_then(|published| of(published, &former.name));
            Change::Set(kind, last.unwrap_or_else(|| former.clone()))
        })
    });
    let orphans: Vec<_> = orphans.collect();
    Arc::new(if orphans.is_empty() { content } else { content.with(Head::default(), orphans) })
}
