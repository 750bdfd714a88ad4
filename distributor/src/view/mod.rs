//! A snapshot as each class of clients sees it.
//!
//! The rules are in the snapshot (`heliograph-views`), and a view is derived when the first client of its class needs
//! it: from the previous view of the class, at a cost in proportion to the change. Clients of a class share it, and it
//! is freed with the last of them.

mod classes;
mod client;

pub(crate) use classes::{ClassHandle, Classes};
pub(crate) use client::{ClientInfo, NodeClaims};

use heliograph_distributor_protocol::{Substitute, View};
use heliograph_snapshot::{Head, Internal, Snapshot};
use heliograph_views::{Quarantined, Rules, served};
use std::sync::Arc;
use std::time::SystemTime;

/// The newest snapshot of a fleet, and what it takes to see it as a class does.
#[derive(Debug)]
pub(crate) struct Views {
    /// With the last good in the place of what is in quarantine: the rules apply to that.
    snapshot: Arc<Snapshot>,
    quarantined: Vec<Quarantined>,
    substitutes: Arc<[Substitute]>,
    /// As it is where there are no rules.
    plain: Arc<View>,
    rules: Arc<Rules>,
    /// Another one when the classes of clients may be others: when the rules ask something else, or the inventory changed.
    era: u64,
    classes: Arc<Classes>,
    /// What made it the newest, if streams may have waited for that.
    change: Option<Arc<FleetChange>>,
}

/// A change of a fleet's snapshot.
#[derive(Debug)]
pub(crate) struct FleetChange {
    pub(crate) head: Head,
    /// When the translator wrote it, by its clock.
    pub(crate) time: SystemTime,
}

impl Views {
    pub(crate) fn new(snapshot: Arc<Snapshot>, classes: Arc<Classes>) -> Self {
        let rules = Arc::new(Rules::of(snapshot.internal(Internal::Rules)));
        let era = classes.new_era();
        Self::served(&snapshot, rules, era, classes, None)
    }

    /// The views of the fleet's next snapshot.
    pub(crate) fn next(&self, snapshot: Arc<Snapshot>, time: SystemTime) -> Self {
        let tree = |snapshot: &Arc<Snapshot>, part| snapshot.internal(part).clone();
        let [old, new] = [&self.snapshot, &snapshot].map(|it| tree(it, Internal::Rules));
        let (mut rules, mut asks_other) = (self.rules.clone(), false);
        if old.address() != new.address() {
            asks_other = Arc::make_mut(&mut rules).advance(&old, &new);
        }
        let [old, new] = [&self.snapshot, &snapshot].map(|it| tree(it, Internal::Directory));
        let lists_others = old.address() != new.address();
        let era = if asks_other || lists_others { self.classes.new_era() } else { self.era };
        // One that comes again at its head, with more than before, is no change of that time.
        let head = snapshot.head;
        let change = (head > self.head()).then(|| Arc::new(FleetChange { head, time }));
        Self::served(&snapshot, rules, era, self.classes.clone(), change)
    }

    fn served(
        snapshot: &Arc<Snapshot>,
        rules: Arc<Rules>,
        era: u64,
        classes: Arc<Classes>,
        change: Option<Arc<FleetChange>>,
    ) -> Self {
        let quarantined = Quarantined::all(snapshot);
        let snapshot = served(snapshot, &quarantined);
        let mut substitutes: Vec<_> = quarantined.iter().filter_map(substitute).collect();
        let key = |it: &Substitute| (it.kind, it.rejected.name.clone());
        substitutes.sort_unstable_by_key(key);
        let substitutes: Arc<[_]> = substitutes.into();
        let plain = Arc::new(View::with(snapshot.clone(), substitutes.clone()));
        Self { snapshot, quarantined, substitutes, plain, rules, era, classes, change }
    }

    pub(crate) fn change(&self) -> Option<&Arc<FleetChange>> {
        self.change.as_ref()
    }

    /// The resources of the current snapshot that are in quarantine.
    pub(crate) fn quarantined(&self) -> &[Quarantined] {
        &self.quarantined
    }

    /// As it is where there are no rules.
    pub(crate) fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    pub(crate) fn head(&self) -> Head {
        self.plain.head()
    }

    /// About how much memory the snapshot takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.snapshot.bytes() as u64
    }

    /// Every view that a client may have been sent, and the snapshot without rules.
    pub(crate) fn all(&self) -> Vec<Arc<View>> {
        let mut all = vec![self.plain.clone()];
        all.extend(self.classes.views());
        all
    }
}

fn substitute(quarantined: &Quarantined) -> Option<Substitute> {
    let Quarantined { kind, rejected, good, lifted } = quarantined;
    let (kind, rejected, good) = (*kind, rejected.clone(), good.version);
    (!lifted).then_some(Substitute { kind, rejected, good })
}

#[cfg(test)]
mod tests;
