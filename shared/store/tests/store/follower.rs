//! A reader that checks what it receives.

use crate::Store;
use crate::writer::assert_whole;
use heliograph_snapshot::{FleetName, Head};
use heliograph_store::{Subscription, Update};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Follower {
    pub(crate) subscription: Subscription,
    pub(crate) synced: bool,
    /// How many updates came.
    pub(crate) received: usize,
    /// The heads of the fleets that live, as far as it received them.
    pub(crate) live: BTreeMap<FleetName, Head>,
    /// The newest head received of each fleet, live or not.
    pub(crate) newest: BTreeMap<FleetName, Head>,
}

impl Follower {
    pub(crate) fn new(store: &Arc<dyn Store>) -> Self {
        Self {
            subscription: Subscription::new(store.clone()),
            synced: false,
            received: 0,
            live: BTreeMap::new(),
            newest: BTreeMap::new(),
        }
    }

    /// A reader that has received everything there is.
    pub(crate) async fn synced(store: &Arc<dyn Store>) -> Self {
        let mut follower = Self::new(store);
        while !follower.synced {
            follower.next().await;
        }
        follower
    }

    /// The next update, which must come soon.
    pub(crate) async fn next(&mut self) -> Update {
        let update = tokio::time::timeout(Duration::from_secs(60), self.subscription.next()).await;
        let update = update.expect("no update came");
        self.receive(&update);
        update
    }

    /// Whatever came, it must be whole and ahead.
    pub(crate) fn receive(&mut self, update: &Update) {
        self.received += 1;
        match update {
            Update::Published(snapshot, _) => {
                assert_whole(snapshot);
                self.advance(&snapshot.fleet, snapshot.head);
                self.live.insert(snapshot.fleet.clone(), snapshot.head);
            }
            Update::Retired(fleet, head) => {
                self.advance(fleet, *head);
                let live = self.live.remove(fleet);
                assert!(live.is_some(), "{fleet} was retired and not live");
            }
            Update::Synced => {
                assert!(!self.synced, "synced twice");
                self.synced = true;
            }
            Update::Known(_) | Update::Listed | Update::Failed(..) => {
                panic!("for who chooses: {update:?}")
            }
        }
    }

    /// Reads until it has received these fleets and heads and no others.
    pub(crate) async fn until(&mut self, live: &BTreeMap<FleetName, Head>) {
        while self.live != *live {
            self.next().await;
        }
    }

    pub(crate) async fn expect_published(&mut self, fleet: &FleetName, head: Head) {
        match self.next().await {
            Update::Published(snapshot, _) => {
                assert_eq!((&snapshot.fleet, snapshot.head), (fleet, head));
            }
            other => panic!("{fleet} at {head} was expected, not {other:?}"),
        }
    }

    pub(crate) async fn expect_retired(&mut self, fleet: &FleetName, head: Head) {
        match self.next().await {
            Update::Retired(gone, tombstone) => assert_eq!((&gone, tombstone), (fleet, head)),
            other => panic!("the end of {fleet} at {head} was expected, not {other:?}"),
        }
    }

    fn advance(&mut self, fleet: &FleetName, head: Head) {
        let before = self.newest.insert(fleet.clone(), head);
        assert!(before < Some(head), "{fleet} went from {before:?} to {head}");
    }
}
