//! Objects that are left out are tried again after some time: the proxies that rejected them may have been replaced
//! by others that do not.

use heliograph_gateway::World;
use heliograph_gateway::objects::ObjectKey;
use heliograph_snapshot::FleetName;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// When to try something again, for each fleet that leaves something out.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<FleetName, Retry>);

#[derive(Debug)]
struct Retry {
    at: Instant,
    /// The object that was tried last: they take turns.
    last: Option<ObjectKey>,
}

/// One object of a fleet in this time. If it is rejected again, changes of its table wait for about a second.
pub(super) const RETRY_EVERY: Duration = Duration::from_secs(600);

impl Retries {
    /// The object that is to be tried again now.
    pub(super) fn next(
        &mut self,
        fleet: &FleetName,
        world: &World,
        now: Instant,
    ) -> Option<ObjectKey> {
        let left_out = || world.left_out(fleet).filter(|(_, it)| !it.is_suspect).map(|it| it.0);
        let Some(first) = left_out().next() else {
            self.0.remove(fleet);
            return None;
        };
        let begin = Retry { at: now + RETRY_EVERY, last: None };
        let retry = self.0.entry(fleet.clone()).or_insert(begin);
        if now < retry.at {
            return None;
        }
        let next = left_out().find(|object| retry.last.as_ref().is_none_or(|last| last < object));
        let next = next.unwrap_or(first).clone();
        *retry = Retry { at: now + RETRY_EVERY, last: Some(next.clone()) };
        Some(next)
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.0.values().map(|retry| retry.at).min()
    }

    pub(super) fn has(&self, fleet: &FleetName) -> bool {
        self.0.contains_key(fleet)
    }

    pub(super) fn retired(&mut self, fleets: &[FleetName]) {
        self.0.retain(|fleet, _| !fleets.contains(fleet));
    }
}
