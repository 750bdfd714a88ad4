//! Finds in Envoy's error text what it rejects. The text is a hint and no proof: a tenant may have written parts of it.

use crate::names as names_of;
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use heliograph_model::{NamedKind, ObjectName, RouteId, RouteKind, TcpRoute};
use std::collections::BTreeSet;

/// How many quotations of an error text are searched: a client may send any number.
pub const QUOTES: usize = 4;

/// Words shorter than this are in every route.
const TELLING: usize = 4;

/// Envoy's error about a message that violates a constraint of its definition.
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
pub type Meant = (RouteId, Option<MeantMatch>);

/// A match of a route, as a table has it.
pub struct Entry {
    pub route: RouteId,
    pub encoded: Vec<u8>,
    rule: u32,
    index: u32,
    /// The same without its name, which is ours.
    content: Vec<u8>,
    /// The match alone.
    matching: Vec<u8>,
}

/// Envoy's validation counts: `VirtualHosts[0]: … Routes[3]: …`. `hosts` are those of the table, in order.
pub fn counted<'a>(mut hosts: impl Iterator<Item = &'a Bytes>, words: &str) -> Option<Meant> {
    let host = hosts.nth(index(words, "VirtualHosts[")?)?;
    let host = VirtualHost::decode(host.as_ref()).ok()?;
    parse_route_name(&host.routes.get(index(words, "Routes[")?)?.name)
}

/// The routes of an encoded virtual host.
pub fn routes_of_host(host: &Bytes) -> BTreeSet<RouteId> {
    let host = VirtualHost::decode(host.as_ref()).unwrap_or_default();
    host.routes.iter().filter_map(|route| route_named(&route.name)).collect()
}

/// The hosts that a table has.
pub fn hosts_of(table: &Bytes) -> BTreeSet<String> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    table.virtual_hosts.into_iter().map(|host| host.name).collect()
}

/// An entry of a table, encoded. `None`: its name is not one of ours.
pub fn entry(encoded: &[u8]) -> Option<Entry> {
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
pub fn named(entries: &[Entry], text: &str) -> BTreeSet<Meant> {
    names(text).filter_map(parse_route_name).filter(|found| known(entries, found)).collect()
}

pub fn known(entries: &[Entry], found: &Meant) -> bool {
    entries.iter().any(|entry| entry.route == found.0)
}

/// The matches with the longest text that is quoted from one.
pub fn quoted(entries: &[Entry], words: &str) -> BTreeSet<Meant> {
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

/// The parts of a replaced table that the error quotes, if everything with that text is still as it was. If another part
/// had the text, the error may mean that part, and it may be the one that quotes the others.
pub fn quoted_of_all(then: &[Entry], entries: &[Entry], words: &str) -> BTreeSet<Meant> {
    let meant = quoted(then, words);
    match meant.iter().all(|it| known(entries, it)) {
        true => meant,
        false => BTreeSet::new(),
    }
}

/// The routes of a table that are not among those that were accepted.
pub fn entries_in(table: &Bytes, accepted: &BTreeSet<Vec<u8>>) -> Vec<Entry> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    let routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
    let changed = routes.filter(|route| !accepted.contains(&route.encode_to_vec()));
    changed.filter_map(entry_of).collect()
}

/// The routes of a table, each encoded.
pub fn routes_in(table: &Bytes) -> BTreeSet<Vec<u8>> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    let routes = table.virtual_hosts.into_iter().flat_map(|host| host.routes);
    routes.map(|route| route.encode_to_vec()).collect()
}

/// Whether Envoy's error about a listener means the targets of its route, and not the rest of the listener.
pub fn means_targets(route: &TcpRoute, words: &str) -> bool {
    // Its validation names the field, behind a copy of the whole filter with the names of all clusters.
    if words.contains(VALIDATION) {
        return words.contains("WeightedCluster");
    }
    names(words).any(|name| route.upstreams().any(|upstream| names_of::cluster(upstream) == name))
}

/// The route and the match in the name of an Envoy route: `httproute/shop/cart/0/1` is match 1 of rule 0.
fn parse_route_name(name: &str) -> Option<Meant> {
    let route = route_named(name)?;
    let mut rest = name.split('/').skip(3);
    let mut number = || rest.next()?.parse::<u32>().ok();
    let position = number().zip(number());
    Some((route, position.map(|(rule, index)| MeantMatch { rule, index, is_match: false })))
}

/// The text outside of quotation marks.
pub fn unquoted(words: &str) -> String {
    words.split(['\'', '"', '`']).step_by(2).collect::<Vec<_>>().join(" ")
}

/// The names in a text: whatever stands between spaces and punctuation that names of ours do not have.
pub fn names(words: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || "/-._*".contains(letter);
    let parts = words.split(move |letter| !is_part(letter));
    parts.map(|name| name.trim_end_matches('.')).filter(|name| !name.is_empty())
}

/// The route of an Envoy route: `httproute/shop/cart/0/0` is of HTTPRoute shop/cart.
pub fn route_named(name: &str) -> Option<RouteId> {
    let mut parts = name.split('/');
    let (kind, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    let mut kinds = RouteKind::ALL.iter().copied();
    let kind = kinds.find(|known| known.as_str().eq_ignore_ascii_case(kind))?;
    Some(ObjectName::new(namespace, name).of(kind))
}

/// The number behind this.
fn index(words: &str, before: &str) -> Option<usize> {
    let (_, rest) = words.split_once(before)?;
    rest.split_once(']')?.0.parse().ok()
}

/// The texts in quotation marks, the longest first.
pub fn quotes(words: &str) -> impl Iterator<Item = &str> {
    let mut quoted: Vec<&str> = ['\'', '"', '`']
        .into_iter()
        .flat_map(|mark| words.split(mark).skip(1).step_by(2))
        .filter(|quoted| quoted.len() >= TELLING)
        .collect();
    quoted.sort_by_key(|quoted| std::cmp::Reverse(quoted.len()));
    quoted.into_iter()
}

pub fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(bytes, wanted).is_some()
}
