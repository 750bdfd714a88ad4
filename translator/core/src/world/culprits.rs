//! What of which objects may be the cause of a rejection. Envoy's words are a hint and no proof: some of them are a tenant's.

use super::World;
use super::keys::{HostKey, ResourceKey};
use super::sources::{QUOTES, contains, index, names, quotes, route_named};
use crate::objects::{Kind, ObjectKey, Seniority, route_id};
use bytes::Bytes;
use heliograph_envoy::Message;
use heliograph_envoy::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost};
use heliograph_model::{Hostname, TableKey};
use heliograph_snapshot::{FleetName, ResourceType, Version};
use heliograph_views::Treatment;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What proxies rejected.
#[derive(Clone, Copy, Debug)]
pub struct RejectedResource<'a> {
    pub kind: ResourceType,
    pub name: &'a str,
    pub version: Version,
    /// The content, if that is known: it may have changed since.
    pub body: Option<&'a Bytes>,
    /// What a proxy said.
    pub words: &'a str,
    /// What was last accepted of the resource: what is there as it is now is no cause.
    pub good: Option<&'a Bytes>,
}

/// An object of which something may be the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    pub object: ObjectKey,
    /// Whether the words mean it.
    pub is_meant: bool,
    /// The matches that the words mean. Empty: they mean none more than another.
    pub places: BTreeSet<Place>,
}

/// A match of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub rule: u32,
    pub index: u32,
    /// The words quote the match itself, not what is done with its requests.
    pub is_match: bool,
}

/// A route, and which match of it if that is told.
pub(super) type Meant = (ObjectKey, Option<Place>);

/// A route of Envoy's, as a table has it.
struct Entry {
    object: ObjectKey,
    rule: u32,
    index: u32,
    encoded: Vec<u8>,
    /// The same without its name, which is ours.
    content: Vec<u8>,
    /// The match alone.
    matching: Vec<u8>,
}

impl World {
    /// The routes, or policies, that may be the cause of a rejection: those first that the words mean, then the youngest
    /// first. Empty where nothing of the kind can be: what was rejected is no more, or the resource is made of neither.
    pub fn culprits(&self, fleet: &FleetName, of: &RejectedResource<'_>) -> Vec<Culprit> {
        let RejectedResource { kind, name, version, body: rejected, words, good } = *of;
        let name: Arc<str> = name.into();
        let Some(resource) = self.reader().resource(fleet, kind, &name) else { return Vec::new() };
        let is_current = resource.version == version;
        let rejected = rejected.filter(|_| !is_current);
        match (kind, self.table(fleet, &name)) {
            (ResourceType::Route, Some(table)) if is_current || rejected.is_some() => {
                self.culprits_in_table(&table, rejected, words, good)
            }
            _ if is_current => Vec::new(),
            _ => self.culprits_of_variant(fleet, kind, &name, version),
        }
    }

    /// The routes that may be the cause of the rejection of a table, as they were in it: those that the words quote, or else all
    /// that are not in the accepted one. They may have changed since, or be gone. Only what is quoted narrows them down: a
    /// name in the words may be a tenant's, but who has Envoy quote others is quoted with them.
    pub fn suspects_at(&self, fleet: &FleetName, of: &RejectedResource<'_>) -> BTreeSet<ObjectKey> {
        let RejectedResource { kind, name, version, body, words, good } = *of;
        let current = self.reader().resource(fleet, kind, &name.into());
        let current = current.filter(|it| it.version == version).map(|it| &it.body);
        let Some(body) = body.or(current).filter(|_| kind == ResourceType::Route) else {
            return BTreeSet::new();
        };
        let entries = entries_in(body, &good.map(routes_in).unwrap_or_default());
        let meant: BTreeSet<_> = quoted(&entries, words).into_iter().map(|it| it.0).collect();
        match meant.is_empty() {
            true => entries.into_iter().map(|entry| entry.object).collect(),
            false => meant,
        }
    }

    /// The version of a resource that there is now.
    pub fn version(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
    ) -> Option<Version> {
        self.reader().resource(fleet, kind, name).map(|resource| resource.version)
    }

    /// The policy that made a resource what was rejected, for some clients.
    fn culprits_of_variant(
        &self,
        fleet: &FleetName,
        kind: ResourceType,
        name: &Arc<str>,
        version: Version,
    ) -> Vec<Culprit> {
        let key = ResourceKey::new(fleet, kind, name.clone());
        let treated = self.reader().treatment(&key).and_then(|it| it.rule.as_ref());
        let treatment = treated.and_then(|rule| Treatment::decode(rule.body.clone()).ok());
        let variants = treatment.map(|treatment| treatment.variants).unwrap_or_default();
        let rejected = variants.iter().filter(|variant| Version::of(&variant.body) == version);
        let audiences: BTreeSet<&str> = rejected.map(|variant| &*variant.audience).collect();
        let planned =
            self.reader().plan(fleet).and_then(|it| it.resources.get(&(kind, name.clone())));
        let overlays = planned.into_iter().flat_map(|planned| &planned.overlays);
        let policies = overlays.filter(|overlay| audiences.contains(&*overlay.audience));
        let culprit =
            |object: ObjectKey| Culprit { object, is_meant: true, places: BTreeSet::new() };
        policies.map(|overlay| culprit(overlay.policy.clone().of(Kind::ViewPolicy))).collect()
    }

    fn culprits_in_table(
        &self,
        table: &TableKey,
        rejected: Option<&Bytes>,
        words: &str,
        good: Option<&Bytes>,
    ) -> Vec<Culprit> {
        let routes: BTreeSet<ObjectKey> = self.routes_of(table).collect();
        let mut entries: Vec<Entry> =
            routes.iter().flat_map(|route| self.entries(route, table)).collect();
        let accepted = good.map(routes_in).unwrap_or_default();
        let then = rejected.map(|rejected| entries_in(rejected, &accepted));
        if let Some(rejected) = rejected.map(routes_in) {
            // What has changed since is not what was rejected: what becomes of it is yet to be seen.
            let is_other = |entry: &&Entry| !rejected.contains(&entry.encoded);
            let changed = entries.iter().filter(is_other).map(|entry| entry.object.clone());
            let changed: BTreeSet<ObjectKey> = changed.collect();
            entries.retain(|entry| !changed.contains(&entry.object));
        }
        let mut changed: BTreeSet<ObjectKey> = entries
            .iter()
            .filter(|entry| !accepted.contains(&entry.encoded))
            .map(|entry| entry.object.clone())
            .collect();
        if let Some(good) = good.filter(|_| changed.is_empty()) {
            changed = self.at_new_hosts(&routes, good);
        }
        // Where all routes and hosts are as they were, it is something else about them.
        if !changed.is_empty() || rejected.is_some() {
            entries.retain(|entry| changed.contains(&entry.object));
        }
        let suspects: BTreeSet<&ObjectKey> = entries.iter().map(|entry| &entry.object).collect();
        let is_current = rejected.is_none();
        let meant = match &then {
            None => self.meant(table, &entries, words),
            Some(then) => quoted_of_all(then, &entries, words),
        };
        let age = |route: &ObjectKey| {
            let rules = route_id(route).and_then(|id| self.reader().rules(&id));
            Seniority::new(rules.map_or(i64::MAX, |rules| rules.created), route.clone())
        };
        let mut culprits: Vec<Culprit> = suspects
            .iter()
            .map(|route| Culprit {
                object: (*route).clone(),
                is_meant: (suspects.len() == 1 && is_current)
                    || meant.iter().any(|(of, _)| of == *route),
                places: meant.iter().filter(|(of, _)| of == *route).filter_map(|it| it.1).collect(),
            })
            .collect();
        // Of what has changed since, the cause may be gone: then nobody is suspect but those that the words mean.
        culprits.retain(|culprit| culprit.is_meant || is_current);
        culprits.sort_by_cached_key(|it| (Reverse(it.is_meant), Reverse(age(&it.object))));
        culprits
    }

    /// The routes that name a host which the accepted table does not have.
    fn at_new_hosts(&self, routes: &BTreeSet<ObjectKey>, good: &Bytes) -> BTreeSet<ObjectKey> {
        let good = RouteConfiguration::decode(good.as_ref()).unwrap_or_default();
        let hosts: BTreeSet<&str> = good.virtual_hosts.iter().map(|host| &*host.name).collect();
        let is_new = |host: &Hostname| !hosts.contains(&*host.to_string());
        let hosts_of = |route: &ObjectKey| {
            let rules = route_id(route).and_then(|id| self.reader().rules(&id));
            rules.into_iter().flat_map(|it| &it.hostnames)
        };
        let naming = routes.iter().filter(|route| hosts_of(route).any(is_new));
        naming.map(|route| (*route).clone()).collect()
    }

    /// What the words mean of a table that is there now, as precisely as they tell. What the proxy counts and what it quotes of a route comes before
    /// names, and those in quotation marks come last: what is quoted is what somebody wrote.
    fn meant(&self, table: &TableKey, entries: &[Entry], words: &str) -> BTreeSet<Meant> {
        let plain = unquoted(words);
        let steps: [&dyn Fn() -> BTreeSet<Meant>; 5] = [
            &|| self.counted(table, &plain).filter(|it| known(entries, it)).into_iter().collect(),
            &|| quoted(entries, words),
            &|| named(entries, &plain),
            &|| self.of_host(table, &plain).filter(|it| known(entries, it)).into_iter().collect(),
            &|| named(entries, words),
        ];
        let found = steps.iter().map(|step| step()).find(|found| !found.is_empty());
        found.unwrap_or_default()
    }

    /// Envoy's validation counts: `VirtualHosts[0]: … Routes[3]: …`.
    pub(super) fn counted(&self, table: &TableKey, words: &str) -> Option<Meant> {
        let host = self.reader().virtual_hosts(table).nth(index(words, "VirtualHosts[")?)?;
        let host = VirtualHost::decode(host.as_ref()).ok()?;
        place(&host.routes.get(index(words, "Routes[")?)?.name)
    }

    /// The route of a virtual host that is named, if it is the only one there.
    pub(super) fn of_host(&self, table: &TableKey, words: &str) -> Option<Meant> {
        let routes_of = |word: &str| {
            let host = word.parse::<Hostname>().ok()?;
            let host = self.reader().virtual_host(&HostKey { table: table.clone(), host })?;
            let host = VirtualHost::decode(host.as_ref()).ok()?;
            let routes = host.routes.iter().filter_map(|route| route_named(&route.name));
            Some(routes.collect::<BTreeSet<ObjectKey>>())
        };
        let mut found = names(words).filter_map(routes_of);
        found.find(|routes| routes.len() == 1)?.pop_first().map(|route| (route, None))
    }

    fn entries(&self, route: &ObjectKey, table: &TableKey) -> Vec<Entry> {
        let encoded = self.compiled(route, table).map(|it| &it.encoded);
        let decoded = encoded.filter_map(|encoded| Route::decode(encoded.as_ref()).ok());
        decoded.filter_map(|route| entry(&route)).collect()
    }
}

fn entry(route: &Route) -> Option<Entry> {
    let (object, found) = place(&route.name)?;
    let Place { rule, index, .. } = found?;
    let nameless = Route { name: String::new(), ..route.clone() };
    let content = nameless.encode_to_vec();
    let matching = nameless.r#match.map(|it| it.encode_to_vec()).unwrap_or_default();
    Some(Entry { object, rule, index, encoded: route.encode_to_vec(), content, matching })
}

/// The routes that are named in a text.
fn named(entries: &[Entry], text: &str) -> BTreeSet<Meant> {
    names(text).filter_map(place).filter(|found| known(entries, found)).collect()
}

fn known(entries: &[Entry], found: &Meant) -> bool {
    entries.iter().any(|entry| entry.object == found.0)
}

/// The matches with the longest text that is quoted from one.
fn quoted(entries: &[Entry], words: &str) -> BTreeSet<Meant> {
    let saying = |text: &str| -> BTreeSet<_> {
        let text = text.as_bytes();
        let saying = entries.iter().filter(|entry| contains(&entry.content, text));
        let place = |entry: &Entry| {
            let is_match = contains(&entry.matching, text);
            Place { rule: entry.rule, index: entry.index, is_match }
        };
        saying.map(|entry| (entry.object.clone(), Some(place(entry)))).collect()
    };
    // What is longest tells most.
    quotes(words).take(QUOTES).map(saying).find(|found| !found.is_empty()).unwrap_or_default()
}

/// What is quoted of a table that has been replaced, where all that has the text is still as it was. If something else had it,
/// the words may be of that, and it may be the one that quotes the others.
fn quoted_of_all(then: &[Entry], entries: &[Entry], words: &str) -> BTreeSet<Meant> {
    let meant = quoted(then, words);
    match meant.iter().all(|it| known(entries, it)) {
        true => meant,
        false => BTreeSet::new(),
    }
}

/// The routes of a table that are not among those that were accepted.
fn entries_in(table: &Bytes, accepted: &BTreeSet<Vec<u8>>) -> Vec<Entry> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    let routes = table.virtual_hosts.iter().flat_map(|host| &host.routes);
    let changed = routes.filter(|route| !accepted.contains(&route.encode_to_vec()));
    changed.filter_map(entry).collect()
}

/// The routes of a table, each encoded.
fn routes_in(table: &Bytes) -> BTreeSet<Vec<u8>> {
    let table = RouteConfiguration::decode(table.as_ref()).unwrap_or_default();
    let routes = table.virtual_hosts.into_iter().flat_map(|host| host.routes);
    routes.map(|route| route.encode_to_vec()).collect()
}

/// Where a route of Envoy's comes from: `httproute/shop/cart/0/1` is match 1 of rule 0.
fn place(name: &str) -> Option<Meant> {
    let object = route_named(name)?;
    let mut rest = name.split('/').skip(3);
    let mut number = || rest.next()?.parse::<u32>().ok();
    let place = number().zip(number());
    Some((object, place.map(|(rule, index)| Place { rule, index, is_match: false })))
}

/// What stands outside of quotation marks.
fn unquoted(words: &str) -> String {
    words.split(['\'', '"', '`']).step_by(2).collect::<Vec<_>>().join(" ")
}
