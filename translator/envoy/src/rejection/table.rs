//! The routes of a table that a rejection means.

use super::entries::{
    Entry, counted, entries_in, entry, hosts_of, known, named, quoted, quoted_of_all, route_named,
    routes_in, routes_of_host,
};
use super::words::{QUOTES, contains, names, quotes, unquoted};
use super::{Meant, MeantMatch};
use crate::CompiledMatch;
use bytes::Bytes;
use heliograph_model::{Hostname, RouteId};
use std::collections::BTreeSet;

/// A route table that is there now, as what it was made of.
pub trait ServedTable {
    /// The routes of its listeners.
    fn routes(&self) -> BTreeSet<&RouteId>;

    /// The hostnames that the author of a route wrote.
    fn hostnames(&self, route: &RouteId) -> &[Hostname];

    /// What the table has of a route.
    fn compiled(&self, route: &RouteId) -> impl Iterator<Item = &CompiledMatch>;

    /// Its virtual hosts, encoded, in their order.
    fn virtual_hosts(&self) -> impl Iterator<Item = &Bytes>;

    /// The one for this host, encoded.
    fn virtual_host(&self, host: &Hostname) -> Option<&Bytes>;
}

/// A route that may be the cause of a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub route: RouteId,
    /// Whether the words mean it.
    pub is_meant: bool,
    /// The matches that the words mean. Empty: they mean none more than another.
    pub matches: BTreeSet<MeantMatch>,
}

/// The routes that words mean, as precisely as they tell, of a table that is there now. Empty: no route more than the table.
pub fn blamed_routes(table: &impl ServedTable, words: &str) -> BTreeSet<RouteId> {
    let routes = table.routes();
    let known = |route: &RouteId| routes.contains(route);
    let steps: [&dyn Fn() -> BTreeSet<RouteId>; 4] = [
        &|| names(words).filter_map(route_named).filter(known).collect(),
        &|| {
            counted(table.virtual_hosts(), words).map(|it| it.0).into_iter().filter(known).collect()
        },
        &|| of_host(table, words).into_iter().filter(known).collect(),
        &|| route_that_says(table, &routes, words).into_iter().collect(),
    ];
    let found = steps.iter().map(|step| step()).find(|found| !found.is_empty());
    match found {
        Some(found) => found,
        // One route is the table's only content.
        None if routes.len() == 1 => routes.into_iter().cloned().collect(),
        None => BTreeSet::new(),
    }
}

/// The routes that may be the cause of a rejection, of a table that is there now. `rejected` is what was rejected, if that
/// is another version of it, and `good` what was last accepted.
pub fn suspects(
    table: &impl ServedTable,
    rejected: Option<&Bytes>,
    good: Option<&Bytes>,
    words: &str,
) -> Vec<Suspect> {
    let routes = table.routes();
    let entries_of = |route: &&RouteId| {
        table.compiled(route).filter_map(|it| entry(&it.encoded)).collect::<Vec<_>>()
    };
    let mut entries: Vec<Entry> = routes.iter().flat_map(entries_of).collect();
    let accepted = good.map(routes_in).unwrap_or_default();
    let then = rejected.map(|rejected| entries_in(rejected, &accepted));
    if let Some(rejected) = rejected.map(routes_in) {
        // What has changed since is not what was rejected: what becomes of it is yet to be seen.
        let is_other = |entry: &&Entry| !rejected.contains(&entry.encoded);
        let changed = entries.iter().filter(is_other).map(|entry| entry.route.clone());
        let changed: BTreeSet<RouteId> = changed.collect();
        entries.retain(|entry| !changed.contains(&entry.route));
    }
    let mut changed: BTreeSet<RouteId> = entries
        .iter()
        .filter(|entry| !accepted.contains(&entry.encoded))
        .map(|entry| entry.route.clone())
        .collect();
    if let Some(good) = good.filter(|_| changed.is_empty()) {
        changed = at_new_hosts(table, &routes, good);
    }
    // Where all routes and hosts are as they were, it is something else about them.
    if !changed.is_empty() || rejected.is_some() {
        entries.retain(|entry| changed.contains(&entry.route));
    }
    let suspects: BTreeSet<&RouteId> = entries.iter().map(|entry| &entry.route).collect();
    let is_current = rejected.is_none();
    let meant = match &then {
        None => meant(table, &entries, words),
        Some(then) => quoted_of_all(then, &entries, words),
    };
    let is_meant = |route: &RouteId| {
        (suspects.len() == 1 && is_current) || meant.iter().any(|(of, _)| of == route)
    };
    let suspect = |route: &&RouteId| Suspect {
        route: (*route).clone(),
        is_meant: is_meant(route),
        matches: meant.iter().filter(|(of, _)| of == *route).filter_map(|it| it.1).collect(),
    };
    let suspects = suspects.iter().map(suspect);
    // Of what has changed since, the cause may be gone: then only routes that the words mean are suspects.
    suspects.filter(|it| it.is_meant || is_current).collect()
}

/// The routes that may be the cause of the rejection of a table, as they were in it: those that the words quote, or else all
/// that are not in the accepted one. They may have changed since, or be gone. Only what is quoted narrows them down: a
/// name in the words may be a tenant's, but a tenant that has Envoy quote others is quoted with them.
pub fn suspects_then(rejected: &Bytes, good: Option<&Bytes>, words: &str) -> BTreeSet<RouteId> {
    let entries = entries_in(rejected, &good.map(routes_in).unwrap_or_default());
    let meant: BTreeSet<_> = quoted(&entries, words).into_iter().map(|it| it.0).collect();
    match meant.is_empty() {
        true => entries.into_iter().map(|entry| entry.route).collect(),
        false => meant,
    }
}

/// The routes that name a host which the accepted table does not have.
fn at_new_hosts(
    table: &impl ServedTable,
    routes: &BTreeSet<&RouteId>,
    good: &Bytes,
) -> BTreeSet<RouteId> {
    let hosts = hosts_of(good);
    let is_new = |host: &Hostname| !hosts.contains(&host.to_string());
    let naming = routes.iter().filter(|route| table.hostnames(route).iter().any(is_new));
    naming.map(|route| (*route).clone()).collect()
}

/// What the words mean of a table that is there now, as precisely as they tell. What the proxy counts and what it quotes of a route comes before
/// names, and those in quotation marks come last: what is quoted is what somebody wrote.
fn meant(table: &impl ServedTable, entries: &[Entry], words: &str) -> BTreeSet<Meant> {
    let plain = unquoted(words);
    let steps: [&dyn Fn() -> BTreeSet<Meant>; 5] = [
        &|| {
            let counted = counted(table.virtual_hosts(), &plain);
            counted.filter(|it| known(entries, it)).into_iter().collect()
        },
        &|| quoted(entries, words),
        &|| named(entries, &plain),
        &|| {
            let meant = of_host(table, &plain).map(|route| (route, None));
            meant.filter(|it| known(entries, it)).into_iter().collect()
        },
        &|| named(entries, words),
    ];
    let found = steps.iter().map(|step| step()).find(|found| !found.is_empty());
    found.unwrap_or_default()
}

/// The route of a virtual host that is named, if it is the only one there.
fn of_host(table: &impl ServedTable, words: &str) -> Option<RouteId> {
    let routes_of = |word: &str| Some(routes_of_host(table.virtual_host(&word.parse().ok()?)?));
    let mut found = names(words).filter_map(routes_of);
    found.find(|routes| routes.len() == 1)?.pop_first()
}

/// The only route with something that Envoy quotes.
fn route_that_says(
    table: &impl ServedTable,
    routes: &BTreeSet<&RouteId>,
    words: &str,
) -> Option<RouteId> {
    let says = |route: &RouteId, quoted: &str| {
        table.compiled(route).any(|it| contains(&it.encoded, quoted.as_bytes()))
    };
    quotes(words).take(QUOTES).find_map(|quoted| {
        let mut saying = routes.iter().filter(|route| says(route, quoted));
        let only = saying.next()?;
        saying.next().is_none().then(|| (*only).clone())
    })
}
