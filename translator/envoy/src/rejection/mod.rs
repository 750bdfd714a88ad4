//! From what Envoy rejects, and what it says of that, to what is meant in the model. Its words are a hint and no proof: some of
//! them are a tenant's.

mod entries;
mod table;
mod words;

pub use table::{ServedTable, Suspect, blamed_routes, suspects, suspects_then};

use crate::names;
use heliograph_model::{Listener, ListenerId, RouteId, TableKey, TcpRoute};
use heliograph_snapshot::FleetName;
use std::collections::BTreeSet;

/// What Envoy says of a message that breaks a rule of its own definition.
const VALIDATION: &str = "Proto constraint validation failed";

/// A match of a route that words mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MeantMatch {
    pub rule: u32,
    pub index: u32,
    /// The words quote the match itself, not what is done with its requests.
    pub is_match: bool,
}

/// A route, and which match of it if the words tell that.
type Meant = (RouteId, Option<MeantMatch>);

/// What words mean of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlamedId {
    Listener(ListenerId),
    Route(RouteId),
}

/// What is meant of a port with these listeners, each with the route that has its connections. Listeners that share a port
/// have filter chains of their own, named after their tables. Of a listener whose connections are passed on, the words may
/// mean where they go, which its route says.
pub fn blamed_at_port<'a>(
    fleet: &FleetName,
    listeners: impl Iterator<Item = (&'a Listener, Option<&'a (RouteId, TcpRoute)>)>,
    words: &str,
) -> BTreeSet<BlamedId> {
    let named: BTreeSet<&str> = words::names(words).collect();
    let is_named = |(listener, _): &(&Listener, _)| {
        let table = TableKey::of(fleet, listener);
        table.is_some_and(|table| named.contains(&*names::table(&table)))
    };
    let (meant, others): (Vec<_>, Vec<_>) = listeners.partition(is_named);
    let blamed = if meant.is_empty() { others } else { meant };
    let blame = |(listener, route): (&Listener, Option<&(RouteId, TcpRoute)>)| match route {
        Some((id, route)) if means_targets(route, words) => BlamedId::Route(id.clone()),
        _ => BlamedId::Listener(listener.id.clone()),
    };
    blamed.into_iter().map(blame).collect()
}

/// Whether what Envoy says of a rejected listener is about the targets of its route, and not about the rest of it.
fn means_targets(route: &TcpRoute, words: &str) -> bool {
    // Its validation names the field, behind a copy of the whole filter with the names of all clusters.
    if words.contains(VALIDATION) {
        return words.contains("WeightedCluster");
    }
    words::names(words)
        .any(|name| route.upstreams().any(|upstream| names::cluster(upstream) == name))
}
