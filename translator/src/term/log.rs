//! The log lines of a term.

use crate::publish::Decision;
use crate::report::count;
use heliograph_gateway::Outcome;
use heliograph_gateway::status::Status;
use heliograph_snapshot::FleetName;
use heliograph_store::Pinned;
use std::collections::BTreeMap;

const QUARANTINED: &str =
    "proxies reject it; until it changes, other proxies are served its last accepted version";
const LIFTED: &str = "more proxies have it than reject it: all proxies are served it again";

/// Logs which fleets operators have pinned, and which they have released.
pub(super) fn log_pins(before: &BTreeMap<FleetName, Pinned>, now: &BTreeMap<FleetName, Pinned>) {
    for (fleet, pinned) in now.iter().filter(|(fleet, _)| !before.contains_key(*fleet)) {
        tracing::warn!(%fleet, "pinned to {pinned}");
    }
    for fleet in before.keys().filter(|fleet| !now.contains_key(*fleet)) {
        tracing::info!(%fleet, "is not pinned any more");
    }
}

/// The statuses of objects usually have these problems already: the previous leader has written them.
pub(super) fn log_problems(outcome: &Outcome) {
    let wrong = outcome.statuses.iter().filter(|(key, status)| match status {
        None | Some(Status::Ignored(_)) => false,
        Some(status) => !status.problems(key).is_empty(),
    });
    let wrong = wrong.count();
    if wrong > 0 {
        tracing::warn!("there are problems with {}: see their statuses", count(wrong, "object"));
    }
}

pub(super) fn log_decision(fleet: &FleetName, decision: &Decision) {
    let Decision { kind, name, version, rejected, accepted, lifted } = decision;
    if *lifted {
        tracing::info!(%fleet, %kind, name = &**name, %version, rejected, accepted, "{LIFTED}");
    } else {
        tracing::warn!(%fleet, %kind, name = &**name, %version, rejected, accepted, "{QUARANTINED}");
    }
}
