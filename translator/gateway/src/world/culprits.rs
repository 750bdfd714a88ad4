//! Finds the parts of objects that may be the cause of a rejection. Envoy's error text is a hint and no proof: a tenant
//! may have written parts of it.

use super::World;
use super::keys::{HostKey, ResourceKey};
use crate::objects::{Kind, ObjectKey, route_object};
use bytes::Bytes;
use heliograph_envoy_dialect::rejection::{
    self, Entry, Meant, MeantMatch, entries_in, known, named, quoted, quoted_of_all, routes_in,
    unquoted,
};
use heliograph_model::{Hostname, RouteAge, RouteId, TableKey};
use heliograph_snapshot::{FleetName, ResourceType, Version};
use heliograph_views::Treatment;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A resource that proxies rejected.
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
    pub matches: BTreeSet<MeantMatch>,
}

impl World {
    /// The routes, or policies, that may be the cause of a rejection: those first that the error means, then the
    /// youngest first. Empty if there are none: the rejected version is not the current one, or the resource is made
    /// from neither routes nor policies.
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

    /// The routes that may be the cause of the rejection of a table, as they were in it: those that the error quotes, or
    /// else all that are not in the accepted table. They may have changed since, or be gone. Only quotations narrow them
    /// down: a tenant may have written a name in the error, but a tenant that makes Envoy quote the text of others has
    /// that text in a route as well.
    pub fn suspects_at(&self, fleet: &FleetName, of: &RejectedResource<'_>) -> BTreeSet<ObjectKey> {
        let RejectedResource { kind, name, version, body, words, good } = *of;
        let current = self.reader().resource(fleet, kind, &name.into());
        let current = current.filter(|it| it.version == version).map(|it| &it.body);
        let Some(body) = body.or(current).filter(|_| kind == ResourceType::Route) else {
            return BTreeSet::new();
        };
        let entries = entries_in(body, &good.map(routes_in).unwrap_or_default());
        let meant: BTreeSet<_> =
            quoted(&entries, words).into_iter().map(|it| route_object(&it.0)).collect();
        match meant.is_empty() {
            true => entries.iter().map(|entry| route_object(&entry.route)).collect(),
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
        let treatment = treated.and_then(|rule| Treatment::of(rule));
        let variants = treatment.map(|treatment| treatment.variants).unwrap_or_default();
        let rejected = variants.iter().filter(|variant| Version::of(&variant.body) == version);
        let audiences: BTreeSet<&str> = rejected.map(|variant| &*variant.audience).collect();
        let planned =
            self.reader().plan(fleet).and_then(|it| it.resources.get(&(kind, name.clone())));
        let overlays = planned.into_iter().flat_map(|planned| &planned.overlays);
        let policies = overlays.filter(|overlay| audiences.contains(&*overlay.audience));
        let culprit =
            |object: ObjectKey| Culprit { object, is_meant: true, matches: BTreeSet::new() };
        policies.map(|overlay| culprit(overlay.policy.clone().of(Kind::ViewPolicy))).collect()
    }

    fn culprits_in_table(
        &self,
        table: &TableKey,
        rejected: Option<&Bytes>,
        words: &str,
        good: Option<&Bytes>,
    ) -> Vec<Culprit> {
        let routes: BTreeSet<&RouteId> = self.routes_of(table).collect();
        let mut entries: Vec<Entry> =
            routes.iter().flat_map(|route| self.entries(route, table)).collect();
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
            changed = self.at_new_hosts(&routes, good);
        }
        // Where all routes and hosts are as they were, it is something else about them.
        if !changed.is_empty() || rejected.is_some() {
            entries.retain(|entry| changed.contains(&entry.route));
        }
        let suspects: BTreeSet<&RouteId> = entries.iter().map(|entry| &entry.route).collect();
        let is_current = rejected.is_none();
        let meant = match &then {
            None => self.meant(table, &entries, words),
            Some(then) => quoted_of_all(then, &entries, words),
        };
        let age = |route: &RouteId| {
            let created = self.reader().rules(route).map_or(i64::MAX, |rules| rules.created);
            RouteAge::new(created, route.clone())
        };
        let is_meant = |route: &RouteId| {
            (suspects.len() == 1 && is_current) || meant.iter().any(|(of, _)| of == route)
        };
        let mut suspects: Vec<(bool, &RouteId)> =
            suspects.iter().map(|route| (is_meant(route), *route)).collect();
        // If a route has changed since, the cause may be gone: then only routes that the error names are suspects.
        suspects.retain(|(is_meant, _)| *is_meant || is_current);
        suspects.sort_by_cached_key(|(is_meant, route)| (Reverse(*is_meant), Reverse(age(route))));
        let culprit = |(is_meant, route): (bool, &RouteId)| Culprit {
            object: route_object(route),
            is_meant,
            matches: meant.iter().filter(|(of, _)| of == route).filter_map(|it| it.1).collect(),
        };
        suspects.into_iter().map(culprit).collect()
    }

    /// The routes that name a host which the accepted table does not have.
    fn at_new_hosts(&self, routes: &BTreeSet<&RouteId>, good: &Bytes) -> BTreeSet<RouteId> {
        let hosts = rejection::hosts_of(good);
        let is_new = |host: &Hostname| !hosts.contains(&host.to_string());
        let hosts_of =
            |route: &RouteId| self.reader().rules(route).into_iter().flat_map(|it| &it.hostnames);
        let naming = routes.iter().filter(|route| hosts_of(route).any(is_new));
        naming.map(|route| (*route).clone()).collect()
    }

    /// The parts of the current table that the error means, as precisely as it names them. Positions that the proxy
    /// counts and text that it quotes of a route come before names, and names in quotation marks come last: a tenant may
    /// have written a quotation.
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

    pub(super) fn counted(&self, table: &TableKey, words: &str) -> Option<Meant> {
        rejection::counted(self.reader().virtual_hosts(table), words)
    }

    /// The route of a virtual host that is named, if it is the only one there.
    pub(super) fn of_host(&self, table: &TableKey, words: &str) -> Option<Meant> {
        let routes_of = |word: &str| {
            let host = word.parse::<Hostname>().ok()?;
            let host = self.reader().virtual_host(&HostKey { table: table.clone(), host })?;
            Some(rejection::routes_of_host(host))
        };
        let mut found = rejection::names(words).filter_map(routes_of);
        found.find(|routes| routes.len() == 1)?.pop_first().map(|route| (route, None))
    }

    fn entries(&self, route: &RouteId, table: &TableKey) -> Vec<Entry> {
        self.compiled(route, table).filter_map(|it| rejection::entry(&it.encoded)).collect()
    }
}
