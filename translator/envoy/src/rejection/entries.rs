//! The routes of a table, as Envoy has them, and what words mean of them.

use super::words::{self, QUOTES, contains, quotes};
use super::{Meant, MeantMatch};
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use heliograph_model::{NamedKind, ObjectName, RouteId, RouteKind};
use std::collections::BTreeSet;

/// A match of a route, as a table has it.
pub(super) struct Entry {
    pub(super) route: RouteId,
    pub(super) encoded: Vec<u8>,
    rule: u32,
    index: u32,
    /// The same without its name, which is ours.
    content: Vec<u8>,
    /// The match alone.
    matching: Vec<u8>,
}

/// Envoy's validation counts: `VirtualHosts[0]: … Routes[3]: …`. `hosts` are those of the table, in order.
pub(super) fn counted<'a>(
    mut hosts: impl Iterator<Item = &'a Bytes>,
    words: &str,
) -> Option<Meant> {
    let host = hosts.nth(words::index(words, "VirtualHosts[")?)?;
    let host = VirtualHost::decode(host.as_ref()).ok()?;
    parse_route_name(&host.routes.get(words::index(words, "Routes[")?)?.name)
}

/// The routes of an encoded virtual host.
pub(super) fn routes_of_host(host: &Bytes) -> BTreeSet<RouteId> {
    let host = VirtualHost::decode(host.as_ref()).unwrap_or_default();
    host.routes.iter().filter_map(|route| route_named(&route.name)).collect()
}

/// The hosts that a table has.
pub(super) fn hosts_of(table: &Bytes) -> BTreeSet<String> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    table.virtual_hosts.into_iter().map(|host| host.name).collect()
}

/// An entry of a table, encoded. `None`: it is no route of ours.
pub(super) fn entry(encoded: &[u8]) -> Option<Entry> {
    entry_of(&Route::decode(encoded).ok()?)
}

fn entry_of(route: &Route) -> Option<Entry> {
    let (id, found) = parse_route_name(&route.name)?;
    let MeantMatch { rule, index, .. } = found?;
    let nameless = Route { name: String::new(), ..route.clone() };
    let content = nameless.encode_to_vec();
    let matching = nameless.r#match.map(|it| it.encode_to_vec()).unwrap_or_default();
    Some(Entry { route: id, rule, index, encoded: route.encode_to_vec(), content, matching })
}

/// The routes that are named in a text.
pub(super) fn named(entries: &[Entry], text: &str) -> BTreeSet<Meant> {
    words::names(text).filter_map(parse_route_name).filter(|found| known(entries, found)).collect()
}

pub(super) fn known(entries: &[Entry], found: &Meant) -> bool {
    entries.iter().any(|entry| entry.route == found.0)
}

/// The matches with the longest text that is quoted from one.
pub(super) fn quoted(entries: &[Entry], words: &str) -> BTreeSet<Meant> {
    let saying = |text: &str| -> BTreeSet<_> {
        let text = text.as_bytes();
        let saying = entries.iter().filter(|entry| contains(&entry.content, text));
        let meant = |entry: &Entry| {
            let is_match = contains(&entry.matching, text);
            MeantMatch { rule: entry.rule, index: entry.index, is_match }
        };
        saying.map(|entry| (entry.route.clone(), Some(meant(entry)))).collect()
    };
    // The longest quotation is the most specific.
    quotes(words).take(QUOTES).map(saying).find(|found| !found.is_empty()).unwrap_or_default()
}

/// What is quoted of a table that has been replaced, where all that has the text is still as it was. If something else had it,
/// the words may be of that, and it may be the one that quotes the others.
pub(super) fn quoted_of_all(then: &[Entry], entries: &[Entry], words: &str) -> BTreeSet<Meant> {
    let meant = quoted(then, words);
    match meant.iter().all(|it| known(entries, it)) {
        true => meant,
        false => BTreeSet::new(),
    }
}

/// The routes of a table that are not among those that were accepted.
pub(super) fn entries_in(table: &Bytes, accepted: &BTreeSet<Vec<u8>>) -> Vec<Entry> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    let routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
    let changed = routes.filter(|route| !accepted.contains(&route.encode_to_vec()));
    changed.filter_map(entry_of).collect()
}

/// The routes of a table, each encoded.
pub(super) fn routes_in(table: &Bytes) -> BTreeSet<Vec<u8>> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    let routes = table.virtual_hosts.into_iter().flat_map(|host| host.routes);
    routes.map(|route| route.encode_to_vec()).collect()
}

/// Where a route of Envoy's comes from: `httproute/shop/cart/0/1` is match 1 of rule 0.
fn parse_route_name(name: &str) -> Option<Meant> {
    let route = route_named(name)?;
    let mut rest = name.split('/').skip(3);
    let mut number = || rest.next()?.parse::<u32>().ok();
    let position = number().zip(number());
    Some((route, position.map(|(rule, index)| MeantMatch { rule, index, is_match: false })))
}

/// The route of an Envoy route: `httproute/shop/cart/0/0` is of HTTPRoute shop/cart.
pub(super) fn route_named(name: &str) -> Option<RouteId> {
    let mut parts = name.split('/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let mut kinds = RouteKind::ALL.iter().copied();
    let kind = kinds.find(|known| known.as_str().eq_ignore_ascii_case(kind))?;
    Some(ObjectName::new(namespace, name).of(kind))
}
