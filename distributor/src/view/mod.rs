//! A snapshot as each class of clients sees it.
//!
//! The rules are in the snapshot (`heliograph-views`), and a view is derived when the first client of its class looks: from
//! the view that the class had before, at the cost of what changed. Clients of a class share it, and it goes with the
//! last of them.

mod classes;
mod client;

pub(crate) use classes::{Classes, Seat};
pub(crate) use client::{Claims, Who};

use heliograph_distributor_protocol::View;
use heliograph_snapshot::{Head, Internal, Snapshot};
use heliograph_views::Rules;
use std::sync::Arc;
use std::time::SystemTime;

/// The newest snapshot of a fleet, and what it takes to see it as a class does.
#[derive(Debug)]
pub(crate) struct Views {
    snapshot: Arc<Snapshot>,
    /// As it is where there are no rules.
    plain: Arc<View>,
    rules: Arc<Rules>,
    /// Another one when the classes of clients may be others: when the rules ask something else, or the directory changed.
    era: u64,
    classes: Arc<Classes>,
    /// What made it the newest, if streams may have waited for that.
    arrival: Option<Arc<Arrival>>,
}

/// A change of a fleet.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) head: Head,
    /// When the translator wrote it, by its clock.
    pub(crate) time: SystemTime,
}

impl Views {
    pub(crate) fn new(snapshot: Arc<Snapshot>, classes: Arc<Classes>) -> Self {
        let rules = Arc::new(Rules::of(snapshot.internal(Internal::Rules)));
        let plain = Arc::new(View::new(snapshot.clone()));
        let era = classes.new_era();
        Self { snapshot, plain, rules, era, classes, arrival: None }
    }

    /// What follows when the fleet has another snapshot.
    pub(crate) fn next(&self, snapshot: Arc<Snapshot>, time: SystemTime) -> Self {
        let tree = |snapshot: &Arc<Snapshot>, part| snapshot.internal(part).clone();
        let [old, new] = [&self.snapshot, &snapshot].map(|it| tree(it, Internal::Rules));
        let (mut rules, mut asks_other) = (self.rules.clone(), false);
        if old.address() != new.address() {
            asks_other = Arc::make_mut(&mut rules).advance(&old, &new);
        }
        let [old, new] = [&self.snapshot, &snapshot].map(|it| tree(it, Internal::Directory));
        let lists_others = old.address() != new.address();
        let plain = Arc::new(View::new(snapshot.clone()));
        let era = if asks_other || lists_others { self.classes.new_era() } else { self.era };
        // One that comes again at its head, with more than before, is no change of that time.
        let head = snapshot.head;
        let arrival = (head > self.head()).then(|| Arc::new(Arrival { head, time }));
        Self { snapshot, plain, rules, era, classes: self.classes.clone(), arrival }
    }

    pub(crate) fn arrival(&self) -> Option<&Arc<Arrival>> {
        self.arrival.as_ref()
    }

    /// As it is where there are no rules.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub(crate) fn head(&self) -> Head {
        self.plain.head()
    }

    /// Every view that a client may have been told of, and the snapshot as it is.
    pub(crate) fn all(&self) -> Vec<Arc<View>> {
        let mut all = vec![self.plain.clone()];
        all.extend(self.classes.views());
        all
    }
}

#[cfg(test)]
mod tests;
